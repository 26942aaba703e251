"""Who is who behind a Flower grid: a silo is known by its name, whatever node it is at the moment."""

from collections.abc import Iterable, Mapping

from fedtct.tasks import DIGITS


class Roster:
    """Silos by name. A silo may restart, and be another node afterwards; its seat, a number, stays its own.

    ``keys`` tells whose key a node has, where that is known: such a node has that name and no other.
    """

    def __init__(self, keys: Mapping[int, str] | None = None) -> None:
        self.keys = dict(keys or {})
        self.seats: dict[str, int] = {}
        self.samples: dict[str, int] = {}
        self.held_out: dict[str, int] = {}
        self._connected: list[int] = []
        self._names: dict[int, str] = {}
        self._refused: dict[int, tuple[str, str]] = {}  # nodes, with their silos and why

    def name(self, node: int) -> str:
        """What a node's silo is called; before that is known, the node."""
        return self._names.get(node) or self.keys.get(node) or f"node {node}"

    def knows(self, node: int) -> bool:
        """Whether it is known who a node is, from its key or because it said so."""
        return node in self._names or node in self.keys

    def see(self, nodes: Iterable[int]) -> None:
        """These nodes are connected. One that was refused and left may try again."""
        self._connected = list(nodes)
        self._refused = {node: why for node, why in self._refused.items() if node in self._connected}

    def strangers(self) -> list[int]:
        """Connected nodes whose silo is not known."""
        return [node for node in self._connected if node not in self._names and node not in self._refused]

    def present(self) -> list[int]:
        """Connected nodes of silos that have a seat."""
        return [node for node in self._connected if self._names.get(node) in self.seats]

    def taken(self, name: str, node: int) -> bool:
        """Whether another node that is there has this name."""
        return any(other == name and n != node and n in self._connected for n, other in self._names.items())

    def introduce(self, node: int, name: str, samples: int, held_out: int) -> str:
        """A node says which silo it is; returns why that cannot be, if it cannot."""
        if self.taken(name, node):
            return "another silo has this name: every silo needs one of its own"
        # A silo that restarted may be a new node: the old one is gone.
        self._names = {n: other for n, other in self._names.items() if other != name} | {node: name}
        self.samples[name], self.held_out[name] = samples, held_out
        return ""

    def refuse(self, name: str, reason: str) -> None:
        """A silo cannot take part."""
        nodes = {node for node, other in self._names.items() if other == name}
        self._names = {node: other for node, other in self._names.items() if node not in nodes}
        self._refused |= dict.fromkeys(nodes, (name, reason))

    def why_absent(self, name: str) -> str:
        """Why a silo that has a seat is not among those who are asked."""
        return dict(self._refused.values()).get(name, "not connected")

    def seat(self, names: Iterable[str], taken: Mapping[str, int]) -> None:
        """Seats that are taken stay; the others get the next ones by name."""
        self.seats = dict(taken)
        for name in sorted(set(names) - set(taken), key=_natural):
            self.seats[name] = len(self.seats)

    def forget_names(self) -> None:
        """Everybody is to say anew who they are."""
        self._names = {}


def _natural(name: str) -> tuple[str, int]:
    """Names that end in numbers in the order of these: silo-2 before silo-10."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :][:DIGITS] or 0)

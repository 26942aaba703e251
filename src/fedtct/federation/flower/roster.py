"""Which silo is which node of a Flower grid: silos are known by their names, and their nodes may change."""

from collections.abc import Iterable, Mapping

from fedtct.tasks import DIGITS


class Roster:
    """Silos by name. A silo that restarts may be another node afterwards; its seat, a number, stays its own.

    ``keys`` tells for which silo a node's key was made, where that is known: the node can be no other silo.
    """

    def __init__(self, keys: Mapping[int, str] | None = None) -> None:
        self.keys = dict(keys or {})
        self.seats: dict[str, int] = {}
        self.samples: dict[str, int] = {}
        self.held_out: dict[str, int] = {}
        self._connected: list[int] = []
        self._names: dict[int, str] = {}
        self._refused: dict[int, tuple[str, str]] = {}  # by node: the silo's name, and why

    def name(self, node: int) -> str:
        """The name of a node's silo, or of the node as long as that is not known."""
        return self._names.get(node) or self.keys.get(node) or f"node {node}"

    def knows(self, node: int) -> bool:
        """Whether it is known which silo a node belongs to, by its key or because it said so."""
        return node in self._names or node in self.keys

    def see(self, nodes: Iterable[int]) -> None:
        """Take these nodes as the connected ones. A node that was refused, and left since, may try again."""
        self._connected = list(nodes)
        self._refused = {node: why for node, why in self._refused.items() if node in self._connected}

    def strangers(self) -> list[int]:
        """Connected nodes whose silo is not known."""
        return [node for node in self._connected if node not in self._names and node not in self._refused]

    def present(self) -> list[int]:
        """Connected nodes of silos that have a seat."""
        return [node for node in self._connected if self._names.get(node) in self.seats]

    def taken(self, name: str, node: int) -> bool:
        """Whether another connected node has this name."""
        return any(other == name and n != node and n in self._connected for n, other in self._names.items())

    def introduce(self, node: int, name: str, samples: int, held_out: int) -> str:
        """Take a node as the silo of this name; returns why it cannot be, or nothing."""
        if self.taken(name, node):
            return "another silo has this name: every silo needs one of its own"
        # A silo that restarted may be a new node: the old one is gone.
        self._names = {n: other for n, other in self._names.items() if other != name} | {node: name}
        self.samples[name], self.held_out[name] = samples, held_out
        return ""

    def refuse(self, name: str, reason: str) -> None:
        """Let a silo take no part, for this reason."""
        nodes = {node for node, other in self._names.items() if other == name}
        self._names = {node: other for node, other in self._names.items() if node not in nodes}
        self._refused |= dict.fromkeys(nodes, (name, reason))

    def why_absent(self, name: str) -> str:
        """Why a silo that has a seat is not among those who are asked."""
        return dict(self._refused.values()).get(name, "not connected")

    def seat(self, names: Iterable[str], taken: Mapping[str, int]) -> None:
        """Give silos seats: those that are ``taken`` stay, the other silos get the next ones in the order of names."""
        self.seats = dict(taken)
        for name in sorted(set(names) - set(taken), key=_natural):
            self.seats[name] = len(self.seats)

    def forget_names(self) -> None:
        """Forget which silo each node belongs to: all must say it anew."""
        self._names = {}


def _natural(name: str) -> tuple[str, int]:
    """A key that sorts names by the numbers at their ends: silo-2 before silo-10."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :][:DIGITS] or 0)

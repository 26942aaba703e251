"""What methods look like, in files and on the page: colours that colour-blind people can tell apart, and markers."""

from collections.abc import Sequence
from itertools import count

# Four of Okabe and Ito, whose others are too pale on white, and four that are as far from these for the colour-blind.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#7B3FF2", "#875A2D", "#000000", "#2D96FF")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")  # as many as share no divisor with the colours: 72 pairs
WELL_KNOWN = ("FedAvg", "SCAFFOLD", "TCT", "Centralized", "FedProx", "FedDyn", "FedAdam")
QUIET = "#666666"


def looks(labels: Sequence[str]) -> dict[str, int]:
    """The number of each curve's colour and marker: fedtct's own methods look the same everywhere."""
    known = {label: WELL_KNOWN.index(name) for label in reversed(labels) if (name := _name(label)) in WELL_KNOWN}
    own = {number: label for label, number in known.items()}  # of several of a method, the first's
    left = (number for number in count() if number not in own)
    return {label: known[label] if label in own.values() else next(left) for label in labels}


def _name(label: str) -> str:
    """Without the stage 1, the settings or the folder that tell a method from itself."""
    return label.split(" after ")[0].split(" (")[0].split(" [")[0]

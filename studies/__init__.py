"""One-off experiments behind findings about results, and behind decisions."""

import argparse
from collections.abc import Sequence
from pathlib import Path


def options(about: str | None, file: str, seeds: int, arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What a study is run with: the file to write, how many seeds, or to show what the file tells."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?", default=Path(file))
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--show", action="store_true", help="what the file tells, without running anything")
    return parser.parse_args(arguments)

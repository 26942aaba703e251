"""One-off experiments behind findings about results, and behind decisions."""

import argparse
from pathlib import Path


def options(about: str | None, file: str, seeds: int) -> argparse.Namespace:
    """What a study is run with: the file to write, how many seeds, or to show what the file tells."""
    arguments = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("file", type=Path, nargs="?", default=Path(file))
    arguments.add_argument("--seeds", type=int, default=seeds)
    arguments.add_argument("--show", action="store_true", help="what the file tells, without running anything")
    return arguments.parse_args()

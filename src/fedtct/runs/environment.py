"""What a run ran on: enough to tell why two runs differ."""

import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

import fedtct
from fedtct.files import fingerprint
from fedtct.hardware.devices import pick_device
from fedtct.importing import is_function_name


def environment(device: str) -> dict[str, Any]:
    """Versions, machine and, if it is one of fedtct's commands, the command line of this process."""
    chosen = pick_device(device)
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": command_line(sys.argv),
        "fedtct": fedtct.__version__,
        "git_commit": git_commit(Path(fedtct.__file__)),
        "git_dirty": git_dirty(Path(fedtct.__file__)),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": platform.platform(),
        "device": torch.cuda.get_device_name(chosen) if chosen.type == "cuda" else platform.processor() or "cpu",
        "threads": torch.get_num_threads(),
    }


def command_line(words: Sequence[str]) -> str | None:
    """What was typed, if it was a command of fedtct's; others, such as Flower's, may have secrets in them."""
    program = Path(words[0] if words else "")
    own = program.stem == "fedtct" or program.parts[-2:] == ("fedtct", "__main__.py")
    return shlex.join(words) if own else None


def own_code(names: Iterable[str]) -> dict[str, str]:
    """A fingerprint of each of the user's modules that was imported for a function among these names."""
    modules = {name.partition(":")[0] for name in names if is_function_name(name)}
    files = {name: getattr(sys.modules.get(name), "__file__", None) for name in sorted(modules)}
    return {name: fingerprint(Path(file)) for name, file in files.items() if file}


def git_commit(file: Path) -> str | None:
    """The commit that a source file is checked out from; none if git does not know the file."""
    return _git(file, "rev-parse", "HEAD")


def git_dirty(file: Path) -> bool | None:
    """Whether anything in a source file's folder was edited or added since the commit; none if git knows none."""
    changes = _git(file, "--no-optional-locks", "status", "--porcelain", "--", ".")
    return None if changes is None else bool(changes)


@cache
def _git(file: Path, *words: str) -> str | None:
    """What git says about the repository of a source file; none if it does not know the file."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(file.parent), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", file.name)  # an installed copy may lie inside somebody else's repository
        return git(*words)
    except (OSError, subprocess.SubprocessError):
        return None

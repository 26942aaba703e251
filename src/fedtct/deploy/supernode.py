"""Flower's SuperNode, which answers sooner: python -m fedtct.deploy.supernode

It looks for messages three times a second, not every three seconds, and on Linux answers begin warm.
"""

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from fedtct.deploy import hand_over

LOOK_SECONDS = 0.3


class _Impatient:
    """The module ``time``, but for long sleeps."""

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def sleep(self, seconds: float) -> None:
        time.sleep(min(seconds, LOOK_SECONDS))


def main() -> None:
    """Flower's own command."""
    from flwr.supernode import start_client_internal as node
    from flwr.supernode.cli import flower_supernode

    if hasattr(node, "time"):  # Flower has no setting for it; where it sleeps elsewhere, it is as patient as it was
        node.time = _Impatient()
    if sys.platform == "linux":  # elsewhere a process that has loaded PyTorch cannot be copied safely
        _begin_warm(Path(os.environ["FLWR_HOME"]))
    flower_supernode()


def _begin_warm(home: Path) -> None:
    """Start the process that answers are copied from, and put what asks it in the place of Flower's program."""
    programs = home / "bin"
    programs.mkdir(parents=True, exist_ok=True)
    command = shlex.join([sys.executable, "-IS", hand_over.__file__, str(Path(sys.executable).parent)])
    stand_in = programs / hand_over.PROGRAM
    stand_in.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
    stand_in.chmod(0o700)
    os.environ["PATH"] = os.pathsep.join([str(programs), os.environ["PATH"]])
    subprocess.Popen([sys.executable, "-m", "fedtct.deploy.warm", str(os.getpid())])


if __name__ == "__main__":
    main()

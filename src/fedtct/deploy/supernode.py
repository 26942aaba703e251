"""Flower's SuperNode, made to answer sooner: python -m fedtct.deploy.supernode

It looks for messages three times a second, not every three seconds, and on Linux the processes that answer are copies
of one that has loaded everything (`warm.py`).
"""

import logging
import os
import shlex
import subprocess
import sys
from pathlib import Path

from fedtct.deploy import hand_over
from fedtct.deploy.flower_log import tidy_log
from fedtct.deploy.polling import pull_sooner, sleep_less
from fedtct.deploy.running import Entrance

TASKS = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1"}  # seconds, for every message; Flower's default is 1


def main() -> None:
    """Flower's own command, prepared."""
    from flwr.supercore.logger import LOGGER_NAME
    from flwr.supernode import start_client_internal as node
    from flwr.supernode.cli import flower_supernode

    tidy_log()
    home = Path(os.environ["FLWR_HOME"])
    logging.getLogger(LOGGER_NAME).addHandler(Entrance(home))
    sleep_less(node)
    pull_sooner()
    os.environ.update(TASKS)
    if sys.platform == "linux":  # elsewhere a process that has loaded PyTorch cannot be copied safely
        _begin_warm(home)
    flower_supernode()


def _begin_warm(home: Path) -> None:
    """Start the process that is copied for answers, and put the program that asks it in the place of Flower's."""
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

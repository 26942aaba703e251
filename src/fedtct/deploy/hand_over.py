"""The program that Flower starts for every message: it hands the work over to the process of `warm.py`.

If that process is not there, this one becomes Flower's own program. To start fast it imports next to nothing.
"""

import json
import os
import socket
import sys

PROGRAM = "flwr-clientapp"
SOCKET = "warm.socket"  # in FLWR_HOME; relative to it, since the system takes no long names


def handed_over(words: list[str]) -> bool:
    """Whether another process has taken this one's place, with its words, environment, folder and output."""
    here = os.getcwd()
    try:
        with socket.socket(socket.AF_UNIX) as waiting:
            os.chdir(os.environ["FLWR_HOME"])
            waiting.connect(SOCKET)
            socket.send_fds(waiting, [b" "], [1, 2])
            waiting.sendall(json.dumps([words, dict(os.environ), here]).encode())
            waiting.shutdown(socket.SHUT_WR)
            return waiting.recv(1) == b"!"
    except OSError:
        return False
    finally:
        os.chdir(here)


if __name__ == "__main__":
    flowers, *words = sys.argv[1:]
    if not handed_over(words):
        os.environ["PATH"] = os.pathsep.join([flowers, os.environ["PATH"]])
        os.execvp(PROGRAM, [PROGRAM, *words])

"""What Flower writes to a file, somebody reads."""

import re
import subprocess
import sys

LOGS = """
import logging
from fedtct.deploy.flower_log import tidy_log
from flwr.supercore.logger import log
tidy_log()
log(logging.INFO, "")
log(logging.WARNING, "Sent %s", "successfully")
"""


def test_lines_of_flowers_log_have_a_time_and_neither_colours_nor_nothing_in_them():
    told = subprocess.run([sys.executable, "-c", LOGS], capture_output=True, text=True, check=True)
    (line,) = (told.stdout + told.stderr).splitlines()
    assert re.fullmatch(r"WARNING \d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+: +Sent successfully", line), line

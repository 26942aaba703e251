"""Lets ``python -m fedtct`` do what ``fedtct`` does."""

import sys

from fedtct.cli import main

sys.exit(main())

"""Flower's log, readable in a file: each line with its time, none of them empty, and no codes of colours."""

import logging
import sys
from contextlib import suppress


def tidy_log() -> None:
    """Have Flower's log of this process read well; another version of Flower may log in its own way."""
    with suppress(ImportError, AttributeError, TypeError):
        from flwr.supercore.logger import FLOWER_LOGGER, update_console_handler

        update_console_handler(timestamps=True, colored=sys.stderr.isatty())
        for handler in FLOWER_LOGGER.handlers:
            handler.addFilter(_says_something)


def _says_something(record: logging.LogRecord) -> bool:
    return record.getMessage().strip() != ""

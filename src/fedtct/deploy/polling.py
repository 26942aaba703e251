"""Makes Flower wait for less time, which has no settings for that. Versions that wait in another way are unchanged."""

import time
from contextlib import suppress
from types import ModuleType
from typing import Any

LOOK_SECONDS = 0.3
TIMES_SOONER = 10  # 3 s between requests for a message become 0.3 s, 0.5 s between looks for an answer here 0.05 s
LATER = 0.05  # a message is found later by this share of the time that it was waited for, at most


class _Impatient:
    """The module ``time``, but for sleeps.

    Where no message comes, it sleeps longer and longer, up to what it was asked for: many silos that wait for a long
    round, or for the next run, would keep the SuperLink busy.
    """

    def __init__(self) -> None:
        self.last_message = time.monotonic()

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def sleep(self, seconds: float) -> None:
        soon, now = seconds / TIMES_SOONER, time.monotonic()
        if seconds < 1:  # a message has come, and its answer is waited for
            self.last_message = now
            time.sleep(soon)
        else:
            time.sleep(min(seconds, max(soon, LATER * (now - self.last_message))))


def sleep_less(module: ModuleType) -> None:
    """Have the functions of a module sleep for less long."""
    if hasattr(module, "time"):
        module.time = _Impatient()  # type: ignore[attr-defined]  # which modules have it is not known


def pull_sooner() -> None:
    """Have this process ask again sooner for a part of a message that is not there yet.

    Messages are announced before their parts arrive, so that one waits for most of them; Flower would wait a second.
    """
    with suppress(ImportError, AttributeError):
        from flwr.supercore.inflatable import inflatable_utils as parts

        for pull in (parts.pull_objects, parts.pull_and_inflate_object_from_tree):
            defaults = pull.__kwdefaults__ or {}
            if "initial_backoff" in defaults:
                defaults["initial_backoff"] = LOOK_SECONDS

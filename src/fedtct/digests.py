"""Digests of messages: short names for what they hold."""

import hashlib
from collections.abc import Mapping
from typing import Any

from torch import Tensor


def digest(message: Mapping[str, Any], *more: str) -> str:
    """A short digest of a message's content; it guards against accidents."""
    return whole_digest(message, *more)[:16]


def whole_digest(message: Mapping[str, Any], *more: str) -> str:
    """A digest of a message's content for which nobody can find other content."""
    result = hashlib.sha256(repr(more).encode())
    for key, value in sorted(message.items()):
        # With the name and kind of each part: the same bytes in other parts are another message.
        kind = (value.dtype, value.shape) if isinstance(value, Tensor) else repr(value)
        result.update(repr((key, kind)).encode())
        if isinstance(value, Tensor):
            result.update(value.cpu().numpy().tobytes())
    return result.hexdigest()

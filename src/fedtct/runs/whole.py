"""Files that are there whole or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file to write, that takes the place of ``path`` when it is whole; if it fails, nothing of it is left."""
    half = path.with_name(path.name + ".half")
    try:
        yield half
        half.replace(path)
    except BaseException as error:
        with suppress(OSError):
            half.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None:  # which file it was, a full disk does not say
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise

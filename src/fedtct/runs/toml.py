"""Settings in TOML files."""

import json
import tomllib
from pathlib import Path
from typing import Any

from fedtct.errors import FedtctError


def parse_toml(path: Path) -> dict[str, Any]:
    """What a TOML file holds."""
    if path.is_dir():
        such = "".join(f", such as {file}" for file in sorted(path.glob("*.toml"))[:1])
        raise FedtctError(f"{path} is a folder: name a TOML file{such}")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise FedtctError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:  # no TOML, no UTF-8, or a number of thousands of digits
        raise FedtctError(f"{path} is not valid TOML", error) from error


def as_toml(value: Any) -> str:
    """A setting's value as a TOML file has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):  # JSON's escapes are TOML's too, but for DEL, which JSON leaves bare
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return f"[{', '.join(map(as_toml, value))}]" if isinstance(value, tuple) else repr(value)

"""Takes the runner's state from one machine to another by small files: large ones are cut into parts."""

import re
import shutil
from pathlib import Path

from fedtct.errors import FedtctError

LIMIT = 15 * 2**20  # bytes of a part
PART = re.compile(r"(?P<name>.+)\.part(?P<number>\d{3})-of-(?P<count>\d{3})")


def pack(state: Path, carried: Path, limit: int = LIMIT) -> list[Path]:
    """Copy a folder so that no file is larger than ``limit``. Returns the files written."""
    if not state.is_dir():
        raise FedtctError(f"{state} is not a folder: there is no state to pack")
    if carried.exists() and any(carried.iterdir()):
        raise FedtctError(f"{carried} is not empty: pack into a new folder")
    written = []
    for path in sorted(p for p in state.rglob("*") if p.is_file()):
        target = carried / path.relative_to(state)
        target.parent.mkdir(parents=True, exist_ok=True)
        count = -(-path.stat().st_size // limit)
        if count <= 1:
            written.append(Path(shutil.copyfile(path, target)))
            continue
        with path.open("rb") as file:
            for number in range(count):
                part = target.with_name(f"{target.name}.part{number:03}-of-{count:03}")
                part.write_bytes(file.read(limit))
                written.append(part)
    return written


def unpack(carried: Path, state: Path) -> list[Path]:
    """Restore the folder, after a check that nothing is missing. Returns the files written."""
    if not carried.is_dir():
        raise FedtctError(f"{carried} is not a folder: give the one that pack made")
    files: dict[Path, list[Path]] = {}
    for path in sorted(p for p in carried.rglob("*") if p.is_file()):
        found = PART.fullmatch(path.name)
        name = path.with_name(found["name"]) if found else path
        files.setdefault(name.relative_to(carried), []).append(path)
    for name, parts in files.items():
        _check_whole(name, parts)
        if (state / name).exists():
            raise FedtctError(f"{state / name} is there already: unpack into a new folder")
    for name, parts in files.items():
        (state / name).parent.mkdir(parents=True, exist_ok=True)
        with (state / name).open("wb") as file:
            for part in parts:
                file.write(part.read_bytes())
    return [state / name for name in files]


def _check_whole(name: Path, parts: list[Path]) -> None:
    found = [PART.fullmatch(part.name) for part in parts]
    numbers = [int(f["number"]) for f in found if f]
    counts = {int(f["count"]) for f in found if f}
    if counts and (len(counts) > 1 or None in found or numbers != list(range(max(counts)))):
        raise FedtctError(f"{name} is incomplete: it has {len(parts)} of {max(counts)} parts")

"""Where a run comes from: the machines, commands, files and code it was begun and gone on with, and what changed since.

``environment.json`` has a record for each sitting, that is, for each time that the run was begun or gone on with.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedtct.errors import FedtctError, listing, quoted
from fedtct.files import fingerprint, read_json, write_json
from fedtct.runs.config import RunConfig
from fedtct.runs.environment import environment, own_code

ENVIRONMENT = "environment.json"
TEST = "the test data"  # among the names of silos, which have files too
FILES, OWN_CODE = "files", "own_code"  # fingerprints in a record: of people's own files, and of their own modules


class Provenance:
    """The sittings of one run. Of a ``new`` one there are none, whatever another process may have put in its folder."""

    def __init__(self, folder: Path, config: RunConfig, *, new: bool = False) -> None:
        self.file, self.config = folder / ENVIRONMENT, config
        self._new = new
        self._files: dict[str, str] = {}  # fingerprints for this sitting's record

    def sittings(self) -> list[dict[str, Any]]:
        """The records so far, the first of them from when the run was begun."""
        found: list[dict[str, Any]] = [] if self._new or not self.file.is_file() else read_json(self.file)
        return found

    def add_sitting(self, engine: str) -> None:
        """Write down what the run is being begun, or gone on, with; ``engine`` is the command for that."""
        record = environment(self.config.device) | {"engine": engine}
        record |= {FILES: self._files} if self._files else {}
        record |= {OWN_CODE: code} if (code := self._own_code()) else {}
        write_json(self.file, [*self.sittings(), record])
        self._new = False

    def engine(self) -> str | None:
        """The command that the run was begun, or last gone on, with; none if it has not begun."""
        sittings = self.sittings()
        return sittings[-1]["engine"] if sittings else None

    def check_silos(self, paths: Mapping[str, Path]) -> None:
        """Refuse other silos than those that the run was begun with."""
        begun, here = ({*files} - {TEST} for files in (self._begun_with(FILES), paths))
        if begun and begun != here:
            lost, new = sorted(begun - here), sorted(here - begun)
            told = [f"lacks {quoted(lost)}, which the run was started with"] if lost else []
            told += [f"holds {quoted(new)}, which the run was started without"] if new else []
            raise FedtctError(
                f"{self.config.data} {' and '.join(told)}: give files their old names, say where they are "
                "now (--data), or start a new run"
            )

    def mark_files(self, paths: Mapping[str, Path]) -> None:
        """Take the fingerprints of people's own files, and warn if the run was begun with other content in them."""
        self._files = {name: fingerprint(path) for name, path in paths.items()}
        if changed := self._changed(FILES, self._files):
            told = f"the files of {listing(changed)} are not those that the run was started with"
            warnings.warn(f"{told}: it continues with other data", stacklevel=2)

    def _own_code(self) -> dict[str, str]:
        """The fingerprints of the user's own modules, with a warning if they were edited since the run was begun."""
        code = own_code((self.config.dataset, *self.config.own_methods, self.config.model))
        if changed := self._changed(OWN_CODE, code):
            told = f"{listing(changed)}: edited since the run was started, which continues with the edited code"
            warnings.warn(told, stacklevel=2)
        return code

    def _changed(self, kind: str, marks: Mapping[str, str]) -> list[str]:
        """The names whose fingerprints are not those that the run was started with."""
        before = self._begun_with(kind)
        return [name for name, mark in marks.items() if before.get(name, mark) != mark]

    def _begun_with(self, kind: str) -> dict[str, str]:
        """The fingerprints of this kind in the first record that has any."""
        found: dict[str, str] = next((sitting[kind] for sitting in self.sittings() if kind in sitting), {})
        return found

"""What a result file holds of a run: configuration, commit, hardware, seconds, and the curve by round."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedtct.files import strict, write_text
from fedtct.history import Row
from fedtct.runs.folder import RunFolder

IN_EVERY_ROW = ("silos", "rated_by", "silo_bytes_down", "silo_bytes_up")  # nobody is missing, all send the same


def write_result(path: Path, name: str, scale: str, run: RunFolder, extra: dict[str, Any]) -> None:
    """Write the file of a run that is done; ``extra`` says what differed from the protocol, and why."""
    rows, config = list(run.history), asdict(run.config)
    for setting in ("data_dir", "init_weights"):
        config[setting] = Path(config[setting]).name if config[setting] else ""
    sittings = [{k: v for k, v in e.items() if k != "command"} for e in run.provenance.sittings()]
    rated, unanswered = rows[-1].test_accuracy, "refused" in extra and "lr_used" not in extra
    record = {
        "run": name,
        "scale": scale,
        "top1_percent": None if rated is None or unanswered else round(100 * rated, 2),
        "config": config,
        "commit": sittings[-1].get("git_commit"),
        "environment": sittings,
        "seconds": round(sum(row.seconds for row in rows), 1),
        **extra,
        "rows": [_short(row) for row in rows],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(strict(record), allow_nan=False, separators=(",", ":")) + "\n")


def _short(row: Row) -> dict[str, Any]:
    """A row with meaningful digits only, without empty fields and those that are the same in every row."""

    def digits(value: Any) -> Any:
        if isinstance(value, float):
            return float(f"{value:.5g}")
        return [digits(v) for v in value] if isinstance(value, tuple) else value

    return {key: digits(v) for key, v in asdict(row).items() if v not in (None, ()) and key not in IN_EVERY_ROW}

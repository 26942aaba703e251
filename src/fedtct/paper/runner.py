"""Run cells of the paper for as long as there is time; started again, it goes on where it stopped.

A learning rate is chosen from the paper's grid, on held-out samples and early: every rate runs for a fifth of the
rounds, and the one with the best held-out accuracy there goes on to the end. TCT takes its stage 1 from the FedAvg run
of the same split, so nothing is computed twice.
"""

import contextlib
import json
import statistics
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedtct.errors import FedtctError
from fedtct.federation import pick_device
from fedtct.history import Checkpoint, Row
from fedtct.paper.cells import HOLDOUT, LEARNING_RATES, SCALES, STAGE2_LR, Cell, find_cell
from fedtct.runs.checkpoint import read_checkpoint, write_checkpoint
from fedtct.runs.config import RunConfig
from fedtct.runs.execute import execute
from fedtct.runs.folder import ENVIRONMENT, RunFolder, read_json, read_rows, strict, to_line, write_json, write_text

JUDGED_ROUNDS = 5  # the last of them, whose mean decides: a single round is noisy
SNAPSHOT = "stage1.safetensors"  # the weights that TCT starts from


class OutOfTime(Exception):
    """The time that was given is over; what was done so far is saved."""


class _Pause(Exception):
    """A run has come as far as it is needed for now."""


class PaperRun(RunFolder):
    """A run folder that stops at a round or at a time, and keeps the weights that stage 2 starts from."""

    deadline = float("inf")
    pause_at = snapshot_at = -1

    def save(self, stage: str, checkpoint: Checkpoint) -> None:
        """Keep what is needed later, and stop when it is time to."""
        late = time.monotonic() > self.deadline
        pause = stage == "stage1" and checkpoint.round == self.pause_at
        if late or pause:
            self._next_save = 0.0
        super().save(stage, checkpoint)
        if stage == "stage1" and checkpoint.round == self.snapshot_at:
            write_checkpoint(self.path / SNAPSHOT, checkpoint, rows=len(self.history))
        if pause:
            raise _Pause
        if late and not checkpoint.finished:
            raise OutOfTime


class Runner:
    """Works in ``state``, writes a file a finished cell to ``results``, stops after ``minutes``."""

    def __init__(
        self, state: Path, results: Path, minutes: float, *, scale: str = "full", commit: str = "", seed: int = 0
    ) -> None:
        self.state, self.results, self.commit, self.seed = state, results, commit, seed
        self.scale = SCALES[scale]
        self.deadline = time.monotonic() + 60 * minutes

    def run(self, keys: list[str], table: str = "table2") -> None:
        """Do the cells in their order; those with a result are left alone."""
        for key in keys:
            cell = find_cell(table, key)
            if self._result(cell).is_file():
                continue
            start = time.monotonic()
            try:
                self._tct(cell) if cell.method == "tct" else self._baseline(cell)
            except OutOfTime:
                print(f"{key}: out of time, saved", flush=True)
                return
            print(f"{key}: {time.monotonic() - start:.0f} s", flush=True)

    def _baseline(self, cell: Cell) -> None:
        scores = self._grid(cell)
        best = max(scores, key=lambda lr: scores[lr])
        folder = self._folder(cell, best)
        execute(self._open(folder, self._config(cell, best)), plots=False)
        self._write(cell, folder, {"grid": {f"{lr:g}": s for lr, s in scores.items()}, "grid_rounds": self.scale.grid})

    def _grid(self, cell: Cell) -> dict[float, float]:
        """Held-out accuracy of every learning rate after a part of the rounds."""
        scores = {}
        for lr in LEARNING_RATES:
            folder = self._folder(cell, lr)
            if not self._rows_at(folder, self.scale.grid - 1):
                run = self._open(folder, self._config(cell, lr))
                run.pause_at = self.scale.grid
                with contextlib.suppress(_Pause):
                    execute(run, plots=False)
            judged = read_rows(folder)[max(0, self.scale.grid - JUDGED_ROUNDS) : self.scale.grid]
            scores[lr] = statistics.mean(row.holdout_accuracy or 0.0 for row in judged)
        return scores

    def _tct(self, cell: Cell) -> None:
        """Stage 2 on the weights that FedAvg had after its share of the rounds."""
        fedavg = find_cell(cell.table, f"{cell.dataset}/{cell.split}/fedavg")
        if not self._result(fedavg).is_file():
            self._baseline(fedavg)
        lr = json.loads(self._result(fedavg).read_text())["config"]["lr"]
        config = self._config(cell, lr)
        folder = self._folder(cell, lr)
        try:
            execute(self._seeded(folder, config, self._folder(fedavg, lr)), plots=False)
            extra: dict[str, Any] = {}
        except FedtctError as error:  # the paper's step size may diverge here: then take the largest that does not
            extra = {"refused": str(error)}
            folder = folder.with_name(folder.name + "-auto")
            config = self._config(cell, lr, stage2_lr="auto")
            execute(self._seeded(folder, config, self._folder(fedavg, lr)), plots=False)
        self._write(cell, folder, extra)

    def _seeded(self, folder: Path, config: RunConfig, fedavg: Path) -> RunFolder:
        """A TCT run that finds its stage 1 finished: rows and weights are FedAvg's."""
        if not folder.exists():
            run = self._open(folder, config)
            run.begin("stage1", self.scale.stage1, self.scale.stage1)
            rows = [row for row in read_rows(fedavg) if row.round <= self.scale.stage1]
            write_text(folder / "metrics.jsonl", "".join(map(to_line, rows)))
            at = read_checkpoint(fedavg / SNAPSHOT, pick_device(config.device))
            weights = {key: at.state[key] for key in ("parameters", "buffers")}
            done = Checkpoint(self.scale.stage1, weights, at.cost, finished=True)
            write_checkpoint(folder / "checkpoints" / "stage1.safetensors", done, rows=len(rows))
        return self._open(folder, config)

    def _config(self, cell: Cell, lr: float, stage2_lr: float | str = STAGE2_LR) -> RunConfig:
        scale = self.scale
        return RunConfig.of(
            dataset=cell.dataset,
            split="iid" if cell.split == "pooled" else cell.split,
            method=cell.method,
            model=cell.model,
            rounds=(scale.stage1, scale.stage2) if cell.method == "tct" else (scale.rounds,),
            local_epochs=scale.local_epochs,
            limit=scale.limit,
            p=scale.p,
            lr=lr,
            holdout=HOLDOUT,
            augment="none" if cell.dataset == "fashion-mnist" else "crop-flip",
            stage2_lr=stage2_lr,
            seed=self.seed,
        )

    def _open(self, folder: Path, config: RunConfig) -> PaperRun:
        run = PaperRun.resume(folder) if folder.exists() else PaperRun.create(folder, config)
        assert isinstance(run, PaperRun)
        run.deadline = self.deadline
        run.snapshot_at = self.scale.stage1 if config.method == "fedavg" else -1
        return run

    def _folder(self, cell: Cell, lr: float) -> Path:
        return self.state / f"{self._name(cell)}-lr{lr:g}"

    def _result(self, cell: Cell) -> Path:
        return self.results / f"{self._name(cell)}.json"

    def _name(self, cell: Cell) -> str:
        parts = (cell.dataset, cell.model, cell.init, cell.split, cell.method, self.scale.name, f"seed{self.seed}")
        return "-".join(parts).replace(":", "")

    def _rows_at(self, folder: Path, number: int) -> bool:
        return folder.exists() and any(row.round == number for row in read_rows(folder))

    def _write(self, cell: Cell, folder: Path, extra: dict[str, Any]) -> None:
        rows = list(read_rows(folder))
        config = asdict(RunFolder.resume(folder).config)
        config.pop("data_dir")
        sittings = [{k: v for k, v in e.items() if k != "command"} for e in read_json(folder / ENVIRONMENT)]
        self.results.mkdir(parents=True, exist_ok=True)
        record = {
            "cell": asdict(cell),
            "scale": self.scale.name,
            "top1_percent": round(100 * rows[-1].test_accuracy, 2) if rows[-1].test_accuracy else None,
            "config": config,
            "commit": self.commit,
            "environment": sittings,
            "seconds": round(sum(row.seconds for row in rows), 1),
            **extra,
            "rows": [_short(row) for row in rows],
        }
        write_json(self._result(cell), strict(record))


def _short(row: Row) -> dict[str, Any]:
    """A row with as many digits as mean anything."""

    def digits(value: Any) -> Any:
        if isinstance(value, float):
            return float(f"{value:.5g}")
        return [digits(v) for v in value] if isinstance(value, tuple) else value

    return {key: digits(value) for key, value in asdict(row).items()}

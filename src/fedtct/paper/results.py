"""Results as files: one a run, scale and seed, with configuration, commit, hardware and the curve by round."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from fedtct.errors import FedtctError
from fedtct.files import read_json
from fedtct.paper.protocol import GRID, SCALES, STAGE1_IS, STAGE2_LR, Run, Tangent, Train
from fedtct.paper.tables import Cell

Points = list[tuple[int, float]]
LAST = 10  # rounds at the end of a run, whose mean says more than any of them if accuracy swings


@dataclass(frozen=True)
class Result:
    """One run, done."""

    scale: str
    seed: int
    record: dict[str, Any]

    @property
    def comparable(self) -> bool:
        """Whether it is on the paper's data and network, however short, and not on substitutes."""
        return not SCALES[self.scale].dataset

    @property
    def size(self) -> str:
        """The scale, and what stands in for the paper's data and network."""
        scale = SCALES[self.scale]
        instead = "" if self.comparable else f": {scale.limit} samples of {scale.dataset}, {scale.model}"
        return scale.name + instead

    @property
    def label(self) -> str:
        """The scale, and what differs from its protocol."""
        return self.size + self._rate + self._step + (", diverged" if self.diverged else "")

    @property
    def _rate(self) -> str:
        scale, config, rounds = SCALES[self.scale], self.record["config"], self.record.get("grid_rounds")
        if "lr_given" in self.record:
            return f", rate {self.record['lr_given']:.3g} given"
        if not config["holdout"]:
            return ", nothing held out"
        usual = scale.central_grid if config["method"] == "centralized" else scale.grid
        return "" if rounds in (None, usual) else f", rate after {rounds} rounds"

    @property
    def _step(self) -> str:
        """Whether stage 2 took a step size of its own because the paper's diverges."""
        return f", stage 2's step smaller: {STAGE2_LR:.0e} diverges" if "lr_used" in self.record else ""

    @property
    def diverged(self) -> bool:
        """Whether it ends with non-finite numbers, or in stage 2 worse than it began; or was refused for that."""
        *_, last = rows = self.record["rows"]
        if self.record["top1_percent"] is None or "train_loss" not in last:
            return True
        begins = [row["train_loss"] for row in rows if (row["stage"], row["round"]) == ("stage2", 0)]
        return any(last["train_loss"] > begin for begin in begins)

    def accuracy(self, round_of_stage2: int | None = None) -> float | None:
        """Top-1 test accuracy in per cent, at the end or after a round of stage 2."""
        if round_of_stage2 is None:
            value: float | None = self.record["top1_percent"]
            return value
        for row in self.record["rows"]:
            if row["stage"] == "stage2" and row["round"] == round_of_stage2:
                return 100 * float(row["test_accuracy"])
        return None

    def last_rounds(self) -> list[float]:
        """Test accuracies in per cent after the last rounds of the last stage."""
        rows = self.record["rows"]
        rated = [row["test_accuracy"] for row in rows if row["stage"] == rows[-1]["stage"] and "test_accuracy" in row]
        return [100 * float(value) for value in rated[-LAST:]]

    def curves(self, metric: str) -> tuple[Points, Points]:
        """Accuracy by round, counted over both stages: in stage 1 before a stage 2, and in the last stage."""
        name = f"{metric}_accuracy"
        rated = [(row["stage"], row["round"], float(row[name])) for row in self.record["rows"] if name in row]
        first, second = ([(r, value) for at, r, value in rated if at == stage] for stage in ("stage1", "stage2"))
        if not second:
            return [], first
        rounds = first[-1][0] if first else 0
        return first, [(rounds + number, value) for number, value in second if number]

    def stage1(self) -> Result:
        """What TCT started from, as FedAvg's result at a smaller scale."""
        rows = [row for row in self.record["rows"] if row["stage"] == "stage1"]
        ended = {"rows": rows, "top1_percent": round(100 * rows[-1]["test_accuracy"], 2)}
        record = {name: value for name, value in self.record.items() if name != "lr_used"}
        return Result(STAGE1_IS[self.scale], self.seed, record | ended)


def _read(path: Path) -> Result:
    record = read_json(path)
    try:
        result = Result(record["scale"], record["config"]["seed"], record)
        known = result.scale in SCALES and record.keys() >= {"run", "rows", "top1_percent"}
    except (KeyError, TypeError):
        known = False
    if not known:
        raise FedtctError(f"{path} is not a result of `fedtct paper run`: remove it from this folder")
    return result


class Found(NamedTuple):
    """Our results for a cell of a table."""

    accuracies: list[float]  # one a seed
    last_rounds: list[float]  # of all seeds
    label: str
    comparable: bool

    @property
    def accuracy(self) -> float:
        """The mean over seeds."""
        return fmean(self.accuracies)


class Results:
    """All results of a folder."""

    def __init__(self, folder: Path) -> None:
        self._of: dict[str, list[Result]] = defaultdict(list)
        for path in sorted(folder.glob("*.json")):
            result = _read(path)
            self._of[result.record["run"]].append(result)

    def of(self, run: Run) -> list[Result]:
        """A run's results, one a seed, at the largest scale there is; its own, or of other runs that include it."""
        found = [*self._as_stage1(run), *self._by_choice(run), *self._of.get(run.name, [])]
        best = next((s for s in SCALES if any(r.scale == s for r in found)), None)
        return list({result.seed: result for result in found if result.scale == best}.values())

    def _by_choice(self, run: Run) -> list[Result]:
        """The results of a run with a given rate, from a run that chose this rate."""
        if not isinstance(run, Train) or len(run.rates) > 1:
            return []
        return [r for r in self._of.get(replace(run, rates=GRID).name, []) if r.record["config"]["lr"] in run.rates]

    def _as_stage1(self, run: Run) -> list[Result]:
        """The results of FedAvg, from a run of TCT whose stage 1 it was."""
        if not isinstance(run, Train) or run.method != "fedavg":
            return []
        found = self._of.get(Tangent(replace(run, rates=GRID)).name, [])
        return [r.stage1() for r in found if r.scale in STAGE1_IS and r.record["config"]["lr"] in run.rates]

    def of_cell(self, cell: Cell) -> Found | None:
        """Our results for a cell; none if it was not run."""
        found = self.of(cell.run)
        rated = [(value, r) for r in found if (value := r.accuracy(cell.round)) is not None]
        if not rated:
            return None
        values, runs = zip(*rated, strict=True)
        last = [value for run in runs for value in run.last_rounds()] if cell.round is None else []
        return Found(list(values), last, "; ".join(dict.fromkeys(r.label for r in runs)), runs[0].comparable)

    def has_cell(self, cell: Cell) -> bool:
        """Whether there is a number to compare with the published one."""
        found = self.of_cell(cell)
        return found is not None and found.comparable

    def has_curve(self, run: Run) -> bool:
        """Whether a run can be drawn as the paper's."""
        return any(result.comparable for result in self.of(run))

"""Run parts of the paper's evaluation for as long as there is time; started again, it goes on where it stopped.

Every silo holds a tenth of its samples out. A learning rate is chosen from the paper's grid by accuracy on them, and
early: every rate runs for a fifth of the rounds, and the best goes on to the end; if it diverges there, the next best
does. Where the rate is given, all samples are trained on, as in the paper. Nothing is computed twice: runs of one
learning rate are shared by all that show them and go on from a shorter scale to a longer one, TCT starts from FedAvg's
weights at its round, and all ways of stage 2 share one set of features.
"""

import contextlib
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fedtct.classifier import NetworkClassifier
from fedtct.errors import Diverged, check_one_of
from fedtct.federation import LocalFederation
from fedtct.files import write_text
from fedtct.hardware.devices import pick_device
from fedtct.models.pretrained import write_state_dict
from fedtct.paper.folder import KEPT, OutOfTime, PaperRun, Paused, begun, new_half, resumed
from fedtct.paper.protocol import HOLDOUT, SCALES, STAGE1_IS, STAGE2_LR, Retrain, Run, Tangent, Train
from fedtct.paper.record import write_result
from fedtct.runs.checkpoint import checkpoint_of, read_checkpoint, write_checkpoint
from fedtct.runs.config import RunConfig
from fedtct.runs.execute import execute
from fedtct.runs.folder import CONFIG, RunFolder
from fedtct.runs.jobs import prepare
from fedtct.runs.metrics import METRICS, read_rows, to_line
from fedtct.runs.plan import Watch
from fedtct.runs.provenance import ENVIRONMENT
from fedtct.runs.summary import judgement
from fedtct.stage2 import IterativeRegression
from fedtct.stage2.convexify import convexify
from fedtct.tct import TCT
from fedtct.training.corrections import REMEMBERING

SHARES = 5  # stage 1's weights are kept at every fifth of its rounds, as figures 5 and 6 show them


class Runner:
    """Runs in folders of ``state``, writes a file for each finished run to ``results``, and stops after ``minutes``.

    With ``grid_rounds`` learning rates are chosen after so many rounds, not the scale's. With ``lr`` that rate is taken
    instead of a choice, and nothing is held out. The results say so.
    """

    def __init__(
        self,
        state: Path,
        results: Path,
        *,
        minutes: float = float("inf"),
        scale: str = "full",
        seed: int = 0,
        imagenet: str = "",
        grid_rounds: int = 0,
        lr: float = 0.0,
        watch: Watch | None = None,
    ) -> None:
        check_one_of(SCALES, scale=scale)
        self.state, self.results, self.scale, self.seed = state, results, SCALES[scale], seed
        self.imagenet, self.grid_rounds, self.lr, self.watch = imagenet, grid_rounds, lr, watch
        self.holdout = 0.0 if lr else HOLDOUT
        self.tag = f"{scale}-seed{seed}{'-nothing-held-out' if lr else ''}"  # ends the names of runs
        self.deadline = time.monotonic() + 60 * minutes

    def run(self, runs: Sequence[Run]) -> None:
        """Do the runs in order, those that can share work together; runs with a result are not done again."""
        pending = [run for run in dict.fromkeys(runs) if not self.result(run).is_file()]
        while pending:
            first = pending[0]
            if isinstance(first, Train):
                done: list[Run] = [first]
                self._train(first)
            elif isinstance(first, Retrain):
                done = [first]
                self._retrain(first)
            else:
                same = [r for r in pending if isinstance(r, Tangent) and r.features == first.features]
                done = list(same)
                self._tangents(same)
            pending = [run for run in pending if run not in done]
            if pending and time.monotonic() > self.deadline:
                raise OutOfTime

    def result(self, run: Run) -> Path:
        """The file that a run's result goes to."""
        return self.results / f"{run.name}-{self.scale.name}-seed{self.seed}.json"

    # Stage 1

    def _train(self, run: Train) -> None:
        lr, choice = self._choose(run)
        self._write(run, self._folder(run, lr), choice)

    def _grid(self, run: Train, **more: Any) -> tuple[dict[float, float], dict[str, Any]]:
        """Every learning rate's accuracy on held-out samples after a part of the rounds, and a record of these."""
        if len(run.rates) == 1:
            return {run.rates[0]: 0.0}, {}
        if self.lr:
            return {self.lr: 0.0}, {"lr_given": self.lr}
        usual, scores = self.scale.central_grid if run.split == "pooled" else self.scale.grid, {}
        rounds = self.grid_rounds or usual
        for lr in run.rates:
            rows = read_rows(self._advance(run, lr, rounds, **more))[:rounds]
            scores[lr] = judgement(rows, self._config(run, lr, **more)) or 0.0
        grid = {f"{lr:.4g}": round(score, 5) for lr, score in scores.items()}
        return scores, {"grid": grid, "grid_rounds": rounds}

    def _choose(self, run: Train, rounds: int | None = None, **more: Any) -> tuple[float, dict[str, Any]]:
        """The best learning rate that does not diverge in so many rounds, or the best; and a record of the choice."""
        rounds = self._config(run, run.rates[0], **more).rounds[0] if rounds is None else rounds
        scores, choice = self._grid(run, **more)
        order = sorted(scores, key=lambda lr: -scores[lr])
        if not rounds:  # untrained weights need no run
            return order[0], choice
        diverged: dict[str, int] = {}
        for lr in order:
            rows = read_rows(self._advance(run, lr, rounds, **more))[: rounds + 1]
            if not rows[-1].diverged:
                return lr, choice | ({"diverged": diverged} if diverged else {})
            diverged[f"{lr:.4g}"] = rows[-1].round
        return order[0], choice | {"diverged": diverged}

    def _advance(self, run: Train, lr: float, rounds: int, **more: Any) -> Path:
        """The folder of the run at one learning rate, trained for at least so many rounds."""
        folder, config = self._folder(run, lr), self._config(run, lr, **more)
        if not begun(folder) and self.scale.name in STAGE1_IS:
            self._take_over(folder, config)
        part = rounds < config.rounds[0]  # a whole run also rates its last round's model
        if begun(folder) and (resumed(folder, config).finished or (part and len(read_rows(folder)) >= rounds)):
            return folder
        paper_run = self._open(folder, config)
        paper_run.pause_at = rounds if part else -1
        with contextlib.suppress(Paused):
            execute(paper_run)
        return folder

    def _take_over(self, folder: Path, config: RunConfig) -> None:
        """Begin with the rounds of the run at the shorter scale, which are the same, if all files of it are there."""
        shorter_tag = STAGE1_IS[self.scale.name] + self.tag.removeprefix(self.scale.name)
        shorter = folder.with_name(folder.name.removesuffix(self.tag) + shorter_tag)
        saved = checkpoint_of(shorter, "stage1")
        if not saved.is_file() or RunFolder.read(shorter).config.differences(asdict(config)) != ["rounds"]:
            return
        at = read_checkpoint(saved, pick_device("cpu"))
        kept = [KEPT.format(number) for number in self._kept(config) if 0 < number <= at.round]
        forgotten = at.finished and config.method in REMEMBERING  # silos' memories are gone once a run is over
        whole = all((shorter / name).is_file() for name in kept) and not forgotten
        if not whole or not bool(at.state["parameters"].isfinite().all()):
            return
        half = new_half(folder)
        checkpoint_of(half, "stage1").parent.mkdir(parents=True)
        for name in (METRICS, ENVIRONMENT, *kept):
            shutil.copy(shorter / name, half)
        # Its last row is only a rating, which the next round gives again.
        write_checkpoint(checkpoint_of(half, "stage1"), replace(at, finished=False), rows=at.round)
        write_text(half / CONFIG, config.to_toml())
        half.rename(folder)

    def _kept(self, config: RunConfig) -> frozenset[int]:
        """The rounds whose weights are kept: stage 2 starts from them, at this scale or at the full one."""
        scales = (self.scale, SCALES["full"]) if config.method == "fedavg" else ()
        return frozenset(round(i / SHARES * scale.stage1) for scale in scales for i in range(SHARES + 1))

    def _config(self, run: Train, lr: float, **more: Any) -> RunConfig:
        scale, central = self.scale, run.split == "pooled"
        return RunConfig.of(
            **{
                "dataset": scale.dataset or run.dataset,
                "split": "iid" if central else run.split,
                "method": run.method,
                "model": scale.model or run.model,
                "rounds": (scale.central if central else scale.rounds,),
                "local_epochs": scale.local_epochs,
                "silos": scale.silos,
                "limit": scale.limit,
                "lr": lr,
                "holdout": self.holdout,
                "augment": "crop-flip" if run.dataset.startswith("cifar") else "none",
                "init_weights": self.imagenet if run.init == "imagenet" else "",
                "seed": self.seed,
            }
            | more
        )

    def _retrain(self, run: Retrain) -> None:
        """Central training of the last layers, from random weights or from those that FedAvg ended with."""
        weights = self._exported(run.network) if run.trained else ""
        network = replace(run.network, method=run.name, split="pooled")
        more: dict[str, Any] = {"method": "centralized", "trainable": f"last:{run.layers}", "init_weights": weights}
        lr, choice = self._choose(network, **more)
        self._write(run, self._folder(network, lr), choice)

    def _exported(self, run: Train) -> str:
        """The state dict that a network ended with, as a file."""
        lr, _ = self._choose(run)
        folder = self._folder(run, lr)
        path = folder / "state-dict.safetensors"
        model = execute(RunFolder.resume(folder)).model  # which may have been left where it was run
        assert isinstance(model, NetworkClassifier)
        write_state_dict(path, model.network.module)
        return str(path)

    # Stage 2

    def _tangents(self, runs: list[Tangent]) -> None:
        """All ways of stage 2 on one set of features."""
        network, share, _ = runs[0].features
        rounds = round(share * self.scale.stage1)
        lr, choice = self._choose(network, rounds)
        if f"{lr:.4g}" in choice.get("diverged", {}):
            for run in runs:
                self._write(run, self._folder(network, lr), choice | {"refused": "stage 1 diverged at every rate"})
            return
        job = prepare(self._config(network, lr))
        session, problem, first = None, None, None
        for run in runs:
            folder = self._seeded(run, lr, rounds, first)
            tct = folder.config.build(job.num_classes)
            assert isinstance(tct, TCT)
            assert isinstance(tct.stage2, IterativeRegression)
            if session is None or problem is None:
                federation = LocalFederation(job.silos, folder.config.device, precision=folder.config.precision)
                federation.on_reply = folder.watcher.reply
                session = tct.stage1.open(federation, job.test, folder)
                recipe = tct.features.recipe(tct.stage1.run(session))
                problem, first = convexify(session, recipe), folder.path
            session.journal = folder
            try:
                tct.stage2.solve(session, problem)
                extra: dict[str, Any] = {}
            except Diverged as error:
                extra = {"refused": str(error)}
                if run.lr == STAGE2_LR and run.solver == "scaffold":  # the default must have an answer: a safe step
                    replace(tct.stage2, lr="auto").solve(session, problem)
                    extra["lr_used"] = tct.stage2.step_limits(problem).safe
            self._write(run, folder.path, choice | extra | {"largest_eigenvalues": problem.largest_eigenvalues})

    def _seeded(self, run: Tangent, lr: float, rounds: int, first: Path | None) -> PaperRun:
        """A run folder in which stage 1 is done: by FedAvg, or by the first run on the same features."""
        folder = self.state / f"{run.name}-from-lr{lr:.4g}-{self.tag}"
        solver = {"stage2": run.solver, "steps": run.steps, "stage2_lr": run.lr, "normalize": run.normalize}
        more = solver | {"method": "tct", "rounds": (rounds, self.scale.stage2), "p": self.scale.p}
        config = self._config(run.network, lr, **more)
        if not begun(folder):
            half = new_half(folder)
            PaperRun.create(half, config).begin("stage1", rounds, rounds)
            source = first or self._folder(run.network, lr)
            if (source / ENVIRONMENT).is_file():  # what stage 1 ran on; what this runs on is added when it is opened
                shutil.copy(source / ENVIRONMENT, half)
            if first is not None:
                rows = [row for row in read_rows(first) if row.stage != "stage2"]
                for name in ("stage1", "convexify"):
                    shutil.copy(checkpoint_of(first, name), checkpoint_of(half, name))
            else:
                rows = [row for row in read_rows(source) if row.round < rounds]
                if rounds:
                    kept = read_checkpoint(source / KEPT.format(rounds), pick_device("cpu"))
                    write_checkpoint(checkpoint_of(half, "stage1"), kept, len(rows))
            write_text(half / METRICS, "".join(map(to_line, rows)))
            half.rename(folder)
        return self._open(folder, config)

    # Folders and files

    def _folder(self, run: Train, lr: float) -> Path:
        return self.state / f"{replace(run, rates=(lr,)).name}-{self.tag}"

    def _open(self, folder: Path, config: RunConfig) -> PaperRun:
        run = resumed(folder, config) if begun(folder) else PaperRun.create(folder, config)
        run.deadline = self.deadline
        if self.watch:
            run.watcher = self.watch(folder.name, config)
        run.keep = self._kept(config)
        return run

    def _write(self, run: Run, folder: Path, extra: dict[str, Any]) -> None:
        write_result(self.result(run), run.name, self.scale.name, RunFolder.read(folder), extra)

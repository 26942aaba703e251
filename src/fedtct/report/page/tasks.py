"""Which runs a page shows: tasks (the data and how it is dealt), methods on them, and each method's seeds."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedtct.errors import FedtctError
from fedtct.runs.config import METHODS, RunConfig
from fedtct.runs.findings import OF_THE_METHOD
from fedtct.runs.folder import CONFIG, RunFolder
from fedtct.runs.forms import SPLIT
from fedtct.runs.plan import PLAN, Plan

OF_THE_TRAINING = ("model", "batch_size", "lr", "weight_decay", "trainable", "augment", "init_weights")
NO_DIFFERENCE = ("seed", "device", "data_dir")


@dataclass(frozen=True)
class Method:
    """Runs that differ in their seed alone; ``index`` is its colour, the same on every task."""

    label: str
    index: int
    runs: Sequence[RunFolder]

    @property
    def config(self) -> RunConfig:
        """Of one run; all have the same, but for the seed."""
        return self.runs[0].config


@dataclass(frozen=True)
class Task:
    """What was to be learnt, and the methods that were tried."""

    title: str
    methods: Sequence[Method]

    @property
    def regression(self) -> bool:
        """Whether numbers are learnt, not classes."""
        return any(row.regression for method in self.methods for run in method.runs for row in run.history)

    def silo_names(self, count: int) -> list[str]:
        """What silos are called on an axis: by their number if they have no other name."""
        found = next((found for _, _, found in self.findings(SPLIT)), None)
        names = [silo["name"] for silo in found["silos"]] if found else []
        return called(names, count)

    def findings(self, name: str) -> Iterable[tuple[Method, RunFolder, Any]]:
        """What was found out about each run, where it was."""
        for method in self.methods:
            for run in method.runs:
                if (found := run.finding(name)) is not None:
                    yield method, run, found


def called(names: Sequence[str], count: int) -> list[str]:
    """So many silos by their names, or by their numbers if these are not the names of all of them."""
    return [name.removeprefix("silo ") for name in names] if len(names) == count else [*map(str, range(count))]


def read_runs(paths: Sequence[Path]) -> list[RunFolder]:
    """The runs in these folders: runs, comparisons or choices."""
    runs = list({run.path.resolve(): run for path in paths for run in _runs_in(path)}.values())  # each once
    for run in runs:
        if not run.history:
            raise FedtctError(f"{run.path} has no rounds yet: there is nothing to report")
    return runs


def _runs_in(path: Path) -> list[RunFolder]:
    if not (path / PLAN).is_file():
        return [RunFolder.read(path)]
    begun = [path / name for name in Plan.read(path).runs if (path / name / CONFIG).is_file()]
    if not begun:
        raise FedtctError(f"{path} has no rounds yet: there is nothing to report")
    return [RunFolder.read(run) for run in begun]


def arrange(runs: Sequence[RunFolder]) -> list[Task]:
    """Runs by task and method; methods are told apart by what differs, seeds of one are put together."""
    labels = _labels(runs)
    order = {label: index for index, label in enumerate(dict.fromkeys(labels.values()))}
    of_task: dict[str, dict[str, list[RunFolder]]] = {}
    for run in runs:
        of_task.setdefault(_title(run, runs), {}).setdefault(labels[run.path], []).append(run)
    return [
        Task(title, [Method(label, order[label], same) for label, same in methods.items()])
        for title, methods in of_task.items()
    ]


def _labels(runs: Sequence[RunFolder]) -> dict[Path, str]:
    """What each run's method is called: its name, and the settings in which runs of that name differ."""
    labels = {}
    for run in runs:
        alike = [other for other in runs if other.config.method == run.config.method]
        own = _settings(run, (*OF_THE_METHOD, *OF_THE_TRAINING))
        differing = [name for name in own if any(_value(other, name) != own[name] for other in alike)]
        details = ", ".join(f"{name} {_text(own[name])}" for name in differing)
        labels[run.path] = f"{METHODS[run.config.method]}{f' ({details})' if details else ''}"
    twice = _twice((labels[run.path], _title(run, runs), run.config.seed) for run in runs)
    return {
        run.path: f"{label} [{run.path.name}]" if (label, _title(run, runs), run.config.seed) in twice else label
        for run, label in zip(runs, labels.values(), strict=True)
    }


def _title(run: RunFolder, runs: Sequence[RunFolder]) -> str:
    """The task in words: the dataset, the split, how many silos, and whatever else differs."""
    config = run.config
    silos = f"{config.silos} silo{'s' if config.silos > 1 else ''}"
    rest = [name for name in asdict(config) if name not in (*OF_THE_METHOD, *OF_THE_TRAINING, *NO_DIFFERENCE)]
    more = [name for name in rest if name not in ("dataset", "split", "silos")]
    differing = [name for name in more if any(_value(other, name) != _value(run, name) for other in runs)]
    return ", ".join(
        [
            config.dataset,
            *([] if config.data else [config.split]),
            silos,
            *(f"{name} {_text(_value(run, name))}" for name in differing),
        ]
    )


def _settings(run: RunFolder, names: Iterable[str]) -> Mapping[str, Any]:
    return {name: _value(run, name) for name in names if name not in ("method", *NO_DIFFERENCE)}


def _value(run: RunFolder, name: str) -> Any:
    return getattr(run.config, name)


def _text(value: Any) -> str:
    if value in ("", ()):
        return "none"
    if isinstance(value, tuple):
        return "+".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _twice(keys: Iterable[Any]) -> set[Any]:
    seen: set[Any] = set()
    return {key for key in keys if key in seen or seen.add(key)}  # type: ignore[func-returns-value]

"""Which runs a page shows: problems (the data and how it is dealt), methods on them, and each method's seeds."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedtct.report.looks import looks
from fedtct.runs.caveats import caveats
from fedtct.runs.choose import chosen_settings, read_choice, undecided
from fedtct.runs.config import RunConfig
from fedtct.runs.finding_types import SPLIT
from fedtct.runs.folder import RunFolder
from fedtct.runs.settings import settings_of
from fedtct.runs.summary import silos_told

Choices = Mapping[Path, Mapping[str, str]]  # for each run, by setting, the values it was chosen from
Differences = dict[str, dict[str, list[str]]]  # the methods by setting and value


@dataclass(frozen=True)
class Method:
    """Runs that differ only in their seed, and in settings that were chosen for each from the same candidates.

    ``index`` is the number of its colour and symbol, the same for every problem; ``chosen`` has the candidates of each
    chosen setting.
    """

    label: str
    index: int
    runs: Sequence[RunFolder]
    chosen: Mapping[str, str]

    @property
    def config(self) -> RunConfig:
        """The configuration of one run; the others differ in the seed and in what was chosen."""
        return self.runs[0].config

    def value(self, name: str) -> Any:
        """A setting's value, or the candidates it was chosen from."""
        return self.chosen.get(name, getattr(self.config, name))

    @property
    def over(self) -> bool:
        """Whether at least one run is over."""
        return any(_is_over(run) for run in self.runs)

    @property
    def counted(self) -> Sequence[RunFolder]:
        """The runs that tell how good the method is: those that are over, or all if none is yet."""
        return [run for run in self.runs if _is_over(run)] or self.runs


@dataclass(frozen=True)
class Problem:
    """What was to be learnt, and the methods that were tried."""

    title: str
    methods: Sequence[Method]

    @property
    def regression(self) -> bool:
        """Whether numbers are learnt, not classes."""
        return any(row.regression for method in self.methods for run in method.runs for row in run.history)

    def silo_names(self, count: int) -> list[str]:
        """Silos' names on an axis; their numbers if they have no names."""
        found = next((found for _, _, found in self.findings(SPLIT)), None)
        names = [silo["name"] for silo in found["silos"]] if found else []
        return called(names, count)

    @property
    def caveats(self) -> str:
        """Sentences to read beside the ratings; empty if there are none."""
        told = caveats([run for method in self.methods for run in method.runs])
        return " ".join(map(sentence, told))

    def findings(self, name: str) -> Iterable[tuple[Method, RunFolder, Any]]:
        """The finding of this name of each run that has it."""
        for method in self.methods:
            for run in method.runs:
                if (found := run.finding(name)) is not None:
                    yield method, run, found


def _is_over(run: RunFolder) -> bool:
    return run.finished or bool(run.failure)


def called(names: Sequence[str], count: int) -> list[str]:
    """The names of so many silos, or their numbers if there are not as many names."""
    return [name.removeprefix("silo ") for name in names] if len(names) == count else [*map(str, range(count))]


def arrange(runs: Sequence[RunFolder]) -> list[Problem]:
    """Runs by problem and method; runs are of the same method if they differ only in their seed."""
    runs, chosen = _contenders(runs)
    labels = _labels(runs, chosen)
    look = looks([*dict.fromkeys(labels.values())])
    of_problem: dict[str, dict[str, list[RunFolder]]] = {}
    for run in runs:
        of_problem.setdefault(_title(run, runs), {}).setdefault(labels[run.path], []).append(run)
    problems = []
    for methods in of_problem.values():
        same = [run for of_method in methods.values() for run in of_method]
        stayed = {silos_told(run) for run in same}  # if runs differ in that, a note says so
        title = _title(same[0], runs, stayed.pop() if len(stayed) == 1 else "")
        by_seed = {label: sorted(own, key=lambda run: run.config.seed) for label, own in methods.items()}
        found = [Method(label, look[label], own, chosen[own[0].path]) for label, own in by_seed.items()]
        problems.append(Problem(title, found))
    return problems


def _contenders(runs: Sequence[RunFolder]) -> tuple[Sequence[RunFolder], Choices]:
    """The runs that are shown, and for each, in words, the candidates that its settings were chosen from.

    Candidates that lost a choice are left out, and beside other runs also those of a choice that is not made yet. If
    there is nothing but a single choice, all its candidates are shown.
    """
    folders = {run.path.parent for run in runs}
    best = {folder: folder / choice.best for folder in folders if (choice := read_choice(folder))}
    here = {run.path for run in runs}
    left = [run for run in runs if (won := best.get(run.path.parent)) not in here or won == run.path]
    if len(folders) == 1 and len(left) < len(runs):
        return runs, {run.path: {} for run in runs}
    early = {folder for folder in folders if undecided(folder)}
    left = [run for run in left if run.path.parent not in early] or left
    chosen = {run.path: {name: _chosen_from(v) for name, v in chosen_settings(run).items()} for run in left}
    return left, chosen


def _chosen_from(values: Sequence[Any]) -> str:
    return f"chosen from {listed([*map(text_of, sorted(values))])}"


def _labels(runs: Sequence[RunFolder], chosen: Choices) -> dict[Path, str]:
    """What each run's method is called: its name, and the settings in which runs of that name differ."""
    labels = {}
    details = {run.path: {**_details(run), **chosen[run.path]} for run in runs}
    for run in runs:
        alike = [other for other in runs if other.config.full_method == run.config.full_method]
        own = details[run.path]
        differing = [name for name in own if any(details[other.path][name] != own[name] for other in alike)]
        told = ", ".join(f"{name} {text_of(own[name])}" for name in differing)
        labels[run.path] = f"{run.config.method_name}{f' ({told})' if told else ''}"
    groups: dict[tuple[str, str], list[RunFolder]] = {}
    for run in runs:
        groups.setdefault((labels[run.path], _title(run, runs)), []).append(run)
    for (label, _), same in groups.items():
        labels |= _labels_of_copies(label, same)
    return labels


def _labels_of_copies(label: str, runs: Sequence[RunFolder]) -> dict[Path, str]:
    """The labels of runs with equal settings: one for different seeds, with the folder added where a seed repeats."""
    first, *copies = _without_copies(runs)
    marked = copies if len(first) > 1 else [first, *copies] if copies else []
    labels = {run.path: label for run in first}
    for group in marked:
        more = f" and {len(group) - 1} more" if len(group) > 1 else ""
        labels |= {run.path: f"{label} [{_end_of_path(group[0], runs)}{more}]" for run in group}
    return labels


def _without_copies(runs: Sequence[RunFolder]) -> list[list[RunFolder]]:
    """Runs in groups without a seed twice; the folder with most seeds is first, so that a comparison stays whole."""
    seeds = Counter(folder for folder, _ in {(run.path.resolve().parent, run.config.seed) for run in runs})
    groups: list[dict[int, RunFolder]] = []
    for run in sorted(runs, key=lambda run: -seeds[run.path.resolve().parent]):
        group = next((group for group in groups if run.config.seed not in group), None)
        if group is None:
            groups.append(group := {})
        group[run.config.seed] = run
    return [list(group.values()) for group in groups]


def _end_of_path(run: RunFolder, runs: Sequence[RunFolder]) -> str:
    """As much of a run's path as no other run has."""
    parts, *others = (other.path.resolve().parts for other in (run, *(other for other in runs if other is not run)))
    length = next(n for n in range(1, len(parts) + 1) if all(other[-n:] != parts[-n:] for other in others))
    return str(Path(*parts[-length:]))


def differences(methods: Sequence[Method]) -> Differences:
    """Settings in which methods that read them differ, without those in their names and without seeds."""
    found: Differences = {}
    for name in _details(methods[0].runs[0]):
        readers = [method for method in methods if name not in method.config.unread()]
        differ = len({_amount(method, name) for method in readers}) > 1
        if name != "evaluate_every" and differ and not all(_called_by(name, method, readers) for method in readers):
            found[name] = by_value((text_of(method.value(name)), method) for method in readers)
    seeds = by_value((_numbers(sorted(run.config.seed for run in method.counted)), method) for method in methods)
    return found | ({"seeds": seeds} if len(seeds) > 1 else {})


def _amount(method: Method, name: str) -> Any:
    """A setting's value; of rounds their sum, because TCT shares between two stages what others have in one."""
    return sum(method.config.rounds) if name == "rounds" else method.value(name)


def _called_by(name: str, method: Method, others: Sequence[Method]) -> bool:
    """Whether the label has the setting, to tell the method from itself with another value."""
    alike = [other for other in others if other.config.full_method == method.config.full_method]
    return any(other.value(name) != method.value(name) for other in alike)


def by_value(pairs: Iterable[tuple[str, Method]]) -> dict[str, list[str]]:
    """The methods that have each value, every method once."""
    found: dict[str, list[str]] = {}
    for value, label in dict.fromkeys((value, method.label) for value, method in pairs):
        found.setdefault(value, []).append(label)
    return found


def _numbers(values: Sequence[int]) -> str:
    if len(values) > 2 and values[-1] - values[0] == len(values) - 1:
        return f"{values[0]} to {values[-1]}"
    return listed([*map(str, values)])


def listed(words: Sequence[str]) -> str:
    """Words in a row, as in a sentence: a, b and c."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def sentence(text: str) -> str:
    """The text with a capital and a full stop."""
    return f"{text[0].upper()}{text[1:]}."


def _title(run: RunFolder, runs: Sequence[RunFolder], silos: str = "") -> str:
    """The problem in words: the dataset, the split, how many silos, a table's target, and whatever else differs."""
    config = run.config
    more = [name for name in settings_of("data") if name not in ("dataset", "split", "silos")]
    named = [name for name in more if any(_value(other, name) != _value(run, name) for other in runs)]
    named = [name for name in more if name in named or (name == "target" and config.target)]
    return ", ".join(
        [
            config.dataset,
            *([] if config.data else [config.split]),
            silos or f"{config.silos} silo{'s' if config.silos > 1 else ''}",
            *(f"{name} {text_of(_value(run, name))}" for name in named),
        ]
    )


def _details(run: RunFolder) -> Mapping[str, Any]:
    """Settings in which runs of one method, with one stage 1 of TCT, may differ."""
    names = [name for name in settings_of("method", "training") if name not in ("method", "stage1")]
    return {name: _value(run, name) for name in names}


def _value(run: RunFolder, name: str) -> Any:
    return getattr(run.config, name)


def text_of(value: Any) -> str:
    """A setting's value in a label or a sentence."""
    if value in ("", (), []):
        return "none"
    if isinstance(value, tuple | list):
        return "+".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)

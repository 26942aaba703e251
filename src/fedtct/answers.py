"""What silos tell about their answers, which are labels, names of classes or numbers, and what follows for all."""

import json
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedtct.data.numbers import Numbers, warn_of_units
from fedtct.data.samples import MANY_WHOLE
from fedtct.data.table_agreement import MANY_TEXTS, TOLD_EACH
from fedtct.data.texts import spelt_alike
from fedtct.errors import FedtctError, listing
from fedtct.tasks import Classification, Regression, Task, sorted_names

Description = dict[str, Any]  # tensors and plain values, as any message
LABELS, NAMES, NUMBERS = "labels", "names", "numbers"
HELD_LABELS, HELD_NAMES = "held_labels", "held_names"  # classes that the silo holds out, but does not train on
CODES, FEW_CLASSES = 2, 10  # labels that make for so many times as many classes, more than a few, are codes
FEW_SAMPLES = 100  # of a class: if there are fewer of each of many whole numbers, these may be quantities
AS_NUMBERS = "give them as real numbers (in Python y.astype(float); for files task = regression, --task in a command)"
AS_TEXTS = "give them as texts (in Python y.astype(str); for files task = classification, --task in a command)"


def describe_answers(y: Any, held_y: Any, whose: str) -> Description:
    """What one silo tells: the kind of its answers, and its classes, or mean and spread of its numbers."""
    if not isinstance(y, Tensor):
        learnt, held = set(y.tolist()), set(held_y.tolist())
        _warn_of_many_names(len(learnt), len(y), whose)
        only_held = {HELD_NAMES: json.dumps(sorted(held - learnt))} if held - learnt else {}
        return {"answers": NAMES, NAMES: json.dumps(sorted(learnt | held)), **only_held}
    if not y.is_floating_point():
        labels = torch.cat([y, held_y]).unique().cpu()
        unlearnt = labels[~torch.isin(labels, y.cpu())]
        return {"answers": LABELS, LABELS: labels} | ({HELD_LABELS: unlearnt} if len(unlearnt) else {})
    mean = float(y.mean())
    return {"answers": NUMBERS, "answer_mean": mean, "answer_m2": float((y - mean).square().sum())}


def agree_on_answers(silos: Mapping[str, Description], num_classes: int | None) -> tuple[Task, int]:
    """The task that all silos share, and how many outputs it takes."""
    told = list(silos.values())
    if told[0]["answers"] == NUMBERS:
        return _agree_on_numbers(silos), 1
    if told[0]["answers"] == NAMES:
        classes = [(json.loads(silo[NAMES]), json.loads(silo.get(HELD_NAMES, "[]"))) for silo in told]
        names = sorted_names({name for own, _ in classes for name in own})
        if len(names) < 2:
            raise FedtctError(f"all silos together have a single class, {names[0]}: there is nothing to learn")
        _check_learnt(classes)
        _warn_of_spellings(names)
        own_names = {name: json.loads(silo[NAMES]) for name, silo in silos.items()}
        if not _warn_of_numbers_and_words(own_names):
            _warn_of_other_words(own_names)
        return Classification(names), len(names)
    if num_classes == 1:
        raise FedtctError(
            "num_classes, or the number of outputs of the model's head, is 1: labels need one output for each class, "
            "at least 2"
        )
    outputs = num_classes or _count_classes(told)
    for name, silo in silos.items():
        if (label := int(silo[LABELS].max())) >= outputs:
            raise FedtctError(
                f"{name} has label {label}, but there are {outputs} classes, counted from 0, according to num_classes "
                "or the model's head"
            )
    if outputs < 2:
        raise FedtctError("all silos together have a single class, 0: there is nothing to learn")
    _check_learnt([(silo[LABELS].tolist(), silo.get(HELD_LABELS, torch.tensor([])).tolist()) for silo in told])
    return Classification(), outputs


def _check_learnt(classes: Sequence[tuple[list[Any], list[Any]]]) -> None:
    """Warn of classes whose samples are all held out; refuse if only one class is left to train on.

    ``classes`` has for each silo all its classes, and those that it only holds out.
    """
    learnt = set().union(*(set(own) - set(held) for own, held in classes))
    only_held = sorted(set().union(*(held for _, held in classes)) - learnt)
    where = f"silos hold out all samples of class {listing(map(str, only_held))}"
    advice = "change holdout, or add more samples of it"
    if only_held and len(learnt) < 2:
        raise FedtctError(f"{where}: there is nothing to learn from a single class; {advice}")
    if only_held:
        warnings.warn(f"{where}: it cannot be learnt; {advice}", stacklevel=2)


def _warn_of_many_names(names: int, samples: int, whose: str) -> None:
    """Warn that a target's texts leave the silo if there are too many to be classes."""
    if names > max(MANY_TEXTS, samples / 2):
        warnings.warn(
            f"{whose}: the target has {names} different texts in {samples} training samples, each of them a class; "
            f"{TOLD_EACH}: if they are quantities, {AS_NUMBERS}; if they are names of people or notes, choose another "
            "target",
            stacklevel=2,
        )


def _warn_of_spellings(names: Sequence[str]) -> None:
    """Warn of classes that are spelt almost alike, as files from different hands may do."""
    if told := spelt_alike(names):
        warnings.warn(
            f"{told} count as different classes: spell them the same in all silos if they mean the same", stacklevel=2
        )


def _warn_of_numbers_and_words(classes: Mapping[str, Sequence[str]]) -> bool:
    """Warn if classes are numbers, such as 0 and 1, in some silos and words in all others. Returns whether they are."""
    kinds: dict[bool, dict[str, set[str]]] = {True: {}, False: {}}
    for silo, own in classes.items():
        numbers = {name.lstrip("-").isdecimal() for name in own}
        if len(numbers) == 2:
            return False
        kinds[numbers.pop()][silo] = set(own)
    if all(kinds.values()):
        told = [f"{listing(sorted(set().union(*of.values())))} in {listing(of)}" for of in kinds.values()]
        warnings.warn(
            f"classes are {' and '.join(told)}, and count as different: spell them the same in all silos if they mean "
            "the same",
            stacklevel=2,
        )
    return all(kinds.values())


def _warn_of_other_words(classes: Mapping[str, Sequence[str]]) -> None:
    """Warn if silos have equally many classes but none in common, as with no and yes, and nein and ja."""
    silos: dict[tuple[str, ...], list[str]] = {}
    for silo, own in classes.items():
        silos.setdefault(tuple(own), []).append(silo)
    size, several = len(next(iter(silos))), len(silos) > 1
    if several and size > 1 and {*map(len, silos)} == {size} and len(set().union(*silos)) == size * len(silos):
        told = [f"{listing(own)} in {listing(of)}" for own, of in silos.items()]
        warnings.warn(
            f"silos have no class in common: {listing(told, most=3)}. If they mean the same, spell them the same in "
            "all silos",
            stacklevel=2,
        )


def _count_classes(told: Sequence[Description]) -> int:
    """One more than the largest label; refused if labels must be codes, as most classes would have no samples."""
    known = torch.cat([silo[LABELS] for silo in told]).unique()
    largest = int(known.max())
    if largest + 1 > CODES * len(known) and largest >= FEW_CLASSES:
        raise FedtctError(
            f"labels are counted from 0, but {len(known)} different ones go up to {largest}: if they are codes, "
            f"{AS_TEXTS}; if they are quantities, give real numbers (y.astype(float), task = regression); if most "
            "classes have no samples, give num_classes (in Python, or in run.toml of a deployment)"
        )
    samples = sum(silo["n"] for silo in told)
    rare = told[0]["kind"] == "table" or samples < FEW_SAMPLES * len(known)
    if len(known) > MANY_WHOLE and rare:
        warnings.warn(
            f"the target has {len(known)} different whole numbers in {samples:,} samples, and they are taken as "
            f"classes: if they are quantities, such as ages, {AS_NUMBERS}; if not, give num_classes",
            stacklevel=2,
        )
    elif int(known.min()) > 0:
        warnings.warn(
            f"no silo has label 0, but labels are counted from 0, up to {largest} here: class 0 has no samples. If "
            f"labels are codes, {AS_TEXTS}",
            stacklevel=2,
        )
    elif nobodys := sorted(set(range(largest)) - set(known.tolist())):
        warnings.warn(
            f"labels go up to {largest}, but no silo has {listing(nobodys)}, which cannot be learnt", stacklevel=2
        )
    return largest + 1


def _agree_on_numbers(silos: Mapping[str, Description]) -> Regression:
    told = {name: Numbers(silo["n"], silo["answer_mean"], silo["answer_m2"]) for name, silo in silos.items()}
    every = Numbers.merge([*told.values()])
    if every.constant:
        raise FedtctError(f"the target is {every.mean:g} for every sample: there is nothing to learn")
    warn_of_units("the target", told)
    return Regression(every.mean, every.std)


def warn_of_idle_outputs(outputs: int, told: Sequence[Description]) -> None:
    """Warn of a module's outputs without labels in any silo, if ``num_classes`` was not given."""
    labels = [silo[LABELS] for silo in told if LABELS in silo]
    nobodys = sorted(set(range(outputs)) - set(torch.cat(labels).tolist())) if labels else []
    if nobodys:
        warnings.warn(
            f"the model has {outputs} outputs, but no silo has labels {listing(nobodys)}: give it fewer "
            f"outputs, or num_classes={outputs} if there are such classes",
            stacklevel=2,
        )


def check_classes(asked: int | None, task: Task, outputs: int) -> None:
    """Refuse a number of classes that silos' data contradicts."""
    if asked in (None, outputs):
        return
    found = f"silos use class names, {outputs} in all"
    advice = "if there are more classes, give labels from 0 instead of names"
    if isinstance(task, Regression):
        found = "silos hold real numbers, which makes this a regression"
        advice = (
            "if they are classes, give them as whole numbers (in Python y.astype(int); for files task = classification)"
        )
    raise FedtctError(f"num_classes is {asked}, but {found}: leave num_classes out; {advice}")

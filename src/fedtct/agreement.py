"""What silos tell about their data before training, and what follows for all of them: inputs, task and outputs.

Everything is in the replies to one question. Sums and counts add up, and classes and categories are united, so that
what is agreed on does not depend on how samples are dealt to silos, nor on their order.
"""

import json
import math
import statistics
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedtct.answers import LABELS, NAMES, NUMBERS, Description, agree_on_answers, describe_answers
from fedtct.data.image_files import to_be_alike
from fedtct.data.table_agreement import agree_on_table, describe_table
from fedtct.data.table_code import EMPTY, NUMBER, TEXT
from fedtct.data.tables import is_table
from fedtct.errors import FedtctError, listing, quoted
from fedtct.models import InputSpec
from fedtct.tasks import Classification, Regression, Task, task_from

PIXELS_AT_ONCE = 2**24  # how many are summed up at a time
ROOT_MEAN_SQUARE = "root_mean_square"  # of real samples' numbers
FAR_SIZES = 30.0  # times every other silo's: so far are millivolts from volts, but no two machines
PUBLIC = ("n", "held", "shape", "kind", "answers")  # all that private silos tell


class Agreement(NamedTuple):
    """What all silos share."""

    inputs: InputSpec
    task: Task
    outputs: int
    silos: Mapping[str, int]  # how many samples each trains on, in their order
    held: Mapping[str, int]  # and how many it holds out

    @property
    def everybody_holds_out(self) -> bool:
        """Whether every silo holds samples out, so that ratings on them say something about each."""
        return all(self.held.values())

    def record(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        nested = {"inputs": self.inputs.record(), "task": self.task.record()}
        return self._asdict() | nested | {"silos": dict(self.silos), "held": dict(self.held)}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> "Agreement":
        """The inverse of ``record``."""
        inputs, task = InputSpec.from_record(record["inputs"]), task_from(record["task"])
        known = {name: record[name] for name in cls._fields}
        return cls(**known | {"inputs": inputs, "task": task})


def describe(x: Any, y: Any, held_y: Any, whose: str, *, private: bool = False) -> Description:
    """What one silo tells: sizes, statistics of its training samples, and its classes; if private, only sizes."""
    reply: Description = {"n": len(y), "held": len(held_y), "shape": torch.tensor(x.shape[1:])}
    reply |= _describe_inputs(x, whose) | describe_answers(y, held_y, whose)
    return {key: reply[key] for key in PUBLIC} if private else reply


def _describe_inputs(x: Any, whose: str) -> Description:
    if is_table(x):
        return {"kind": "table", "columns": json.dumps(describe_table(x, whose))}
    if x.dtype != torch.uint8:
        kind = {"kind": str(x.dtype).removeprefix("torch.")}
        return kind | ({ROOT_MEAN_SQUARE: _root_mean_square(x)} if x.is_floating_point() else {})
    # Integer sums are exact: the constants do not depend on how the data is dealt.
    total, squares = torch.zeros(2, x.shape[1], dtype=torch.int64, device=x.device)
    for part in x.split(max(1, PIXELS_AT_ONCE // x[0].numel())):
        pixels = part.transpose(0, 1).flatten(1).long()  # which takes eight times the memory
        total += pixels.sum(1)
        squares += pixels.square_().sum(1)
    return {"kind": "pixels", "pixels": x[:, 0].numel(), "sum": total.cpu(), "square_sum": squares.cpu()}


def _root_mean_square(x: Tensor) -> float:
    return float(torch.linalg.vector_norm(x, dtype=torch.float64)) / math.sqrt(x.numel())


def agree(
    told: Sequence[Description], num_classes: int | None, private: bool = False, *, names: Sequence[str] = ()
) -> Agreement:
    """What follows from all descriptions; refused if some silo's data is of another kind.

    If silos are private, ``num_classes`` must be known, and pixels are scaled by constants. ``names`` are the silos'.
    """
    silos = dict(zip(names or [f"silo {index}" for index in range(len(told))], told, strict=True))
    _check_alike("samples are of kind", {name: silo["kind"] for name, silo in silos.items()})
    answers = {name: silo["answers"] for name, silo in silos.items()}
    _check_alike("what is to be learnt is", answers, "; for files, set task to classification or regression")
    sizes, held = ({name: silo[number] for name, silo in silos.items()} for number in ("n", "held"))
    if private:
        return Agreement(_inputs_without_looking(silos), Classification(), num_classes or 0, sizes, held)
    task, outputs = agree_on_answers(silos, num_classes)
    return Agreement(_agree_on_inputs(silos), task, outputs, sizes, held)


def _check_alike(what: str, told: Mapping[str, object], hint: str = "") -> None:
    """Refuse silos that differ, and name every one of them with what it has."""
    silos: dict[object, list[str]] = {}
    for name, value in told.items():
        silos.setdefault(value, []).append(name)
    if len(silos) > 1:
        parts = [f"{value} in {listing(names)}" for value, names in silos.items()]
        raise FedtctError(f"{what} {' and '.join(parts)}: they must be alike{hint}")


def _inputs_without_looking(silos: dict[str, Description]) -> InputSpec:
    first = next(iter(silos.values()))
    check_private(first)
    shape = _same_shape(silos)
    if first["kind"] != "pixels":
        return InputSpec(shape, getattr(torch, first["kind"]))
    half = (0.5,) * shape[0]
    return InputSpec(shape, torch.uint8, half, half)


def check_private(told: Description) -> None:
    """Refuse samples that differential privacy does not cover."""
    if told["kind"] == "table" or told["answers"] != LABELS:
        raise FedtctError(
            f"differential privacy needs arrays with labels from 0 (in .npz files or in Python), not {told['kind']} "
            f"samples with {told['answers']}: reading those would depend on the silos' data"
            + (
                "; a matrix in a file counts as a table: save x as (N, 1, D), scaled"
                if told["answers"] == LABELS
                else ""
            )
        )


def _agree_on_inputs(silos: dict[str, Description]) -> InputSpec:
    told = list(silos.values())
    if told[0]["kind"] == "table":
        table = agree_on_table({name: json.loads(silo["columns"]) for name, silo in silos.items()})
        return InputSpec((table.width,), torch.float32, table=table)
    shape = _same_shape(silos)
    if told[0]["kind"] != "pixels":
        _warn_of_sizes({name: silo[ROOT_MEAN_SQUARE] for name, silo in silos.items() if ROOT_MEAN_SQUARE in silo})
        return InputSpec(shape, getattr(torch, told[0]["kind"]))
    count = sum(silo["pixels"] for silo in told)
    mean = sum(silo["sum"] for silo in told).double() / count
    square = sum(silo["square_sum"] for silo in told).double() / count
    std = (square - mean.square()).clamp_min(0).sqrt()
    std = torch.where(std > 0, std, 255.0)
    return InputSpec(shape, torch.uint8, tuple((mean / 255).tolist()), tuple((std / 255).tolist()))


def _warn_of_sizes(sizes: Mapping[str, float]) -> None:
    """Warn of a silo whose numbers are far larger or smaller than all others': arrays are taken as they are."""
    for silo, own in sizes.items():
        others = [size for name, size in sizes.items() if name != silo]
        if others and (own > FAR_SIZES * max(others) or FAR_SIZES * own < min(others)):
            warnings.warn(
                f"samples are of size {own:.3g} in {silo} and {statistics.median(others):.3g} in the others (root mean "
                "square): are they in the same units?",
                stacklevel=2,
            )
            return  # once is enough: of two silos each is far from the other


def _same_shape(silos: dict[str, Description]) -> tuple[int, ...]:
    shapes = {name: tuple(silo["shape"].tolist()) for name, silo in silos.items()}
    images = all(silo["kind"] == "pixels" for silo in silos.values()) and {*map(len, shapes.values())} == {3}
    hint = f"; for folders of images {to_be_alike(*shapes.values())}" if images else ""
    _check_alike("samples have shape", shapes, hint)
    return next(iter(shapes.values()))


def novelties(silo: Description, inputs: InputSpec) -> list[str]:
    """Categories of a silo that came later which no other silo had: the model ignores them."""
    own = {column["name"]: column["categories"] for column in json.loads(silo.get("columns", "[]"))}
    columns = inputs.table.columns if inputs.table else ()
    new = {c.name: sorted(set(own[c.name]) - set(c.categories)) for c in columns if c.categories is not None}
    return [
        f"its column '{name}' holds {listing(texts)}, which no silo had when the run began: the model ignores these "
        "values"
        for name, texts in new.items()
        if texts
    ]


def misfit(silo: Description, inputs: InputSpec, task: Task, outputs: int) -> str:
    """Why a silo cannot take part in what others have agreed on; empty if it can."""
    kind = "table" if inputs.table else "pixels" if inputs.mean else str(inputs.dtype).removeprefix("torch.")
    answers = NUMBERS if isinstance(task, Regression) else NAMES if task.names else LABELS
    shape = tuple(silo["shape"].tolist())
    if inputs.table is None and shape != inputs.shape:
        return f"its samples have shape {shape}, the others' {inputs.shape}"
    if (silo["kind"], silo["answers"]) != (kind, answers):
        return f"it holds {silo['kind']} samples with {silo['answers']}, the others {kind} with {answers}"
    if inputs.table is not None:
        kinds = {column["name"]: column["kind"] for column in json.loads(silo["columns"])}
        if lacking := [column.name for column in inputs.table.columns if column.name not in kinds]:
            return f"it has no column {quoted(lacking)}, which the others have"
        for column in inputs.table.columns:
            expected = NUMBER if column.categories is None else TEXT
            if kinds.get(column.name) not in (expected, EMPTY):
                return f"its column '{column.name}' does not hold {expected}, but the others' does"
    if LABELS in silo and (label := int(silo[LABELS].max())) >= outputs:
        return f"it has label {label}, but there are {outputs} classes"
    strange = set(json.loads(silo[NAMES])) - set(task.names) if isinstance(task, Classification) and task.names else ()
    return f"it has class '{min(strange)}', which the others do not have" if strange else ""

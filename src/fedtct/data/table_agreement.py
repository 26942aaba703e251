"""What silos tell about their tables, the code that they agree on, and warnings of what is odd."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from fedtct.data.numbers import warn_of_units
from fedtct.data.numbers_as_texts import odd_ones
from fedtct.data.suspicious_numbers import warn_of_suspicious_numbers
from fedtct.data.table_code import NUMBER, TEXT, TO_IGNORE, Column, Facts, TableCode
from fedtct.data.texts import spelt_alike
from fedtct.errors import FedtctError, listing, quoted

if TYPE_CHECKING:
    import pandas as pd

MANY_TEXTS = 20  # more different texts than this, and than half of the rows, may be names of people
CHANCE = 0.001  # the probability that a silo has no value of a column merely because values are rare
TOLD_EACH = "the server, the other silos and everyone who gets the model see each of them"


def describe_table(table: pd.DataFrame, whose: str) -> list[dict[str, Any]]:
    """What a silo tells about its table, as plain values, with warnings of what it may not want to tell."""
    told = []
    for name, column in table.items():
        values = column.to_numpy()
        facts = Facts.of(str(name), values, whose)
        _warn_of_slips(facts, values, whose)  # which may be why there are too many texts
        told.append(asdict(facts.checked(whose)))
        _warn_of_many_texts(facts, whose)
        if facts.kind == NUMBER:
            warn_of_suspicious_numbers(facts.name, values, TO_IGNORE)
    return told


def _warn_of_slips(facts: Facts, values: NDArray[Any], whose: str) -> None:
    """Warn of a column of texts in which all but a few are numbers: each becomes a category, and leaves the silo."""
    if facts.kind == TEXT and (odd := odd_ones([value for value in values if value is not None])):
        warnings.warn(
            f"{whose}: column '{facts.name}' holds numbers except for {listing(odd)}, so all values are read as "
            "texts, each a category: fix these, or leave missing values empty",
            stacklevel=2,
        )


def _warn_of_many_texts(facts: Facts, whose: str) -> None:
    """Warn that a column's texts leave the silo, if they are so many that they may be names of people."""
    if len(facts.categories) > max(MANY_TEXTS, facts.present / 2):
        warnings.warn(
            f"{whose}: column '{facts.name}' has {len(facts.categories)} different texts in {facts.present} training "
            f"rows; {TOLD_EACH}: ignore names, ID numbers, dates and notes (--ignore)"
            + (
                ", or set it as group if one person has several rows (--group)"
                if len(facts.categories) < facts.present
                else ""
            ),
            stacklevel=2,
        )


def agree_on_table(told: Mapping[str, list[dict[str, Any]]]) -> TableCode:
    """One code for everybody from what each silo tells, by name; refused if their columns differ, or none varies."""
    silos = {silo: {c["name"]: Facts(**c) for c in columns} for silo, columns in told.items()}
    _check_columns(silos)
    orders = {tuple(columns) for columns in silos.values()}
    names = next(iter(orders)) if len(orders) == 1 else sorted(next(iter(orders)))
    _check_kinds(silos, names)
    merged = [Facts.merge([columns[name] for columns in silos.values()]) for name in names]
    if not any(facts.varies for facts in merged):
        raise FedtctError(
            f"no column varies: each of {listing(names)} is the same, or empty, in all rows of all silos. "
            "There is nothing to learn from."
        )
    _warn_of_empty(silos, names)
    _warn_of_still([facts.name for facts in merged if not facts.varies])
    _warn_of_spellings(merged)
    for name in names:
        warn_of_units(f"column '{name}'", {silo: columns[name].numbers for silo, columns in silos.items()})
    columns = tuple(Column.of(facts.checked("all silos together")) for facts in merged)
    return TableCode(columns, in_order=len(orders) == 1)


def _check_columns(silos: Mapping[str, Mapping[str, Facts]]) -> None:
    """Refuse tables with different columns; all are named at once, as different people may have to mend them."""
    owners = {name: tuple(s for s in silos if name in silos[s]) for columns in silos.values() for name in columns}
    shared: dict[tuple[str, ...], list[str]] = {}
    for name, having in owners.items():
        if len(having) < len(silos):
            shared.setdefault(having, []).append(name)
    if shared:
        parts = [
            f"{quoted(names)} {'is' if len(names) == 1 else 'are'} in {listing(having)} and not in "
            f"{listing(silo for silo in silos if silo not in having)}"
            for having, names in shared.items()
        ]
        raise FedtctError(f"{'; '.join(parts)}: silos need the same columns; add what is missing, or {TO_IGNORE}")


def _check_kinds(silos: Mapping[str, Mapping[str, Facts]], names: Sequence[str]) -> None:
    """Refuse columns that are numbers in some silos and texts in others."""
    mixed = []
    for name in names:
        holders = {kind: [s for s, columns in silos.items() if columns[name].kind == kind] for kind in (NUMBER, TEXT)}
        if all(holders.values()):
            kinds = " and ".join(f"{kind} in {listing(several)}" for kind, several in holders.items())
            mixed.append(f"column '{name}' holds {kinds}")
    if mixed:
        raise FedtctError(
            f"{listing(mixed)}: a column must hold one kind of value in all silos; fix what is not a number or, if "
            "these are codes, list it in texts in all (in Python: astype(str))"
        )


def _warn_of_empty(silos: Mapping[str, Mapping[str, Facts]], names: Sequence[str]) -> None:
    """Warn of columns that are empty in some silos and hardly in others: their values may have another name there."""
    found: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        told = {silo: columns[name] for silo, columns in silos.items()}
        others = Facts.merge([facts for facts in told.values() if facts.present] or list(told.values()))
        gaps = others.missing / (others.missing + others.present)
        if empty := tuple(silo for silo, facts in told.items() if not facts.present and gaps**facts.missing < CHANCE):
            found.setdefault(empty, []).append(name)
    for empty, columns in found.items():
        warnings.warn(
            f"{quoted(columns)} {'is' if len(columns) == 1 else 'are'} empty in all training rows of {listing(empty)}, "
            "and not in the other silos: has something been lost there?",
            stacklevel=2,
        )


def _warn_of_still(names: Sequence[str]) -> None:
    """Warn of columns that do not vary: a file may have lost their values."""
    if names:
        warnings.warn(
            f"nothing can be learnt from {quoted(names)}: the same, or empty, in all training rows. Fix what should "
            f"vary; if nothing should, {TO_IGNORE}",
            stacklevel=2,
        )


def _warn_of_spellings(columns: Sequence[Facts]) -> None:
    """Warn of categories that are spelt almost alike, as files from different hands may do."""
    for facts in columns:
        if told := spelt_alike(facts.categories):
            warnings.warn(
                f"column '{facts.name}': {told} count as different categories: spell them the same in all silos if "
                "they mean the same",
                stacklevel=2,
            )

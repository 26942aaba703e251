"""Compare methods: every method on every split with every seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedtct.runs.choose import choice_of, decide
from fedtct.runs.combinations import combinations
from fedtct.runs.config import RunConfig
from fedtct.runs.execute import Look
from fedtct.runs.folder import RunFolder
from fedtct.runs.plan import Plan, Watch


def comparison(
    methods: Sequence[str], splits: Sequence[str], seeds: Sequence[int], settings: Mapping[str, Any] | None = None
) -> Plan:
    """A plan with a run for each combination, or a choice if several learning rates are given."""
    runs: dict[str, RunConfig] = {}
    for name, own in combinations(methods, splits, seeds, settings or {}).items():
        choice = choice_of(own)
        runs |= {f"{name}/{candidate}": config for candidate, config in choice.runs.items()} if choice else {}
        runs |= {} if choice else {name: RunConfig.of(**own)}
    return Plan("compare", runs)


def carry_out(
    plan: Plan, folder: str | Path, *, resume: bool = False, watch: Watch | None = None, look: Look | None = None
) -> dict[str, RunFolder]:
    """Run the plan. Returns the runs that are compared, by method, split and seed; of each choice only the best."""
    best: dict[str, RunFolder] = {}

    def settle(name: str, candidates: Mapping[str, RunFolder]) -> None:
        best[name] = decide(Path(folder, name), candidates).best

    runs = plan.execute(folder, resume=resume, watch=watch, look=look, settle=settle)
    return best or runs

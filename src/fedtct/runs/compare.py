"""Compare methods: every method on every split with every seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedtct.errors import FedtctError
from fedtct.runs.choose import choice_of, decide
from fedtct.runs.config import RunConfig
from fedtct.runs.execute import Look
from fedtct.runs.folder import RunFolder
from fedtct.runs.plan import Plan, Watch
from fedtct.runs.settings import OWN, OWN_DEFAULTS, as_value, tct_rounds


def comparison(
    methods: Sequence[str], splits: Sequence[str], seeds: Sequence[int], settings: Mapping[str, Any] | None = None
) -> Plan:
    """A plan with a run for each combination, or a choice if several learning rates are given."""
    given = {}
    decided = OWN if settings and settings.get("data") else None  # silos' own data is not split
    for split in splits:
        for method in methods:
            for seed in seeds:
                own = share_rounds(method, settings or {}) | {"method": method, "seed": seed}
                own |= {} if split == decided else {"split": split}
                given[f"{slug(method)}-{slug(split)}-seed{seed}"] = own
    if len(given) < len(methods) * len(splits) * len(seeds) or not given:
        raise FedtctError("a comparison needs at least one method, split and seed, and none of them twice")
    runs: dict[str, RunConfig] = {}
    for name, own in given.items():
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


def share_rounds(method: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with the same number of rounds for every method: tct's two stages share what others have in one."""
    usual = OWN_DEFAULTS["stage2"] if settings.get("data") else RunConfig.stage2
    stage2 = settings.get("stage2", usual)
    ridge = stage2 == "ridge"
    rounds = as_value("rounds", settings.get("rounds", tct_rounds(stage2)))
    if method != "tct":
        rounds = (sum(rounds),)
    elif len(rounds) == 1:
        least, second = (1, 1) if ridge else (2, rounds[0] // 2)
        if rounds[0] < least:
            raise FedtctError(f"a comparison with tct, which has two stages, needs rounds of at least {least}")
        rounds = (rounds[0] - second, second)
    return {**settings, "rounds": rounds}


def slug(name: str) -> str:
    """A dataset, a split or a method as part of a file's name."""
    return name.replace(":", "").replace(" ", "-")

"""The settings of the runs that are compared: every method on every split with every seed. Nothing imports torch."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedtct.errors import FedtctError
from fedtct.runs.settings import OWN, OWN_DEFAULTS, Settings, as_value, tct_rounds


def combinations(
    methods: Sequence[str], splits: Sequence[str], seeds: Sequence[int], settings: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """The settings for each combination, by its name."""
    given = {}
    decided = OWN if settings.get("data") else None  # silos' own data is not split
    for split in splits:
        for method in methods:
            for seed in seeds:
                own = share_rounds(method, settings) | {"method": method, "seed": seed}
                own |= {} if split == decided else {"split": split}
                given[f"{slug(method)}-{slug(split)}-seed{seed}"] = own
    if len(given) < len(methods) * len(splits) * len(seeds) or not given:
        raise FedtctError("a comparison needs at least one method, split and seed, and none of them twice")
    return given


def share_rounds(method: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with the same number of rounds for every method: tct's two stages share what others have in one."""
    usual = OWN_DEFAULTS["stage2"] if settings.get("data") else Settings.stage2
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

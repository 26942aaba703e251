"""How to run it again: commands, configuration and environment of every run."""

import shlex
from typing import Any

from fedtct.report.page.blocks import Block, Details, Section
from fedtct.report.page.problems import Problem
from fedtct.runs.config import RunConfig
from fedtct.runs.environment import command_line
from fedtct.runs.folder import RunFolder
from fedtct.runs.settings import ELSEWHERE, SETTINGS


def section(problem: Problem) -> Section:
    """A fold for each run."""
    blocks: list[Block] = [_details(method.label, run) for method in problem.methods for run in method.runs]
    return Section("Run it again", blocks, intro="Configuration, environment, seed and exact command of every run.")


def _details(label: str, run: RunFolder) -> Details:
    sittings = run.provenance.sittings()
    texts = {"Configuration": run.config.to_toml()}
    if sittings:
        began = sittings[0]
        resumed = {"resumed": f"{len(sittings) - 1} times"} if len(sittings) > 1 else {}
        typed = {"command": _named(began["command"])} if began.get("command") else {}
        facts = began | typed | resumed
        texts["Environment"] = "".join(f"{key}: {value}\n" for key, value in facts.items() if value is not None)
    return Details(f"{label}, seed {run.config.seed}", command(run.config), texts)


def command(config: RunConfig) -> str:
    """The shortest command with these settings; a deployed run's are in its app folder."""
    if config.data == ELSEWHERE:
        return "fedtct deploy run app --server keys/server"
    dealt = {"dataset": config.dataset, "split": config.split}
    decided: dict[str, Any] = dealt | {"silos": config.silos} if config.data else {}
    given: dict[str, Any] = ({"data": config.data} if config.data else dealt) | {"method": config.method}
    if config.stage2 != RunConfig.stage2:
        given["stage2"] = config.stage2
    usual = RunConfig.of(**given, **decided)
    names = [*given, *(n for n in SETTINGS if n not in given and getattr(config, n) != getattr(usual, n))]
    words = ["fedtct", "run"]
    for name in [*names, *(["seed"] if "seed" not in names else [])]:
        value, flag = getattr(config, name), "--" + name.replace("_", "-")
        if isinstance(value, bool):
            words.append(flag if value else f"--no-{flag[2:]}")
        else:
            words += [flag, ",".join(map(str, value)) if isinstance(value, tuple) else str(value)]
    return shlex.join(words)


def _named(typed: str) -> str | None:
    """The command with the program's name in place of where it lies; none if it is not fedtct's."""
    words = shlex.split(typed)
    return shlex.join(["fedtct", *words[1:]]) if command_line(words) else None

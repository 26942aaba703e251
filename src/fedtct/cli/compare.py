"""fedtct compare: methods by splits by seeds."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedtct.cli.artifacts import draw_comparison, optional_if, report_on, to_look_at
from fedtct.cli.options import Config, Json, Out, Resume, with_settings
from fedtct.cli.output import print_lines
from fedtct.cli.screen import Screen
from fedtct.cli.stopping import stoppable
from fedtct.errors import FedtctError
from fedtct.runs.checks import check_given
from fedtct.runs.combinations import combinations, slug
from fedtct.runs.places import free_folder, next_free, resuming
from fedtct.runs.settings import OWN, as_value, read_toml
from fedtct.runs.watcher import Watcher

if TYPE_CHECKING:
    from fedtct.runs.config import RunConfig
    from fedtct.runs.plan import Plan

METHODS, SPLIT, SEEDS = "fedavg,scaffold,tct", "classes:2", "1"
MOST_SEEDS = 1000  # that are counted; more can only be a slip
Methods = Annotated[str | None, typer.Option(help=f"methods to compare [{METHODS}]", metavar="NAME,...")]
Splits = Annotated[str | None, typer.Option(help=f"splits to compare on [{SPLIT}]", metavar="SPLIT,...")]
Seeds = Annotated[str | None, typer.Option(help=f"how many seeds, or which ones: 0,7 [{SEEDS}]", metavar="N")]


@with_settings("method", "split", "seed")
def compare(
    *,
    methods: Methods = None,
    split: Splits = None,
    seeds: Seeds = None,
    config: Config = None,
    resume: Resume = None,
    out: Out = None,
    json: Json = False,
    settings: dict[str, Any],
) -> None:
    """Compare methods on the same splits, with equally many rounds.

    \b
    fedtct compare --methods fedavg,scaffold,tct --split classes:1 --seeds 3
    fedtct compare --split classes:1 --seeds 3 --lr 0.1,0.01,0.001 --holdout 0.1

    If you give several learning rates, held-out samples choose one for each method, split and seed.

    Without --rounds, every method gets as many rounds as tct's two stages: 200, or 101 if stage 2 is ridge, or 120 if
    it is conjugate-gradient.
    """
    with Screen(quiet=json) as screen:
        screen.wait("getting ready")
        if resume is not None:
            if settings or any(given is not None for given in (methods, split, seeds, config, out)):
                raise FedtctError(f"--resume continues the plan in {resume}: leave out the other options")
            from fedtct.runs.plan import Plan

            show(Plan.read(resume, "compare"), resume, True, screen, json)
            return
        shared = (read_toml(config) if config else {}) | settings
        if split is None:
            split = as_value("split", shared.get("split", OWN if shared.get("data") else SPLIT))
        methods, seeds = METHODS if methods is None else methods, SEEDS if seeds is None else seeds
        asked = words(methods), words(split), numbers(seeds), shared
        check_given(combinations(*asked).values())
        if out is not None:
            free_folder(out)
        from fedtct.runs.compare import comparison
        from fedtct.runs.config import warn_of_unread

        plan = comparison(*asked)
        warn_of_unread(plan.runs.values(), settings)
        first = next(iter(plan.runs.values()))
        path = out or next_free(Path("runs") / f"compare-{slug(first.dataset)}")
        show(plan, path, False, screen, json)


def show(plan: "Plan", path: Path, resume: bool, screen: Screen, json: bool) -> None:
    """Run a comparison and show what came of it."""
    from fedtct.runs.compare import carry_out
    from fedtct.runs.findings import find_all
    from fedtct.runs.tables import TABLE, table, write_comparison

    numbers, several = {name: n for n, name in enumerate(plan.runs, 1)}, len({c.seed for c in plan.runs.values()}) > 1

    def watch(name: str, config: "RunConfig") -> Watcher:
        seed = f" seed {config.seed}" if several else ""
        candidate = f" {name.rpartition('/')[2]}" if "/" in name else ""
        return screen.watch(f"{numbers[name]}/{len(numbers)} {config.full_method} {config.split}{seed}{candidate}")

    were_over = plan.finished(path)
    with stoppable(screen, path, resuming("fedtct compare", path)), screen:
        screen.expect(len(plan.runs))
        screen.wait(f"checking {len(plan.runs)} runs")
        runs = carry_out(plan, path, resume=resume, watch=watch, look=find_all)
        screen.wait("drawing and writing the report")
        lines = table(runs)
        with optional_if(were_over, screen):
            write_comparison(lines, runs, path)
            draw_comparison(runs, path)
            report_on(list(runs.values()), path)
    print_lines(lines, list(runs.values()), path, json, to_look_at(path, TABLE))


def words(text: str) -> list[str]:
    """Comma-separated words."""
    return [word.strip() for word in text.split(",") if word.strip()]


def numbers(text: str) -> list[int]:
    """The seeds: the first so many, or the ones that are named."""
    try:
        seeds = [int(word) for word in words(text)]
    except ValueError:
        seeds = []
    if not seeds or min(seeds) < 0 or ("," not in text and not 1 <= seeds[0] <= MOST_SEEDS):
        raise FedtctError(f"seeds must be a number such as 3, up to {MOST_SEEDS}, or several such as 0,7, not '{text}'")
    return seeds if "," in text else list(range(seeds[0]))

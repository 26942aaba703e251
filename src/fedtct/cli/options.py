"""Options that commands share: the settings of a run, made from the fields of Settings, and where runs go."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from fedtct.cli.help import HelpAll
from fedtct.runs.settings import SETTINGS

Config = Annotated[Path | None, typer.Option(help="a TOML file of settings; options override it", metavar="FILE")]
Resume = Annotated[Path | None, typer.Option(help="resume what was stopped in this folder", metavar="DIR")]
Out = Annotated[Path | None, typer.Option(help="the folder to make [under runs/]", metavar="DIR")]
Json = Annotated[bool, typer.Option("--json", help="print one JSON object, and no progress")]


def with_settings(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for every setting but some; it gets those that were used as ``settings``.

    Values stay text: RunConfig reads them, so that a file and the command line obey the same rules.
    """
    names = [name for name in SETTINGS if name not in without]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def wrapped(help_all: bool = False, **values: Any) -> None:
            settings = {name: values.pop(name) for name in names}
            command(**values, settings={k: v for k, v in settings.items() if v is not None})

        own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "settings"]
        help_all = inspect.Parameter("help_all", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=HelpAll)
        parameters = [*own, *map(_parameter, names), help_all]
        wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # inspect reads it
        wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
        return wrapped

    return decorate


def _parameter(name: str) -> inspect.Parameter:
    spec = SETTINGS[name]
    flag = "--" + name.replace("_", "-")
    shared: dict[str, Any] = {
        "help": _help(spec.metadata["help"], spec.default),
        "hidden": spec.metadata["rare"],
        "show_default": False,
    }
    if spec.type is bool:
        option = typer.Option(f"{flag}/--no-{flag[2:]}", **shared)
        annotation: Any = Annotated[bool | None, option]
    else:
        option = typer.Option(flag, metavar=spec.metadata["metavar"], **shared)
        annotation = Annotated[str | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _help(text: str, default: Any) -> str:
    """Help with the default, but where the text itself tells."""
    if isinstance(default, bool) or "[" in text or default in ("", 0, (), (100, 100), "digits", "mlp"):
        return text
    return text + (f" [{default:g}]" if isinstance(default, float) else f" [{default}]")

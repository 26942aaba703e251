"""Help that fits on a screen: plain text, what most people need first, the rest on request."""

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
Function = TypeVar("Function", bound=Callable[..., Any])


class Command(TyperCommand):
    """A command whose help is plain text."""

    def get_help(self, ctx: Any) -> str:
        """The help; typer escapes brackets for rich even where rich prints nothing."""
        return super().get_help(ctx).replace("\\[", "[")


class Group(TyperGroup):
    """A group of commands whose help is plain text."""

    def get_help(self, ctx: Any) -> str:
        """The help, as of a command."""
        return super().get_help(ctx).replace("\\[", "[")


class Commands(typer.Typer):
    """A group that such commands are added to."""

    def __init__(self, **more: Any) -> None:
        plain: dict[str, Any] = {"rich_markup_mode": None, "add_completion": False, "pretty_exceptions_enable": False}
        super().__init__(cls=Group, context_settings=CONTEXT, **plain, **more)

    def command(self, name: str | None = None, **more: Any) -> Callable[[Function], Function]:
        """Add a command."""
        return super().command(name, cls=Command, **more)


def _show_all(ctx: typer.Context, asked: bool) -> None:
    if asked:
        for parameter in ctx.command.params:
            parameter.hidden = False  # type: ignore[attr-defined]  # arguments of typer have it too
        print(ctx.get_help())
        raise typer.Exit


HelpAll = Annotated[
    bool, typer.Option("--help-all", help="show every option and exit", callback=_show_all, is_eager=True)
]

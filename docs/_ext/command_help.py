"""The directive ``command-help``: a section for every command of fedtct, as its own help shows it."""

from collections.abc import Iterator
from typing import Any

import typer
from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

from fedtct.cli import app as commands
from fedtct.cli.help import CONTEXT


def walk(command: Any, words: tuple[str, ...] = ("fedtct",)) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with the words that call it, groups before what is in them."""
    yield words, command
    for name, part in getattr(command, "commands", {}).items():
        yield from walk(part, (*words, name))


def help_text(words: tuple[str, ...], command: Any) -> str:
    """What the terminal shows, with the options that ``--help-all`` adds."""
    for parameter in command.params:
        parameter.hidden = False
    context = typer.Context(command, info_name=" ".join(words), terminal_width=100, **CONTEXT)
    return str(command.get_help(context))


class CommandHelp(Directive):
    """A section a command."""

    def run(self) -> list[nodes.Node]:
        """The sections, each with an anchor such as ``fedtct-data-fetch``."""
        sections: list[nodes.Node] = []
        for words, command in walk(typer.main.get_command(commands)):
            section = nodes.section(ids=["-".join(words)])
            section += nodes.title("", " ".join(words))
            text = help_text(words, command)
            section += nodes.literal_block(text, text, language="text", classes=["help"])
            self.state.document.note_explicit_target(section, section)
            sections.append(section)
        return sections


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx."""
    app.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True}

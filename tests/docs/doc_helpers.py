"""What the pages print: blocks of code, and the commands in them."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from fedtct.cli import app, main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def commands(page: Path, *languages: str) -> list[list[str]]:
    """The fedtct commands in a page, as words; a line that ends with a backslash goes on."""
    text = "\n".join(block for language in languages for block in blocks(page, language)).replace("\\\n", " ")
    lines = [shlex.split(line, comments=True) for line in text.splitlines() if line.startswith("fedtct ")]
    return [words[1:] for words in lines]


def unknown(words: list[str]) -> list[str]:
    """The words of a command that fedtct does not know: commands and options."""
    command: Any = get_command(app)
    rest = list(words)
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        if rest[0] not in command.commands:
            return [rest[0]]
        command = command.commands[rest.pop(0)]
    known = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    return [word for word in rest if word.startswith("-") and word.split("=")[0] not in known | {"--help", "-h"}]


def run(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a command prints, in this process: that it starts as one of its own is for tests/cli/test_process.py."""
    done, (out, err) = main(words), capsys.readouterr()
    assert done == 0, f"fedtct {' '.join(words)}\n{out}{err}"
    return out


def run_python(block: str) -> None:
    """A block of Python, as if it were typed into a fresh interpreter."""
    exec(compile(block, "<page>", "exec"), {"__name__": "__main__"})

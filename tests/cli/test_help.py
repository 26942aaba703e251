"""Help of every command: it fits on a screen, has an example, and hides nothing for good."""

from collections.abc import Iterator

import pytest
from typer.main import get_command

from fedtct.cli import app, main
from fedtct.runs.settings import METHODS, SETTINGS

COLUMNS, LINES = 100, 40
Words = tuple[str, ...]


def commands(command: object, words: Words = ()) -> Iterator[Words]:
    """Every command there is, groups included."""
    yield words
    for name, part in getattr(command, "commands", {}).items():
        yield from commands(part, (*words, name))


def help_of(words: Words, capsys: pytest.CaptureFixture[str], flag: str = "--help") -> list[str]:
    assert main([*words, flag]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.fixture(autouse=True)
def screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))


@pytest.mark.parametrize("words", list(commands(get_command(app))), ids=" ".join)
def test_help_fits_on_a_screen_and_has_an_example(words: Words, capsys: pytest.CaptureFixture[str]) -> None:
    lines = help_of(words, capsys)
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= COLUMNS
    assert any(" ".join(("fedtct", *words)) in line for line in lines if not line.startswith("Usage"))
    assert not any("\\[" in line for line in lines)


@pytest.mark.parametrize("words", list(commands(get_command(app))), ids=" ".join)
def test_summaries_of_commands_fit_on_their_lines(
    words: Words, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")  # as wide as a terminal opens
    assert not any(line.endswith("...") for line in help_of(words, capsys)[1:])


@pytest.mark.parametrize("words", list(commands(get_command(app))), ids=" ".join)
def test_every_option_and_argument_is_explained(words: Words) -> None:
    command = get_command(app)
    for word in words:
        command = command.commands[word]  # type: ignore[attr-defined]
    assert [p.name for p in command.params if not p.help] == []  # type: ignore[attr-defined]


def test_every_setting_is_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    rare = {name for name, spec in SETTINGS.items() if spec.metadata["rare"]}
    assert rare
    for command, without in {"run": set(), "compare": {"method", "seed"}}.items():
        text = "\n".join(help_of((command,), capsys, "--help-all"))
        assert all(f"--{name.replace('_', '-')} " in text for name in SETTINGS.keys() - without)
        shorter = "\n".join(help_of((command,), capsys))
        assert not any(f"--{name.replace('_', '-')} " in shorter for name in rare)


def test_every_method_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    text = "".join(help_of(("run",), capsys)).replace(" ", "")  # a name may go over two lines
    named = text.split("Methods:")[1].split(".")[0].split(",")
    assert sorted(named) == sorted([*METHODS, "module:Class"])

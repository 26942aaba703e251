"""What the README prints runs as printed."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_python_example_runs_and_tct_wins(capsys):
    (example,) = blocks("python")
    assert len(example.strip().splitlines()) <= 12
    exec(compile(example, "README.md", "exec"), {})
    fedavg, tct = map(float, capsys.readouterr().out.split("\n")[0].split())
    assert tct > fedavg + 0.02


def test_every_command_is_one_that_fedtct_knows():
    commands = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("fedtct ")]
    assert len(commands) >= 4
    for command in commands:
        words = command.split("#")[0].split()
        options = [word for word in words if word.startswith("--")]
        name = [w for w in words[1:3] if w.isalpha() and w not in ("list",)]
        help_text = subprocess.run(
            [sys.executable, "-m", "fedtct", *name, "--help"], capture_output=True, text=True, check=True
        ).stdout
        assert all(option in help_text for option in options), command


def test_links_lead_somewhere():
    for target in re.findall(r"\]\((?!http)([^)]+)\)", README):
        assert (ROOT / target).exists(), target

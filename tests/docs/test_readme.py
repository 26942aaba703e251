"""What the README prints runs as printed."""

import re

from doc_helpers import ROOT, blocks

README = ROOT / "README.md"


def test_the_python_example_runs_and_tct_wins(capsys):
    (example,) = blocks(README, "python")
    assert len(example.strip().splitlines()) <= 12
    exec(compile(example, "README.md", "exec"), {})
    fedavg, tct = map(float, capsys.readouterr().out.split("\n")[0].split())
    assert tct > fedavg + 0.02


def test_links_lead_somewhere():
    for page in (README, ROOT / "CONTRIBUTING.md"):
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (ROOT / target).exists(), target

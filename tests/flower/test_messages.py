"""What leaves a silo, as the dry run tells it, is what does."""

import sys

import pandas as pd
import pytest
import torch
from flower_helpers import InlineGrid, parts

from fedtct.agreement import PUBLIC
from fedtct.answers import LABELS
from fedtct.cli import main
from fedtct.deploy.app_folder import RUN, make_app
from fedtct.deploy.messages import OF_THE_SAMPLES, made_up, messages, some_of
from fedtct.deploy.server_config import read_run
from fedtct.federation.flower.exchange import Terms
from fedtct.federation.flower.federation import FlowerFederation
from fedtct.runs.config import RunConfig
from fedtct.silo import Silo

SETTINGS = {"model": "mlp", "silos": 4, "p": 300, "d": 100, "local_epochs": 1}


@pytest.mark.parametrize(
    "method",
    [
        {"method": "tct", "stage2": "scaffold", "rounds": (2, 1)},
        {"method": "tct", "stage2": "ridge", "rounds": (2, 1)},
        {"method": "tct", "stage1": "scaffold", "stage2": "ridge", "rounds": (2, 1)},
        {"method": "fedavg-last-layer", "rounds": 2},
    ],
    ids=["scaffold", "ridge", "after scaffold", "last layer"],
)
def test_the_bytes_of_a_dry_run_are_those_of_a_run(method, tmp_path):
    config = RunConfig.of(**SETTINGS, **method)
    told = {line.question: line for line in messages(config, *made_up((1, 8, 8), 10), 10)}
    notes = []
    config.build(10).fit(FlowerFederation(InlineGrid(tmp_path, parts(), holdout=0.5), "run", Terms(4, 4), notes.append))
    assert set(told) == {note["question"] for note in notes}
    for note in notes:
        line = told[note["question"]]
        assert line.times == sum(other["question"] == note["question"] for other in notes)
        if note["question"] != "describe":  # labels differ
            assert max(note["bytes_up"].values()) == pytest.approx(line.bytes_up, abs=50)
            assert max(note["bytes_down"].values()) == pytest.approx(line.bytes_down, abs=50)


def test_of_samples_a_dry_run_tells_what_silos_do():
    y = torch.arange(12) % 3
    tokens = torch.arange(36).view(12, 3)
    for x in (
        tokens,
        tokens.float(),
        tokens.byte().view(12, 1, 3, 1),
        pd.DataFrame(tokens.numpy(), columns=list("abc")),
    ):
        told = Silo(x, y).describe()
        assert (told["kind"] in OF_THE_SAMPLES) == bool(told.keys() - {*PUBLIC, LABELS})


def test_dry_run_prints_a_table_and_starts_nothing(tmp_path, capsys):
    app = make_app(tmp_path / "app")
    settings = 'method = "tct"\nmodel = "linear"\nrounds = [7, 1]\nstage2 = "ridge"\nd = 20\nsilos = 2\n'
    (app / RUN).write_text(settings)
    assert main(["deploy", "run", str(app), "--dry-run", "--shape", "1,8,8"]) == 0
    told = capsys.readouterr().out
    assert "train           7  up" in told
    assert "s float64[231], t float64[21×10]" in told
    assert "and their sum in each class" in told
    for wrong in (["--shape", "large"], ["--shape", "1,-8,8"], ["--shape", ""], ["--classes", "-1"]):
        assert main(["deploy", "run", str(app), "--dry-run", *wrong]) == 2


def test_a_dry_run_takes_data_such_as_silos_have(tmp_path, capsys):
    """Tables tell most when silos are asked what they hold: of these, too, it must be known before."""
    app, settings = make_app(tmp_path / "app"), 'method = "fedavg"\nmodel = "mlp"\nrounds = [3]\nsilos = 2\n'
    rows = [f"{30 + i % 7},{'Ulm' if i % 2 else 'Rom'},{i / 3},{'ill' if i % 3 else 'well'}" for i in range(40)]
    (tmp_path / "like.csv").write_text("age,town,score,state\n" + "\n".join(rows))
    for target, revealed in (
        ("state", "the names of the classes that occur"),
        ("score", "the mean and spread of what is to be learnt"),
    ):
        (app / RUN).write_text(f'{settings}target = "{target}"\n')
        assert main(["deploy", "run", str(app), "--dry-run", "--like", str(tmp_path / "like.csv")]) == 0
        told = capsys.readouterr().out
        assert "kind text[5], columns text[" in told
        assert "of each column its name, how many values are missing, and their mean and spread or which texts" in told
        assert revealed in told


def test_a_dry_run_reads_data_as_a_silo_toml_says(tmp_path, capsys):
    app = make_app(tmp_path / "app")
    (app / RUN).write_text('method = "fedavg"\nmodel = "mlp"\nrounds = [3]\nsilos = 2\n')
    rows = [f"{i},{30 + i % 7},{89000 + i % 3},{'ill' if i % 3 else 'well'}" for i in range(40)]
    (tmp_path / "patients.csv").write_text("name,age,postcode,state\n" + "\n".join(rows))
    file = tmp_path / "silo.toml"
    file.write_text('name = "a"\ndata = "patients.csv"\ntarget = "state"\nignore = ["name"]\ntexts = ["postcode"]\n')
    x, y = some_of(file, read_run(app / RUN)[0])
    assert list(x.columns) == ["age", "postcode"]
    assert set(x["postcode"]) == {"89000", "89001", "89002"}
    assert set(y) == {"ill", "well"}
    assert main(["deploy", "run", str(app), "--dry-run", "--like", str(file)]) == 0
    assert "kind text[5], columns text[" in capsys.readouterr().out


def test_a_dry_run_finds_a_model_of_ones_own_in_the_app_folder(tmp_path, capsys, monkeypatch):
    for module in ("fedtct_app", "fedtct_app.model"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    app = make_app(tmp_path / "app")
    (app / RUN).write_text('method = "fedavg"\nmodel = "fedtct_app.model:build"\nrounds = [3]\nsilos = 2\n')
    made = "    return nn.Sequential(nn.Flatten(), nn.Linear(9, outputs))"
    (app / "fedtct_app" / "model.py").write_text(f"from torch import nn\ndef build(shape, outputs):\n{made}")
    assert main(["deploy", "run", str(app), "--dry-run", "--shape", "1,3,3"]) == 0
    assert "parameters float32[100]" in capsys.readouterr().out
    assert str(app) not in sys.path


def test_a_dry_run_solves_nothing(monkeypatch):
    """The server's solution takes d³ operations, and of made-up samples nobody needs it."""
    monkeypatch.setattr(torch.linalg, "eigh", lambda matrix: pytest.fail("the dry run solves a ridge regression"))
    config = RunConfig.of(**SETTINGS, method="tct", stage2="ridge", ridge="holdout", holdout=0.5, rounds=(1, 1))
    told = [line for line in messages(config, *made_up((1, 8, 8), 10), 10) if line.question == "assess"]
    assert [line.down["w"].shape for line in told] == [(9, 101, 10), (1, 101, 10)]  # to choose by, and at the end


def test_what_conjugate_gradients_bring_from_the_second_round_on_is_told():
    config = RunConfig.of(**SETTINGS, method="tct", stage2="conjugate-gradient", rounds=(1, 9))
    told = [line for line in messages(config, *made_up((1, 8, 8), 10), 10) if line.question == "regress"]
    assert [(line.times, line.down["start"].shape) for line in told] == [(9, told[0].down["w"].shape)]

"""Two hospitals' tables, and quick runs on them."""

import json

import numpy as np
import pandas as pd
import pytest

from fedtct.cli import main

QUICK = ["--rounds", "2", "--local-epochs", "1", "--d", "50"]


def patients(n: int, seed: int) -> pd.DataFrame:
    draws = np.random.default_rng(seed)
    table = pd.DataFrame({"age": draws.normal(50, 9, n), "town": draws.choice(["Ulm", "Rom"], n)})
    table["state"] = np.where((table["age"] > 50) ^ (table["town"] == "Rom"), "ill", "well")
    table["cost"] = 100 + 3 * table["age"]
    table.loc[draws.random(n) < 0.1, "town"] = None
    return table


def run(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    code = main(["run", "--data", "silos", *QUICK, *words, "--json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    return json.loads(out)

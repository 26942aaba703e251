"""Tables, class names and numbers over a Flower grid: the same model as in this process."""

import numpy as np
import pandas as pd
import pytest
import torch
from flower_helpers import InlineGrid

from fedtct import TCT, FedAvg, Ridge, Silo, TangentFeatures
from fedtct.federation.flower.federation import FlowerFederation, Terms


def part(seed, classes):
    draws = np.random.default_rng(seed)
    table = pd.DataFrame({"age": draws.normal(50, 9 + seed, 30), "town": draws.choice(["Ulm", "Rom", None], 30)})
    return table, draws.choice(classes, 30)


PARTS = {
    "names": [part(0, ["cat", "dog"]), part(1, ["dog", "eel"]), part(2, ["cat", "eel"])],
    "numbers": [(table, table["age"].to_numpy() * 2) for table, _ in (part(0, ["a"]), part(1, ["a"]), part(2, ["a"]))],
}


@pytest.mark.parametrize("kind", PARTS)
def test_silos_agree_in_one_round_wherever_they_are(kind, tmp_path):
    method = TCT("mlp", FedAvg(rounds=2, local_epochs=1), TangentFeatures(p=40), Ridge(d=40))
    grid = InlineGrid(tmp_path, PARTS[kind], holdout=0.2)
    far = method.fit(FlowerFederation(grid, "run", Terms(silos=3, min_silos=3)))
    near = method.fit([Silo(*data, holdout=0.2) for data in PARTS[kind]])
    assert [question for _, question in grid.asked].count("describe") == 3
    assert far.model.spec.record() == near.model.spec.record()
    x = PARTS[kind][0][0]
    assert torch.allclose(far.model.scores(x), near.model.scores(x), atol=1e-5)
    assert len(far.model.predict(x)) == len(x)

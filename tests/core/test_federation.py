"""Algorithms know a federation only by what it is asked and what it replies."""

import copy
import gc
import weakref
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from core_helpers import skewed_silos, tct

from fedtct import (
    Centralized,
    FedAvg,
    FedAvgRegression,
    FedDyn,
    Federation,
    FedtctError,
    GradientDescent,
    LocalFederation,
    Ridge,
    Scaffold,
    ScaffoldRegression,
    Silo,
)
from fedtct.digests import digest
from fedtct.federation.local import content_bytes

STAGE1 = {"rounds": 2, "local_epochs": 1, "batch_size": 8}
METHODS = {
    "FedAvg": FedAvg("mlp", **STAGE1),
    "FedDyn": FedDyn("mlp", **STAGE1),
    "Scaffold": Scaffold("mlp", **STAGE1),
    "ScaffoldRegression": tct("mlp", ScaffoldRegression(rounds=3, lr="auto"), p=30),
    "FedAvgRegression": tct("mlp", FedAvgRegression(rounds=3, lr="auto"), p=30),
    "GradientDescent": tct("mlp", GradientDescent(rounds=3), p=30),
    "Ridge": tct("mlp", Ridge(d=30, ridge="holdout")),
}


def test_a_silo_without_a_name_is_called_by_its_place_in_each_federation():
    silos = skewed_silos()
    LocalFederation(silos[1:])
    assert LocalFederation(silos).names() == [f"silo {place}" for place in range(len(silos))]
    silos[0].name = "north"
    assert LocalFederation(silos[::-1]).names()[-1] == "north"


class Elsewhere(Federation):
    """Silos that share no memory with the server: only flat messages of tensors and plain values get through."""

    def __init__(self, silos):
        self.there = LocalFederation(silos, "cpu")

    def __len__(self):
        return len(self.there)

    def use(self, spec):
        self.there.use(spec)

    def ask(self, question, message):
        replies = self.there.ask(question, self.transport(message))
        return replace(replies, messages=[self.transport(reply) for reply in replies.messages])

    def snapshot(self):
        return {}

    def restore(self, snapshot):
        assert not snapshot

    def transport(self, message):
        assert all(isinstance(value, torch.Tensor | int | float | str) for value in message.values())
        return copy.deepcopy(message)


def saved(fit, folder):
    fit.model.save(folder)
    return (folder / "model.safetensors").read_bytes()


@pytest.mark.parametrize("name", METHODS)
def test_another_engine_gives_the_same_bytes_of_model_and_the_same_rows(name, tmp_path):
    here = METHODS[name].fit(skewed_silos((20, 10, 8), holdout=0.2))
    there = METHODS[name].fit(Elsewhere(skewed_silos((20, 10, 8), holdout=0.2)))
    assert saved(here, tmp_path / "here") == saved(there, tmp_path / "there")
    tables = [fit.history.to_pandas().drop(columns="seconds") for fit in (here, there)]
    assert tables[0].equals(tables[1])


@pytest.mark.parametrize("name", ["FedDyn", "Scaffold", "ScaffoldRegression"])
def test_silos_begin_every_fit_anew(name, tmp_path):
    federation = Elsewhere(skewed_silos())
    first, again = (saved(METHODS[name].fit(federation), tmp_path / number) for number in "12")
    assert first == again


def test_another_federation_of_the_same_silos_changes_nothing_for_the_first():
    silos, method = skewed_silos(), METHODS["ScaffoldRegression"]
    alone = method.fit(skewed_silos()).model._tensors()["w"]
    first = LocalFederation(silos)
    method.fit(LocalFederation(silos[::-1]))
    assert torch.equal(method.fit(first).model._tensors()["w"], alone)


TABLE = pd.DataFrame({"age": [40.0, None, 60.0, 50.0] * 5, "town": ["a", "b", "b", None] * 5})
X = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))


def content(silo):
    return silo.name, *((type(part), repr(np.asarray(part).tolist())) for part in silo.parts())


@pytest.mark.parametrize(
    "given",
    [(TABLE, ["ill", "well"] * 10), (X, X.sum(1).double()), (X, torch.arange(20) % 3)],
    ids=["table and names", "numbers", "labels"],
)
def test_a_fit_leaves_its_silos_as_they_were_given(given):
    silos, untouched = ([Silo(*given, holdout=0.2) for _ in range(2)] for _ in range(2))
    for method in (FedAvg("linear", rounds=1), Centralized("linear", rounds=1), tct("mlp", Ridge(d=10))):
        method.fit(silos)
    assert list(map(content, silos)) == list(map(content, untouched))


def test_features_go_with_their_federation():
    silos = skewed_silos()
    federation = LocalFederation(silos)
    METHODS["ScaffoldRegression"].fit(federation)
    features = weakref.ref(federation.silos[0].regression().z)
    del federation
    gc.collect()
    assert features() is None


def test_messages_of_the_same_bytes_have_names_of_their_own():
    one, other = torch.tensor([1.0]), torch.tensor([1.0]).view(torch.int32)
    messages = [
        *({"x": one}, {"x": other}, {"x": one.reshape(1, 1)}, {"x": one, "y": one}, {"x": torch.tensor([1.0, 1.0])}),
        *({"x": 1, "y": 2}, {"x1y": 2}, {"x": "1"}, {"x": 1}),
    ]
    assert len({digest(message) for message in messages}) == len(messages)
    assert digest({"x": 1}, "a/b") != digest({"x": 1}, "a", "b")


def test_centralized_needs_the_data_in_this_process():
    with pytest.raises(FedtctError, match="Centralized needs all data in one process"):
        Centralized("mlp", **STAGE1).fit(Elsewhere(skewed_silos()))


@pytest.mark.parametrize("method", [Scaffold("mlp", **STAGE1), FedDyn("mlp", **STAGE1)])
def test_a_snapshot_brings_back_what_silos_remember(method):
    federation = LocalFederation(skewed_silos())
    session = method.open(federation)
    state, _ = method.round(federation, method.start(session.network.weights()), 0)
    snapshot = {name: value.clone() for name, value in federation.snapshot().items()}
    first, _ = method.round(federation, state, 1)
    forgetful, _ = method.round(federation, state, 1)
    federation.restore(snapshot)
    again, _ = method.round(federation, state, 1)
    assert torch.equal(first["parameters"], again["parameters"])
    assert not torch.equal(first["parameters"], forgetful["parameters"])


def test_replies_are_reported_as_they_come():
    federation, seen = LocalFederation(skewed_silos()), []
    federation.on_reply = lambda *report: seen.append(report)
    federation.ask("describe", {})
    assert seen == [("describe", 1, 3), ("describe", 2, 3), ("describe", 3, 3)]
    seen.clear()
    federation.pooled().ask("describe", {})
    assert seen == [("describe", 1, 1)]


def test_the_size_of_a_message_is_that_of_its_content():
    message = {"w": torch.zeros(3, 2), "s": torch.zeros(4, dtype=torch.float64), "n": 7, "lr": 0.1, "how": "none"}
    assert content_bytes(message) == 3 * 2 * 4 + 4 * 8 + 8 + 8 + 4

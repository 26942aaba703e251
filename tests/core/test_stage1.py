"""Stage-1 algorithms where they must agree with one another, and with what their papers say."""

import copy

import pytest
import torch
import torch.nn.functional as F
from core_helpers import (
    LOCAL,
    UNEQUAL,
    assign,
    batches,
    convex_net,
    flat,
    inner,
    parameters_of,
    plain_sgd,
    pooled,
    pooled_optimum,
    quick,
    skewed_data,
    skewed_silos,
    tiny_net,
)
from hypothesis import given
from hypothesis import strategies as st

from fedtct import Centralized, FedAdam, FedAvg, FedDyn, FedProx, FedtctError, LocalFederation, Scaffold, Silo
from fedtct.training import LocalPlan
from fedtct.training.local_update import draw_epochs

EVERY_METHOD = [FedAvg, FedProx, FedDyn, FedAdam, Scaffold, Centralized]
FULL_BATCH = {"batch_size": 1000, "weight_decay": 0.1}


def fit(method, silos, model=None, **options):
    model = model if model is not None else tiny_net(norm=True)
    return method(model, **{"rounds": 3} | LOCAL | options).fit(silos)


def silo_batches(number, silo, sizes=UNEQUAL):
    return batches(sizes[silo], LOCAL["local_epochs"], LOCAL["batch_size"], LOCAL["seed"], number, silo)


def shares_of(parts):
    return [len(y) / sum(len(y) for _, y in parts) for _, y in parts]


# Where they agree


@pytest.mark.parametrize(
    ("method", "options", "silos"),
    [(FedProx, {"mu": 0.0}, 3), (FedDyn, {"alpha": 0.0}, 3), (Scaffold, {}, 1)],
    ids=["FedProx with mu = 0", "FedDyn with alpha = 0", "SCAFFOLD with one silo"],
)
def test_special_cases_that_are_fedavg(method, options, silos):
    parts = skewed_data()[:silos]
    expected = fit(FedAvg, [Silo(*part) for part in parts])
    found = fit(method, [Silo(*part) for part in parts], **options)
    x, _ = pooled(parts)
    assert torch.allclose(parameters_of(found), parameters_of(expected), rtol=1e-10, atol=1e-12)
    assert torch.equal(found.model.predict(x), expected.model.predict(x))


@pytest.mark.parametrize(("method", "options"), [(FedProx, {"mu": 1.0}), (FedDyn, {"alpha": 1.0}), (Scaffold, {})])
def test_in_general_they_are_not_fedavg(method, options):
    distance = parameters_of(fit(method, skewed_silos(), **options)) - parameters_of(fit(FedAvg, skewed_silos()))
    assert distance.norm() > 1e-2


@pytest.mark.parametrize("holdout", [0.0, 0.3])
def test_fedavg_with_one_silo_is_centralized(holdout):
    part = skewed_data((30,))[0]
    found = fit(FedAvg, [Silo(*part, holdout=holdout)])
    expected = fit(Centralized, [Silo(*part, holdout=holdout)])
    assert torch.equal(parameters_of(found), parameters_of(expected))
    assert [row.train_loss for row in found.history] == [row.train_loss for row in expected.history]


def test_centralized_is_fedavg_with_everything_in_one_silo_and_sends_nothing():
    parts = skewed_data()
    found = fit(Centralized, [Silo(*part) for part in parts])
    assert torch.equal(parameters_of(found), parameters_of(fit(FedAvg, [Silo(*pooled(parts))])))
    assert found.history.total_bytes == 0


def test_one_full_step_a_round_is_gradient_descent_on_the_pooled_loss():
    parts, model = skewed_data(), tiny_net()
    found = fit(FedAvg, [Silo(*part) for part in parts], model, rounds=4, local_epochs=1, batch_size=1000)
    x, y = pooled(parts)
    optimiser = torch.optim.SGD(model.parameters(), lr=LOCAL["lr"], weight_decay=LOCAL["weight_decay"])
    for _ in range(4):
        optimiser.zero_grad()
        F.cross_entropy(model(x.double()), y).backward()
        optimiser.step()
    assert torch.allclose(parameters_of(found), flat(model), rtol=1e-10, atol=1e-12)


# The local update


def test_local_update_is_a_plain_sgd_loop():
    """With weight decay, a proximal term, partial last batches and BatchNorm's running statistics."""
    part, model, mu = skewed_data((20,))[0], tiny_net(norm=True), 0.7
    found = fit(FedProx, [Silo(*part)], model, rounds=1, mu=mu).model.network.weights()
    start = flat(model)

    def proximal(module):
        return mu / 2 * (torch.cat([p.reshape(-1) for p in module.parameters()]) - start).square().sum()

    settings = {"lr": LOCAL["lr"], "weight_decay": LOCAL["weight_decay"]}
    expected, steps = plain_sgd(model, part, silo_batches(0, 0), **settings, penalty=proximal)
    assert steps == 6
    assert torch.allclose(found.parameters, flat(expected), rtol=1e-10, atol=1e-12)
    statistics = torch.cat([expected[1].running_mean, expected[1].running_var])
    assert torch.allclose(found.buffers, statistics, rtol=1e-10, atol=1e-12)
    assert not torch.allclose(statistics, torch.cat([model[1].running_mean, model[1].running_var]), rtol=0.1)


def test_fedavg_averages_weights_and_running_statistics_by_samples():
    parts, model = skewed_data(), tiny_net(norm=True)
    found = fit(FedAvg, [Silo(*part) for part in parts], model, rounds=1).model.network.weights()
    settings = {"lr": LOCAL["lr"], "weight_decay": LOCAL["weight_decay"]}
    local = [plain_sgd(model, part, silo_batches(0, k), **settings)[0] for k, part in enumerate(parts)]
    for vector, read in [
        (found.parameters, flat),
        (found.buffers, lambda m: torch.cat([m[1].running_mean, m[1].running_var])),
    ]:
        expected = sum(share * read(module) for share, module in zip(shares_of(parts), local, strict=True))
        assert torch.allclose(vector, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("method", "options"), [(FedProx, {"mu": 0.0}), (FedDyn, {"alpha": 0.0}), (FedAdam, {}), (Scaffold, {})]
)
def test_every_method_averages_running_statistics(method, options):
    """In the first round all of them train alike."""
    expected = fit(FedAvg, skewed_silos(), rounds=1).model.network.weights().buffers
    found = fit(method, skewed_silos(), rounds=1, **options).model.network.weights().buffers
    assert torch.allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("method", EVERY_METHOD)
@pytest.mark.parametrize(
    ("trainable", "expected"),
    [
        ("last-layer", {"3.weight", "3.bias"}),
        ("last:1", {"3.weight", "3.bias"}),
        ("last:2", {"1.weight", "1.bias", "1.running_mean", "1.running_var", "3.weight", "3.bias"}),
    ],
)
def test_what_is_not_trainable_does_not_change(method, trainable, expected):
    """Neither weights nor running statistics."""
    model = tiny_net(norm=True)
    trained = fit(method, skewed_silos(), model, trainable=trainable).model.network.module
    before, after = model.state_dict(), trained.state_dict()
    moved = {name for name in before if not torch.allclose(before[name], after[name], rtol=1e-12, atol=1e-12)}
    assert moved == expected
    weights = {name for name, _ in model.named_parameters()}
    assert all(torch.equal(before[name], after[name]) for name in weights - expected)  # rounding errors would add up


@quick
@given(samples=st.integers(1, 300), batch_size=st.integers(1, 70), epochs=st.integers(1, 3))
def test_every_sample_is_trained_on_once_an_epoch_and_none_alone(samples, batch_size, epochs):
    plan = LocalPlan(epochs, batch_size, lr=0.1, weight_decay=0.0)
    sizes = plan.batch_sizes(samples)
    assert sum(sizes) == samples
    assert all(size == batch_size for size in sizes[:-1])
    assert 1 <= sizes[-1] <= batch_size + 1
    assert sizes[-1] > 1 or samples == 1 or batch_size == 1
    assert plan.steps(samples) == epochs * len(sizes)
    orders = [epoch.order.tolist() for epoch in draw_epochs(samples, plan, seed=0)]
    assert [sorted(order) for order in orders] == [list(range(samples))] * epochs


def test_batch_norm_trains_whatever_the_number_of_samples():
    history = fit(FedAvg, skewed_silos((9, 17, 2)), rounds=2).history
    assert history[-1].train_loss < history[0].train_loss


def test_the_head_can_be_another_layer_than_the_last():
    class TwoHeads(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.classes, self.other = (torch.nn.Linear(4, k) for k in (4, 3, 5))

        def forward(self, x):
            return self.classes(torch.tanh(self.inner(x)))

    model = TwoHeads()
    trained = fit(FedAvg, skewed_silos(), model, head="classes", trainable="last-layer", weight_decay=0.0)
    before, after = model.state_dict(), trained.model.network.module.state_dict()
    moved = {name for name in before if not torch.allclose(before[name], after[name], rtol=1e-5, atol=1e-6)}
    assert moved == {"classes.weight", "classes.bias"}


def test_training_leaves_the_callers_model_alone():
    model = tiny_net(norm=True)
    before = copy.deepcopy(model.state_dict())
    fit(FedAvg, skewed_silos(), model)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.filterwarnings("error:mkldnn_matmul failed")
def test_bf16_training_is_nearly_that_of_full_precision():
    parts = skewed_data()
    found, expected = (
        FedAvg("mlp", rounds=3, **LOCAL).fit(LocalFederation([Silo(*p) for p in parts], precision=precision))
        for precision in ("bf16", "fp32")
    )
    assert torch.backends.mkldnn.enabled  # which torch switches off at products that a processor has not
    difference = parameters_of(found) - parameters_of(expected)
    moved = parameters_of(expected) - parameters_of(FedAvg("mlp", rounds=0, **LOCAL).fit(skewed_silos()))
    assert 0 < difference.norm() < 0.1 * moved.norm()


# What their papers say


def test_fedadam_is_adam_on_the_mean_change():
    parts, model, rounds = skewed_data(), tiny_net(), 3
    eta, beta1, beta2, tau = 0.05, 0.8, 0.95, 1e-2
    server = {"server_lr": eta, "beta1": beta1, "beta2": beta2, "tau": tau}
    found = fit(FedAdam, [Silo(*part) for part in parts], model, rounds=rounds, **server)
    w = flat(model)
    m, v = torch.zeros_like(w), torch.full_like(w, tau**2)
    for number in range(rounds):
        change = torch.zeros_like(w)
        for k, (share, part) in enumerate(zip(shares_of(parts), parts, strict=True)):
            settings = {"lr": LOCAL["lr"], "weight_decay": LOCAL["weight_decay"]}
            local, _ = plain_sgd(assign(model, w), part, silo_batches(number, k), **settings)
            change += share * (flat(local) - w)
        m = beta1 * m + (1 - beta1) * change
        v = beta2 * v + (1 - beta2) * change**2
        w = w + eta * m / (v.sqrt() + tau)
    assert torch.allclose(parameters_of(found), w, rtol=1e-9, atol=1e-11)


def test_feddyn_is_that_of_its_paper():
    """Algorithm 1 of Acar et al., every silo taking part, weighted by samples; the model is the average."""
    parts, model, rounds, alpha = skewed_data(), tiny_net(), 3, 0.5
    found = fit(FedDyn, [Silo(*part) for part in parts], model, rounds=rounds, alpha=alpha)
    w = flat(model)
    h, gradients = torch.zeros_like(w), [torch.zeros_like(w) for _ in parts]
    for number in range(rounds):
        local = []
        for k, part in enumerate(parts):

            def penalty(module, server=w, gradient=gradients[k]):
                vector = torch.cat([p.reshape(-1) for p in module.parameters()])
                return alpha / 2 * (vector - server).square().sum() - inner(module, gradient)

            settings = {"lr": LOCAL["lr"], "weight_decay": LOCAL["weight_decay"], "penalty": penalty}
            local.append(flat(plain_sgd(assign(model, w), part, silo_batches(number, k), **settings)[0]))
        gradients = [g - alpha * (w_k - w) for g, w_k in zip(gradients, local, strict=True)]
        mean = sum(share * w_k for share, w_k in zip(shares_of(parts), local, strict=True))
        h = h - alpha * (mean - w)
        w = mean - h / alpha
    assert torch.allclose(parameters_of(found), mean, rtol=1e-9, atol=1e-11)


class Heard(LocalFederation):
    """Keeps what silos are asked to train from."""

    def __init__(self, silos):
        super().__init__(silos)
        self.questions = []

    def ask(self, question, message):
        if question == "train":
            self.questions.append(message)
        return super().ask(question, message)


def test_feddyn_goes_on_from_as_far_beyond_the_average_as_it_moved():
    """w = w̄ − h/α is 2·w̄ − w̄_before if all silos answer, whatever α is."""
    heard = Heard([Silo(*part) for part in skewed_data()])
    FedDyn(tiny_net(), rounds=4, alpha=0.3, **LOCAL).fit(heard)
    averages = [question["parameters"] for question in heard.questions]
    starts = [question["start"] for question in heard.questions]
    assert torch.equal(starts[0], averages[0])
    for before, average, start in zip(averages, averages[1:], starts[1:], strict=False):
        assert torch.allclose(start, 2 * average - before, rtol=1e-9, atol=1e-11)


def error_after(method, rounds, parts, **options):
    """The distance to the pooled optimum of softmax regression, relative to the optimum."""
    model = convex_net()
    optimum = pooled_optimum(model, pooled(parts), options["weight_decay"])
    silos = [Silo(*part) for part in parts]
    found = method(model, rounds=rounds, evaluate_every=rounds, **options).fit(silos)
    return float((parameters_of(found) - optimum).norm() / optimum.norm())


@pytest.mark.parametrize(
    ("method", "rounds", "options"),
    [(Scaffold, 250, {"local_epochs": 5, "lr": 0.1}), (FedDyn, 150, {"local_epochs": 10, "lr": 0.1, "alpha": 0.3})],
)
def test_corrected_methods_converge_to_the_pooled_optimum(method, rounds, options):
    assert error_after(method, rounds, skewed_data((14, 8, 5)), **FULL_BATCH, **options) < 1e-6


def test_fedavg_converges_to_another_point():
    options = {"local_epochs": 10, "lr": 0.1} | FULL_BATCH
    error, later = (error_after(FedAvg, rounds, skewed_data((14, 8, 5)), **options) for rounds in (50, 100))
    assert error == pytest.approx(later, rel=1e-3)
    assert error > 1e-2


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (FedProx, {"mu": -1.0}),
        (FedDyn, {"alpha": -1.0}),
        (FedAdam, {"server_lr": 0.0}),
        (FedAdam, {"beta1": 1.0}),
        (FedAdam, {"tau": 0.0}),
        (FedAvg, {"lr": 0.0}),
        (FedAvg, {"lr": float("nan")}),
        (FedAvg, {"weight_decay": -1.0}),
        (FedAvg, {"local_epochs": 0}),
        (FedAvg, {"batch_size": 0}),
        (FedAvg, {"rounds": -1}),
        (FedAvg, {"evaluate_every": 0}),
        (FedAvg, {"patience": 0}),
    ],
    ids=str,
)
def test_settings_that_cannot_work(method, options):
    with pytest.raises(FedtctError):
        method("mlp", **options)

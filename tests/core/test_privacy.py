"""Differential privacy: the account, the sensitivities, the noise, and what silos no longer tell."""

import math

import numpy as np
import pytest
import torch
from core_helpers import quick, skewed_data, skewed_silos
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest
from torch import nn

import fedtct
from fedtct import privacy
from fedtct.history import Row
from fedtct.least_squares import Sums
from fedtct.models import InputSpec, NetworkSpec, Weights
from fedtct.runs.config import RunConfig
from fedtct.runs.summary import spent
from fedtct.tangent import Recipe, TangentMap
from fedtct.tasks import Classification

KEY = b"key"
targets = Classification().targets
PRIVATE_FEDAVG = {"rounds": 2, "local_epochs": 1, "num_classes": 3, "noise": 0.5, "clip": 0.3}


def integrated_delta(epsilon, mu):
    """∫ (p − e^ε·q)₊ for the normal densities p around μ and q around 0: δ by its definition."""
    x = np.linspace(-40, 40, 2_000_001)
    p, q = (np.exp(-((x - centre) ** 2) / 2) / math.sqrt(2 * math.pi) for centre in (mu, 0.0))
    return np.trapezoid(np.clip(p - math.exp(epsilon) * q, 0, None), x)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
def test_the_account_is_that_of_the_definition(epsilon, mu):
    assert privacy.gaussian_delta(epsilon, mu) == pytest.approx(integrated_delta(epsilon, mu), abs=1e-9)


def test_a_known_figure_of_the_analytic_gaussian_mechanism():
    assert privacy.noise_multiplier(1.0, 1e-5, releases=1) == pytest.approx(3.7306, abs=1e-3)


@quick
@given(st.floats(0.05, 50), st.floats(1e-12, 0.1), st.integers(1, 1000))
def test_what_is_spent_is_what_was_budgeted_and_releases_add_up(epsilon, delta, releases):
    noise = privacy.noise_multiplier(epsilon, delta, releases)
    assert privacy.spent_epsilon(noise, releases, delta) == pytest.approx(epsilon, rel=1e-6)
    assert privacy.spent_epsilon(noise, 0, delta) == 0
    assert privacy.spent_epsilon(noise, 2 * releases, delta) > epsilon
    assert privacy.spent_epsilon(noise / 1e5, releases, delta) == math.inf
    assert noise == pytest.approx(math.sqrt(releases) * privacy.noise_multiplier(epsilon, delta, 1), rel=1e-9)


def told_of(z, label, classes):
    """What a silo with this sample alone tells of its sums."""
    sums = Sums.of([(z.unsqueeze(0), targets(torch.tensor([label]), classes).double())])
    return torch.cat([sums.pack(), sums.t.flatten()])


def within(draws, d, length):
    z = draws.normal(size=d)
    return torch.from_numpy(length * z / np.linalg.norm(z))


@quick
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(2, 5), st.booleans())
def test_one_sample_moves_what_is_told_of_sums_by_their_sensitivity_at_most(seed, d, classes, bounded):
    draws = np.random.default_rng(seed)
    lengths = draws.choice([1.0, 0.5, 0.0], 2) if bounded else (1.0, 1.0)
    first, second = (
        told_of(within(draws, d, length), int(label), classes)
        for length, label in zip(lengths, draws.integers(classes, size=2), strict=True)
    )
    assert float((first - second).norm()) <= privacy.sums_sensitivity(classes)


@pytest.mark.parametrize("classes", [2, 3, 10, 100])
def test_the_bound_on_sums_is_reached(classes):
    """It promises no more than is needed."""
    angle = math.asin((1 / classes - 1) / 2) / 2
    z = torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64)
    moved = float((told_of(z, 0, classes) - told_of(z.flip(0), 1, classes)).norm())
    assert moved == pytest.approx(privacy.sums_sensitivity(classes), rel=2e-5)


def test_noise_is_gaussian_and_its_own_for_every_key_and_draw():
    draws = privacy.Draws(KEY)
    first, second = (draws.normal(1.0, 3.0, (100_000,)) for _ in range(2))
    assert kstest((first - 1) / 3, "norm").pvalue > 0.01
    for other in (second, privacy.Draws(b"another").normal(1.0, 3.0, (100_000,))):
        assert abs(np.corrcoef(first, other)[0, 1]) < 0.02
    assert np.array_equal(first, privacy.Draws(KEY).normal(1.0, 3.0, (100_000,)))


def test_updates_are_clipped_and_the_noise_has_the_deviation_it_is_to_have():
    start = Weights(torch.zeros(200_000), torch.ones(10))
    local = Weights(torch.full((200_000,), 3.0), torch.full((10,), 4.0))
    quiet = privacy.noisy_update(start, local, clip=2.0, noise=0.0, key=KEY)
    moved = math.hypot(*(float((there - here).double().norm()) for here, there in zip(start, quiet, strict=True)))
    assert moved == pytest.approx(2.0, rel=1e-6)
    loud = privacy.noisy_update(start, local, clip=2.0, noise=5.0, key=KEY)
    assert float((loud.parameters - quiet.parameters).std()) == pytest.approx(5.0 * 2 * 2.0, rel=0.01)
    small = Weights(torch.full((200_000,), 1e-4), start.buffers)
    kept = privacy.noisy_update(start, small, clip=2.0, noise=0.0, key=KEY)
    assert torch.equal(kept.parameters, small.parameters)


def test_what_leaves_follows_from_an_update_that_is_noised_wherever_it_began():
    """A hostile server may have training begin where a sum is rounded by more than the clip."""
    far = Weights(torch.full((1000,), 1e8), torch.full((10,), -3e9))
    update = Weights(torch.full((1000,), 8.0), torch.full((10,), -512.0))  # what float32 can hold there
    zero = Weights(*map(torch.zeros_like, far))
    there = Weights(*(at + moved for at, moved in zip(far, update, strict=True)))
    noised = privacy.noisy_update(zero, update, clip=20.0, noise=0.1, key=KEY)
    expected = [at + moved for at, moved in zip(far, noised, strict=True)]
    assert all(map(torch.equal, privacy.noisy_update(far, there, clip=20.0, noise=0.1, key=KEY), expected))


@pytest.mark.parametrize("value", [math.nan, math.inf, 3e38])
def test_a_training_that_diverged_does_not_show(value):
    """Replacing a sample can make training diverge: that must be hidden, too."""
    start = Weights(torch.full((1000,), -1e38), torch.zeros(0))
    local = start._replace(parameters=torch.full((1000,), value))
    expected = privacy.noisy_update(start, start, clip=1.0, noise=1e36, key=KEY).parameters
    assert torch.equal(privacy.noisy_update(start, local, clip=1.0, noise=1e36, key=KEY).parameters, expected)


def test_no_sample_decides_how_features_of_others_are_computed():
    """Ways to compute them agree but for rounding, which a server can make matter."""
    spec = NetworkSpec("mlp", InputSpec((4,), torch.float32), 3)
    recipe = Recipe(*spec.build().weights(), p=20, seed=0, normalize=True)
    assert TangentMap(spec, recipe).gradients.method == "auto"
    assert TangentMap(spec, recipe._replace(bounded=True)).gradients.method == "layers"


def test_features_that_overflow_are_bounded_all_the_same():
    silos = skewed_silos()
    silos[0].x[0] = 3e38
    stage1 = fedtct.FedAvg(rounds=0, num_classes=3, noise=0.1)
    fit = fedtct.TCT("mlp", stage1, fedtct.TangentFeatures(p=200), fedtct.Ridge(d=200, noise=0.1)).fit(silos)
    assert bool(fit.model.tangents(silos[0].x).isfinite().all())
    assert bool(fit.model.linear.w.isfinite().all())


def test_sums_stay_symmetric_and_n_is_not_noised():
    sums = Sums.of([(torch.zeros(0, 300), torch.zeros(0, 4))])
    sums.s[0, 0] = 7.0
    noisy = privacy.noisy_sums(sums, 2.0, KEY)
    assert torch.equal(noisy.s, noisy.s.T)
    assert float(noisy.s[0, 0]) == 7.0
    deviation = 2.0 * privacy.sums_sensitivity(4)
    assert float(noisy.s[1:, 1:].std()) == pytest.approx(deviation, rel=0.02)
    assert float(noisy.t.std()) == pytest.approx(deviation, rel=0.1)


def test_a_question_asked_again_gets_the_same_answer_and_any_other_its_own_noise():
    federation = fedtct.LocalFederation(skewed_silos((20,)), "cpu")
    method = fedtct.FedAvg("mlp", **PRIVATE_FEDAVG)
    session = method.open(federation)
    question = method.question(method.start(session.network.weights()), 0)

    def answer(**changes):
        return federation.deliver("train", question | changes)[0]["parameters"]

    first = answer()
    assert torch.equal(first, answer())
    assert not torch.allclose(first, answer(round=1), atol=0.1)
    federation.silos[0].secret = "mine"
    assert not torch.allclose(first, answer(), atol=0.1)


class Listener(fedtct.LocalFederation):
    """Hears what silos tell."""

    def deliver(self, question, message):
        replies = super().deliver(question, message)
        self.__dict__.setdefault("heard", {}).setdefault(question, set()).update(replies[0])
        return replies


def test_private_silos_tell_their_size_and_noisy_tensors_alone():
    federation = Listener(skewed_silos(), "cpu")
    stage1 = fedtct.FedAvg("mlp", **PRIVATE_FEDAVG)
    fit = fedtct.TCT("mlp", stage1, fedtct.TangentFeatures(p=50), fedtct.Ridge(d=20, noise=0.5)).fit(federation)
    assert federation.heard == {
        "describe": {"n", "held", "shape", "kind", "answers"},
        "train": {"n", "steps", "parameters", "buffers"},
        "sums": {"n", "s", "t", "yy"},
    }
    assert all(row.train_accuracy is None for row in fit.history)
    loud = fit.model.tangents(skewed_silos()[0].x)
    torch.testing.assert_close(loud.norm(dim=1), torch.ones(len(loud)))


def test_a_stage_1_without_rounds_needs_no_noise_of_its_own():
    """It sends nothing, and silos tell nothing besides."""
    heard, models = [], []
    for noise in (0.0, 0.5):
        federation = Listener(skewed_silos(), "cpu")
        stage1 = fedtct.FedAvg("mlp", rounds=0, num_classes=3, noise=noise)
        fit = fedtct.TCT("mlp", stage1, fedtct.TangentFeatures(p=50), fedtct.Ridge(d=20, noise=0.5)).fit(federation)
        heard.append(federation.heard)
        models.append(fit.model.linear.w)
    assert (
        heard[0] == heard[1] == {"describe": {"n", "held", "shape", "kind", "answers"}, "sums": {"n", "s", "t", "yy"}}
    )
    assert torch.equal(*models)


def test_little_noise_hardly_changes_the_model_and_it_survives_saving(tmp_path):
    silos = skewed_silos((60, 40, 30))
    stage1 = fedtct.FedAvg(rounds=0, num_classes=3, noise=1e-6)
    fits = [
        fedtct.TCT("mlp", stage1, fedtct.TangentFeatures(p=200), fedtct.Ridge(d=200, ridge=1e-2, noise=noise)).fit(
            silos
        )
        for noise in (1e-6, 1e-9)
    ]
    x, y = silos[0].x, silos[0].y
    assert fits[0].model.score(x, y) > 0.8
    torch.testing.assert_close(*(fit.model.scores(x) for fit in fits), rtol=1e-2, atol=1e-2)
    fits[0].model.save(tmp_path)
    assert torch.equal(fedtct.Classifier.load(tmp_path).scores(x), fits[0].model.scores(x))


def test_a_silo_checks_its_labels_itself():
    with pytest.raises(
        fedtct.FedtctError, match="silo 0 has labels outside 0 … 1: the silos have 2 classes"
    ) as refused:
        fedtct.FedAvg("mlp", **PRIVATE_FEDAVG | {"num_classes": 2}).fit(skewed_silos())
    assert refused.value.shareable.endswith("2 classes")  # which labels, and how many, stays in the silo


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "scaffold"}, "Scaffold does not support differential privacy"),
        ({"method": "feddyn"}, "FedDyn does not support differential privacy"),
        ({"method": "centralized"}, "Centralized does not support differential privacy"),
        ({"method": "tct"}, "use stage2='ridge'"),
        ({"method": "tct", "stage2": "ridge", "ridge": "holdout", "holdout": 0.1}, "not differentially private"),
        ({"method": "fedavg", "patience": 3, "holdout": 0.1}, "patience"),
        ({"method": "fedavg", "epsilon": -1.0}, "epsilon must not be negative"),
        ({"method": "fedavg", "epsilon": 1000.0}, "at most 100"),
        ({"method": "fedavg", "delta": 1.0}, "delta must be between"),
        ({"method": "fedavg", "clip": 0.0}, "clip must be positive"),
    ],
)
def test_what_cannot_be_private_is_refused_up_front(settings, message):
    with pytest.raises(fedtct.FedtctError, match=message):
        RunConfig.of(**{"epsilon": 8.0} | settings)


@pytest.mark.parametrize("rounds", [0, 1])
def test_noise_is_needed_in_both_stages_and_classes_must_be_told(rounds):
    with pytest.raises(fedtct.FedtctError, match="both stages"):
        fedtct.TCT("mlp", fedtct.FedAvg(noise=1.0, rounds=rounds), stage2=fedtct.Ridge())
    with pytest.raises(fedtct.FedtctError, match="both stages"):
        fedtct.TCT("mlp", fedtct.FedAvg(rounds=1), stage2=fedtct.Ridge(noise=1.0))
    with pytest.raises(fedtct.FedtctError, match="give num_classes"):
        fedtct.FedAvg("mlp", noise=1.0).fit(skewed_silos())
    numbers = [fedtct.Silo(silo.x, silo.y.double()) for silo in skewed_silos()]
    with pytest.raises(fedtct.FedtctError, match=r"labels from 0 .*not float32 samples with numbers"):
        fedtct.FedAvg("mlp", noise=1.0, num_classes=3).fit(numbers)


def test_a_configuration_says_what_it_promises():
    config = RunConfig.of(method="tct", stage2="ridge", rounds=(3, 1), epsilon=8.0)
    assert config.promise().startswith("differential privacy of every sample: ε = 8 at δ = 1e-05, spent on 4 replies")
    assert RunConfig.of().promise() == ""


def test_other_samples_get_other_noise():
    """With the same noise, the difference of two replies would be exactly what their samples differ in."""
    (x, y), *_ = skewed_data()
    method = fedtct.FedAvg("mlp", **PRIVATE_FEDAVG)

    def answer(x):
        federation = fedtct.LocalFederation([fedtct.Silo(x, y)], "cpu")
        session = method.open(federation)
        question = method.question(method.start(session.network.weights()), 0)
        return federation.deliver("train", question)[0]["parameters"]

    other = x.clone()
    other[0] += 1
    deviation = PRIVATE_FEDAVG["noise"] * privacy.update_sensitivity(PRIVATE_FEDAVG["clip"])
    assert torch.equal(answer(x), answer(x))
    assert float((answer(x) - answer(other)).std()) > deviation


def test_running_statistics_are_not_noised_but_refused():
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    with pytest.raises(fedtct.FedtctError, match="BatchNorm's running statistics"):
        fedtct.FedAvg(model, **PRIVATE_FEDAVG).fit(skewed_silos())


@pytest.mark.parametrize("method", [fedtct.FedAvg, fedtct.FedAdam])
def test_what_is_not_trained_gets_no_noise(method):
    first = nn.Linear(4, 5).requires_grad_(False)  # frozen by whoever made the module
    model = nn.Sequential(first, nn.ReLU(), nn.Linear(5, 4), nn.Linear(4, 3))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for trainable, moved in [("all", {"2", "3"}), ("last:2", {"2", "3"}), ("last-layer", {"3"})]:
        fit = method(model, trainable=trainable, **PRIVATE_FEDAVG).fit(skewed_silos())
        after = fit.model.network.module.state_dict()
        assert {name[0] for name, value in after.items() if not torch.equal(value, before[name])} == moved


@pytest.mark.parametrize(("reached", "asked"), [((2,), 3), ((3,), 4), ((3, 0), 4), ((3, 1), 4)])
def test_a_round_that_was_asked_for_is_spent_though_its_row_is_not_there_yet(reached, asked):
    """A row is complete once the next round has been asked for; a ridge has none until it has its answer."""
    config = RunConfig.of(method="tct", stage2="ridge", rounds=(3, 1), epsilon=8.0)
    rows = [Row(f"stage{k}", number) for k, last in enumerate(reached, 1) for number in range(last + 1)]
    assert spent(rows, config) == pytest.approx(privacy.spent_epsilon(config.noise, asked, config.delta))

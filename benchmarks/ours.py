"""The same work as ``plain``, the way fedtct does it: through the questions that silos answer."""

from collections.abc import Callable
from itertools import product

import torch

from benchmarks.side_by_side import Work
from benchmarks.work import BATCH, CLASSES, LR, SHAPES, WEIGHT_DECAY, images
from fedtct.classifier import TangentClassifier
from fedtct.federation import LocalFederation
from fedtct.history import Journal
from fedtct.models import InputSpec, NetworkSpec
from fedtct.silo import Silo
from fedtct.stage1 import FedAvg
from fedtct.stage2 import ScaffoldRegression
from fedtct.stage2.convexify import Convexified, convexify
from fedtct.stage2.grid import solve_grid
from fedtct.tangent import LinearModel, Normaliser, TangentFeatures, TangentMap


def spec_of(model: str) -> NetworkSpec:
    """A registered network for pixels."""
    channels = SHAPES[model][0]
    return NetworkSpec(model, InputSpec(SHAPES[model], torch.uint8, (0.5,) * channels, (0.25,) * channels), CLASSES)


def stage1(model: str, samples: int, precision: str) -> Work:
    """A round of a federation with one silo."""
    federation = LocalFederation([Silo(*images(model, samples))], "cpu", precision=precision)
    fedavg = FedAvg(model, local_epochs=1, batch_size=BATCH, lr=LR, weight_decay=WEIGHT_DECAY, evaluate_every=10**9)
    session = fedavg.open(federation)
    message = fedavg.question(session.network.weights()._asdict(), 1)

    def work() -> float:
        federation.ask("train", message)
        return samples

    return work


def features(model: str, samples: int, p: int) -> Work:
    """Raw tangent features, a batch at a time."""
    spec, (x, _) = spec_of(model), images(model, samples)
    tangents = TangentMap(spec, TangentFeatures(p).recipe(spec.build().weights()))

    def work() -> float:
        return sum(len(raw) for raw in tangents.batches(x))

    return work


def prediction(model: str, samples: int, p: int) -> Work:
    """Scores of new samples with a linear model on tangent features."""
    spec, (x, _) = spec_of(model), images(model, samples)
    linear = LinearModel(Normaliser.identity(p), torch.randn(p + 1, CLASSES))
    recipe = TangentFeatures(p).recipe(spec.build().weights())
    classifier = TangentClassifier(spec, recipe, linear, torch.device("cpu"))

    def work() -> float:
        return len(classifier.predict(x))

    return work


class Stage2Problem:
    """Silos that have built the tangent features of random images, and have yet to normalise and decompose them."""

    def __init__(self, silos: int, samples: int, p: int) -> None:
        x, y = images("simple-cnn", silos * samples)
        parts = zip(x.split(samples), y.split(samples), strict=True)
        self.federation = LocalFederation([Silo(*part) for part in parts], "cpu")
        stage1 = FedAvg("simple-cnn", rounds=0)
        self.session = stage1.open(self.federation)
        self.recipe = TangentFeatures(p).recipe(stage1.run(self.session))

    def prepare(self, *, many_steps: bool = True) -> Convexified:
        """Features, normalised, and decomposed if rounds are to have many steps."""
        self.session.journal = Journal()
        return convexify(self.session, self.recipe, many_steps=many_steps)

    def taking_up(self, *, many_steps: bool) -> Callable[[], None]:
        """Has silos take up features that they have built, as often as it is called."""
        kept = [silo.features()["z"][:, :-1] for silo in self.federation.silos]
        question = Normaliser.identity(kept[0].shape[1])._asdict() | {"many_steps": many_steps}

        def take_up() -> None:
            for silo, z in zip(self.federation.silos, kept, strict=True):
                silo.take_features({"z": z, "held": z[:0]})
            self.federation.ask("normalise", question)

        return take_up


def ready(silos: int, samples: int, p: int, *, many_steps: bool) -> Work:
    """Silos make ready for rounds of many steps, by a decomposition, or for rounds of one."""
    problem = Stage2Problem(silos, samples, p)
    problem.prepare(many_steps=False)
    take_up = problem.taking_up(many_steps=many_steps)

    def work() -> float:
        take_up()
        return 1

    return work


def stage2(silos: int, samples: int, p: int, rounds: int, steps: int) -> Work:
    """All rounds, the decomposition included; features are a row of their own."""
    problem = Stage2Problem(silos, samples, p)
    prepared, session, take_up = problem.prepare(), problem.session, problem.taking_up(many_steps=True)

    def work() -> float:
        take_up()
        session.journal = Journal()
        ScaffoldRegression(rounds=rounds, steps=steps, lr="auto", evaluate_every=rounds).solve(session, prepared)
        return 1

    return work


def grid(silos: int, samples: int, p: int, rounds: int, cells: int) -> Work:
    """Stage 2 from features to models, for one (lr, steps) or for several."""
    problem = Stage2Problem(silos, samples, p)
    method = ScaffoldRegression(rounds=rounds)

    def work() -> float:
        prepared = problem.prepare()
        safe = method.step_limits(prepared).safe
        pairs = list(product([safe, safe / 2, safe / 4, safe / 8], [500, 1000, 200, 100]))
        solve_grid(method, problem.session, prepared, pairs[:cells])
        return 1

    return work

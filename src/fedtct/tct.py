"""TCT: train, convexify, train (Yu et al., NeurIPS 2022)."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

from fedtct.calibration import calibrate
from fedtct.classifier import Classifier, Fit, TangentClassifier
from fedtct.errors import FedtctError
from fedtct.history import Journal
from fedtct.models import Model
from fedtct.session import Session, Silos, Test
from fedtct.stage1 import FedAvg, Stage1
from fedtct.stage2 import ScaffoldRegression, Stage2
from fedtct.stage2.convexify import convexify
from fedtct.stage2.grid import check_cells, solve_grid
from fedtct.tangent import TangentFeatures, check_head
from fedtct.training import trains_head_alone


@dataclass(frozen=True)
class TCT:
    """Train a network across silos, then a linear model on its tangent features.

    The second problem is convex, so it matters little how silos' data differ. By default, the numbers of rounds,
    features and local steps are the paper's. The step size of stage 2 is the largest that is safe; the paper uses 5e-5.

    - ``model``: a name, an nn.Module, or a function that makes one
    - ``stage1``: how the network is trained: FedAvg or any other federated method
    - ``features``: how many tangent features, and which
    - ``stage2``: how the linear model is fitted: ScaffoldRegression in rounds, or Ridge in one

    >>> import fedtct
    >>> data = fedtct.load_dataset("digits")
    >>> parts = fedtct.partition(data.train.y, silos=4, split="classes:3", seed=0)
    >>> silos = [fedtct.Silo(data.train.x[part], data.train.y[part]) for part in parts]
    >>> stage1 = fedtct.FedAvg(rounds=2, local_epochs=1)
    >>> tct = fedtct.TCT("mlp", stage1, fedtct.TangentFeatures(p=500), fedtct.Ridge())
    >>> fit = tct.fit(silos, test=data.test)
    >>> fit.model.score(*data.test) > 0.9
    True
    """

    model: Model | None = None
    stage1: Stage1 = field(default_factory=lambda: FedAvg(rounds=100))
    features: TangentFeatures = field(default_factory=TangentFeatures)
    stage2: Stage2 = field(default_factory=ScaffoldRegression)

    def __post_init__(self) -> None:
        for part, kind, such_as in (
            ("stage1", Stage1, "FedAvg()"),
            ("features", TangentFeatures, "TangentFeatures()"),
            ("stage2", Stage2, "Ridge()"),
        ):
            if not isinstance(given := getattr(self, part), kind):
                raise FedtctError(f"{part} must be a {kind.__name__}, such as {such_as}; it is {given!r}")
        if self.model is not None and self.stage1.model not in (None, self.model):
            raise FedtctError("TCT has one model: give it to TCT or to its stage 1, not another to each")
        if self.stage1.pooled:
            raise FedtctError("TCT's stage 1 must be federated: Centralized is not")
        sends = self.stage1.rounds > 0 or self.stage1.noise > 0  # else stage 1 has nothing to add noise to
        if sends and (self.stage1.noise > 0) != (self.stage2.noise > 0):
            raise FedtctError("differential privacy needs noise in both stages: FedAvg(noise=...), Ridge(noise=...)")

    def fit(self, silos: Silos, test: Test | None = None, *, journal: Journal | None = None) -> Fit:
        """Train across silos.

        - ``silos``: a list of silos, or a Federation
        - ``test``: a pair (x, y), which is scored after every round, but never used to train or to choose; or a
          function that returns it, given what the silos' samples look like
        - ``journal``: where to keep rows and checkpoints; by default in memory only

        Returns the model and the history of its rounds.
        """
        session = self.open(silos, test, journal)
        network = self.stage1.run(session)  # train
        recipe = self.stage2.recipe(self.features.recipe(network))  # convexify
        linear = self.stage2.run(session, recipe)  # train
        message = recipe._asdict() | linear.normaliser._asdict() | {"w": linear.w}
        temperature = calibrate(session, message)
        classifier = TangentClassifier(session.spec, recipe, linear, session.network.device, temperature)
        return Fit(classifier, session.journal.history)

    def fit_grid(self, silos: Silos, cells: Sequence[tuple[float, int]]) -> list[Classifier]:
        """The models that stage 2 ends with for each (lr, steps), from one stage 1 and one set of features.

        All are trained side by side, in a fraction of the time that they would take one by one. Silos must be in this
        process. There is no history, and probabilities are not calibrated.
        """
        method = check_cells(self.stage2, cells)
        session = self.open(silos)
        recipe = self.stage2.recipe(self.features.recipe(self.stage1.run(session)))
        models = solve_grid(method, session, convexify(session, recipe), cells)
        return [TangentClassifier(session.spec, recipe, linear, session.network.device) for linear in models]

    def open(self, silos: Silos, test: Test | None = None, journal: Journal | None = None) -> Session:
        """Begin a fit, and refuse what either stage cannot work with."""
        session = self.stage1.open(silos, test, journal, model=self.model, private=self.stage2.noise > 0)
        self.stage2.check(session)
        check_head(session.spec)
        if self.stage1.rounds and trains_head_alone(session.network, self.stage1.trainable):
            warnings.warn(
                "stage 1 trains the model's head alone, which TCT replaces, so its rounds change nothing: let it train "
                "more layers, or give it no rounds",
                stacklevel=3,
            )
        return session

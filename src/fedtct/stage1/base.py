"""What all stage-1 algorithms share: their parameters, the question they ask, how they are fitted, their rounds."""

import warnings
from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, asdict, dataclass, replace
from pathlib import Path
from typing import ClassVar

from torch import Tensor

from fedtct.calibration import calibrate
from fedtct.classifier import Fit, NetworkClassifier
from fedtct.data.augment import check_augmentation
from fedtct.data.pretext import check_pretext
from fedtct.digests import digest
from fedtct.early_stopping import OTHER_RATERS
from fedtct.errors import FedtctError, check_not_negative, check_positive, check_whole, listing, make_plain
from fedtct.federation import Cost, Federation, Replies
from fedtct.history import Journal, State
from fedtct.models import Model, Weights
from fedtct.models.trial import try_training
from fedtct.questions import Message
from fedtct.rounds import Rounds, check_state, checked_round
from fedtct.session import Session, Silos, Test, check_batches
from fedtct.tasks import Score
from fedtct.training import Frozen, LocalPlan, evaluate, split_trained


@dataclass(frozen=True)
class Stage1(ABC):
    """A federated optimiser of networks. All of them have these settings:

    - ``model``: a name, an nn.Module, or a function that makes one from the shape of a sample and the number of outputs
    - ``rounds``: how many. In each, silos train for ``local_epochs`` epochs of SGD with ``batch_size``, ``lr`` and
      ``weight_decay``, on cross-entropy or, in a regression, on squared error
    - ``augment``: "none", or "crop-flip" for images
    - ``pretext``: for TCT, what the network learns instead of the labels: "rotations", which way images were turned.
      How labels are divided between silos then hardly matters. If the network has fewer than four outputs, the last one
      stands for all remaining turns
    - ``trainable``: "all", "last-layer" for the head alone, or "last:3" for the last three of the model's own parts.
      The rest, and parameters without requires_grad, are sent to silos once instead of in every round
    - ``init_weights``: a file with a state dict to start from
    - ``head``: the name of the last linear layer, if it is not the last one that the module defines
    - ``num_classes``: by default, one more than the largest label
    - ``seed``: for all random draws and for the weights, unless an nn.Module brings its own. What a silo holds out is
      the same for every seed
    - ``evaluate_every``: rate the model only every so many rounds
    - ``patience``: stop after this many rounds without a better score on held-out samples, and keep the best round's
      model, which is then not that of the history's last row
    - ``noise``: for differential privacy, the noise on updates, which are clipped to the norm ``clip``, in units of
      what one sample can change. ``noise_multiplier`` computes it from ε
    """

    model: Model | None = None
    _: KW_ONLY
    rounds: int = 200
    local_epochs: int = 5
    batch_size: int = 64
    lr: float = 0.1
    weight_decay: float = 1e-5
    augment: str = "none"
    pretext: str = "none"
    trainable: str = "all"
    init_weights: str | Path | None = None
    head: str | None = None
    num_classes: int | None = None
    seed: int = 0
    evaluate_every: int = 1
    patience: int | None = None
    clip: float = 1.0
    noise: float = 0.0

    takes_noise: ClassVar[bool] = False  # whether silos' updates may be noised: not where silos remember their own
    pooled: ClassVar[bool] = False  # whether it trains on all data in one place: not federated, but a bound for what is

    def __post_init__(self) -> None:
        make_plain(self)
        check_whole(0, rounds=self.rounds, seed=self.seed)
        optional = {"patience": self.patience, "num_classes": self.num_classes}
        given = {name: value for name, value in optional.items() if value is not None}
        check_whole(1, evaluate_every=self.evaluate_every, **given)
        self._check_privacy()
        self._plan().check()
        if self.patience is not None and not self.learns_labels:
            raise FedtctError(f"patience needs ratings of the model, and pretext='{self.pretext}' has none")

    def _plan(self, prox: float = 0.0) -> LocalPlan:
        return LocalPlan(
            epochs=self.local_epochs,
            batch_size=self.batch_size,
            lr=self.lr,
            weight_decay=self.weight_decay,
            prox=prox,
            augment=self.augment,
            trainable=self.trainable,
            pretext=self.pretext,
        )

    def _check_privacy(self) -> None:
        check_not_negative(noise=self.noise)
        check_positive(clip=self.clip)
        if self.noise and not self.takes_noise:
            raise FedtctError(
                f"{type(self).__name__} does not support differential privacy: use FedAvg, FedProx or FedAdam"
            )
        if self.noise and self.patience is not None:
            raise FedtctError("patience needs the silos' ratings of models, which are not differentially private")

    @property
    def learns_labels(self) -> bool:
        """Whether the network learns the silos' answers, and can be rated by them; else only features, for TCT."""
        return self.pretext == "none"

    @abstractmethod
    def round(self, federation: Federation, state: State, number: int) -> tuple[State, Replies]:
        """Ask silos and combine their replies: the new state, with ``parameters`` and ``buffers``, and the replies."""

    def start(self, weights: Weights) -> State:
        """The server's state before the first round; ``weights`` are the trained ones alone."""
        return weights._asdict()

    def question(
        self,
        state: State,
        number: int,
        *,
        start: Tensor | None = None,
        prox: float = 0.0,
        correction: str = "none",
    ) -> Message:
        """What a silo needs to know to train for a round, and the weights to train.

        Silos rate the state's parameters, and train from these or from ``start``. In a round without a rating, they get
        only what they train from.
        """
        rated = number % self.evaluate_every == 0 and not self.noise and self.learns_labels
        question: Message = {
            "parameters": state["parameters"],
            "buffers": state["buffers"],
            "round": number,
            "seed": self.seed,
            **asdict(self._plan(prox)),
            "correction": correction,
            "server_steps": float(state.get("server_steps", 0.0)),
            "evaluate": rated,
            "clip": self.clip,
            "noise": self.noise,
        }
        if "frozen" in state:
            question["frozen"] = digest(state["frozen"])
        if start is not None:
            question["start" if rated else "parameters"] = start
        return question

    def fit(self, silos: Silos, test: Test | None = None, *, journal: Journal | None = None) -> Fit:
        """Train across silos.

        - ``silos``: a list of silos, or a Federation
        - ``test``: a pair (x, y), which is scored after every round, but never used to train or to choose; or a
          function that returns it, given what the silos' samples look like
        - ``journal``: where to keep rows and checkpoints; by default in memory only

        Returns the model and the history of its rounds.
        """
        if not self.learns_labels:
            raise FedtctError(f"pretext='{self.pretext}' learns features, not classes: use it as TCT's stage 1")
        session = self.open(silos, test, journal)
        weights = self.run(session)
        temperature = calibrate(session, weights._asdict())
        model = NetworkClassifier(session.spec, weights, session.network.device, temperature)
        return Fit(model, session.journal.history)

    def open(
        self,
        silos: Silos,
        test: Test | None = None,
        journal: Journal | None = None,
        *,
        model: Model | None = None,
        private: bool = False,
    ) -> Session:
        """Begin a fit. ``model`` may stand in for the method's own; ``private`` says that a later stage adds noise."""
        session = Session.open(
            silos,
            self.model if model is None else model,
            test=test,
            journal=journal,
            head=self.head,
            init_weights=self.init_weights,
            num_classes=self.num_classes,
            seed=self.seed,
            pooled=self.pooled,
            private=private or self.noise > 0,
        )
        if self.patience is not None:
            session.need_holdout("patience")
        if self.rounds:
            check_batches(session, self._plan())
            self._check_training(session)
        return session

    def _check_training(self, session: Session) -> None:
        """Refuse at once what would otherwise fail only when silos train."""
        if self.patience is not None and session.federation.per_round is not None:
            raise FedtctError(OTHER_RATERS)
        if self.noise and len(session.network.buffers):
            raise FedtctError(
                "with noise a model must have no floating-point buffers, such as BatchNorm's running statistics, which "
                "noise makes meaningless: use GroupNorm, as 'resnet18-gn' does"
            )
        check_augmentation(self.augment, session.spec.inputs.shape)
        check_pretext(self.pretext, session.spec.inputs.shape, session.spec.num_classes)
        try_training(session.spec, session.network, self.trainable)

    def run(self, session: Session) -> Weights:
        """All rounds; the network's final weights."""
        return TrainingRounds(self, session).weights()


@dataclass
class TrainingRounds(Rounds):
    """The rounds of stage 1. If only a part of the network is trained, the rest is the state's ``frozen``."""

    method: Stage1
    told: bool = False  # whether silos were told what is frozen

    name = "stage1"

    def weights(self) -> Weights:
        """The network's weights after all rounds."""
        trained, frozen = split_trained(self.session.network, self.method.trainable, self.session.network.weights())
        start = self.method.start(trained)
        advice = "weights._asdict() with whatever else it holds"
        check_state(self.method, "start", start, Weights._fields, advice)
        return self._whole(self.run(start | ({"frozen": frozen} if frozen else {})))

    def round(self, state: State, number: int) -> tuple[State, Replies]:
        """The method's own round, after silos were told what is frozen."""
        telling = self._tell(state)
        found = self.method.round(self.session.federation, state, number)
        after, replies = checked_round(self.method, found, Weights._fields)
        if not bool(after["parameters"].isfinite().all()):
            _warn_of_diverged(replies)
        if "frozen" not in state:
            return after, replies
        if number == 0:  # a run that goes on tells silos again: that is not counted, as if it had never stopped
            replies = replace(replies, cost=telling + replies.cost)
        return after | {"frozen": state["frozen"]}, replies

    def evaluate(self, state: State) -> Replies | None:
        """Nothing if silos are private, or if the network learns features alone, which nobody can rate."""
        if self.session.private or not self.method.learns_labels:
            return None
        return self.session.federation.ask("evaluate", self._whole(state)._asdict())

    def test(self, state: State) -> Score | None:
        """Computed with the server's copy of the network."""
        session, network = self.session, self.session.network
        if session.test is None or not self.method.learns_labels:
            return None
        network.load(self._whole(state))
        network.module.eval()
        return evaluate(network, *session.test, session.spec.task.score)

    def _tell(self, state: State) -> Cost:
        """Tell silos the frozen weights, once: rounds bring the trained ones alone. Returns what it cost."""
        if "frozen" not in state or self.told:
            return Cost()
        self.told = True
        return self.session.federation.ask("freeze", state["frozen"]).cost

    def _whole(self, state: State) -> Weights:
        frozen = Frozen.told(self.session.network, state.get("frozen", {}))
        return frozen.whole(Weights(state["parameters"], state["buffers"]))


def _warn_of_diverged(replies: Replies) -> None:
    """Warn of silos whose weights are not finite, if others' are: a single bad sample there can ruin the average."""
    weights = zip(replies.cost.silos, replies.values("parameters"), strict=False)
    diverged = [name for name, parameters in weights if not bool(parameters.isfinite().all())]
    if 0 < len(diverged) < len(replies.messages):
        warnings.warn(f"training diverged only in {listing(diverged)}: check the samples there", stacklevel=2)

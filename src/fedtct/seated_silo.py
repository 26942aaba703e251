"""A silo at its place in a federation: a method for each question, answered from its own data alone.

What a reply contains is all that leaves the silo.
"""

import warnings
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from fedtct.data.samples import Inputs
from fedtct.errors import FedtctError
from fedtct.hardware.precision import full_precision
from fedtct.least_squares import LocalFeatures, LocalRegression, Sums, times
from fedtct.models import Network, NetworkSpec, Weights
from fedtct.models.trial import try_tokens
from fedtct.privacy import AddNoise, draw_key, is_noised, noisy_sums, noisy_update
from fedtct.questions import HELD, QUESTIONS, Message
from fedtct.seeds import derive
from fedtct.silo import SiloData
from fedtct.tangent import Normaliser, Recipe, TangentMap, shared_map
from fedtct.tasks import NUMBERED, Answers, Classification, Score
from fedtct.training import (
    Frozen,
    LocalJob,
    LocalPlan,
    Memory,
    ScaffoldCorrection,
    correction_of,
    evaluate,
    local_update,
)
from fedtct.training.evaluation import batch_size

FEATURE_BATCH = 500


class SeatedSilo:
    """A silo at its place in a federation: its data on a device, and what it remembers and builds for this federation.

    - ``secret``: what noise is drawn from besides the question; for real privacy, nobody else may know it
    - ``add_noise``: how the weights that training sends are noised
    - ``spend``: for a silo with a privacy budget of its own, told of each noisy reply before it leaves: the key that
      its noise is drawn from, and how much noise. Such a silo counts labels beyond the network's classes as the last
      class, because refusing them would reveal that they exist
    """

    # The network in use, and the data in the form that it takes: set by ``use``.
    spec: NetworkSpec
    network: Network
    x: Tensor
    y: Tensor
    held_x: Tensor
    held_y: Tensor

    def __init__(
        self,
        silo: SiloData,
        index: int,
        device: torch.device,
        *,
        secret: str = "",
        add_noise: AddNoise = noisy_update,
        spend: Callable[[bytes, float], None] | None = None,
    ) -> None:
        self.given, self.index, self.device = silo.at(index, device), index, device
        self.name = self.given.name
        self.secret, self.add_noise, self.spend = secret, add_noise, spend
        self.memory: dict[str, Memory] = {}
        self._features: LocalFeatures | None = None
        self._frozen = Frozen()

    def __len__(self) -> int:
        """How many samples it trains on."""
        return len(self.given)

    def use(self, spec: NetworkSpec, network: Network) -> None:
        """Work with this network from now on; silos in one process may share it."""
        self.spec, self.network, given = spec, network, self.given
        self.x, self.y = self._encoded(given.x, given.y)
        self.held_x, self.held_y = self._encoded(given.held_x, given.held_y)
        if spec.inputs.dtype == torch.int64:
            try_tokens(spec, network, torch.cat([self.x, self.held_x]), self.name)
        self.memory, self._features, self._frozen = {}, None, Frozen()

    def _encoded(self, x: Inputs, y: Answers) -> tuple[Tensor, Tensor]:
        x, y = self.spec.encode(x, self._known(y) if self.spend else y, self.name)
        return x.to(self.device), y.to(self.device)

    def _known(self, labels: Answers) -> Tensor:
        """Labels, with those beyond the network's classes as the last one: a refusal would reveal that they exist."""
        assert isinstance(labels, Tensor)  # a silo with a budget has refused networks for names and numbers
        classes = self.spec.num_classes
        known = labels.clamp(max=classes - 1)
        if far := int((labels != known).sum()):
            warnings.warn(
                f"{self.name}: {far} labels are beyond the run's {classes} classes, and count as the last", stacklevel=2
            )
        return known

    def answer(self, question: str, message: Message) -> Message:
        """The reply to a question."""
        if question not in QUESTIONS:
            raise FedtctError(f"{self.name} was asked '{question}', which it does not know")
        method: Callable[[Message], Message] = getattr(self, question)
        return method(message)

    # Where a new process answers every question, features are handed on from one to the next, as ``memory`` is.

    def features(self) -> dict[str, Tensor]:
        """The features as they are now: raw, or normalised and decomposed."""
        return self._built_features().tensors()

    def take_features(self, tensors: dict[str, Tensor]) -> None:
        """Go on with features that an earlier process left."""
        self._features = LocalFeatures.from_tensors(tensors, self._targets())

    # Before training

    def describe(self, message: Message) -> Message:
        """What a server must know before it can start: see ``SiloData.describe``."""
        return self.given.describe(private=message.get("private", False))

    # Stage 1

    def freeze(self, message: Message) -> Message:
        """Keep the weights that nobody trains: questions about the others need not bring them."""
        self._frozen = Frozen.told(self.network, message)
        return {}

    def train(self, message: Message) -> Message:
        """Local training from the server's weights."""
        rating, job = self.begin_training(message)
        return rating | self.end_training(message, job, local_update(self.network, job))

    def begin_training(self, message: Message) -> tuple[Message, LocalJob]:
        """Rate the server's weights if asked to, and describe the work as a job: several silos' may be done at once."""
        plan, frozen = LocalPlan.among(message), self._frozen.meant_by(message, self.name)
        rating = self.evaluate(message) if message["evaluate"] else {}
        correction, memory = correction_of(message), self.memory.setdefault("stage1", {})
        start = _start(message)
        term = correction.before(memory, start.parameters) if correction else None
        job = LocalJob(
            self.index,
            self.x,
            self.y,
            start=frozen.whole(start),
            plan=plan,
            seed=derive(message["seed"], "train", message["round"], self.index),
            correction=frozen.spread(term),
            outputs=self.spec.num_classes,
        )
        return rating, job

    def end_training(self, message: Message, job: LocalJob, local: Weights) -> Message:
        """Update the memory that the algorithm's correction needs, add noise if asked to, and reply."""
        steps, start = job.plan.steps(len(self)), _start(message)
        local = self._frozen.meant_by(message, self.name).part(local)
        if correction := correction_of(message):
            correction.after(self.memory["stage1"], start.parameters, local.parameters, steps)
        if message["noise"]:
            key = self._release("train", message, local._asdict())
            local = self.add_noise(start, local, message["clip"], message["noise"], key)
        return {"n": len(self), "steps": steps} | local._asdict()

    def evaluate(self, message: Message) -> Message:
        """How good these weights are here."""
        network, score = self._network_at(message), self.spec.task.score
        train, held = (evaluate(network, *part, score) for part in ((self.x, self.y), (self.held_x, self.held_y)))
        return _score_reply(train, held) | {"n": len(self)}

    # Convexify and stage 2

    def moments(self, message: Message) -> Message:
        """Build the tangent features and give their count, mean and squared deviations."""
        self._features = LocalFeatures.build(self._tangent_map(message), self.x, self.held_x)
        return self._features.moments()._asdict()

    @full_precision()
    def normalise(self, message: Message) -> Message:
        """Normalise the features and prepare the regression; its largest eigenvalue tells how long a step may be."""
        features, many_steps = self._built_features(), message["many_steps"]
        features.normalise(Normaliser.among(message), self._targets(), many_steps=many_steps)
        return {"n": len(self), "largest_eigenvalue": self.regression().largest_eigenvalue}

    @full_precision()
    def regress(self, message: Message) -> Message:
        """Local steps of linear regression from the server's W, or from ``start`` if the question has that besides."""
        w, lr, steps = message["w"], message["lr"], message["steps"]
        regression, memory = self.regression(), self.memory.setdefault("stage2", {})
        self._check_step_size(regression.largest_eigenvalue, lr, steps)
        scaffold = ScaffoldCorrection(lr, message["server_steps"]) if message["correction"] == "scaffold" else None
        elsewhere = "start" in message  # then W is only rated
        point, local = take_steps(regression, message["start" if elsewhere else "w"], lr, steps, scaffold, memory)
        reply = {"n": len(self), "w": local}
        if not message["evaluate"]:
            return reply
        scores = times(regression.z, w) if elsewhere else regression.scores(point)
        return self._rating(w, scores) | reply

    def _check_step_size(self, largest_eigenvalue: float, lr: float, steps: int) -> None:
        """Refuse steps that diverge here: the server chose ones that are safe for the silos it knew at that time."""
        if steps > 1 and lr * largest_eigenvalue >= 2:
            raise FedtctError(
                f"{self.name}: steps of {lr:.3g} diverge here, from {2 / largest_eigenvalue:.3g} on: "
                "it was not there when the step size was chosen; set a smaller stage2_lr"
            )

    @full_precision()
    def rate(self, message: Message) -> Message:
        """How good this W is on the features here."""
        w = message["w"]
        return self._rating(w, times(self.regression().z, w)) | {"n": len(self)}

    @full_precision()
    def assess(self, message: Message) -> Message:
        """How good linear models on the features are here, without keeping the features; ``w`` is (k, p + 1, C)."""
        normaliser, w = Normaliser.among(message), message["w"]
        tangents = self._tangent_map(message)

        def score(x: Tensor, y: Tensor) -> list[Score]:
            parts: list[list[Score]] = []
            for xs, ys in zip(x.split(FEATURE_BATCH), y.split(FEATURE_BATCH), strict=True):
                z = normaliser(tangents(xs))
                parts.append([self.spec.task.squared_score(z @ weights.to(z), ys) for weights in w])
            return [Score.total(column) for column in zip(*parts, strict=True)] or [Score()] * len(w)

        train = score(self.x, self.y) if message["train"] else [Score()] * len(w)
        replies = [_score_reply(t, h) for t, h in zip(train, score(self.held_x, self.held_y), strict=True)]
        # In float64, as plain numbers would be: R² is a small difference of these sums.
        return {key: torch.from_numpy(np.array([r[key] for r in replies])) for key in replies[0]} | {"n": len(self)}

    def sums(self, message: Message) -> Message:
        """The sums that determine ridge regression exactly; the features are never stored."""
        tangents = self._tangent_map(message)
        batches = zip(self.x.split(FEATURE_BATCH), self.y.split(FEATURE_BATCH), strict=True)
        sums = Sums.of((tangents(xs), self._targets(ys)) for xs, ys in batches)
        if message["noise"]:
            if self.spec.task != NUMBERED or self.spec.num_classes < 2:
                raise FedtctError("sums are differentially private of classes from 0 alone: nothing bounds numbers")
            sums = noisy_sums(sums, message["noise"], self._release("sums", message, sums._asdict()))
        return {"n": len(self), "s": sums.pack(), "t": sums.t, "yy": sums.yy}

    def _release(self, question: str, message: Message, reply: Message) -> bytes:
        """The key that a reply's noise is drawn from, after the privacy budget was charged for the reply."""
        if not is_noised(message):
            raise FedtctError("noise and clip must be plain numbers, neither huge nor tiny")
        key = draw_key(self.secret, question, self.index, message, {"x": self.x, "y": self.y}, reply)
        if self.spend:  # else only the server keeps an account, as in a simulation
            self.spend(key, message["noise"])
        return key

    @torch.no_grad()
    def calibrate(self, message: Message) -> Message:
        """The log-loss of a model on the held-out samples here, at several temperatures."""
        task, temperatures = self.spec.task, message["temperatures"]
        assert isinstance(task, Classification)
        predict = self._linear_model(message) if "w" in message else self._network_at(message)
        losses, judged = torch.zeros_like(temperatures), 0
        if not len(self.held_y):  # split() would give one empty batch, which not every model takes
            return {"n": 0, "losses": losses}
        size = batch_size(self.held_x)
        for xs, ys in zip(self.held_x.split(size), self.held_y.split(size), strict=True):
            more, count = task.losses(predict(xs), ys, temperatures)
            losses, judged = losses + more, judged + count
        return {"n": judged, "losses": losses}

    def regression(self) -> LocalRegression:
        """The linear problem as it was prepared. It is no question: simulations use it to look on."""
        regression = self._built_features().regression
        if regression is None:
            raise FedtctError(f"{self.name} has raw features: it must be asked to 'normalise' them first")
        return regression

    def _built_features(self) -> LocalFeatures:
        if self._features is None:
            raise FedtctError(f"{self.name} has no features yet: it must be asked for 'moments' first")
        return self._features

    def _rating(self, w: Tensor, scores: Tensor) -> Message:
        """How good W is on the samples here; its scores of those that are trained on are given."""
        held, rate = self._built_features().held, self.spec.task.squared_score
        return _score_reply(rate(scores, self.y), rate(times(held, w), self.held_y) if len(held) else Score())

    def _targets(self, y: Tensor | None = None) -> Tensor:
        """What stage 2 regresses on: for these answers, or for all that are trained on."""
        return self.spec.task.targets(self.y if y is None else y, self.spec.num_classes)

    def _network_at(self, message: Message) -> Network:
        brought = Weights(message["parameters"], message["buffers"])
        self.network.load(self._frozen.meant_by(message, self.name).whole(brought))
        self.network.module.eval()
        return self.network

    def _linear_model(self, message: Message) -> Callable[[Tensor], Tensor]:
        tangents, normaliser = self._tangent_map(message), Normaliser.among(message)
        return lambda x: normaliser.scores(tangents(x), message["w"])

    def _tangent_map(self, message: Message) -> TangentMap:
        recipe = Recipe(**{field: message[field] for field in Recipe._fields})
        return shared_map(self.spec, recipe, self.network.device)


def take_steps(
    regression: LocalRegression,
    w: Tensor,
    lr: float | Tensor,
    steps: int | Tensor,
    scaffold: ScaffoldCorrection | None,
    memory: Memory,
) -> tuple[Tensor, Tensor]:
    """A silo's part of a round of stage 2: the regression's point at W, and W after the steps.

    ``lr`` and ``steps`` may be rows of numbers, one for each column of W: then many solutions go side by side.
    """
    start = regression.point(w)
    for name, point in memory.items():
        if len(point) != len(start):  # remembered without Z·W, or by a process that had other memory to work in
            memory[name] = regression.point(point[: regression.p])
    term = scaffold.before(memory, start) if scaffold else None
    local, gradient = regression.advance(start, term, lr, steps)
    if scaffold:
        scaffold.remember(memory, start, gradient)
    return start, local


def _start(message: Message) -> Weights:
    """Where training begins: at ``start`` if the question has that, else at the weights that are rated."""
    return Weights(message["start" if "start" in message else "parameters"], message["buffers"])


def _score_reply(train: Score, held: Score) -> Message:
    """Scores as entries of a reply; of classes without shift and spread, which only numbers have."""
    numbers = {f"{which}{key}": v for which, s in (("", train), (HELD, held)) for key, v in s._asdict().items()}
    return {key: v for key, v in numbers.items() if v or not key.endswith(("shift", "spread"))}

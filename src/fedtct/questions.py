"""The questions that silos can be asked, and for each what a reply holds, what it needs and what it reveals.

A silo answers each by the method of ``SeatedSilo`` with that name.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fedtct.agreement import PUBLIC
from fedtct.tasks import Score

Message = dict[str, Any]  # a question or its reply: tensors and plain values by name
Shapes = dict[str, tuple[int, ...]]  # of arrays, by name
ShapesOf = Callable[[Message, int, int], Shapes]  # from a question, the network's outputs and the number of features
SCORES = Score._fields[:3]
HELD = "held_"  # before the names of scores on held-out samples
RATING = (*SCORES, *(HELD + name for name in SCORES))
ANY_RATING = (*Score._fields, *(HELD + name for name in Score._fields))  # a regression's ratings have more fields
RATED = "how many samples the model gets right here, and its loss; of numbers, their sum and their sum of squares too"


@dataclass(frozen=True)
class Question:
    """What is known about a question before it is asked, whatever data a silo has."""

    reply: tuple[str, ...] = ()  # the entries that every reply must have
    numbers: tuple[str, ...] = ()  # entries that are plain numbers, if a reply has them
    arrays: ShapesOf | None = None  # entries that are arrays, if a reply has them, and their shapes
    of_held_out: bool = False  # whether a reply's n counts held-out samples, not those that are trained on
    reveals: str = ""  # what a reply tells of a silo's data
    noised: str = ""  # what it tells with differential privacy
    rates: bool = False  # whether a reply rates a model; in a round it does so only if asked to "evaluate"
    finite: bool = False  # whether arrays must be finite: not those of training and steps, which may diverge
    memory: str = ""  # for a question of rounds: the stage whose memory the silo goes on from, and changes
    rests_on: tuple[str, ...] = ()  # earlier questions, as far as they were asked, that the silo must have heard
    builds_features: bool = False  # whether the silo then has features, for questions that rest on this one
    begins_stage2: bool = False  # whether it needs the memory that stage 1 took, for features


def _shaped_as(**asked: str) -> ShapesOf:
    """Each array has the shape of the named array of the question."""
    return lambda message, outputs, features: {name: tuple(message[like].shape) for name, like in asked.items()}


def _moments(message: Message, outputs: int, features: int) -> Shapes:
    return {"mean": (features,), "m2": (features,)}


def _sums(message: Message, outputs: int, features: int) -> Shapes:
    rows = features + 1  # the bias has one
    return {"s": (rows * (rows + 1) // 2,), "t": (rows, outputs)}


def _a_rating_a_model(message: Message, outputs: int, features: int) -> Shapes:
    return dict.fromkeys(ANY_RATING, (len(message["w"]),))


QUESTIONS = {
    "describe": Question(reply=PUBLIC, reveals="how many samples", noised="how many samples of which shape"),
    "freeze": Question(reveals="nothing"),
    "train": Question(
        reply=("n", "steps", "parameters", "buffers"),
        numbers=ANY_RATING,
        arrays=_shaped_as(parameters="parameters", buffers="buffers"),
        reveals="weights trained here: of few samples, some can be inferred",
        noised="weights trained here, clipped and noised: as much as ε says",
        rates=True,
        memory="stage1",
        rests_on=("freeze",),
    ),
    "evaluate": Question(reply=("n", *RATING), numbers=ANY_RATING, reveals=RATED, rates=True),
    "moments": Question(
        reply=("n", "mean", "m2"),
        arrays=_moments,
        reveals="mean and variance of each feature here",
        finite=True,
        builds_features=True,
        begins_stage2=True,
    ),
    "normalise": Question(
        reply=("n", "largest_eigenvalue"),
        numbers=("largest_eigenvalue",),
        reveals="one number: the largest eigenvalue",
        rests_on=("moments",),
        builds_features=True,
    ),
    "regress": Question(
        reply=("n", "w"),
        numbers=ANY_RATING,
        arrays=_shaped_as(w="w"),
        reveals="a linear model trained here: of few samples, some can be inferred",
        rates=True,
        memory="stage2",
        rests_on=("moments", "normalise"),
    ),
    "rate": Question(
        reply=("n", *RATING), numbers=ANY_RATING, reveals=RATED, rates=True, rests_on=("moments", "normalise")
    ),
    "sums": Question(
        reply=("n", "s", "t", "yy"),
        numbers=("yy",),
        arrays=_sums,
        reveals="the covariance of features, and their sum in each class or their product with the numbers to learn",
        noised="the same, noised: as much as ε says",
        finite=True,
        begins_stage2=True,
    ),
    "assess": Question(reply=("n", *RATING), arrays=_a_rating_a_model, reveals=RATED, rates=True),
    "calibrate": Question(
        reply=("n", "losses"),
        arrays=_shaped_as(losses="temperatures"),
        of_held_out=True,
        reveals="the loss on held-out samples at many temperatures",
        finite=True,
    ),
}


def about(question: str) -> Question:
    """What is known about a question: nothing about one that silos do not know, and refuse."""
    return QUESTIONS.get(question, Question())

"""What silos can be asked, and what is known of a question before they are: what a reply holds, rests on and reveals.

A silo answers each by its method of that name.
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
ANY_RATING = (*Score._fields, *(HELD + name for name in Score._fields))  # of numbers there are more
RIGHT = "how many samples the model gets right here, and its loss; of numbers, their sum and their sum of squares too"


@dataclass(frozen=True)
class Question:
    """What holds whatever a silo's data is."""

    reply: tuple[str, ...] = ()  # what algorithms read of one
    numbers: tuple[str, ...] = ()  # what is a plain number, if it is in a reply
    arrays: ShapesOf | None = None  # what is an array, if it is in a reply
    of_held_out: bool = False  # a reply's n is of samples that are held out, not of those that are trained on
    reveals: str = ""  # what a reply tells of a silo's data
    noised: str = ""  # the same, with differential privacy
    rates: bool = False  # a reply rates a model; in rounds, if it is asked to
    finite: bool = False  # arrays are summed up once; training and steps may diverge, which is seen after the round
    memory: str = ""  # of a question of every round: the part of a silo's memory that it goes on from, and changes
    rests_on: tuple[str, ...] = ()  # what a silo must have been told before, where it was asked at all
    builds_features: bool = False  # in a silo, for questions that rest on it
    begins_stage2: bool = False  # which needs much memory for features


def _shaped_as(**asked: str) -> ShapesOf:
    """Arrays of the shapes that arrays of the question have."""
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
    "evaluate": Question(reply=("n", *RATING), numbers=ANY_RATING, reveals=RIGHT, rates=True),
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
        reply=("n", *RATING), numbers=ANY_RATING, reveals=RIGHT, rates=True, rests_on=("moments", "normalise")
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
    "assess": Question(reply=("n", *RATING), arrays=_a_rating_a_model, reveals=RIGHT, rates=True),
    "calibrate": Question(
        reply=("n", "losses"),
        arrays=_shaped_as(losses="temperatures"),
        of_held_out=True,
        reveals="the loss on held-out samples at many temperatures",
        finite=True,
    ),
}


def about(question: str) -> Question:
    """What is known of a question: nothing, if silos know no such question and refuse it."""
    return QUESTIONS.get(question, Question())

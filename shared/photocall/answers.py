"""The answers of the public API: what the engine's readout makes, every shape shows, and the API's description says.

`answer_status` stands in an answer that is not to be taken like any other: `untrained` where the model was never
trained for questions of its type, so that the answer has its form and no worth, `abstained` where the model would
rather not say (the answer keeps its form, with a confidence of 0), `refused` in a Refusal, `not_asked` in a NotAsked.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

AnswerStatus: TypeAlias = Literal["untrained", "abstained"]


class Doubts(TypedDict):
    """What `abstain` adds to an answer of any type."""

    answer_status: NotRequired[AnswerStatus]
    cannot_tell: NotRequired[float]  # probability of the slot beside the labels, which sum to 1 without it
    label_mass: NotRequired[float]  # of the whole next-token distribution, what the labels hold


class NoulAnswer(Doubts):
    """Yes or no: `noul` is the probability of yes."""

    type: Literal["noul"]
    noul: float
    order_spread: NotRequired[float | None]
    calibration: NotRequired[str]  # the caller's own that was applied, by its id
    probabilities_raw: NotRequired[dict[str, float]]  # before it was


class ChoiceAnswer(Doubts):
    """The most probable label; equal ones go to the label that sorts first by code point."""

    type: Literal["choice"]
    choice: str
    confidence: float
    probabilities: dict[str, float]
    order_spread: NotRequired[float | None]
    calibration: NotRequired[str]  # the caller's own that was applied, by its id
    probabilities_raw: NotRequired[dict[str, float]]  # before it was


class ScoreAnswer(Doubts):
    """The expected level, with what each level was described as."""

    type: Literal["score"]
    score: float
    confidence: float
    legend: dict[str, Any]  # JSON, never null
    probabilities: dict[str, float]
    order_spread: NotRequired[float | None]
    calibration: NotRequired[str]  # the caller's own that was applied, by its id
    probabilities_raw: NotRequired[dict[str, float]]  # before it was


class Alternative(TypedDict):
    """Another number that was probable."""

    number: int | float
    probability: float


class NumberAnswer(Doubts):
    """The most probable number, and the distribution around it; `interval` holds its middle nine tenths."""

    type: Literal["number"]
    number: int | float
    expected: float
    confidence: float
    probabilities: dict[str, float]
    alternatives: list[Alternative]
    interval: list[int | float]
    no_number: NotRequired[float]  # of the whole next-token distribution, what begins no number that is allowed


class TextAnswer(Doubts):
    """A short text; `truncated` when it was cut at `max_tokens`, and then it need not match its pattern."""

    type: Literal["text"]
    text: str
    logprob: float
    truncated: bool
    probability: NotRequired[float]  # with `one_of` or `pattern`: among the texts that these allow
    probabilities: NotRequired[dict[str, float]]  # with `one_of`


class Edges(TypedDict):
    """Edges of a box as fractions of the picture's height (top, bottom) and width (left, right), from the top left."""

    top: float
    bottom: float
    left: float
    right: float


class BoxAnswer(Doubts):
    """Where something is: each edge is its expected place. `presence`: how probable it is that it is there at all."""

    type: Literal["box"]
    box: Edges
    confidence: float
    presence: float


class Refusal(TypedDict):
    """In place of an answer: this question could not be answered, the others were. `code` is one of the error table."""

    type: Literal["refusal"]
    answer_status: Literal["refused"]
    code: str
    message: str


class NotAsked(TypedDict):
    """In place of an answer: the question comes after another one, whose answer was not the one it comes after."""

    type: Literal["not_asked"]
    answer_status: Literal["not_asked"]
    message: str


Answer: TypeAlias = NoulAnswer | ChoiceAnswer | ScoreAnswer | NumberAnswer | TextAnswer | BoxAnswer | Refusal | NotAsked


def refusal(code: str, message: str) -> Refusal:
    """The answer to a question that has none."""
    return {"type": "refusal", "answer_status": "refused", "code": code, "message": message}


def not_asked(question: str) -> NotAsked:
    """The answer to a question that comes after an answer which `question` did not get."""
    return {
        "type": "not_asked",
        "answer_status": "not_asked",
        "message": f"the answer to {question[:80]!r} is not the one that this comes after",
    }

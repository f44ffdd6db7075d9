"""The answers of the public API: what the engine's readout makes, every shape shows, and the API's description says.

`answer_status` stands in an answer that is not to be taken like any other: `untrained` where the model was never
trained for questions of its type, so that the answer has its form and no worth, and `refused` in a Refusal.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

AnswerStatus: TypeAlias = Literal["untrained", "refused"]


class NoulAnswer(TypedDict):
    """Yes or no: `noul` is the probability of yes."""

    type: Literal["noul"]
    noul: float
    answer_status: NotRequired[AnswerStatus]


class ChoiceAnswer(TypedDict):
    """The most probable label; equal ones go to the label that sorts first by code point."""

    type: Literal["choice"]
    choice: str
    confidence: float
    probabilities: dict[str, float]
    answer_status: NotRequired[AnswerStatus]


class ScoreAnswer(TypedDict):
    """The expected level, with what each level was described as."""

    type: Literal["score"]
    score: float
    confidence: float
    legend: dict[str, Any]  # JSON, never null
    probabilities: dict[str, float]
    answer_status: NotRequired[AnswerStatus]


class Alternative(TypedDict):
    """Another number that was probable."""

    number: int | float
    probability: float


class NumberAnswer(TypedDict):
    """The most probable number, and the distribution around it; `interval` holds its middle nine tenths."""

    type: Literal["number"]
    number: int | float
    expected: float
    confidence: float
    probabilities: dict[str, float]
    alternatives: list[Alternative]
    interval: list[int | float]
    answer_status: NotRequired[AnswerStatus]


class TextAnswer(TypedDict):
    """A short text; `truncated` when it was cut at `max_tokens`."""

    type: Literal["text"]
    text: str
    logprob: float
    truncated: bool
    answer_status: NotRequired[AnswerStatus]


class Edges(TypedDict):
    """Edges of a box as fractions of the picture's height (top, bottom) and width (left, right), from the top left."""

    top: float
    bottom: float
    left: float
    right: float


class BoxAnswer(TypedDict):
    """Where something is: each edge is its expected place."""

    type: Literal["box"]
    box: Edges
    confidence: float
    answer_status: NotRequired[AnswerStatus]


class Refusal(TypedDict):
    """In place of an answer: this question could not be answered, the others were. `code` is one of the error table."""

    type: Literal["refusal"]
    answer_status: Literal["refused"]
    code: str
    message: str


Answer: TypeAlias = NoulAnswer | ChoiceAnswer | ScoreAnswer | NumberAnswer | TextAnswer | BoxAnswer | Refusal


def refusal(code: str, message: str) -> Refusal:
    """The answer to a question that has none."""
    return {"type": "refusal", "answer_status": "refused", "code": code, "message": message}

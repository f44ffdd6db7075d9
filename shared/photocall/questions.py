"""The question types of the public API: one definition for the gateway, the engine (which asks them) and the client.

It knows nothing of HTTP, of tokens or of any model. How request bodies become questions: question_parsing.py; answers:
answers.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from photocall.asking import PLAIN, Asking
from photocall.invalid import InvalidField as InvalidField
from photocall.invalid import Json as Json
from photocall.invalid import Loc as Loc

MAX_OPTIONS = 255
MAX_QUESTIONS = 1000
MAX_TEXT_TOKENS = 256
DEFAULT_TEXT_TOKENS = 32
MAX_ONE_OF_CHARS = 4096  # of all texts of a list together: what is read of them is at most as many rows
MAX_PATTERN_CHARS = 512
MAX_PATTERNS = 4  # of one request: a hostile one keeps an engine, and so all it serves, busy for a third of a second


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a choice: the label that comes back, and what it means if the label alone does not say."""

    label: str
    description: Json = None


@dataclass(frozen=True, slots=True)
class Choice:
    """One of 1 to 255 options."""

    type: ClassVar[Literal["choice"]] = "choice"
    name: str
    instructions: Json
    options: tuple[Option, ...]
    asking: Asking = PLAIN


@dataclass(frozen=True, slots=True)
class Noul:
    """Yes or no. `true` and `false` describe the sides when given."""

    type: ClassVar[Literal["noul"]] = "noul"
    name: str
    instructions: Json
    true: Json = None
    false: Json = None
    asking: Asking = PLAIN


@dataclass(frozen=True, slots=True)
class Score:
    """An ordered scale of 1 to 255 levels; the answer's score is the expected level index."""

    type: ClassVar[Literal["score"]] = "score"
    name: str
    instructions: Json
    levels: tuple[Json, ...]
    asking: Asking = PLAIN


@dataclass(frozen=True, slots=True)
class Number:
    """A number within [min, max] on the grid min + k * step (or 0 + k * step without a min)."""

    type: ClassVar[Literal["number"]] = "number"
    name: str
    instructions: Json
    min: float | None = None
    max: float | None = None
    step: float | None = None
    unit: str | None = None
    asking: Asking = PLAIN


@dataclass(frozen=True, slots=True)
class Text:
    """A short text, decoded greedily; one of these, or one that a regular expression allows, where there is one."""

    type: ClassVar[Literal["text"]] = "text"
    name: str
    instructions: Json
    max_tokens: int = DEFAULT_TEXT_TOKENS
    one_of: tuple[str, ...] | None = None
    pattern: str | None = None
    asking: Asking = PLAIN


@dataclass(frozen=True, slots=True)
class Box:
    """Where something is in a picture. Instructions may be missing where the state says what is looked for."""

    type: ClassVar[Literal["box"]] = "box"
    name: str
    instructions: Json
    asking: Asking = PLAIN


Question: TypeAlias = Choice | Noul | Score | Number | Text | Box


def num_options(question: Choice | Noul | Score) -> int:
    """Options of a lettered question, a slot for "cannot tell" not counted."""
    if isinstance(question, Choice):
        return len(question.options)
    return len(question.levels) if isinstance(question, Score) else 2

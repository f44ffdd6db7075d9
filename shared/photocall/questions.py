"""The question types of the public API and the one parser that turns a request body into them.

One definition for the gateway (which refuses bad ones), the engine (which asks them) and the client. It knows nothing
of HTTP, of tokens or of any model. Answers are plain dicts built by the engine's readout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

MAX_OPTIONS = 255


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


@dataclass(frozen=True, slots=True)
class Noul:
    """Yes or no. `true` and `false` describe the sides when given."""

    type: ClassVar[Literal["noul"]] = "noul"
    name: str
    instructions: Json
    true: Json = None
    false: Json = None


@dataclass(frozen=True, slots=True)
class Score:
    """An ordered scale of 1 to 255 levels; the answer's score is the expected level index."""

    type: ClassVar[Literal["score"]] = "score"
    name: str
    instructions: Json
    levels: tuple[Json, ...]


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


@dataclass(frozen=True, slots=True)
class Text:
    """A short text, decoded greedily."""

    type: ClassVar[Literal["text"]] = "text"
    name: str
    instructions: Json
    max_tokens: int = 32


Question: TypeAlias = Choice | Noul | Score | Number | Text

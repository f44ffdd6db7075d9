"""The question types of the public API and the one parser that turns a request body into them.

One definition for the gateway (which refuses bad ones), the engine (which asks them) and the client. It knows nothing
of HTTP, of tokens or of any model. Answers: answers.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias, TypeGuard

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
Loc: TypeAlias = tuple[str | int, ...]

MAX_OPTIONS = 255
MAX_QUESTIONS = 1000
MAX_TEXT_TOKENS = 256
DEFAULT_TEXT_TOKENS = 32


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
    max_tokens: int = DEFAULT_TEXT_TOKENS


@dataclass(frozen=True, slots=True)
class Box:
    """Where something is in a picture. Instructions may be missing where the state says what is looked for."""

    type: ClassVar[Literal["box"]] = "box"
    name: str
    instructions: Json


Question: TypeAlias = Choice | Noul | Score | Number | Text | Box


class InvalidField(Exception):
    """A field of a request body that cannot be taken. `loc` is its path from the body; `type` is for programs.

    `msg` names what was expected and never repeats what was sent: it may be a picture.
    """

    def __init__(self, loc: Loc, msg: str, type: str) -> None:  # noqa: A002
        super().__init__(f"{'.'.join(str(part) for part in loc)}: {msg}")
        self.loc = loc
        self.msg = msg
        self.type = type


def parse_questions(raw: object) -> tuple[Question, ...]:
    """The `questions` object of a request body, in the caller's order. Raises InvalidField at the first fault."""
    if not isinstance(raw, Mapping):
        raise InvalidField(("questions",), "Expected an object of questions by name", "dict_type")
    if not raw:
        raise InvalidField(("questions",), "At least one question is required", "too_short")
    if len(raw) > MAX_QUESTIONS:
        raise InvalidField(("questions",), f"At most {MAX_QUESTIONS} questions, got {len(raw)}", "too_long")
    return tuple(parse_question(name, question) for name, question in raw.items())


def parse_question(name: str, raw: object) -> Question:
    """One question of any type; `predicate` is taken as `noul`."""
    if not isinstance(raw, Mapping):
        raise InvalidField(("questions", name), "Expected an object with a type", "dict_type")
    if "type" not in raw:
        raise InvalidField(("questions", name, "type"), "Field required", "missing")
    kind = raw["type"]
    known = "expected choice, noul, predicate, score, number, text or box"
    if not isinstance(kind, str):
        raise InvalidField(("questions", name, "type"), f"Question type must be a string: {known}", "string_type")
    loc = ("questions", name, kind)
    match kind:
        case "choice":
            return _choice(loc, name, raw)
        case "noul" | "predicate":
            return _noul(loc, name, raw)
        case "score":
            return _score(loc, name, raw)
        case "number":
            return _number(loc, name, raw)
        case "text":
            return _text(loc, name, raw)
        case "box":
            return Box(name, _instructions(raw, loc))
        case _:
            shown = repr(kind) if len(kind) <= 40 else "of a long name"  # which may be a picture in the wrong place
            msg = f"Unknown question type {shown}: {known}"
            raise InvalidField(("questions", name, "type"), msg, "union_tag_invalid")


def _choice(loc: Loc, name: str, raw: Mapping[str, Json]) -> Choice:
    where = (*loc, "criteria")
    criteria = _required(raw, "criteria", loc)
    if isinstance(criteria, Mapping):
        options = tuple(
            Option(label, _content(description, (*where, label))) for label, description in criteria.items()
        )
    elif _is_list(criteria):
        _bounded(len(criteria), "option", where)  # before it is walked: what follows is quadratic
        for i, label in enumerate(criteria):
            if not isinstance(label, str):
                raise InvalidField((*where, i), "A label must be a string", "string_type")
            if label in criteria[:i]:
                raise InvalidField((*where, i), "The same label stands twice", "duplicate")
        options = tuple(Option(str(label)) for label in criteria)
    else:
        raise InvalidField(where, "Expected an object of options by label, or a list of labels", "dict_type")
    _bounded(len(options), "option", where)
    return Choice(name, _instructions(raw, loc), options)


def _noul(loc: Loc, name: str, raw: Mapping[str, Json]) -> Noul:
    where = (*loc, "criteria")
    instructions = _instructions(raw, loc)
    criteria = raw.get("criteria")
    if criteria is None:
        criteria = {}
    if not isinstance(criteria, Mapping):
        raise InvalidField(where, "Expected an object with true and false", "dict_type")
    for side in criteria:
        if side not in ("true", "false"):  # taken in silence, a description would be lost
            raise InvalidField((*where, side[:80]), "The sides are named true and false", "extra_forbidden")
    true = _content(criteria.get("true"), (*where, "true"))
    false = _content(criteria.get("false"), (*where, "false"))
    if instructions is None and true is None and false is None:
        msg = "Instructions, or criteria that describe true or false, are required"
        raise InvalidField((*loc, "instructions"), msg, "missing")
    return Noul(name, instructions, true, false)


def _score(loc: Loc, name: str, raw: Mapping[str, Json]) -> Score:
    where = (*loc, "criteria")
    criteria = _required(raw, "criteria", loc)
    if not _is_list(criteria):
        raise InvalidField(where, "Expected a list of level descriptions, lowest first", "list_type")
    _bounded(len(criteria), "level", where)
    for i, level in enumerate(criteria):
        if _content(level, (*where, i)) is None:
            raise InvalidField((*where, i), "A level must be described", "missing")
    return Score(name, _instructions(raw, loc), tuple(criteria))


def _number(loc: Loc, name: str, raw: Mapping[str, Json]) -> Number:
    low, high, step = (_real(raw.get(field), (*loc, field)) for field in ("min", "max", "step"))
    if low is not None and high is not None and low > high:
        raise InvalidField((*loc, "max"), "max must not be below min", "greater_than_equal")
    if step is not None and step <= 0:
        raise InvalidField((*loc, "step"), "step must be above 0", "greater_than")
    unit = raw.get("unit")
    if unit is not None and not isinstance(unit, str):
        raise InvalidField((*loc, "unit"), "Expected a string", "string_type")
    return Number(name, _asked(raw, loc), low, high, step, unit)


def _text(loc: Loc, name: str, raw: Mapping[str, Json]) -> Text:
    tokens = raw.get("max_tokens", DEFAULT_TEXT_TOKENS)
    if not isinstance(tokens, int) or isinstance(tokens, bool):
        raise InvalidField((*loc, "max_tokens"), "Expected an integer", "int_type")
    if not 1 <= tokens <= MAX_TEXT_TOKENS:
        raise InvalidField((*loc, "max_tokens"), f"Expected 1 to {MAX_TEXT_TOKENS}", "out_of_range")
    return Text(name, _asked(raw, loc), tokens)


def _required(raw: Mapping[str, Json], field: str, loc: Loc) -> Json:
    if field not in raw:
        raise InvalidField((*loc, field), "Field required", "missing")
    return raw[field]


def _instructions(raw: Mapping[str, Json], loc: Loc) -> Json:
    return _content(raw.get("instructions"), (*loc, "instructions"))


def _asked(raw: Mapping[str, Json], loc: Loc) -> Json:
    """Instructions of a type that means nothing without them."""
    instructions = _instructions(raw, loc)
    if instructions is None:
        raise InvalidField((*loc, "instructions"), "Field required", "missing")
    return instructions


def _content(value: Json, loc: Loc) -> Json:
    """A string, an object, an array or null: what a model can be shown."""
    if value is None or isinstance(value, str | Mapping | Sequence):
        return value
    raise InvalidField(loc, "Expected a string, an object, an array or null", "content_type")


def _real(value: Json, loc: Loc) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidField(loc, "Expected a number", "float_type")
    try:
        real = float(value)
    except OverflowError:
        real = math.inf
    if not math.isfinite(real):
        raise InvalidField(loc, "Expected a finite number", "finite_number")
    return real


def _bounded(count: int, noun: str, loc: Loc) -> None:
    if count < 1:
        raise InvalidField(loc, f"At least one {noun} is required", "too_short")
    if count > MAX_OPTIONS:
        raise InvalidField(loc, f"At most {MAX_OPTIONS} {noun}s, got {count}", "too_long")


def _is_list(value: Json) -> TypeGuard[Sequence[Json]]:
    return isinstance(value, Sequence) and not isinstance(value, str)

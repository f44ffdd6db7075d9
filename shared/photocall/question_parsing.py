"""The one parser that turns the questions of a request body into questions, or says which field cannot be taken.

It knows nothing of HTTP, of tokens or of any model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeGuard

from photocall.asking import PLAIN, Asking, parse_abstain, parse_after, parse_order
from photocall.invalid import InvalidField, Json, Loc
from photocall.names import SHOWN_CHARS, check_name
from photocall.questions import (
    DEFAULT_TEXT_TOKENS,
    MAX_ONE_OF_CHARS,
    MAX_OPTIONS,
    MAX_PATTERN_CHARS,
    MAX_PATTERNS,
    MAX_QUESTIONS,
    MAX_TEXT_TOKENS,
    Box,
    Choice,
    Noul,
    Number,
    Option,
    Question,
    Score,
    Text,
)


def parse_questions(raw: object, default: Asking = PLAIN) -> tuple[Question, ...]:
    """The `questions` object of a request body, in the caller's order. Raises InvalidField at the first fault.

    `default` is how those are asked that say nothing of it, as far as it means anything for their type.
    """
    if not isinstance(raw, Mapping):
        raise InvalidField(("questions",), "Expected an object of questions by name", "dict_type")
    if not raw:
        raise InvalidField(("questions",), "At least one question is required", "too_short")
    if len(raw) > MAX_QUESTIONS:
        raise InvalidField(("questions",), f"At most {MAX_QUESTIONS} questions, got {len(raw)}", "too_long")
    for name in raw:
        check_name(name, ("questions", name[:SHOWN_CHARS]))
    questions = {name: parse_question(name, question, default) for name, question in raw.items()}
    check_follow_ups(questions)
    patterns = sum(isinstance(question, Text) and question.pattern is not None for question in questions.values())
    if patterns > MAX_PATTERNS:
        raise InvalidField(
            ("questions",), f"At most {MAX_PATTERNS} questions with a pattern, got {patterns}", "too_long"
        )
    return tuple(questions.values())


def check_follow_ups(questions: Mapping[str, Question]) -> None:
    """Raises InvalidField where a question comes after none of these, after itself, or after an answer that none is."""
    for name, question in questions.items():
        after = question.asking.after
        if after is None:
            continue
        loc: Loc = ("questions", name, question.type, "after")
        other = questions.get(after.question)
        if other is None:
            raise InvalidField((*loc, "question"), "No question of this request has this name", "unknown_question")
        _check_equals(other, after.equals, (*loc, "equals"))
    settled: set[str] = set()  # from here on, no question leads back to itself
    for name in questions:
        seen: dict[str, None] = {}
        at: str | None = name
        while at is not None and at not in settled:
            if at in seen:
                loc = ("questions", at, questions[at].type, "after", "question")
                raise InvalidField(loc, "The questions wait for each other in a circle", "circular")
            seen[at] = None
            follows = questions[at].asking.after
            at = follows.question if follows else None
        settled.update(seen)


def _check_equals(other: Question, equals: bool | float | str, loc: Loc) -> None:
    if isinstance(other, Choice):
        fits, expected = equals in [option.label for option in other.options], "one of its labels"
    elif isinstance(other, Noul):
        fits, expected = isinstance(equals, bool), "true or false"
    elif isinstance(other, Score):
        whole = isinstance(equals, float) and equals in range(len(other.levels))
        fits, expected = whole, "the index of one of its levels"
    elif isinstance(other, Number):
        fits, expected = isinstance(equals, float), "a number"
    elif isinstance(other, Text):
        fits = isinstance(equals, str) and (other.one_of is None or equals in other.one_of)
        expected = "a text that it can be answered by"
    else:
        fits, expected = False, "another question: a box equals nothing"
    if not fits:
        raise InvalidField(loc, f"Expected {expected}", "literal_error")


def parse_question(name: str, raw: object, default: Asking = PLAIN) -> Question:
    """One question of any type; `predicate` is taken as `noul`."""
    question = _parse_question(name, raw)
    assert isinstance(raw, Mapping), "it was parsed"
    asking = _asking(question, raw, default)
    return question if asking == PLAIN else replace(question, asking=asking)


def _asking(question: Question, raw: Mapping[str, Json], default: Asking) -> Asking:
    """How it is asked: what it says itself, else what holds for all."""
    loc: Loc = ("questions", question.name, question.type)
    order, abstain = parse_order(raw.get("order"), loc), parse_abstain(raw.get("abstain"), loc)
    lettered = isinstance(question, Choice | Noul | Score)
    if order is not None and not lettered:
        raise InvalidField((*loc, "order"), "Only choice, noul and score have an order", "unsupported_field")
    free = isinstance(question, Text) and question.one_of is None and question.pattern is None
    if free and abstain is not None and abstain.label_mass is not None:
        msg = "A text that may be anything has no labels: only with one_of or pattern"
        raise InvalidField((*loc, "abstain", "label_mass"), msg, "unsupported_field")
    if order is None:
        order = default.order if lettered else "as_given"
    if raw.get("abstain") is None and default.abstain is not None:
        abstain = default.abstain if not free else replace(default.abstain, label_mass=None)
        if not (abstain.cannot_tell or abstain.label_mass is not None):
            abstain = None
    return Asking(order, abstain, parse_after(raw.get("after"), loc))


def _parse_question(name: str, raw: object) -> Question:
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
    one_of, pattern = _one_of(raw.get("one_of"), (*loc, "one_of")), raw.get("pattern")
    if pattern is not None:
        if one_of is not None:
            raise InvalidField((*loc, "pattern"), "Either `one_of` or `pattern`", "exclusive")
        if not isinstance(pattern, str) or not 1 <= len(pattern) <= MAX_PATTERN_CHARS:
            msg = f"Expected a regular expression of 1 to {MAX_PATTERN_CHARS} characters"
            raise InvalidField((*loc, "pattern"), msg, "string_type")
    return Text(name, _asked(raw, loc), tokens, one_of, pattern)


def _one_of(raw: Json, loc: Loc) -> tuple[str, ...] | None:
    """The texts of a list, each once."""
    if raw is None:
        return None
    if not _is_list(raw):
        raise InvalidField(loc, "Expected a list of texts", "list_type")
    _bounded(len(raw), "text", loc)
    texts: dict[str, None] = {}
    for i, text in enumerate(raw):
        if not isinstance(text, str) or not text:
            raise InvalidField((*loc, i), "Expected a text of at least one character", "string_type")
        if text in texts:
            raise InvalidField((*loc, i), "The same text stands twice", "duplicate")
        texts[text] = None
    if (chars := sum(map(len, texts))) > MAX_ONE_OF_CHARS:
        raise InvalidField(loc, f"At most {MAX_ONE_OF_CHARS} characters in all, got {chars}", "too_long")
    return tuple(texts)


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

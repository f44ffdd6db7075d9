"""Writing questions: each function gives one as the API takes it, a plain dict, so dicts of one's own do as well.

    {"damaged": yes_no("Is the parcel damaged?"), "label": choice("Which label is on it?", ["fragile", "none"])}

What every one of them may say beside its own (docs/questions.md): `order` ("debias", "auto"), `abstain` (True, or
{"cannot_tell": True, "label_mass": 0.5}), and `after`: ("damaged", True) asks only when `damaged` was answered so. The
server checks them; an InvalidRequest says where the fault is. A text is short for a question (shorthand.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from photocall.client.shorthand import question_of

Question: TypeAlias = Mapping[str, Any]
Questions: TypeAlias = Mapping[str, Question | str] | Question | str
"""Questions by name; or one of them, whose name is then `answer`."""

_TYPES = ("choice", "noul", "predicate", "score", "number", "text", "box")
ONLY = "answer"  # the name of a question that was asked without one


def choice(instructions: Any, options: Sequence[str] | Mapping[str, Any], **asking: Any) -> dict[str, Any]:
    """One of some options: labels, or labels with what each of them means."""
    criteria = dict(options) if isinstance(options, Mapping) else list(options)
    return _question("choice", asking, instructions=instructions, criteria=criteria)


def yes_no(instructions: Any, *, yes: Any = None, no: Any = None, **asking: Any) -> dict[str, Any]:
    """Yes or no; `yes` and `no` say what either means, where the question alone does not."""
    sides = {name: side for name, side in (("true", yes), ("false", no)) if side is not None}
    return _question("noul", asking, instructions=instructions, criteria=sides or None)


def score(instructions: Any, levels: Sequence[Any], **asking: Any) -> dict[str, Any]:
    """A place on a scale: what its levels are, the lowest first."""
    return _question("score", asking, instructions=instructions, criteria=list(levels))


def number(
    instructions: Any,
    *,
    min: float | None = None,  # noqa: A002  as the API names it
    max: float | None = None,  # noqa: A002
    step: float | None = None,
    unit: str | None = None,
    **asking: Any,
) -> dict[str, Any]:
    """A number, within bounds and on a grid where these are given."""
    return _question("number", asking, instructions=instructions, min=min, max=max, step=step, unit=unit)


def text(
    instructions: Any,
    *,
    one_of: Sequence[str] | None = None,
    pattern: str | None = None,
    max_tokens: int | None = None,
    **asking: Any,
) -> dict[str, Any]:
    """A short text: any, one of some, or one that a regular expression allows."""
    texts = None if one_of is None else list(one_of)
    return _question("text", asking, instructions=instructions, one_of=texts, pattern=pattern, max_tokens=max_tokens)


def box(instructions: Any = None, **asking: Any) -> dict[str, Any]:
    """Where something is in the picture."""
    return _question("box", asking, instructions=instructions)


def named(questions: Questions) -> dict[str, dict[str, Any]]:
    """Questions by name as the API takes them. Raises TypeError for what can be none."""
    if isinstance(questions, str):
        return {ONLY: question_of(questions)}
    if not isinstance(questions, Mapping):
        raise TypeError(f"questions are a mapping from names to questions, not {type(questions).__name__}")
    if questions.get("type") in _TYPES:
        return {ONLY: dict(questions)}
    found: dict[str, dict[str, Any]] = {}
    for name, question in questions.items():
        if isinstance(question, str):
            found[name] = question_of(question)
        elif isinstance(question, Mapping):
            found[name] = dict(question)
        else:
            raise TypeError(f"question {name!r} is a {type(question).__name__}: expected a question, or a text")
    return found


def _question(kind: str, asking: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    made = {"type": kind, **fields, **asking}
    after = made.get("after")
    if isinstance(after, tuple):
        other, equals = after
        made["after"] = {"question": other, "equals": equals}
    return {name: value for name, value in made.items() if value is not None}

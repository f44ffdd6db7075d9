"""The question parser: what is taken, and which field a refusal names."""

from __future__ import annotations

from typing import Any

import pytest

from photocall.question_parsing import parse_questions
from photocall.questions import (
    MAX_QUESTIONS,
    Choice,
    InvalidField,
    Noul,
    Number,
    Option,
    Question,
    Score,
    Text,
)


def parse(question: Any) -> Question:
    (parsed,) = parse_questions({"q.1 é": question})
    return parsed


def test_choice_keeps_labels_descriptions_and_the_callers_order() -> None:
    parsed = parse({"type": "choice", "instructions": {"a": 1}, "criteria": {"z": None, "a": ["x"], "": {"k": "v"}}})
    options = (Option("z"), Option("a", ["x"]), Option("", {"k": "v"}))
    assert parsed == Choice("q.1 é", {"a": 1}, options)


def test_choice_takes_a_plain_list_of_labels() -> None:
    assert parse({"type": "choice", "criteria": ["b", "a"]}) == Choice("q.1 é", None, (Option("b"), Option("a")))


def test_predicate_is_noul_and_either_side_may_be_described_alone() -> None:
    assert parse({"type": "predicate", "instructions": "x?"}) == Noul("q.1 é", "x?")
    assert parse({"type": "noul", "criteria": {"false": "no"}}) == Noul("q.1 é", None, None, "no")
    assert parse({"type": "noul", "instructions": "", "criteria": None}) == Noul("q.1 é", "")


def test_score_number_and_text() -> None:
    assert parse({"type": "score", "criteria": ["low", {"high": 1}]}) == Score("q.1 é", None, ("low", {"high": 1}))
    number = parse({"type": "number", "instructions": "n?", "min": 0, "max": 1.5, "step": 0.5, "unit": "kg"})
    assert number == Number("q.1 é", "n?", 0.0, 1.5, 0.5, "kg")
    assert parse({"type": "text", "instructions": "t", "max_tokens": 5}) == Text("q.1 é", "t", 5)


def test_order_of_questions_is_the_callers() -> None:
    raw = {name: {"type": "noul", "instructions": "x"} for name in ("b", "a", "c")}
    assert [question.name for question in parse_questions(raw)] == ["b", "a", "c"]


def labels(count: int) -> dict[str, None]:
    return dict.fromkeys(f"l{i}" for i in range(count))


@pytest.mark.parametrize(
    ("question", "loc", "kind"),
    [
        ("choice", (), "dict_type"),
        ({}, ("type",), "missing"),
        ({"type": 7}, ("type",), "string_type"),
        ({"type": "rank"}, ("type",), "union_tag_invalid"),
        ({"type": "choice"}, ("choice", "criteria"), "missing"),
        ({"type": "choice", "criteria": {}}, ("choice", "criteria"), "too_short"),
        ({"type": "choice", "criteria": []}, ("choice", "criteria"), "too_short"),
        ({"type": "choice", "criteria": labels(256)}, ("choice", "criteria"), "too_long"),
        ({"type": "choice", "criteria": "a,b"}, ("choice", "criteria"), "dict_type"),
        ({"type": "choice", "criteria": {"a": 1}}, ("choice", "criteria", "a"), "content_type"),
        ({"type": "choice", "criteria": ["a", 1]}, ("choice", "criteria", 1), "string_type"),
        ({"type": "choice", "criteria": ["a", "b", "a"]}, ("choice", "criteria", 2), "duplicate"),
        ({"type": "choice", "criteria": ["a"], "instructions": 3}, ("choice", "instructions"), "content_type"),
        ({"type": "noul"}, ("noul", "instructions"), "missing"),
        ({"type": "predicate"}, ("predicate", "instructions"), "missing"),
        ({"type": "noul", "criteria": {"true": None}}, ("noul", "instructions"), "missing"),
        ({"type": "noul", "criteria": ["yes", "no"]}, ("noul", "criteria"), "dict_type"),
        ({"type": "noul", "criteria": {"true": False}}, ("noul", "criteria", "true"), "content_type"),
        ({"type": "noul", "criteria": {"yes": "it is"}}, ("noul", "criteria", "yes"), "extra_forbidden"),
        ({"type": "choice", "criteria": ["a"] * 300_000}, ("choice", "criteria"), "too_long"),  # once took minutes
        ({"type": "score"}, ("score", "criteria"), "missing"),
        ({"type": "score", "criteria": []}, ("score", "criteria"), "too_short"),
        ({"type": "score", "criteria": ["x"] * 256}, ("score", "criteria"), "too_long"),
        ({"type": "score", "criteria": {"0": "x"}}, ("score", "criteria"), "list_type"),
        ({"type": "score", "criteria": "abc"}, ("score", "criteria"), "list_type"),
        ({"type": "score", "criteria": ["x", None]}, ("score", "criteria", 1), "missing"),
        ({"type": "number"}, ("number", "instructions"), "missing"),
        ({"type": "number", "instructions": "n", "min": "0"}, ("number", "min"), "float_type"),
        ({"type": "number", "instructions": "n", "max": True}, ("number", "max"), "float_type"),
        ({"type": "number", "instructions": "n", "min": 10**400}, ("number", "min"), "finite_number"),
        ({"type": "number", "instructions": "n", "min": 2, "max": 1}, ("number", "max"), "greater_than_equal"),
        ({"type": "number", "instructions": "n", "step": 0}, ("number", "step"), "greater_than"),
        ({"type": "number", "instructions": "n", "unit": 1}, ("number", "unit"), "string_type"),
        ({"type": "text"}, ("text", "instructions"), "missing"),
        ({"type": "text", "instructions": "t", "max_tokens": 0}, ("text", "max_tokens"), "out_of_range"),
        ({"type": "text", "instructions": "t", "max_tokens": 257}, ("text", "max_tokens"), "out_of_range"),
        ({"type": "text", "instructions": "t", "max_tokens": 1.5}, ("text", "max_tokens"), "int_type"),
    ],
)
def test_a_refusal_names_its_field(question: Any, loc: tuple[str | int, ...], kind: str) -> None:
    with pytest.raises(InvalidField) as caught:
        parse(question)
    assert (caught.value.loc, caught.value.type) == (("questions", "q.1 é", *loc), kind)


@pytest.mark.parametrize("count", [1, 255])
def test_the_bounds_of_options_are_taken(count: int) -> None:
    parsed = parse({"type": "choice", "criteria": labels(count)})
    assert isinstance(parsed, Choice)
    assert len(parsed.options) == count


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (None, "dict_type"),
        ([], "dict_type"),
        ({}, "too_short"),
        (dict.fromkeys(map(str, range(MAX_QUESTIONS + 1))), "too_long"),
    ],
)
def test_questions_must_be_some_but_not_too_many(raw: Any, kind: str) -> None:
    with pytest.raises(InvalidField) as caught:
        parse_questions(raw)
    assert (caught.value.loc, caught.value.type) == (("questions",), kind)


def test_a_refusal_does_not_repeat_what_was_sent() -> None:
    secret = "c2VjcmV0" * 50
    with pytest.raises(InvalidField) as caught:
        parse({"type": "number", "instructions": "n", "min": secret})
    assert secret not in str(caught.value)

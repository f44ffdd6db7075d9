"""Schemas from types, and that what is described of questions and answers is what the code has."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Literal, NotRequired, TypedDict, get_args

import pytest

from photocall.answers import Answer
from photocall.asking import Asking
from photocall.questions import Choice, Noul, Question, Score
from photocall_gateway.openapi_schemas import SCHEMAS
from photocall_gateway.typed_schemas import schema_of


class Thing(TypedDict):
    """Two lines
    of text."""

    kind: Literal["a"]
    many: dict[str, list[int | float]]
    maybe: NotRequired[str | None]


def test_a_typed_dict() -> None:
    assert schema_of(Thing) == {
        "type": "object",
        "description": "Two lines of text.",
        "required": ["kind", "many"],
        "properties": {
            "kind": {"const": "a"},
            "many": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "number"}}},
            "maybe": {"type": ["string", "null"]},
        },
    }


@pytest.mark.parametrize("kind", [set[int], dict[int, str], object])
def test_what_json_cannot_say_is_an_error(kind: Any) -> None:
    with pytest.raises(TypeError, match="no JSON schema"):
        schema_of(kind)


def test_every_question_type_is_described_with_the_fields_it_has() -> None:
    described = {reference["$ref"].rpartition("/")[2]: None for reference in SCHEMAS["Question"]["oneOf"]}
    assert list(described) == [question.__name__ for question in get_args(Question)]
    renamed = {"options": "criteria", "levels": "criteria", "true": "criteria", "false": "criteria"}
    for question in get_args(Question):
        own = {renamed.get(field.name, field.name) for field in fields(question)} - {"name", "asking"}
        own |= {field.name for field in fields(Asking)} - (set() if question in (Choice, Noul, Score) else {"order"})
        assert set(SCHEMAS[question.__name__]["properties"]) == own | {"type"}


def test_every_answer_type_is_described() -> None:
    described = [reference["$ref"].rpartition("/")[2] for reference in SCHEMAS["Answer"]["oneOf"]]
    assert described == [answer.__name__ for answer in get_args(Answer)]

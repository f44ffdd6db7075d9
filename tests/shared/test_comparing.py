"""Answers compared: bits, probabilities of every type of answer in every shape, and what they come down to."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from photocall.comparing import by_name, change, probabilities, said, same_bits
from photocall.wire import pack, unpack

CHOICE = {"type": "choice", "choice": "a", "confidence": 0.5, "probabilities": {"a": 0.75, "b": 0.25}}
DECISION = {
    "type": "choice",
    "name": "n",
    "choice": True,
    "confidence": 0.5,
    "probabilities": [{"value": True, "probability": 0.75}, {"value": "true", "probability": 0.25}],
}
REFUSED = {"type": "refusal", "answer_status": "refused", "code": "unanswerable", "message": "no"}


def test_bits_and_not_values() -> None:
    assert same_bits(CHOICE, json.loads(json.dumps(CHOICE)))
    assert not same_bits(0.0, -0.0)
    assert not same_bits(0.1 + 0.2, 0.3)
    assert not same_bits(1, 1.0)
    assert not same_bits(1, True)
    assert not same_bits([1.0], [1.0, 2.0])
    assert not same_bits({"a": 1.0}, {"b": 1.0})
    assert not same_bits({"a": {"b": [0.1]}}, {"a": {"b": [math.nextafter(0.1, 1)]}})
    assert same_bits(math.nan, math.nan)


@pytest.mark.parametrize("value", [0.1 + 0.2, 1 / 3, 5e-324, 1 - 2**-53, 2**-1022, 0.5, 1.0, 0.0])
def test_nothing_on_the_way_rounds(value: float) -> None:
    assert same_bits(json.loads(json.dumps(unpack(pack({"p": value})))), {"p": value})


@pytest.mark.parametrize(
    ("answer", "expected", "words"),
    [
        (CHOICE, {"a": 0.75, "b": 0.25}, "a"),
        (CHOICE | {"cannot_tell": 0.1, "label_mass": 0.9}, {"a": 0.75, "b": 0.25, "cannot_tell": 0.1,
                                                            "label_mass": 0.9}, "a"),
        (DECISION, {"True": 0.75, "'true'": 0.25}, True),
        ({"type": "noul", "noul": 0.25}, {"yes": 0.25}, False),
        ({"type": "predicate", "probability": 0.5}, {"yes": 0.5}, True),
        ({"type": "score", "score": 0.9, "probabilities": {"0": 0.1, "1": 0.9}}, {"0": 0.1, "1": 0.9}, "1"),
        ({"type": "number", "number": 3, "probabilities": {"3": 0.5}, "no_number": 0.25}, {"3": 0.5,
                                                                                         "no_number": 0.25}, 3),
        ({"type": "text", "text": "x", "logprob": math.log(0.5)}, {"x": pytest.approx(0.5)}, "x"),
        ({"type": "text", "text": "x", "logprob": -1.0, "probability": 0.25}, {"x": 0.25}, "x"),
        ({"type": "box", "box": {"top": 0.1, "left": 0.2}, "confidence": 0.3, "presence": 0.7},
         {"confidence": 0.3, "presence": 0.7, "edge top": 0.1,
                                                                                "edge left": 0.2}, None),
        (REFUSED, {}, None),
    ],
)  # fmt: skip
def test_every_answer(answer: dict[str, Any], expected: dict[str, float], words: Any) -> None:
    assert probabilities(answer) == expected
    assert said(answer) == words
    assert change(answer, answer).size == 0


def test_the_largest_change_is_named() -> None:
    other = CHOICE | {"probabilities": {"a": 0.5, "b": 0.375, "c": 0.125}}
    found = change(CHOICE, other)
    assert (found.size, found.of, found.before, found.after) == (0.25, "a", 0.75, 0.5)
    gone = change({"type": "text", "text": "x", "logprob": 0.0}, {"type": "text", "text": "y", "logprob": -20.0})
    assert (gone.size, gone.of) == (1.0, "x")
    assert change(CHOICE, REFUSED).size == 1.0
    assert change(REFUSED, CHOICE).size == 1.0


def test_answers_of_either_shape_by_name() -> None:
    assert by_name({"q": CHOICE}) == {"q": CHOICE}
    assert list(by_name([DECISION, DECISION | {"name": None}])) == ["0: n", "1"]

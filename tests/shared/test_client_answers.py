"""Typed answers: each type as the API gives it, the ones that are none, and what is read of the wrong one."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from photocall.client import (
    Answers,
    Box,
    BoxAnswer,
    ChoiceAnswer,
    ClientError,
    NoAnswer,
    NotAsked,
    NumberAnswer,
    Refused,
    ScoreAnswer,
    TextAnswer,
    YesNoAnswer,
)

FIELDS: dict[str, dict[str, Any]] = {
    "colour": {
        "type": "choice",
        "choice": "red",
        "confidence": 0.7,
        "probabilities": {"green": 0.15, "red": 0.8, "blue": 0.05},
        "probabilities_raw": {"green": 0.25, "red": 0.7, "blue": 0.05},
        "calibration": "cal_1",
        "order_spread": 0.125,
    },
    "damaged": {"type": "noul", "noul": 0.125, "probabilities_raw": {"true": 0.25, "false": 0.75}},
    "full": {
        "type": "score",
        "score": 1.2,
        "confidence": 0.6,
        "legend": {"0": "empty", "1": "half", "2": "full"},
        "probabilities": {"0": 0.1, "1": 0.6, "2": 0.3},
    },
    "bottles": {
        "type": "number",
        "number": 5,
        "expected": 5.25,
        "confidence": 0.7,
        "probabilities": {"5": 0.7, "6": 0.3},
        "alternatives": [{"number": 6, "probability": 0.3}],
        "interval": [5, 6],
        "no_number": 0.01,
    },
    "sign": {"type": "text", "text": "MARKET", "logprob": -0.5, "truncated": False},
    "card": {
        "type": "text",
        "text": "Visa",
        "logprob": -0.1,
        "truncated": False,
        "probability": 0.9,
        "probabilities": {"Visa": 0.9, "Amex": 0.1},
    },
    "label": {
        "type": "box",
        "box": {"top": 0.25, "bottom": 0.75, "left": 0.125, "right": 0.5},
        "confidence": 0.8,
        "presence": 0.9,
    },
    "vague": {
        "type": "choice",
        "choice": "a",
        "confidence": 0.0,
        "probabilities": {"a": 0.6, "b": 0.4},
        "answer_status": "abstained",
        "cannot_tell": 0.9,
        "label_mass": 0.5,
    },
    "broken": {"type": "refusal", "answer_status": "refused", "code": "unanswerable", "message": "no such thing"},
    "skipped": {"type": "not_asked", "answer_status": "not_asked", "message": "damaged was not true"},
}
ANSWERS = Answers(FIELDS)


def test_each_answer_is_of_the_class_of_its_type() -> None:
    assert list(ANSWERS) == list(FIELDS)
    assert [type(answer) for answer in ANSWERS.values()] == [
        ChoiceAnswer, YesNoAnswer, ScoreAnswer, NumberAnswer, TextAnswer, TextAnswer, BoxAnswer, ChoiceAnswer, Refused,
        NotAsked,
    ]  # fmt: skip
    assert all(answer.fields == FIELDS[name] for name, answer in ANSWERS.items())


def test_what_each_says() -> None:
    assert {name: answer.value for name, answer in ANSWERS.items()} == {
        "colour": "red", "damaged": False, "full": 1.2, "bottles": 5, "sign": "MARKET", "card": "Visa",
        "label": Box(0.125, 0.25, 0.5, 0.75), "vague": None, "broken": None, "skipped": None,
    }  # fmt: skip
    assert {name: answer.probability for name, answer in ANSWERS.items()} == {
        "colour": 0.8, "damaged": 0.125, "full": 0.6, "bottles": 0.7, "sign": None, "card": 0.9, "label": None,
        "vague": 0.6, "broken": None, "skipped": None,
    }  # fmt: skip
    assert {name: answer.confidence for name, answer in ANSWERS.items()} == {
        "colour": 0.7, "damaged": 0.75, "full": 0.6, "bottles": 0.7, "sign": 1.0, "card": 0.9, "label": 0.8,
        "vague": 0.0, "broken": 0.0, "skipped": 0.0,
    }  # fmt: skip
    assert {name: answer.status for name, answer in ANSWERS.items() if not answer.answered} == {
        "vague": "abstained", "broken": "refused", "skipped": "not_asked",
    }  # fmt: skip


def test_what_each_has_by_its_type() -> None:
    colour, damaged, full = ANSWERS["colour"], ANSWERS["damaged"], ANSWERS["full"]
    assert (colour.choice, colour.calibration, colour.order_spread) == ("red", "cal_1", 0.125)
    assert colour.alternatives == [("green", 0.15), ("blue", 0.05)]
    assert colour.probabilities_raw["red"] == 0.7
    assert (damaged.yes, damaged.noul, damaged.probabilities) == (False, 0.125, {"yes": 0.125, "no": 0.875})
    assert damaged.probabilities_raw == {"yes": 0.25, "no": 0.75}
    assert (full.score, full.level, full.legend) == (1.2, 1, ["empty", "half", "full"])
    assert full.alternatives == [(2, 0.3), (0, 0.1)]
    bottles = ANSWERS["bottles"]
    assert (bottles.number, bottles.expected, bottles.interval, bottles.no_number) == (5, 5.25, (5, 6), 0.01)
    assert bottles.alternatives[0].value == 6
    assert (ANSWERS["sign"].text, ANSWERS["sign"].logprob, ANSWERS["sign"].truncated) == ("MARKET", -0.5, False)
    assert ANSWERS["card"].alternatives == [("Amex", 0.1)]
    assert ANSWERS["label"].presence == 0.9
    assert ANSWERS["label"].box.pixels(800, 600) == (100, 150, 400, 450)
    assert (ANSWERS["vague"].cannot_tell, ANSWERS["vague"].label_mass, ANSWERS["vague"].choice) == (0.9, 0.5, "a")
    assert (ANSWERS["broken"].code, ANSWERS["broken"].message) == ("unanswerable", "no such thing")
    assert ANSWERS["skipped"].message == "damaged was not true"


def test_for_a_person() -> None:
    assert repr(ANSWERS).splitlines() == [
        "colour: red (80%)",
        "damaged: no (88%)",
        "full: 1.20: half (60%)",
        "bottles: 5 (70%)",
        "sign: MARKET",
        "card: Visa (90%)",
        "label: 12% to 50% across, 25% to 75% down",
        "vague: abstained",
        "broken: refused",
        "skipped: not asked",
    ]
    assert repr(ANSWERS["colour"]) == "<ChoiceAnswer colour: red (80%)>"
    many = Answers({str(i): {"type": "noul", "noul": 0.5} for i in range(20)})
    assert repr(many).endswith("... and 8 more")


@pytest.mark.parametrize(
    ("name", "read", "why"),
    [
        ("broken", "choice", "was refused (no such thing): there is no `choice`"),
        ("skipped", "number", "was not asked (damaged was not true): there is no `number`"),
        ("colour", "number", "has an answer of type choice, without `number`"),
    ],
)
def test_what_is_not_there_says_why(name: str, read: str, why: str) -> None:
    with pytest.raises(NoAnswer) as found:
        getattr(ANSWERS[name], read)
    assert str(found.value) == f"{name!r} {why}"
    assert isinstance(found.value, ClientError)
    assert not hasattr(ANSWERS[name], read), "for code that asks"
    assert found.value.answer == FIELDS[name]


def test_a_type_that_is_newer_than_the_client_is_still_an_answer() -> None:
    found = Answers({"q": {"type": "dream", "confidence": 0.5}})["q"]
    assert (found.type, found.value, found.confidence) == ("dream", None, 0.5)


def test_answers_can_be_copied_and_go_to_another_process() -> None:
    """`__getattr__` is asked of objects that are half made."""
    for answer in ANSWERS.values():
        assert copy.deepcopy(answer) == pickle.loads(pickle.dumps(answer)) == answer

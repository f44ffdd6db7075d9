from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from photocall.questions import Choice, Noul, Option, Score, Text
from photocall_engine.readout import (
    LetterReader,
    Letters,
    TextReader,
    choice_confidence,
    letter_answer,
    score_confidence,
    softmax,
)
from photocall_engine.tokenizer import ChatTokenizer
from tests.engine.harness import choice

PROBABILITIES = st.lists(st.floats(0.001, 1), min_size=1, max_size=255).map(lambda w: [v / sum(w) for v in w])
LETTER_IDS = tuple(range(100, 126))


def answered(question: Choice | Noul | Score, logits: list[float], temperature: float = 1.0) -> Mapping[str, Any]:
    reader = LetterReader(question, LETTER_IDS, temperature)
    assert reader.take((), np.asarray(logits, dtype=np.float32)) == []
    assert reader.answer is not None
    return reader.answer


def test_choice_by_the_contract() -> None:
    logits = [math.log(p) for p in (0.94, 0.04, 0.02)]
    answer = answered(choice("c", "billing", "tech", "other"), logits)
    assert answer["type"] == "choice"
    assert answer["choice"] == "billing"
    assert answer["probabilities"] == pytest.approx({"billing": 0.94, "tech": 0.04, "other": 0.02}, abs=1e-6)
    assert answer["confidence"] == pytest.approx((0.94 - 1 / 3) / (1 - 1 / 3), abs=1e-6)


def test_ties_go_to_the_label_that_sorts_first_by_code_point() -> None:
    assert answered(choice("c", "b", "a", "Z", "é"), [1, 1, 1, 1])["choice"] == "Z"
    assert answered(choice("c", "é", "z"), [1, 1])["choice"] == "z"
    assert answered(choice("c", "\U0001f600", "\uffff"), [1, 1])["choice"] == "\uffff"


def test_one_option_is_certain() -> None:
    answer = answered(choice("c", "only"), [-3.0])
    assert answer == {"type": "choice", "choice": "only", "confidence": 1.0, "probabilities": {"only": 1.0}}
    assert answered(Score("s", "x", ("only",)), [2.0])["confidence"] == 1.0


def test_noul_is_the_probability_of_the_first_letter() -> None:
    assert answered(Noul("n", "x"), [math.log(0.985), math.log(0.015)]) == {
        "type": "noul",
        "noul": pytest.approx(0.985, abs=1e-6),
    }


def test_score_by_the_contract() -> None:
    answer = answered(Score("s", "x", ("Can wait", {"a": 1}, "Today")), [math.log(p) for p in (0.1, 0.55, 0.35)])
    assert answer["score"] == pytest.approx(1.25, abs=1e-6)
    assert answer["confidence"] == pytest.approx(0.325, abs=1e-6)  # as in the contract's first pair
    assert answer["legend"] == {"0": "Can wait", "1": {"a": 1}, "2": "Today"}
    assert list(answer["probabilities"]) == ["0", "1", "2"]


def test_a_legend_is_never_null_nor_a_bare_number() -> None:
    assert answered(Score("s", "x", (None, 7, True)), [0, 0, 0])["legend"] == {"0": "0", "1": "7", "2": "True"}


@given(PROBABILITIES)
def test_confidences_stay_between_nought_and_one(probabilities: list[float]) -> None:
    for confidence in (choice_confidence(probabilities), score_confidence(probabilities)):
        assert 0 <= confidence <= 1


@given(st.lists(st.floats(-40, 40, width=32), min_size=1, max_size=26), st.floats(0.2, 5))
def test_probabilities_sum_to_one(logits: list[float], temperature: float) -> None:
    found = answered(choice("c", *(f"o{i}" for i in range(len(logits)))), logits, temperature)["probabilities"]
    assert sum(found.values()) == pytest.approx(1, abs=1e-6)


def test_even_and_certain_splits() -> None:
    assert choice_confidence([0.25] * 4) == 0
    assert choice_confidence([0, 1.0, 0]) == 1
    assert score_confidence([0, 0, 1.0]) == 1
    assert score_confidence([0.5, 0, 0.5]) == 0


def test_temperature_divides_the_logits() -> None:
    logits = np.asarray([1.0, 3.0], dtype=np.float32)
    assert softmax(logits, 2.0)[1] == pytest.approx(1 / (1 + math.exp(-1)))
    assert softmax(np.asarray([1000.0, 0.0], dtype=np.float32), 1.0).tolist() == [1.0, 0.0]


def test_two_letters_are_asked_for_group_by_group() -> None:
    question = Choice("c", "Which?", tuple(Option(f"o{i}") for i in range(55)))
    reader = LetterReader(question, LETTER_IDS, 1.0)
    wants = reader.begin()
    assert [(want.path, len(want.read.ids)) for want in wants if isinstance(want.read, Letters)] == [
        ((), 3),
        ((100,), 26),
        ((101,), 26),
        ((102,), 3),
    ]
    first = np.log(np.asarray([0.5, 0.3, 0.2], dtype=np.float32))
    for want in reversed(wants):  # whatever the order
        assert reader.answer is None
        values = first if not want.path else np.zeros(26 if want.path[0] < 102 else 3, dtype=np.float32)
        reader.take(want.path, values)
    assert reader.answer is not None
    found = list(reader.answer["probabilities"].values())
    assert found == pytest.approx([0.5 / 26] * 26 + [0.3 / 26] * 26 + [0.2 / 3] * 3, abs=1e-6)
    assert reader.output_tokens == 2
    assert reader.longest() == 1


def read_text(tokenizer: ChatTokenizer, said: list[int], max_tokens: int = 10) -> TextReader:
    """A reader that is told these tokens, each with a log probability of -0.25."""
    reader = TextReader(Text("t", "Say", max_tokens), tokenizer)
    path: tuple[int, ...] = ()
    for token in said:
        wants = reader.take(path, np.asarray([token, -0.25], dtype=np.float32))
        if not wants:
            break
        assert wants[0].extends
        path = wants[0].path
    return reader


def test_text_stops_at_the_end_of_the_turn(tokenizer: ChatTokenizer) -> None:
    reader = read_text(tokenizer, [*tokenizer.encode("two"), tokenizer.end])
    assert reader.answer is not None
    assert (reader.answer["text"], reader.answer["truncated"]) == ("two", False)
    assert reader.output_tokens == 3
    assert reader.answer["logprob"] == -4 * 0.25  # the end is said as well


def test_text_is_cut_at_its_limit_and_says_so(tokenizer: ChatTokenizer) -> None:
    reader = read_text(tokenizer, tokenizer.encode("abcdef"), max_tokens=4)
    assert reader.answer is not None
    assert (reader.answer["text"], reader.answer["truncated"]) == ("abcd", True)
    assert reader.longest() == 3


def test_half_a_character_is_not_shown_until_it_is_whole(tokenizer: ChatTokenizer) -> None:
    tokens = tokenizer.encode("é!")
    assert len(tokens) == 3
    assert read_text(tokenizer, tokens[:1]).text == ""
    assert read_text(tokenizer, tokens[:2]).text == "é"


def test_an_answer_is_as_the_caller_ordered_it() -> None:
    answer = letter_answer(choice("c", "z", "a", "m"), [0.2, 0.3, 0.5])
    assert answer["type"] == "choice"
    assert list(answer["probabilities"]) == ["z", "a", "m"]

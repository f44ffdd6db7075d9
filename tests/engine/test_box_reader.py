"""Boxes: the arithmetic of the reader, and its answer on a model that says what the test wants."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from photocall.asking import Abstain
from photocall.questions import Box
from photocall_engine.box_reader import MARKS, PLACES, BoxReader, box_answer
from photocall_engine.calibration import Calibration
from photocall_engine.reading import Letters
from photocall_engine.tokenizer import ChatTokenizer
from tests.engine.harness import bench, choice, picture


def certain(place: int) -> NDArray[np.float64]:
    return np.asarray(np.eye(PLACES)[place])


def even() -> NDArray[np.float64]:
    return np.full(PLACES, 1 / PLACES)


def test_a_certain_box_lies_in_the_middle_of_its_hundredths() -> None:
    answer = box_answer([certain(21), certain(71), certain(0), certain(99)])
    assert answer["box"] == pytest.approx({"top": 0.215, "bottom": 0.715, "left": 0.005, "right": 0.995})
    assert answer["confidence"] == pytest.approx(1.0)


def test_an_edge_is_the_expectation_and_confidence_that_of_the_least_certain_edge() -> None:
    between = 0.25 * certain(40) + 0.75 * certain(60)
    answer = box_answer([certain(10), between, certain(10), certain(20)])
    assert answer["box"]["bottom"] == pytest.approx(0.555)
    assert answer["confidence"] == pytest.approx(1 - (0.25 * 0.15 + 0.75 * 0.05) / 0.25)
    assert box_answer([even(), certain(99), certain(0), certain(99)])["confidence"] == pytest.approx(0, abs=1e-12)


def test_edges_that_cross_are_given_in_order() -> None:
    box = box_answer([certain(80), certain(20), certain(60), certain(50)])["box"]
    assert box["top"] < box["bottom"]
    assert box["left"] < box["right"]


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_what_the_digits_spell(tokenizer: ChatTokenizer, temperature: float) -> None:
    """Second digits follow their first digit: 19 and 20 must not become 10, 29 or their mean of digits."""
    reader = BoxReader(tokenizer, temperature)
    spelled = {"T": {"1": {"9": 0.5}, "2": {"0": 0.5}}, "B": {"7": {"0": 1.0}}, "L": {"0": {"5": 1.0}},
               "R": {"5": {"0": 1.0}}}  # fmt: skip
    chars = {tokenizer.single(char): char for char in MARKS + "0123456789"}
    for want in reader.begin():
        assert reader.answer is None
        text = "".join(chars[token] for token in want.path)
        seconds = spelled[text[0]].get(text[1:], {}) if len(text) == 2 else {}
        odds = spelled[text] if len(text) == 1 else seconds
        wanted = {d: sum(o.values()) if isinstance(o, dict) else o for d, o in odds.items()} if text else {}
        values = [30.0 * temperature if d in wanted else 0.0 for d in "0123456789"] if text else [0.0] * 5
        assert reader.take(want.path, np.asarray(values, dtype=np.float32)) == []
    assert reader.answer is not None
    assert reader.answer["box"]["top"] == pytest.approx(0.2, abs=1e-9)
    assert reader.answer["box"]["bottom"] == pytest.approx(0.705, abs=1e-9)
    assert math.isfinite(reader.answer["confidence"])


def read(tokenizer: ChatTokenizer, begun: list[float], abstain: Abstain | None, everything: float = 0.0) -> Any:
    """The answer where these are the probabilities of the four edges and of an end at once, among all tokens."""
    reader = BoxReader(tokenizer, 1.0, abstain)
    for want in reader.begin():
        values = [math.log(p) for p in begun] if not want.path else [0.0] * 10
        assert isinstance(want.read, Letters)
        assert len(want.read.ids) == len(values)
        reader.take(want.path, np.asarray(values + [everything] * want.read.whole, dtype=np.float32))
    assert reader.answer is not None
    return reader.answer


def test_presence_is_what_names_an_edge_rather_than_end_at_once(tokenizer: ChatTokenizer) -> None:
    """Whichever edge comes first: what other tokens have is no part of it."""
    there = read(tokenizer, [0.4, 0.1, 0.05, 0.05, 0.2], None)
    assert there["presence"] == pytest.approx(0.75)
    assert "cannot_tell" not in there
    assert "answer_status" not in there


@pytest.mark.parametrize(("end", "status"), [(0.2, None), (0.7, "abstained")])
def test_a_slot_is_the_other_side_of_presence(tokenizer: ChatTokenizer, end: float, status: str | None) -> None:
    found = read(tokenizer, [0.1, 0.2, 0.1, 0.1, end], Abstain(cannot_tell=True))
    assert found["presence"] + found["cannot_tell"] == pytest.approx(1)
    assert found.get("answer_status") == status


def test_the_end_is_a_label_where_it_is_a_slot(tokenizer: ChatTokenizer) -> None:
    begun = [0.1, 0.2, 0.1, 0.1, 0.3]
    alone = read(tokenizer, begun, Abstain(label_mass=0.0))
    both = read(tokenizer, begun, Abstain(cannot_tell=True, label_mass=0.0))
    assert (alone["label_mass"], both["label_mass"]) == (pytest.approx(0.5), pytest.approx(0.8))
    assert alone["presence"] == both["presence"] == pytest.approx(0.625)


def test_a_model_that_was_not_trained_for_boxes_says_so(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, num_pages=512, sliding_pages=500, calibration=Calibration({}, frozenset({"box"})))
    made.ask("job", "img", Box("b", "the cup"), choice("c", "x", "y"), images={"img": picture(1)})
    made.run()
    answers = made.body("job")["answers"]
    assert answers["b"]["answer_status"] == "untrained"
    assert set(answers["b"]) == {"type", "box", "confidence", "presence", "answer_status"}
    assert "answer_status" not in answers["c"]
    trained = bench(tokenizer, num_pages=512, sliding_pages=500)
    trained.ask("job", "img", Box("b", None), images={"img": picture(1)})
    trained.run()
    assert set(trained.body("job")["answers"]["b"]) == {"type", "box", "confidence", "presence"}
    assert trained.body("job")["usage"]["steps"] <= 2  # every digit is read at once: none waits for another

"""Abstaining: the slot, label mass and what an abstained answer looks like, of every type."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from photocall.asking import Abstain, Asking
from photocall.questions import Box, Choice, Noul, Number, Option, Question, Score, Text
from photocall_engine.doubts import doubted, without_slot
from photocall_engine.prompt import question_pieces
from photocall_engine.readout import LetterReader
from photocall_engine.tokenizer import ChatTokenizer
from tests.engine.harness import bench, choice, picture

SLOT = Abstain(cannot_tell=True)
LETTER_IDS = tuple(range(100, 126))


def read(question: Choice | Noul | Score, logits: list[float], everything: float | None = None) -> dict[str, Any]:
    reader = LetterReader(question, LETTER_IDS, 1.0, question.asking.abstain)
    values = logits if everything is None else [*logits, everything]
    assert reader.take((), np.asarray(values, dtype=np.float32)) == []
    assert reader.answer is not None
    return dict(reader.answer)


def logs(*probabilities: float) -> list[float]:
    return [math.log(p) for p in probabilities]


def test_a_slot_is_apart_from_the_options() -> None:
    question = replace(choice("c", "red", "green"), asking=Asking(abstain=SLOT))
    answer = read(question, logs(0.45, 0.15, 0.4))
    assert answer["probabilities"] == pytest.approx({"red": 0.75, "green": 0.25}, abs=1e-6)
    assert answer["cannot_tell"] == pytest.approx(0.4, abs=1e-6)
    assert answer["confidence"] == pytest.approx(0.5, abs=1e-6)
    assert "answer_status" not in answer


def test_abstained_where_the_slot_is_likelier_than_any_option() -> None:
    question = replace(choice("c", "red", "green"), asking=Asking(abstain=SLOT))
    answer = read(question, logs(0.39, 0.2, 0.41))
    assert (answer["answer_status"], answer["confidence"], answer["choice"]) == ("abstained", 0, "red")
    yes_no = read(Noul("n", "?", asking=Asking(abstain=SLOT)), logs(0.3, 0.1, 0.6))
    assert (yes_no["answer_status"], yes_no["noul"]) == ("abstained", pytest.approx(0.75, abs=1e-6))
    scale = read(Score("s", "?", ("a", "b"), Asking(abstain=SLOT)), logs(0.1, 0.1, 0.8))
    assert (scale["answer_status"], scale["score"]) == ("abstained", pytest.approx(0.5, abs=1e-6))


@pytest.mark.parametrize(("mass", "status"), [(0.6, None), (0.4, "abstained")])
def test_a_floor_of_label_mass(mass: float, status: str | None) -> None:
    question = replace(choice("c", "red", "green"), asking=Asking(abstain=Abstain(label_mass=0.5)))
    answer = read(question, logs(0.9 * mass, 0.1 * mass), everything=0.0)
    assert answer["label_mass"] == pytest.approx(mass, abs=1e-6)
    assert answer.get("answer_status") == status
    assert answer["probabilities"] == pytest.approx({"red": 0.9, "green": 0.1}, abs=1e-6)
    assert "cannot_tell" not in answer


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_label_mass_of_two_letters_counts_both(temperature: float) -> None:
    """As the model has it: a calibration's temperature is none of it."""
    asking = Asking(abstain=Abstain(label_mass=0.0))
    question = Choice("c", "?", tuple(Option(f"o{i}") for i in range(28)), asking)
    reader = LetterReader(question, LETTER_IDS, temperature, asking.abstain)
    for want in reader.begin():
        if not want.path:
            values = [*logs(0.6, 0.2), 0.0]
        elif want.path == (100,):
            values = [*logs(*[0.5 / 26] * 26), 0.0]
        else:
            values = [*logs(0.5, 0.5), 0.0]
        reader.take(want.path, np.asarray(values, dtype=np.float32))
    assert reader.answer is not None
    assert reader.answer["label_mass"] == pytest.approx(0.6 * 0.5 + 0.2 * 1.0, abs=1e-6)


def test_a_slot_that_takes_everything_leaves_the_options_even() -> None:
    assert without_slot([0.0, 0.0, 1.0]) == ([0.5, 0.5], 1.0)
    assert doubted({"type": "noul", "noul": 0.9}, None, 0.9, 0.95) == {"type": "noul", "noul": 0.9}


def test_the_slot_stands_behind_the_options_and_prompts_without_it_stay() -> None:
    question = choice("c", "red", "green")
    assert question_pieces(question, ()) == ["\nWhich?\nA) red\nB) green\nAnswer with one letter."]
    assert question_pieces(question, (), cannot_tell=True) == [
        "\nWhich?\nA) red\nB) green\nC) cannot tell\nAnswer with one letter."
    ]


EVERY: tuple[Question, ...] = (
    choice("choice", "red", "green"),
    Noul("noul", "Is it?"),
    Score("score", "How?", ("low", "high")),
    Number("number", "How many?", 0, 9, 1),
    Text("text", "What?", 4),
    Text("of a list", "What?", one_of=("ab", "ac")),
    Text("of a pattern", "What?", 4, pattern="[ab]{2}"),
    Box("box", "the cup"),
)


def test_through_the_engine_every_type_says_what_it_doubts(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, num_pages=1024, sliding_pages=1000)
    both, floor = Abstain(cannot_tell=True, label_mass=1.0), Abstain(label_mass=1.0)
    images = {"img": picture(1)}
    made.ask("plain", "img", *EVERY, images=images)
    for job, abstain in (("both", both), ("floor", floor)):
        made.ask(job, "img", *(replace(q, asking=Asking(abstain=abstain)) for q in EVERY), images=images)
    made.run()
    plain, doubting, weighed = (made.body(job)["answers"] for job in ("plain", "both", "floor"))
    for question in EVERY:
        name = question.name
        assert not {"answer_status", "cannot_tell", "label_mass"} & plain[name].keys()
        if name == "text":
            continue  # free: it has no labels, and ended at once only if it is empty
        assert 0 < doubting[name]["cannot_tell"] < 1
        assert 0 < weighed[name]["label_mass"] < 1
        assert weighed[name]["answer_status"] == "abstained", "no model gives them everything"
        assert weighed[name].get("confidence", 0) == 0
        added = {"label_mass": weighed[name]["label_mass"], "answer_status": "abstained"}
        added |= {"confidence": 0.0} if "confidence" in plain[name] else {}
        assert weighed[name] == plain[name] | added, "weighed beside the rest, it says the same"

"""Answers of the API are judged by what they say, and tables count what was judged."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from ops.train.ask import FAMILIES
from ops.train.asker import Answer, Asked
from ops.train.draw import Drawer
from ops.train.evaluate import OF_A_TYPE, judge, overlap, read_rows, result, sample, verdict
from photocall.questions import Box, Choice, Noul, Number, Option, Question, Score, Text

CHOICE = Choice("q", "?", (Option("red"), Option("blue")))
BOX = Box("q", "the tree")
EDGES = {"top": 0.2, "bottom": 0.6, "left": 0.1, "right": 0.9}
SCORE = Score("q", "?", ("low", "mid", "high"))


@pytest.mark.parametrize(
    ("question", "truth", "answer", "right", "confidence"),
    [
        (CHOICE, "red", {"choice": "red", "probabilities": {"red": 0.8, "blue": 0.2}}, True, 0.8),
        (CHOICE, "blue", {"choice": "red", "probabilities": {"red": 0.8, "blue": 0.2}}, False, 0.8),
        (Noul("q", "?"), False, {"noul": 0.1}, True, 0.9),
        (Noul("q", "?"), False, {"noul": 0.7}, False, 0.7),
        (SCORE, 1, {"score": 1.2, "probabilities": {"0": 0.1, "1": 0.6, "2": 0.3}}, True, 0.6),
        (Number("q", "?"), 407, {"number": 401, "confidence": 0.6}, False, 0.6),
        (Number("q", "?"), Decimal("-2.5"), {"number": -2.5, "confidence": 0.7}, True, 0.7),
        (Text("q", "?"), "Oak", {"text": "oak", "logprob": 0.0}, False, 1.0),
        (BOX, (0.2, 0.6, 0.1, 0.9), {"box": EDGES | {"bottom": 0.5}, "confidence": 0.4}, True, 0.4),
        (BOX, (0.2, 0.6, 0.1, 0.9), {"box": EDGES | {"bottom": 0.3}, "confidence": 0.4}, False, 0.4),
    ],
)
def test_an_answer_is_judged(
    question: Question, truth: Answer, answer: dict[str, Any], right: bool, confidence: float
) -> None:
    found, sure = judge(Asked(question, truth, "kind"), answer)
    assert found == right
    assert sure == pytest.approx(confidence)


def test_a_sample_is_a_jpeg_with_a_few_questions_of_each_type() -> None:
    (state, asked, file), again = (sample(Drawer("heldout"), "heldout", 3) for _ in range(2))
    assert (state, asked, file) == again
    assert file.startswith(b"\xff\xd8")
    assert len({a.question.name for a in asked}) == len(asked) >= 4
    types = [a.question.type for a in asked]
    assert max(types.count(kind) for kind in types) <= OF_A_TYPE
    assert all(a.answer is not None for a in asked)


def test_the_plain_world_is_that_of_the_first_weights() -> None:
    drawers = {plain: Drawer("heldout", None, plain) for plain in (True, False)}
    seen = {plain: [sample(drawer, "heldout", n)[1] for n in range(12)] for plain, drawer in drawers.items()}
    types: dict[bool, set[str]] = {True: set(), False: set()}
    kinds: dict[bool, set[str]] = {True: set(), False: set()}
    answers: dict[bool, set[type]] = {True: set(), False: set()}
    for plain, samples in seen.items():
        for asked in (a for of_one in samples for a in of_one):
            types[plain].add(asked.question.type)
            kinds[plain].add(asked.kind)
            if asked.question.type == "number":
                answers[plain].add(type(asked.answer))
    assert answers == {True: {int}, False: {int, Decimal}}
    assert types[False] - types[True] == {"box"}
    new = {m.__name__ for makers in FAMILIES.values() for m in makers}
    assert not kinds[True] & new
    assert kinds[False] & new


def test_boxes_overlap_as_areas_do() -> None:
    assert overlap(EDGES, (0.2, 0.6, 0.1, 0.9)) == pytest.approx(1.0)
    assert overlap(EDGES, (0.2, 0.6, 0.5, 1.3)) == pytest.approx(0.4 / 1.2)
    assert overlap(EDGES, (0.7, 0.9, 0.1, 0.9)) == 0.0


def test_a_card_holds_unless_an_interval_lies_below_it() -> None:
    def table(**types: tuple[float, float]) -> dict[str, Any]:
        found = {name: {"accuracy": mean, "accuracy_95": [0.0, top]} for name, (mean, top) in types.items()}
        return {"pictures": 9, "types": found}

    card = table(text=(0.94, 0.96), noul=(0.9, 0.95))
    held, line = verdict(table(text=(0.9, 0.94), noul=(0.99, 1.0), box=(0.1, 0.2)), card)
    assert held
    assert line == "9 pictures: the card holds: text 90.0% (card 94.0%), noul 99.0% (card 90.0%)"
    held, line = verdict(table(text=(0.9, 0.93), noul=(0.99, 1.0)), card)
    assert not held
    assert "does not hold: text 90.0% (card 94.0%) TOO LOW, noul" in line
    assert not verdict(table(box=(1.0, 1.0)), card)[0], "nothing of the card was measured"


def test_the_table_is_made_from_all_rows(tmp_path: Path) -> None:
    row = {"kind": "read_word", "type": "text", "confidence": 0.9, "asked": "?", "expected": "Oak"}
    rows = [row | {"picture": n, "right": n % 4 != 0, "said": "Oak" if n % 4 else "oak"} for n in range(40)]
    for i, part in enumerate((rows[20:], rows[:20])):
        (tmp_path / f"{i}.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in part))
    read = read_rows([tmp_path / "0.jsonl", tmp_path / "1.jsonl", tmp_path / "missing.jsonl"])
    assert [r["picture"] for r in read] == list(range(40))
    table = result(read, "heldout", ["b", "a"])
    assert table["types"]["text"]["accuracy"] == 0.75
    assert table["types"]["text"]["questions"] == table["pictures"] == 40
    assert table["text_right_but_for_case"] == 1.0
    assert table["digits_as_number"] is None
    assert len(table["some_wrong_answers"]) == 10

"""Answers of the API are judged by what they say, and tables count what was judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ops.train.asker import Answer, Asked
from ops.train.draw import Drawer
from ops.train.evaluate import OF_A_TYPE, judge, read_rows, result, sample
from photocall.questions import Choice, Noul, Number, Option, Question, Score, Text

CHOICE = Choice("q", "?", (Option("red"), Option("blue")))
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
        (Text("q", "?"), "Oak", {"text": "oak", "logprob": 0.0}, False, 1.0),
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

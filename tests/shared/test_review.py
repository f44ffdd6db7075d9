"""The review queue: what is in it, in which order, and what Label Studio and a spreadsheet get of it."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from photocall.cli import main
from photocall.review import COLUMNS, CONFIG, _harmless, doubtful, label_studio, write_csv

PNG = b"a picture"
SHA = hashlib.sha256(PNG).hexdigest()
ANSWERS: dict[str, Any] = {
    "sure": {"type": "choice", "choice": "a", "confidence": 0.9, "probabilities": {"a": 0.95, "b": 0.05}},
    "unsure": {"type": "choice", "choice": "=b", "confidence": 0.1, "probabilities": {"a": 0.45, "=b": 0.55}},
    "silent": {"type": "noul", "noul": 0.99, "answer_status": "abstained", "cannot_tell": 0.9},
    "even": {"type": "noul", "noul": 0.4},
    "scale": {"type": "score", "score": 0.5, "confidence": 0.2, "legend": {"0": "low", "1": {"x": 1}},
              "probabilities": {"0": 0.4, "1": 0.6}},
    "count": {"type": "number", "number": 3, "confidence": 0.3},
    "word": {"type": "text", "text": "ab", "logprob": -1.0, "truncated": False, "probability": 0.37},
    "free": {"type": "text", "text": "ab", "logprob": -1.0, "truncated": False},
    "place": {"type": "box", "box": {"top": 0.1, "bottom": 0.4, "left": 0.5, "right": 0.75}, "confidence": 0.4},
    "never": {"type": "not_asked", "answer_status": "not_asked", "message": "..."},
    "bad": {"type": "refusal", "answer_status": "refused", "code": "unanswerable", "message": "..."},
}  # fmt: skip
RESULT = {
    "id": "r",
    "custom_id": "row-1",
    "response": {"status_code": 200, "body": {"answers": ANSWERS}},
    "error": None,
}
FAILED = {"id": "f", "custom_id": "row-2", "response": {"status_code": 422, "body": {"detail": []}}, "error": None}
NOT_RUN = {"id": "n", "custom_id": "row-3", "response": None, "error": {"code": "batch_cancelled"}}
REQUEST = {
    "state": "img",
    "assets": {"img": {"type": "image", "data_base64": b64encode(PNG).decode()}, "two": {"url": "https://x.test/a"}},
    "questions": {"unsure": {"type": "choice", "instructions": "Which?"}},
}
INPUT = {"custom_id": "row-1", "method": "POST", "url": "/v1/jobs", "body": REQUEST}
LINES = [json.dumps(line) for line in (RESULT, FAILED, NOT_RUN)]


def test_the_least_sure_come_first_and_what_is_sure_does_not_come() -> None:
    queue = doubtful(LINES)
    assert [one.question for one in queue] == ["bad", "silent", "unsure", "even", "scale", "count", "word", "place"]
    assert [one.question for one in doubtful(LINES, below=0.15)] == ["bad", "silent", "unsure"]
    native = json.dumps(RESULT | {"response": {"body": {"object": "job", "result": {"answers": ANSWERS}}}})
    assert [one.answer for one in doubtful([native])] == [one.answer for one in queue]


def test_tasks_of_label_studio() -> None:
    tasks = {task["data"]["question"]: task for task in label_studio(doubtful(LINES, [json.dumps(INPUT)], "http://h"))}
    assert tasks["unsure"] == {
        "data": {
            "custom_id": "row-1",
            "question": "unsure",
            "instructions": "Which?",
            "status": "",
            "options": [{"value": "a"}, {"value": "=b"}],
            "image": f"http://h/v1/images/{SHA}/seen.png",
            "images": [f"http://h/v1/images/{SHA}/seen.png", "https://x.test/a"],
        },
        "predictions": [
            {
                "model_version": "photocall",
                "score": 0.1,
                "result": [
                    {"from_name": "choice", "to_name": "picture", "type": "choices", "value": {"choices": ["=b"]}}
                ],
            }
        ],
    }
    [region] = tasks["place"]["predictions"][0]["result"]
    box = {"x": 50, "y": 10, "width": 25, "height": 30, "rotation": 0}
    assert {name: region["value"][name] for name in box} == pytest.approx(box)
    values = {name: task["predictions"][0]["result"][0]["value"] for name, task in tasks.items() if task["predictions"]}
    assert values["scale"] == {"choices": ['{"x": 1}']}
    assert values["count"] == {"number": 3}
    assert values["word"] == {"text": ["ab"]}
    assert tasks["silent"]["data"]["status"] == "abstained"
    assert tasks["bad"]["predictions"] == []
    for name in {value["from_name"] for task in tasks.values() for p in task["predictions"] for value in p["result"]}:
        assert f'name="{name}" toName="picture"' in CONFIG


def test_a_spreadsheet_runs_nothing() -> None:
    file = io.StringIO()
    write_csv(doubtful(LINES, [json.dumps(INPUT)]), file)
    rows = list(csv.DictReader(io.StringIO(file.getvalue())))
    assert list(rows[0]) == list(COLUMNS)
    unsure = next(row for row in rows if row["question"] == "unsure")
    assert (unsure["answer"], unsure["options"], unsure["confidence"]) == ("'=b", "a | =b", "0.100000")


@pytest.mark.parametrize(
    ("cell", "shown"),
    [("-5", "-5"), ("+1.5e3", "+1.5e3"), ("-5+A1", "'-5+A1"), ("=1", "'=1"), ("@x", "'@x"), ("5", "5")],
)
def test_numbers_are_no_formulas(cell: str, shown: str) -> None:
    assert _harmless(cell) == shown


def test_lines_end_where_lines_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """U+2028 may stand in a JSON string as it is."""
    results, inputs = tmp_path / "out.jsonl", tmp_path / "in.jsonl"
    results.write_text("\n".join(LINES))
    inputs.write_text(json.dumps(INPUT | {"note": "a\u2028b\x85c"}, ensure_ascii=False))
    assert main(["review", str(results), "--input", str(inputs)]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 8


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results, inputs = tmp_path / "out.jsonl", tmp_path / "in.jsonl"
    results.write_text("\n".join(LINES))
    inputs.write_text(json.dumps(INPUT))
    assert main(["review", str(results), "--input", str(inputs)]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 8
    assert main(["review", str(results), "--format", "csv", "--below", "0.15"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4
    assert main(["review", str(results), "--json", "--below", "0.15"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [list(one) for one in found] == [list(COLUMNS)] * 3
    [unsure] = [one for one in found if one["question"] == "unsure"]
    assert (unsure["answer"], unsure["options"], unsure["confidence"]) == ("=b", ["a", "=b"], 0.1)
    assert main(["review", "--config"]) == 0
    assert capsys.readouterr().out == CONFIG
    results.write_text('{"answers": {}}')
    assert main(["review", str(results)]) == 2
    assert "no custom_id" in capsys.readouterr().err
    assert main(["review", str(tmp_path / "none")]) == 2
    assert main(["review"]) == 2

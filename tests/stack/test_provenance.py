"""Provenance, replay and drift on a real service with the shipped model: one service for all of it."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from PIL import Image, ImageDraw

from photocall.cli import main
from photocall_engine.checkpoint_hash import checkpoint_sha256
from photocall_engine.prompt import PROMPT_VERSION

pytestmark = pytest.mark.timeout(240)

MODEL = Path(__file__).parents[2] / "models" / "mini"
QUESTIONS: dict[str, Any] = {
    "colour": {
        "type": "choice",
        "instructions": "Which colour is the square?",
        "criteria": ["red", "green", "blue"],
    },
    "red": {"type": "noul", "instructions": "Is the square red?"},
}


@pytest.fixture
def http(address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx.Client]:
    monkeypatch.setenv("PHOTOCALL_URL", address)
    monkeypatch.delenv("PHOTOCALL_API_KEY", raising=False)
    with httpx.Client(base_url=address, timeout=60, headers={"prefer": "wait=30"}, trust_env=False) as client:
        yield client


def picture() -> bytes:
    image, file = Image.new("RGB", (300, 200), "white"), io.BytesIO()
    ImageDraw.Draw(image).rectangle((90, 40, 210, 160), fill="#d62020")
    image.save(file, "JPEG", quality=95)
    return file.getvalue()


def body(**fields: Any) -> dict[str, Any]:
    asset = {"type": "image", "data_base64": base64.b64encode(picture()).decode()}
    return {"state": "img", "questions": QUESTIONS, "assets": {"img": asset}, "provenance": True, **fields}


def test_what_is_told_is_what_was_done(http: httpx.Client) -> None:
    job = http.post("/v1/jobs", json=body(budget=70)).json()
    told = job["result"]["provenance"]
    assert told["job"] == job["id"]
    assert told["model_sha256"] == checkpoint_sha256(MODEL)
    assert told["prompt_version"] == PROMPT_VERSION
    assert (told["numerics"], told["weights"], told["calibration"]) == ("invariant", "float32", None)
    assert told["torch"] == torch.__version__
    assert told["kernels"].startswith("reference")
    assert len(told["table_sha256"]) == 64
    assert told["device"].startswith("cpu")
    assert told["threads"] >= 1
    [(key, seen)] = told["pictures"].items()
    assert (key, seen["budget"], seen["fidelity"]) == ("img", 70, "fast")
    shown = http.get(f"/v1/images/{seen['sha256']}/seen.png", params={"budget": 70})
    assert Image.open(io.BytesIO(shown.content)).size == (seen["width"], seen["height"])
    assert seen["soft_tokens"] == seen["width"] * seen["height"] // 48**2 <= 70
    assert told["truncation"]["state_tokens"] > seen["soft_tokens"]
    assert told["truncation"]["state_tokens_dropped"] == 0


def test_every_shape_tells_the_same(http: httpx.Client) -> None:
    """One picture, one model: only the job and what the picture is called differ."""
    url = "data:image/jpeg;base64," + base64.b64encode(picture()).decode()
    part = [{"type": "input_text", "text": "Look:"}, {"type": "input_image", "image_url": url}]
    predicate = {"type": "predicate", "instructions": "Is the square red?"}
    decision = {"input": [{"role": "user", "content": part}], "questions": [predicate], "provenance": True}
    found = [
        http.post("/v1/jobs", json=body()).json()["result"]["provenance"],
        http.post("/v1/systemone", json=body()).json()["provenance"],
        http.post("/v1/decisions", json=decision).json()["provenance"],
    ]
    pictures = [list(told.pop("pictures").values()) for told in found]
    assert pictures[0] == pictures[1] == pictures[2]
    jobs = {told.pop("job") for told in found}
    assert len(jobs) == 3
    read = [told.pop("truncation")["state_tokens"] for told in found]
    assert read[0] == read[1] != read[2], "a decision has its own words around the picture"
    assert found[0] == found[1] == found[2]
    assert "provenance" not in http.post("/v1/systemone", json=body(provenance=None)).json()


def test_a_replay_has_the_same_bits(http: httpx.Client, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = {"count": {"type": "number", "instructions": "How many squares are there?", "min": 0, "max": 20}}
    words = {"words": {"type": "text", "instructions": "What colour is it?", "max_tokens": 6}}
    box = {"where": {"type": "box", "instructions": "Where is the square?"}}
    asked = body(questions={**QUESTIONS, **numbers, **words, **box}, order="debias")
    job = http.post("/v1/jobs", json=asked).json()
    assert main(["replay", job["id"]]) == 0
    names = ["colour", "red", "count", "words", "where"]
    assert capsys.readouterr().out.splitlines() == [f"same     {name}" for name in names]


def test_drift_on_a_picture(http: httpx.Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is promised does not move by a bit; what is not is measured, and a limit on it has a status."""
    file, questions = tmp_path / "square.jpg", tmp_path / "questions.json"
    file.write_bytes(picture())
    questions.write_text(json.dumps(QUESTIONS))
    command = ["drift", str(file), "--questions", str(questions), "--crowd", "8", "--json"]
    assert main([*command, "--limit", "0"]) == 1
    found = json.loads(capsys.readouterr().out)
    drifts = {drift["what"]: drift for drift in found["drift"]}
    for what in ("batch mates", "cache", "order of questions"):
        assert drifts[what]["promised"], what
        assert drifts[what]["compared"] >= 2
        assert drifts[what]["unequal_bits"] == 0, drifts[what]
        assert drifts[what]["largest_change"] == 0.0
    cold, warm = (int(word) for word in drifts["cache"]["note"].split() if word.isdecimal())
    assert cold < 16 < warm, "the first was computed, the second found"
    assert float(drifts["batch mates"]["note"].split()[0]) > 0, "they had company"
    assert drifts["order of options"]["largest_change"] > 0
    assert drifts["as JPEG q75"]["largest_change"] > 0
    assert found["ok"] is False
    assert found["made_by"]["model_sha256"] == checkpoint_sha256(MODEL)

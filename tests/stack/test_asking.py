"""Ways of asking, through the whole pipeline: orders, abstaining, follow-ups, bound texts, an own calibration."""

from __future__ import annotations

import base64
import io
import re
from typing import Any

import httpx
import pytest
from PIL import Image, ImageDraw

from ops.train.evaluate import overlap

pytestmark = pytest.mark.timeout(240)

COLOUR: dict[str, Any] = {
    "type": "choice",
    "instructions": "Which colour is the square?",
    "criteria": ["red", "green", "blue"],
}
QUESTIONS: dict[str, dict[str, Any]] = {
    "plain": COLOUR,
    "fair": COLOUR | {"order": "debias"},
    "unfair": COLOUR | {"criteria": ["blue", "red", "green"], "order": "debias"},
    "unsure": COLOUR | {"abstain": {"label_mass": 0.5}},
    "then": {"type": "noul", "instructions": "Is it red?", "after": {"question": "plain", "equals": "red"}},
    "else": {"type": "noul", "instructions": "Is it blue?", "after": {"question": "plain", "equals": "blue"}},
    "listed": {"type": "text", "instructions": "Which colour is it?", "one_of": ["red", "green", "blue"]},
    "bound": {"type": "text", "instructions": "Which colour is it?", "pattern": "(red|green|blue)", "max_tokens": 12},
}


def drawn(shape: str, box: tuple[int, int, int, int], colour: str) -> dict[str, Any]:
    """A picture of one thing on white, as an asset."""
    picture, file = Image.new("RGB", (240, 200), "white"), io.BytesIO()
    getattr(ImageDraw.Draw(picture), shape)(box, fill=colour)
    picture.save(file, "PNG")
    return {"type": "image", "data_base64": base64.b64encode(file.getvalue()).decode()}


def test_every_way_of_asking_at_once(address: str) -> None:
    asset, other = drawn("rectangle", (70, 50, 170, 150), "#d62020"), drawn("ellipse", (120, 70, 220, 170), "#2040d0")
    body = {"state": "img", "assets": {"img": asset}, "questions": QUESTIONS}
    own = {"questions": {"plain": {"temperature": 2.0}}}
    box = {"type": "box"}
    two = {"state": {"first": "img", "second": "img2"}, "assets": {"img": asset, "img2": other}}
    with httpx.Client(base_url=address, timeout=60, headers={"Prefer": "wait=30"}, trust_env=False) as client:
        found = client.post("/v1/jobs", json=body | {"calibration": own}).json()["result"]["answers"]
        stored = client.post("/v1/calibrations", json={"calibration": own}).json()["id"]
        named = client.post("/v1/jobs", json=body | {"calibration": stored}).json()["result"]["answers"]
        alone, among = (
            client.post("/v1/jobs", json=asked | {"questions": {"q": box | {"instructions": words}}}).json()["result"]
            for asked, words in ((body, "the red square"), (two, "In the second picture: the blue circle"))
        )
        bad = client.post("/v1/jobs", json=body | {"questions": {"q": QUESTIONS["bound"] | {"pattern": "("}}})
    assert found["plain"]["choice"] == found["fair"]["choice"] == "red"
    assert found["fair"]["probabilities"] == found["unfair"]["probabilities"], "bit by bit"
    assert found["plain"]["probabilities_raw"] == found["unsure"]["probabilities"]
    assert found["plain"]["confidence"] < found["unsure"]["confidence"]
    assert found["unsure"]["label_mass"] > 0.5
    assert found["then"]["noul"] > 0.5
    assert found["else"]["answer_status"] == "not_asked"
    assert found["listed"]["text"] in ("red", "green", "blue")
    assert sum(found["listed"]["probabilities"].values()) == pytest.approx(1, abs=1e-6)
    assert re.fullmatch("red|green|blue", found["bound"]["text"]) or found["bound"]["truncated"]
    assert named == found, "named by id or sent whole"
    assert found["plain"]["calibration"] == stored
    right = ((0.25, 0.75, 70 / 240, 170 / 240), (0.35, 0.85, 0.5, 220 / 240))
    for result, edges in zip((alone, among), right, strict=True):  # on a picture alone, and on one of two
        place = result["answers"]["q"]
        assert overlap(place["box"], edges) > 0.6
        assert 0 < place["presence"] < 1
    assert bad.json()["error"]["code"] == "unanswerable"

"""POST /v1/systemone against the real app, with a scripted back end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.gateway.fake_backend import FakeBackend

CONTRACT = Path(__file__).parent / "contract"


def pair(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((CONTRACT / f"{name}.json").read_text())
    return loaded


def shape(value: Any) -> Any:
    """Keys and types of a value, numbers alike."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, int | float):
        return "number"
    return type(value).__name__


@pytest.mark.parametrize(
    "name", ["01_text_all_types", "02_image_inline_base64", "05_long_choice_and_json_instructions"]
)
def test_contract_pairs(client: TestClient, backend: FakeBackend, name: str) -> None:
    wanted = pair(name)
    response = client.post("/v1/systemone", json=wanted["request"], headers=wanted["request_headers"])
    assert response.status_code == 200, response.text
    answers = response.json()["answers"]
    assert list(answers) == list(wanted["response"]["answers"])
    assert shape(answers) == shape(wanted["response"]["answers"])
    assert response.headers["x-typesafe-request-id"].startswith("req_")
    stages = [part.split(";")[0] for part in response.headers["server-timing"].split(", ")]
    assert stages == ["queue", "prepare", "prefill", "readout"]

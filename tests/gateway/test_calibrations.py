"""POST /v1/calibrations, and a job that carries what it gave."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from photocall_gateway.openapi_schemas import MAX_LABELS
from tests.gateway.fake_backend import FakeBackend
from tests.shared.test_calibrating import labels


def test_what_is_fitted_is_what_a_job_takes(client: TestClient, backend: FakeBackend) -> None:
    response = client.post("/v1/calibrations", json={"labels": labels(200)})
    assert response.status_code == 200
    found = response.json()
    assert found["object"] == "calibration"
    body = {"state": "x", "questions": {"ok": {"type": "noul", "instructions": "?"}}, "calibration": found}
    assert client.post("/v1/jobs", json=body).status_code == 202


@pytest.mark.parametrize(
    ("body", "loc"),
    [
        ({}, ["labels"]),
        ({"labels": labels(200)[:10]}, ["labels"]),
        ({"labels": [5]}, ["labels", 0]),
        ({"labels": [{}] * (MAX_LABELS + 1)}, ["labels"]),
        ({"labels": labels(60), "by": "name"}, ["by"]),
        ({"labels": [{"answer": {"probabilities": {str(i): 0 for i in range(MAX_LABELS * 11)}}}]}, ["labels"]),
    ],
)
def test_what_cannot_be_fitted_is_named(client: TestClient, body: Any, loc: list[str | int]) -> None:
    response = client.post("/v1/calibrations", json=body)
    assert response.status_code == 422
    assert response.json()["loc"][-len(loc) :] == loc

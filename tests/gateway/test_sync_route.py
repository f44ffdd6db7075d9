"""`Prefer: respond-async` on the two synchronous shapes: 202 and the job, whose result has the shape that asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
import redis
from starlette.testclient import TestClient

from photocall import keys
from photocall.jobs import Refused
from photocall.settings import GatewaySettings
from tests.gateway.conftest import served
from tests.gateway.fake_backend import FakeBackend

ASYNC = {"prefer": "respond-async"}
SYSTEMONE = {"state": "A ticket.", "questions": {"q": {"type": "noul", "instructions": "Is it a refund?"}}}
DECISIONS = {"input": "A ticket.", "questions": [{"type": "predicate", "instructions": "Is it a refund?"}]}
SHAPES = [("/v1/systemone", SYSTEMONE), ("/v1/decisions", DECISIONS)]


@pytest.mark.parametrize(("path", "body"), SHAPES)
def test_the_job_is_said_and_has_the_answer(
    client: TestClient, backend: FakeBackend, path: str, body: dict[str, Any]
) -> None:
    backend.hold.set()
    response = client.post(path, json=body, headers=ASYNC)
    job = response.json()
    assert (response.status_code, job["object"], job["status"]) == (202, "job", "queued")
    assert response.headers["location"] == f"/v1/jobs/{job['id']}" == job["urls"]["self"]
    assert response.headers["preference-applied"] == "respond-async"
    assert int(response.headers["retry-after"]) > 0
    backend.hold.clear()
    ended = client.get(response.headers["location"], headers={"prefer": "wait=10"}).json()
    assert ended["status"] == "succeeded"
    assert ended["result"] == client.post(path, json=body).json()


@pytest.mark.parametrize(("path", "body"), SHAPES)
def test_with_a_wait_the_answer_comes_if_it_is_in_time(
    client: TestClient, backend: FakeBackend, path: str, body: dict[str, Any]
) -> None:
    both = {"prefer": "respond-async, wait=10"}
    answer = client.post(path, json=body, headers=both)
    assert answer.status_code == 200
    assert set(answer.json()) == {"model", "answers", "usage"}
    backend.respond = lambda ask, record: Refused("prompt_too_long", "too long")
    assert client.post(path, json=body, headers=both).status_code == 400
    backend.hold.set()
    assert client.post(path, json=body, headers={"prefer": "respond-async, wait=1"}).status_code == 202


@pytest.mark.parametrize(("path", "body"), SHAPES)
def test_a_key_gives_the_same_job_and_stands_for_one_body(
    client: TestClient, backend: FakeBackend, path: str, body: dict[str, Any]
) -> None:
    backend.hold.set()
    keyed = {**ASYNC, "idempotency-key": "k"}
    first, second = (client.post(path, json=body, headers=keyed).json()["id"] for _ in range(2))
    assert first == second
    assert client.post(path, json=body, headers=ASYNC).json()["id"] != first
    other = client.post(path, json={**body, "model": "jev-latest"}, headers=keyed)
    assert other.status_code == 422
    assert "'k' was used" in other.text
    waiting = client.post(path, json={**body, "model": "jev-latest"}, headers={"idempotency-key": "k"})
    assert waiting.status_code == 422


def test_nobody_who_leaves_takes_it_along(
    settings: GatewaySettings, backend: FakeBackend, eventually: Callable[..., Any]
) -> None:
    """An asynchronous job is joined by nobody, so a synchronous caller that gives up cannot cancel it."""
    backend.hold.set()
    with (
        served(replace(settings, sync_wait_s=0.3), abandoned_after_s=0.2) as address,
        httpx.Client(base_url=address, timeout=20) as http,
    ):
        patient = http.post("/v1/systemone", json=SYSTEMONE, headers=ASYNC).json()["id"]
        assert http.post("/v1/systemone", json=SYSTEMONE).status_code == 529
        eventually(lambda: http.get("/v1/jobs?status=cancelled").json()["data"], 5.0)
        assert http.get(f"/v1/jobs/{patient}").json()["status"] == "queued"
        backend.hold.clear()
        assert http.get(f"/v1/jobs/{patient}", headers={"prefer": "wait=10"}).json()["status"] == "succeeded"


@pytest.mark.parametrize(("path", "body"), SHAPES)
def test_bad_input_is_refused_in_the_shape_s_own_way(
    client: TestClient, redis_client: redis.Redis, path: str, body: dict[str, Any]
) -> None:
    response = client.post(path, json={**body, "questions": None}, headers=ASYNC)
    assert response.status_code == 422
    assert "questions" in response.text
    assert list(redis_client.scan_iter(keys.job("*"))) == []


@pytest.mark.parametrize(
    ("prefer", "status"),
    [
        ("respond-async", 202),
        ("Respond-Async; x=1", 202),
        ("wait=1, respond-async", 200),
        ("respond-asynchronously", 200),
    ],
)
def test_the_preference(client: TestClient, backend: FakeBackend, prefer: str, status: int) -> None:
    assert client.post("/v1/systemone", json=SYSTEMONE, headers={"prefer": prefer}).status_code == status

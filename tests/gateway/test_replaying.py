"""A finished job asked again: what is kept for it, what the new job is, and every reason why it cannot be."""

from __future__ import annotations

import base64
import hashlib
import time
from typing import Any

import pytest
import redis
from starlette.testclient import TestClient

from photocall import keys
from photocall.asks import Ask
from photocall.jobs import Answered, JobRecord, Outcome, Refused
from photocall.operations import MAX_KEPT_ASK
from photocall.wire import unpack
from tests.gateway.fake_backend import FakeBackend, answered

PNG = b"\x89PNG\r\n\x1a\n" + b"one picture"
SHA = hashlib.sha256(PNG).hexdigest()
QUESTIONS = {"q": {"type": "noul", "instructions": "Is it?"}}
ASSETS = {"img": {"type": "image", "data_base64": base64.b64encode(PNG).decode()}}
BODY = {"state": {"photo": "img"}, "questions": QUESTIONS, "assets": ASSETS, "provenance": True}
DECISION = {"input": "text", "questions": [{"type": "predicate", "name": "n", "instructions": "Is it?"}]}
WAIT = {"prefer": "wait=10"}


@pytest.fixture
def asks(backend: FakeBackend) -> list[Ask]:
    """What reaches the engine, which answers with a provenance where one is asked for."""
    seen: list[Ask] = []

    def respond(ask: Ask, record: JobRecord) -> Outcome:
        seen.append(ask)
        outcome = answered(ask, record)
        assert isinstance(outcome, Answered)
        told = {"provenance": {"job": record.job_id}} if ask.provenance else {}
        return Answered({**outcome.body, **told}, outcome.timings)

    backend.respond = respond
    return seen


def done(client: TestClient, body: dict[str, Any]) -> dict[str, Any]:
    job: dict[str, Any] = client.post("/v1/jobs", json=body, headers=WAIT).json()
    assert job["status"] == "succeeded", job
    return job


def test_the_same_is_asked_again(client: TestClient, asks: list[Ask]) -> None:
    first = done(client, {**BODY, "budget": 280, "order": "debias"})
    assert first["result"]["provenance"] == {"job": first["id"]}
    again = client.post(f"/v1/jobs/{first['id']}/replay", headers=WAIT).json()
    assert again["id"] != first["id"]
    assert again["metadata"] == {"replay_of": first["id"]}
    assert again["result"]["provenance"] == {"job": again["id"]}
    assert asks[0] == asks[1]
    assert asks[1].budget == 280
    third = client.post(f"/v1/jobs/{again['id']}/replay", headers=WAIT).json()
    assert third["status"] == "succeeded", "a replay can be replayed"


def test_one_key_is_one_replay(client: TestClient, asks: list[Ask]) -> None:
    first, other = done(client, BODY), done(client, BODY)
    key = {"idempotency-key": "k", **WAIT}
    again = client.post(f"/v1/jobs/{first['id']}/replay", headers=key).json()
    assert client.post(f"/v1/jobs/{first['id']}/replay", headers=key).json()["id"] == again["id"]
    assert client.post(f"/v1/jobs/{other['id']}/replay", headers=key).status_code == 422


def test_a_decision_is_replayed_in_its_own_shape(client: TestClient, asks: list[Ask]) -> None:
    first = client.post("/v1/decisions", json={**DECISION, "provenance": True}).json()
    again = client.post(f"/v1/jobs/{first['provenance']['job']}/replay", headers=WAIT).json()
    assert again["result"]["answers"] == first["answers"]
    assert again["result"]["answers"][0]["name"] == "n"


def test_only_who_asks_is_told_and_an_answer_without_is_no_answer_with(client: TestClient, asks: list[Ask]) -> None:
    """A synchronous call must not join an equal one that wants to know less."""
    body = {"state": "text", "questions": QUESTIONS}
    for route, asked in (("/v1/systemone", body), ("/v1/decisions", DECISION)):
        assert "provenance" not in client.post(route, json=asked).json()
        assert client.post(route, json={**asked, "provenance": False}).status_code == 200
        assert "job" in client.post(route, json={**asked, "provenance": True}).json()["provenance"]
    assert len(asks) == 4


@pytest.mark.parametrize("value", ["yes", 1, {}])
@pytest.mark.parametrize(("route", "status"), [("jobs", 422), ("systemone", 422), ("decisions", 422)])
def test_nothing_but_true_or_false(client: TestClient, route: str, status: int, value: Any) -> None:
    body = DECISION if route == "decisions" else {"state": "text", "questions": QUESTIONS}
    response = client.post(f"/v1/{route}", json={**body, "provenance": value})
    assert response.status_code == status
    assert "provenance" in response.text


def refused(client: TestClient, job_id: str) -> tuple[int, str, str]:
    problem = client.post(f"/v1/jobs/{job_id}/replay").json()
    return problem["status"], problem["code"], problem["detail"]


def test_why_a_job_cannot_be_replayed(client: TestClient, backend: FakeBackend, redis_client: redis.Redis) -> None:
    assert refused(client, "job_0")[:2] == (404, "unknown_job")
    plain = done(client, {**BODY, "provenance": False})
    status, code, why = refused(client, plain["id"])
    assert (status, code) == (409, "not_replayable")
    assert "provenance: true" in why
    assert not redis_client.hexists(keys.job(plain["id"]), "ask"), "nothing is kept for those who want none"
    backend.hold.set()
    waiting = client.post("/v1/jobs", json=BODY).json()
    assert "not ended" in refused(client, waiting["id"])[2]
    backend.hold.clear()
    backend.respond = lambda ask, record: Refused("internal", "it failed")
    failed = client.post("/v1/jobs", json={**BODY, "state": "img again"}, headers=WAIT).json()
    assert "it failed" in refused(client, failed["id"])[2]
    assert not redis_client.hexists(keys.job(failed["id"]), "ask")


def test_a_job_or_a_picture_that_is_gone(client: TestClient, asks: list[Ask], redis_client: redis.Redis) -> None:
    first = done(client, BODY)
    kept = redis_client.hget(keys.job(first["id"]), "ask")
    assert isinstance(kept, bytes)
    assert Ask.from_content(unpack(kept)).provenance
    redis_client.delete(keys.image(SHA))
    status, code, why = refused(client, first["id"])
    assert (status, code) == (404, "image_expired")
    assert SHA in why
    assert client.delete(f"/v1/jobs/{first['id']}").status_code == 204
    assert refused(client, first["id"])[:2] == (410, "job_gone")


def test_a_turn_is_not_replayed(client: TestClient, asks: list[Ask]) -> None:
    session = client.post("/v1/sessions", json={}).json()["id"]
    body = {"state": "text", "questions": QUESTIONS, "provenance": True}
    turn = client.post(f"/v1/sessions/{session}/turns", json=body, headers=WAIT).json()
    assert "job" in turn["result"]["provenance"], turn
    assert "session" in refused(client, turn["id"])[2]


def test_a_large_ask_is_answered_but_not_kept(client: TestClient, asks: list[Ask], redis_client: redis.Redis) -> None:
    """It has left its key's byte budget: many of them would fill Redis for everybody."""
    kept = done(client, {**BODY, "state": {"photo": "img", "text": "x" * (MAX_KEPT_ASK - 2000)}})
    assert redis_client.hexists(keys.job(kept["id"]), "ask")
    large = done(client, {**BODY, "state": {"photo": "img", "text": "x" * MAX_KEPT_ASK}})
    assert large["result"]["provenance"] == {"job": large["id"]}
    assert not redis_client.hexists(keys.job(large["id"]), "ask")
    status, code, why = refused(client, large["id"])
    assert (status, code) == (409, "not_replayable")
    assert f"more than the {MAX_KEPT_ASK} bytes" in why


def test_an_equal_call_later_leaves_the_answer_of_before(
    client: TestClient, asks: list[Ask], redis_client: redis.Redis
) -> None:
    """It asks anew, but the first can still be replayed, and its end takes nothing of the second along."""
    body = {"state": "text", "questions": QUESTIONS, "provenance": True}

    def asked() -> str:
        return str(client.post("/v1/systemone", json=body).json()["provenance"]["job"])

    first = asked()
    redis_client.hset(keys.job(first), "completed_at", repr(time.time() - 61))
    second = asked()
    assert second != first
    assert asked() == second
    again = client.post(f"/v1/jobs/{first}/replay", headers=WAIT).json()
    assert again["status"] == "succeeded", again
    assert client.delete(f"/v1/jobs/{first}").status_code == 204
    assert asked() == second, "its idempotency entry is the second's by now"


def test_an_equal_call_later_takes_what_nobody_replays_away(
    client: TestClient, asks: list[Ask], redis_client: redis.Redis
) -> None:
    body = {"state": "text", "questions": QUESTIONS}
    assert client.post("/v1/systemone", json=body).status_code == 200
    (first,) = redis_client.scan_iter(keys.job("*"))
    redis_client.hset(first, "completed_at", repr(time.time() - 61))
    assert client.post("/v1/systemone", json=body).status_code == 200
    assert not redis_client.exists(first)

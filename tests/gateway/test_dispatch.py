"""From accepted to on its way: what a crash or a Redis error in between leaves behind."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import redis
from redis.exceptions import ConnectionError as RedisConnectionError
from starlette.testclient import TestClient

from photocall import keys
from photocall.errors import CodedError
from photocall.operations import Policy
from photocall.queueing import PrepQueues
from photocall.settings import GatewaySettings
from photocall_gateway.app import create_app
from photocall_gateway.dispatch import late_failure
from tests.gateway.fake_backend import FakeBackend

PNG = b"\x89PNG\r\n\x1a\n" + b"rest"
PICTURE = {
    "state": "img",
    "questions": {"q": {"type": "noul", "instructions": "Is it?"}},
    "assets": {"img": {"data_base64": base64.b64encode(PNG).decode()}},
}


def test_an_enqueue_that_fails_is_made_good_by_the_sweeper(
    client: TestClient, backend: FakeBackend, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    enqueue = PrepQueues.enqueue

    def once_away(self: PrepQueues, job_id: str, attempt: int, lane: keys.Lane) -> str:
        calls.append(job_id)
        if len(calls) == 1:
            raise RedisConnectionError("away")
        return enqueue(self, job_id, attempt, lane)

    monkeypatch.setattr(PrepQueues, "enqueue", once_away)
    response = client.post("/v1/jobs", json=PICTURE)
    assert response.status_code == 202
    job_id = response.json()["id"]
    assert redis_client.zscore(keys.OUTBOX, job_id) is not None
    done = client.get(f"/v1/jobs/{job_id}", headers={"prefer": "wait=10"}).json()
    assert (done["status"], calls) == ("succeeded", [job_id, job_id])
    assert redis_client.zcard(keys.OUTBOX) == 0


def test_the_outbox_is_cleared_once_the_job_is_queued(client: TestClient, redis_client: redis.Redis) -> None:
    job_id = client.post("/v1/jobs", json=PICTURE).json()["id"]
    assert redis_client.lrange("rq:queue:prep", 0, -1) == [keys.rq_id(job_id, 1).encode()]
    assert redis_client.zcard(keys.OUTBOX) == 0
    client.post("/v1/jobs", json={**PICTURE, "priority": "batch"})
    assert redis_client.llen("rq:queue:prep-batch") == 1


def test_a_picture_is_stored_once_and_kept_while_jobs_want_it(
    client: TestClient, backend: FakeBackend, redis_client: redis.Redis, eventually: Callable[..., Any]
) -> None:
    backend.hold.set()
    first, second = (client.post("/v1/jobs", json={**PICTURE, "metadata": {"n": n}}).json()["id"] for n in "12")
    (image,) = redis_client.scan_iter(keys.image("*"))
    assert (redis_client.hget(image, "data"), redis_client.hget(image, "refs")) == (PNG, b"2")
    assert redis_client.ttl(image) == -1
    backend.hold.clear()
    for job_id in (first, second):
        assert client.get(f"/v1/jobs/{job_id}", headers={"prefer": "wait=10"}).json()["status"] == "succeeded"
    assert redis_client.hget(image, "refs") == b"0"
    assert redis_client.ttl(image) > 0


def test_the_budget_counts_what_is_kept_and_not_what_came(settings: GatewaySettings, redis_client: redis.Redis) -> None:
    """A body of zeros is a thousandth of its size on the wire: counted there, it passed any bound."""
    picture = PNG + bytes(200_000)
    asked = json.dumps({name: PICTURE[name] for name in ("state", "questions")}).encode()
    form: dict[str, tuple[str | None, bytes]] = {"request": (None, asked), "img": ("img", picture)}
    request = httpx.Request("POST", "http://localhost/v1/jobs", files=form)
    body = gzip.compress(request.read())
    assert len(body) < 2000
    headers = {"content-type": request.headers["content-type"], "content-encoding": "gzip"}
    with TestClient(create_app(settings, Policy(max_bytes=500_000)), base_url="http://localhost") as client:
        for _ in range(2):
            assert client.post("/v1/jobs", content=body, headers=headers).status_code == 202
        assert 400_000 < int(redis_client.hget(keys.DEPTH, "bytes") or 0) < 410_000
        full = client.post("/v1/jobs", content=body, headers=headers)
    assert (full.status_code, full.json()["code"], full.json()["limit"]) == (429, "queue_full", "bytes")


def test_a_full_queue_keeps_no_pictures(settings: GatewaySettings, redis_client: redis.Redis) -> None:
    """Each refused picture stayed an hour, until the store was full for everybody."""
    other = {**PICTURE, "assets": {"img": {"data_base64": base64.b64encode(PNG + b"another").decode()}}}
    with TestClient(create_app(settings, Policy(max_jobs=1)), base_url="http://localhost") as client:
        first = client.post("/v1/jobs", json=PICTURE, headers={"idempotency-key": "k"})
        assert first.status_code == 202
        assert client.post("/v1/jobs", json=other).status_code == 429
        assert len(list(redis_client.scan_iter(keys.image("*")))) == 1
        again = client.post("/v1/jobs", json=PICTURE, headers={"idempotency-key": "k"})
        assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])


def test_a_stored_error_is_raised_with_its_numbers() -> None:
    error = late_failure({"code": "prompt_too_long", "message": "too long", "tokens": 9})
    assert isinstance(error, CodedError)
    assert (error.code, error.message, error.data) == ("prompt_too_long", "too long", {"tokens": 9})
    assert late_failure(None).code == "internal"

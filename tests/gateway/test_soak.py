"""After a soak of everything that callers do: nothing stays in Redis that has no time to live and no owner.

The scripts are the real ones with times to live of seconds, so that what ends by itself can be seen to end.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import redis
from starlette.testclient import TestClient

from photocall import keys
from photocall.jobs import Refused
from photocall.operations import Policy
from photocall.redis_server import RedisServer
from photocall.settings import GatewaySettings
from photocall_gateway.app import create_app
from tests.gateway.batch_helper import Caller, jsonl, line
from tests.gateway.conftest import KEY
from tests.gateway.fake_backend import FakeBackend, answered

TTL_S = 2
POLICY = Policy(job_ttl_s=TTL_S, tombstone_ttl_s=TTL_S, image_ttl_s=TTL_S, max_jobs=200, max_jobs_per_owner=200)
QUESTIONS = {"q": {"type": "noul", "instructions": "Is it?"}}
# What has no time to live, and why it stays small.
KEPT = {
    keys.COUNTERS: "a field for each kind of event",
    keys.ENGINES: "engines that beat of late",
    keys.INBOXES: "engines that have a stream",
    keys.CONTROL: "capped",
    keys.sessions("local"): "as many as one owner may have; those that are gone leave when it is full",
    **{keys.engine_stream(lane): "entries leave with their jobs" for lane in (*keys.LANES, "fake")},
}
EMPTY = (keys.OUTBOX, keys.LEASES, keys.DEADLINES, keys.DEPTH, keys.WEBHOOKS, keys.FORGET)
# A queue's own list of names, which RQ keeps: one entry for each queue.
RQ_KEPT = {"rq:queues"}


def picture(number: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + str(number).encode()


def asks(number: int) -> dict[str, Any]:
    data = base64.b64encode(picture(number)).decode()
    return {
        "state": {"photo": "img"},
        "questions": QUESTIONS,
        "assets": {"img": {"type": "image", "data_base64": data}},
    }


def soak(client: TestClient, start: int, rounds: int) -> None:
    """Some of everything; every job of it ends."""
    for number in range(start, start + rounds):
        text = {"state": f"text {number}", "questions": QUESTIONS}
        wait = {"prefer": "wait=10"}
        assert client.post("/v1/jobs", json=text, headers=wait).json()["status"] == "succeeded"
        keyed = {**wait, "idempotency-key": f"key {number}"}
        assert client.post("/v1/jobs", json=asks(number), headers=keyed).json()["status"] == "succeeded"
        broken = {**text, "state": f"broken {number}"}
        assert client.post("/v1/jobs", json=broken, headers=wait).json()["status"] == "failed"
        removed = client.post("/v1/jobs", json={**text, "state": f"removed {number}"}).json()["id"]
        assert client.delete(f"/v1/jobs/{removed}").status_code == 204
        cancelled = client.post("/v1/jobs", json={**asks(number + 10_000), "priority": "batch"}).json()["id"]
        client.post(f"/v1/jobs/{cancelled}/cancel")
        with client.stream("GET", f"/v1/jobs/{cancelled}/events") as events:
            assert "idle" in events.read().decode()
        for _ in range(2):
            assert client.post("/v1/systemone", json={**text, "state": f"sync {number}"}).status_code == 200
        data = picture(number + 20_000)
        sha256 = hashlib.sha256(data).hexdigest()
        assert client.put(f"/v1/images/{sha256}", content=data).status_code in (200, 201)
        if number % 2:
            client.delete(f"/v1/images/{sha256}")
        session = client.post("/v1/sessions", json={"state": "talk"}).json()["id"]
        turn = client.post(f"/v1/sessions/{session}/turns", json={"questions": QUESTIONS}, headers=wait)
        assert turn.json()["status"] == "succeeded", turn.text
        if number % 2:
            client.delete(f"/v1/sessions/{session}")
    caller = Caller(client)
    batch = caller.run(jsonl(*(line(f"row {start} {n}") for n in range(5))))
    assert batch["status"] == "completed"
    stopped = caller.start(caller.upload(jsonl(*(line(f"stopped {start} {n}") for n in range(5)))))
    caller.post(f"/v1/batches/{stopped['id']}/cancel")
    caller.ended(stopped["id"])


def without_end(client: redis.Redis) -> set[str]:
    """Keys that have no time to live."""
    return {key.decode() for key in client.scan_iter() if client.ttl(key) == -1}


@pytest.fixture
def backend(redis_server: RedisServer) -> Iterator[FakeBackend]:
    """Whoever ends a job says how long it is kept."""
    with FakeBackend(redis_server.url, KEY.encode(), POLICY) as fake:
        yield fake


@pytest.fixture
def app_settings(settings: GatewaySettings) -> GatewaySettings:
    return replace(settings, job_ttl_s=TTL_S, image_ttl_s=TTL_S)


def test_nothing_without_an_end_or_an_owner(
    app_settings: GatewaySettings,
    backend: FakeBackend,
    redis_client: redis.Redis,
    eventually: Callable[..., Any],
) -> None:
    refuse = Refused("prompt_too_long", "too long", {"length": 9, "limit": 5})
    backend.respond = lambda ask, record: refuse if "broken" in str(ask.state) else answered(ask, record)
    owned = {keys.index("local"), keys.ENDED}  # the index and the mark of an ended job go with it, by the sweeper
    found: list[set[str]] = []
    with TestClient(create_app(app_settings, POLICY, abandoned_after_s=TTL_S), base_url="http://localhost") as client:
        for start in (0, 100):
            soak(client, start, rounds=3)
            eventually(lambda: not any(redis_client.exists(name) for name in EMPTY))
            eventually(lambda: not any(redis_client.xlen(keys.engine_stream(lane)) for lane in keys.LANES))
            assert without_end(redis_client) <= set(KEPT) | RQ_KEPT | owned
            assert left(redis_client)  # and all of these will end:
            eventually(lambda: not left(redis_client))
            eventually(lambda: not redis_client.exists(*owned))
            found.append(without_end(redis_client))
    assert found[0] == found[1]  # twice the work leaves no more


def left(client: redis.Redis) -> set[str]:
    """Keys of jobs, pictures, sessions and their events that are still there, but for what an engine says it holds."""
    kinds = ("job:", "events:", "gone:", "idempotency:", "image:", "session:", "asked:", "bound:", "uploading:")
    names = {key.decode() for key in client.scan_iter(f"{keys.PREFIX}*")}
    mine = {name for name in names if name.startswith(tuple(keys.PREFIX + kind for kind in kinds))}
    return {name for name in mine if not name.endswith(":held")}

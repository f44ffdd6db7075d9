"""A Redis that fills up: nothing more is accepted, what was accepted is answered, and room that comes back is used."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable
from typing import Any, cast

import redis
from starlette.testclient import TestClient

from photocall import keys
from tests.gateway.fake_backend import FakeBackend

QUESTIONS = {"q": {"type": "noul", "instructions": "Is it?"}}
TEXT = {"state": "text", "questions": QUESTIONS}
ROOM = 3 << 20


def picture() -> dict[str, Any]:
    """A request with a picture of its own, of 150 KB."""
    data = base64.b64encode(b"\x89PNG\r\n\x1a\n" + secrets.token_bytes(150_000)).decode()
    assets = {"img": {"type": "image", "data_base64": data}}
    return {"state": {"photo": "img"}, "questions": QUESTIONS, "assets": assets}


def used(client: redis.Redis) -> int:
    return int(cast(Any, client.info("memory"))["used_memory"])


def test_full_and_back_again(
    client: TestClient, backend: FakeBackend, redis_client: redis.Redis, eventually: Callable[..., Any]
) -> None:
    before = used(redis_client)
    redis_client.config_set("maxmemory", int((before + ROOM) / 0.8))
    backend.hold.set()
    accepted: list[str] = []
    while (found := client.post("/v1/jobs", json=picture())).status_code == 202:
        accepted.append(found.json()["id"])
        assert len(accepted) < 40, "more was accepted than there is room for"
    assert len(accepted) > 5
    assert (found.status_code, found.json()["code"]) == (507, "store_full")
    assert found.json()["used"] > found.json()["allowed"] >= before + ROOM - 1
    # Its buffers come and go: from here on it is well above the share up to which work is accepted, below its bound.
    redis_client.config_set("maxmemory", int(used(redis_client) / 0.87))
    assert int(found.headers["retry-after"]) > 0
    synchronous = client.post("/v1/systemone", json=TEXT)
    assert (synchronous.status_code, synchronous.json()["detail"]["error_type"]) == (529, "overloaded")
    store = client.get("/readyz").json()["store"]
    assert store["used_bytes"] > 0.8 * store["max_bytes"]

    backend.hold.clear()  # every answer is a write, and still gets in
    for job_id in accepted:
        done = client.get(f"/v1/jobs/{job_id}", headers={"prefer": "wait=20"}).json()
        assert done["status"] == "succeeded", done
    assert client.post("/v1/jobs", json=TEXT).status_code == 507  # pictures stay for a while after their job
    for job_id in accepted[: len(accepted) // 2]:
        assert client.delete(f"/v1/jobs/{job_id}").status_code == 204
    assert eventually(lambda: client.post("/v1/jobs", json=picture(), headers={"prefer": "wait=20"}).status_code == 200)
    assert not redis_client.exists(keys.DEPTH)

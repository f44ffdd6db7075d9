"""GET seen.png and report at the gateway: asked of prep once, shown to whoever sent the picture, and to nobody else."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import redis
from starlette.testclient import TestClient

from photocall import keys
from photocall.settings import GatewaySettings
from photocall.wire import pack
from photocall_gateway.app import create_app
from photocall_gateway.shows import Shows
from tests.gateway.conftest import POLICY

PNG = b"\x89PNG\r\n\x1a\n" + b"rest"
SHA = hashlib.sha256(PNG).hexdigest()
PLACE = f"/v1/images/{SHA}"


@contextmanager
def prep(client: redis.Redis, fields: dict[str, bytes]) -> Iterator[list[str]]:
    """Answers whatever the queue asks to be shown."""
    asked: list[str] = []
    stopped = threading.Event()

    def run() -> None:
        while not stopped.wait(0.01):
            entry = cast("bytes | None", client.lpop("rq:queue:prep"))
            if entry is not None:
                asked.append(entry.decode())
                client.hset(keys.shown(SHA), mapping=cast(Any, fields))
                client.publish(keys.WAKE, keys.shown(SHA))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield asked
    finally:  # a thread that goes on would take the next test's work
        stopped.set()
        thread.join(30)
        assert not thread.is_alive()


def test_a_picture_is_shown_and_asked_for_once(client: TestClient, redis_client: redis.Redis) -> None:
    client.put(PLACE, content=PNG)
    with prep(redis_client, {"png": b"pixels", "report": pack({"soft_tokens": 130})}) as asked:
        started = time.monotonic()
        seen = client.get(f"{PLACE}/seen.png")
        assert time.monotonic() - started < 1.5, "it is woken, and does not poll"
        report = client.get(f"{PLACE}/report")
    assert (seen.status_code, seen.content, seen.headers["content-type"]) == (200, b"pixels", "image/png")
    assert report.json() == {"object": "image.report", "sha256": SHA, "soft_tokens": 130}
    assert asked == [f"show-{SHA}"]


def test_a_view_is_asked_for_by_the_query(client: TestClient, redis_client: redis.Redis) -> None:
    client.put(PLACE, content=PNG)
    view = "frame=2&dpi=150&background=aabbcc&budget=auto"
    params: dict[str, str | int] = {"page": 3, "dpi": 150, "background": "#AABBCC", "budget": "auto"}
    with prep(redis_client, {f"png?{view}": b"that view", "png": b"plain"}) as asked:
        seen = client.get(f"{PLACE}/seen.png", params=params)
        assert client.get(f"{PLACE}/seen.png").content == b"plain"
    assert seen.content == b"that view"
    assert len(asked) == 1
    assert asked[0].startswith(f"show-{SHA}-")
    assert client.get(f"{PLACE}/seen.png?budget=150").status_code == 422
    refused = client.get(f"{PLACE}/report?page=0")
    assert (refused.status_code, refused.json()["loc"]) == (422, ["page"])


@pytest.mark.parametrize(
    ("code", "status"), [("image_undecodable", 422), ("image_too_large", 413), ("image_expired", 404)]
)
def test_what_prep_refuses(client: TestClient, redis_client: redis.Redis, code: str, status: int) -> None:
    client.put(PLACE, content=PNG)
    with prep(redis_client, {"error": pack({"code": code, "message": "damaged"})}):
        for path in ("seen.png", "report"):
            response = client.get(f"{PLACE}/{path}")
            assert (response.status_code, response.json()["code"]) == (status, code)


@pytest.mark.parametrize("path", ["seen.png", "report"])
def test_nobody_sees_a_picture_that_they_never_sent(
    settings: GatewaySettings, redis_client: redis.Redis, tmp_path: Path, path: str
) -> None:
    file = tmp_path / "keys"
    file.write_text("".join(f"{name}:{hashlib.sha256(name.encode()).hexdigest()}\n" for name in ("ann", "bob")))
    ann, bob = ({"authorization": f"Bearer {name}"} for name in ("ann", "bob"))
    with TestClient(create_app(replace(settings, api_keys=file), POLICY)) as client:
        client.put(PLACE, content=PNG, headers=ann)
        redis_client.hset(keys.shown(SHA), mapping={"png": b"pixels", "report": pack({})})
        assert client.get(f"{PLACE}/{path}", headers=ann).status_code == 200
        response = client.get(f"{PLACE}/{path}", headers=bob)
        assert (response.status_code, response.json()["code"]) == (404, "image_expired")
        assert client.get(f"/v1/images/short/{path}", headers=ann).status_code == 404
        assert client.delete(PLACE, headers=bob).status_code == 404
        assert client.delete(PLACE, headers=ann).status_code == 204
        assert client.get(f"{PLACE}/{path}", headers=ann).status_code == 404


def test_without_a_prep_worker(
    settings: GatewaySettings, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("photocall_gateway.app.Shows", lambda client, queues, wakes: Shows(client, queues, wakes, 0.2))
    with TestClient(create_app(settings, POLICY), base_url="http://localhost") as client:
        client.put(PLACE, content=PNG)
        response = client.get(f"{PLACE}/seen.png")
        assert (response.status_code, response.json()["code"]) == (503, "unavailable")
        assert int(response.headers["retry-after"]) > 0

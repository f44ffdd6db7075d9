"""A Redis that fills up: nothing more is accepted, what was accepted is answered, and room that comes back is used."""

from __future__ import annotations

import base64
import contextlib
import secrets
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import redis
from redis.exceptions import OutOfMemoryError
from starlette.testclient import TestClient

from photocall import keys
from photocall.connections import connect
from photocall.redis_server import RedisServer, find_binary
from photocall.settings import GatewaySettings
from photocall_gateway.app import create_app
from tests.gateway.conftest import KEY, POLICY
from tests.gateway.fake_backend import FakeBackend
from tests.small_disk import mounted

QUESTIONS = {"q": {"type": "noul", "instructions": "Is it?"}}
TEXT = {"state": "text", "questions": QUESTIONS}
ROOM = 3 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    with mounted(tmp_path / "disk", "8m") as disk:
        yield disk


@contextmanager
def on_disk(disk: Path, run_dir: Path) -> Iterator[RedisServer]:
    """A server whose append-only file is there; with `always` it would end at the first write that fails."""
    server = RedisServer(find_binary(), run_dir, disk / "redis")
    command = server.command()
    command[command.index("--appendfsync") + 1] = "everysec"
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        server.wait_ready()
        yield server
    finally:
        child.kill()
        child.wait(10)


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


def test_the_disk_of_redis_fills_up_and_empties(
    settings: GatewaySettings, small_disk: Path, eventually: Callable[..., Any]
) -> None:
    """Redis refuses writes then by an error that the library has no name for: a 500 for callers, failures for jobs."""
    with (
        tempfile.TemporaryDirectory(prefix="pc-") as run_dir,
        on_disk(small_disk, Path(run_dir)) as server,
        FakeBackend(server.url, KEY.encode(), POLICY) as backend,
        TestClient(create_app(replace(settings, redis_url=server.url), POLICY), base_url="http://localhost") as client,
    ):
        store = connect(server.url)
        backend.announce(ready=True)
        backend.hold.set()
        waiting = client.post("/v1/jobs", json=TEXT).json()["id"]
        taken = small_disk / "taken by others"
        with contextlib.suppress(OSError):
            taken.write_bytes(bytes(16 << 20))
        for _ in range(3):  # what is answered before it is on the disk
            with contextlib.suppress(OutOfMemoryError):
                store.set("filler", bytes(8192))
        with pytest.raises(OutOfMemoryError):
            store.set("filler", b"")
        full = client.post("/v1/jobs", json={**TEXT, "state": "more"})
        assert (full.status_code, full.json()["code"]) == (507, "store_full")
        assert client.post("/v1/systemone", json={**TEXT, "state": "more"}).status_code == 529
        assert client.get(f"/v1/jobs/{waiting}").json()["status"] == "queued"
        unfit = client.get("/readyz")
        assert unfit.status_code == 503
        assert "append-only" in unfit.json()["store"]["faults"][0]
        taken.unlink()
        eventually(lambda: client.get("/readyz").status_code == 200)
        backend.hold.clear()
        done = client.get(f"/v1/jobs/{waiting}", headers={"prefer": "wait=20"}).json()
        assert done["status"] == "succeeded"
        assert client.post("/v1/jobs", json=picture(), headers={"prefer": "wait=20"}).json()["status"] == "succeeded"
        store.close()

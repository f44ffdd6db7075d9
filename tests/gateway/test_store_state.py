"""What is found out about the store: said at the start, shown by /readyz, and no readiness on one that forgets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
import redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from starlette.testclient import TestClient

from photocall_gateway.store_state import StoreState, read_store, say_store
from tests.gateway.fake_backend import FakeBackend

GOOD = StoreState("noeviction", "always", True, 1000, 2000)


@pytest.fixture
def settings_of(redis_client: redis.Redis) -> Iterator[redis.Redis]:
    """A client whose changes of the server's settings are taken back."""
    names = ("maxmemory-policy", "appendfsync", "appendonly", "maxmemory")
    before = {name: cast(Any, redis_client.config_get(name))[name] for name in names}
    yield redis_client
    for name, value in before.items():
        redis_client.config_set(name, value)


def test_a_store_that_may_evict_is_not_ready(
    client: TestClient, backend: FakeBackend, settings_of: redis.Redis
) -> None:
    backend.announce(ready=True)
    ready = client.get("/readyz")
    store = ready.json()["store"]
    assert ready.status_code == 200
    assert (store["eviction"], store["fsync"], store["faults"], store["warnings"]) == ("noeviction", "always", [], [])
    settings_of.config_set("maxmemory", 1 << 30)
    settings_of.config_set("maxmemory-policy", "allkeys-lru")
    evicting = client.get("/readyz")
    assert (evicting.status_code, evicting.json()["ready"], evicting.json()["redis"]) == (503, False, True)
    assert "allkeys-lru" in evicting.json()["store"]["faults"][0]
    assert "photocall_store_max_bytes 1.073741824e+09" in client.get("/metrics").text
    settings_of.config_set("maxmemory-policy", "noeviction")
    assert client.get("/readyz").status_code == 200


@pytest.mark.parametrize("fsync", ["everysec", "no"])
def test_what_a_crash_would_cost_is_a_warning(
    client: TestClient, backend: FakeBackend, settings_of: redis.Redis, fsync: str
) -> None:
    backend.announce(ready=True)
    settings_of.config_set("appendfsync", fsync)
    found = client.get("/readyz")
    assert (found.status_code, found.json()["store"]["fsync"]) == (200, fsync)
    assert fsync in found.json()["store"]["warnings"][0]


def test_no_append_only_file_is_a_warning_and_a_failed_write_a_fault() -> None:
    assert (GOOD.faults, GOOD.warnings) == ([], [])
    assert "append-only" in replace(GOOD, fsync="off").warnings[0]
    assert "failed" in replace(GOOD, writes=False).faults[0]
    assert replace(GOOD, eviction="allkeys-lru", max_bytes=0).faults == []  # without a bound nothing is evicted


class FakeServer:
    """Answers INFO as told; a hosted server may refuse CONFIG."""

    def __init__(self, *replies: Any) -> None:
        self._replies = list(replies)

    def pipeline(self, transaction: bool) -> FakeServer:
        return self

    async def __aenter__(self) -> FakeServer:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    def info(self, section: str) -> None: ...

    def config_get(self, name: str) -> None: ...

    async def execute(self, raise_on_error: bool) -> Any:
        reply = self._replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply


MEMORY = {"used_memory": 5, "maxmemory": 10, "maxmemory_policy": "volatile-ttl"}
HOSTED = [MEMORY, {"aof_enabled": 1, "aof_last_write_status": "ok"}, ResponseError("unknown command 'CONFIG'")]


def test_a_server_that_refuses_config_is_read_all_the_same() -> None:
    found = asyncio.run(read_store(cast(Any, FakeServer(HOSTED))))
    assert found == StoreState("volatile-ttl", "unknown", True, 5, 10)


def test_the_start_says_what_it_found_once_redis_is_there(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    away = RedisConnectionError("away")
    with caplog.at_level(logging.INFO, "photocall_gateway.store_state"):
        asyncio.run(say_store(cast(Any, FakeServer(away, away, away, HOSTED))))
    *_, found, fault = caplog.records
    assert (found.levelno, fault.levelno) == (logging.INFO, logging.ERROR)
    assert "volatile-ttl" in fault.getMessage()
    assert len(waits) == 3
    assert 0 < waits[0] < waits[2], "it asks at once, and again and again"

"""GET /v1/status: the service at a glance; totals for everybody, and of the queue the caller's own part."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import redis
import redis.asyncio
from starlette.testclient import TestClient

from photocall import keys
from photocall.connections import connect_async
from photocall.messages import EngineInfo
from photocall.redis_server import RedisServer, find_binary
from photocall.settings import GatewaySettings
from photocall.wire import Wire
from photocall_gateway.app import create_app
from photocall_gateway.load import Load
from photocall_gateway.readiness import Readiness
from photocall_gateway.vitals import LATENCY_JOBS, LATENCY_WINDOW_S, WINDOW_S, Vitals
from tests import redis_child
from tests.gateway.conftest import POLICY
from tests.gateway.fake_backend import FakeBackend
from tests.gateway.key_helper import bearer, keyed

TEXT = {"state": "text", "questions": {"q": {"type": "noul", "instructions": "Is it?"}}}
TTL_S = 100.0
NOW = 1_000_000.0
WIRE = Wire(b"k", "engine")


def test_an_empty_service_says_so_and_its_rates_are_unknown(client: TestClient) -> None:
    body = client.get("/v1/status").json()
    assert (body["object"], body["model"], body["ready"], body["engines"]) == ("status", "photocall-mini", False, [])
    assert body["queue"] == {"depth": 0, "bytes": 0, "eta_s": None, "yours": 0}
    assert set(body["rates"].values()) == {None}
    assert body["latency"] == {"window_s": LATENCY_WINDOW_S, "count": 0, "p50_ms": None, "p90_ms": None}


def test_answered_jobs_have_a_latency_and_an_engine_its_pages(client: TestClient, backend: FakeBackend) -> None:
    backend.announce()
    assert client.post("/v1/jobs", json=TEXT, headers={"prefer": "wait=10"}).json()["status"] == "succeeded"
    response = client.get("/v1/status")
    body = response.json()
    assert response.headers["cache-control"] == "no-store"
    assert body["ready"] is True
    assert (body["engines"][0]["pages_free"], body["engines"][0]["pages_total"]) == (100, 100)
    assert body["latency"]["count"] == 1
    assert 0 < body["latency"]["p50_ms"] == body["latency"]["p90_ms"] < 10_000


def test_each_key_sees_its_own_part_of_the_queue_and_none_needs_a_scope(
    settings: GatewaySettings, backend: FakeBackend
) -> None:
    backend.hold.set()
    with TestClient(create_app(keyed(settings, ann="ask", bob="batch"), POLICY), base_url="http://x") as http:
        for _ in range(2):
            assert http.post("/v1/jobs", json=TEXT, headers=bearer("ann")).status_code == 202
        ann, bob = (http.get("/v1/status", headers=bearer(name)).json()["queue"] for name in ("ann", "bob"))
        assert (ann["depth"], ann["yours"]) == (2, 2)
        assert (bob["depth"], bob["yours"]) == (2, 0)
        assert http.get("/v1/status").status_code == 401


def test_a_store_that_is_away_is_said(settings: GatewaySettings, redis_server: RedisServer) -> None:
    gone = replace(settings, redis_url=f"unix://{settings.data}/none.sock")
    with TestClient(create_app(gone, POLICY), base_url="http://localhost") as http:
        response = http.get("/v1/status")
    body = response.json()
    assert (response.status_code, body["ready"], body["redis"], body["engines"]) == (200, False, False, [])
    assert body["queue"] == {"depth": None, "bytes": None, "eta_s": None, "yours": None}
    assert set(body["rates"].values()) == {None}
    assert body["latency"] == {"window_s": LATENCY_WINDOW_S, "count": None, "p50_ms": None, "p90_ms": None}


class Leaving(redis.asyncio.UnixDomainSocketConnection):
    """Sends as many more commands as it is told, all connections together; from then on the server is gone."""

    left = 1_000_000

    async def connect(self) -> None:
        self._leave(0)
        await super().connect()  # type: ignore[no-untyped-call]

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        self._leave(1)
        await super().send_packed_command(command, check_health)

    @classmethod
    def _leave(cls, sent: int) -> None:
        if cls.left <= 0:
            raise redis.exceptions.ConnectionError("it is gone")
        cls.left -= sent


def test_a_store_that_goes_between_two_reads_is_as_away_as_one_that_was(
    redis_server: RedisServer, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was a 503. Whichever command is the last, what is shown is what is shown where there is none."""
    info = EngineInfo("e", "m", "cpu", True, 0, 8, 1, 1, 1.0, 0, 0, 0, 0)
    redis_client.set(keys.heartbeat("e"), WIRE.encode(info))
    redis_client.zadd(keys.ENGINES, {"e": NOW})
    redis_client.zadd(keys.ENDED, {"ann/job_1": NOW + TTL_S})
    path = redis_server.url.removeprefix("unix://").partition("?")[0]

    async def look(commands: int) -> dict[str, Any]:
        monkeypatch.setattr(Leaving, "left", commands)
        client = redis.asyncio.Redis.from_pool(redis.asyncio.ConnectionPool(connection_class=Leaving, path=path))
        load = Load(client, TTL_S, lambda: NOW, lambda: NOW)
        vitals = Vitals(client, Readiness(client, WIRE), load, TTL_S, lambda: NOW, lambda: NOW)
        try:
            return await vitals.shown_to("ann")
        finally:
            await client.aclose()

    found = [asyncio.run(look(commands)) for commands in range(24)]
    away, whole = found[0], found[-1]
    assert (away["redis"], away["store"], away["queue"]["depth"], away["engines"]) == (False, None, None, [])
    assert (whole["redis"], whole["queue"]["yours"], len(whole["engines"])) == (True, 0, 1)
    gone = [body for body in found if not body["redis"]]
    assert gone == [away] * len(gone)
    assert len(gone) >= 8, "there are so many reads to go between"
    assert all(body["redis"] for body in found[len(gone) :])


def test_a_store_that_is_killed_while_it_is_asked(settings: GatewaySettings, tmp_path: Path) -> None:
    with TemporaryDirectory(prefix="pc-") as run_dir:
        server = RedisServer(find_binary(), Path(run_dir), tmp_path / "redis")
        child = redis_child.start(server)
        app = create_app(replace(settings, redis_url=server.url), POLICY)
        pace_s = Load.pace_s

        async def killed(load: Load) -> float | None:
            child.kill()
            child.wait(10)
            return await pace_s(load)

        try:
            with TestClient(app, base_url="http://localhost") as http, pytest.MonkeyPatch.context() as patch:
                patch.setattr(Load, "pace_s", killed)
                response = http.get("/v1/status")
        finally:
            child.kill()
            child.wait(10)
    body = response.json()
    assert (response.status_code, body["ready"], body["redis"], body["engines"]) == (200, False, False, [])
    assert body["queue"] == {"depth": None, "bytes": None, "eta_s": None, "yours": None}


class Watch:
    """Vitals at moments of the test's choosing, of engines that say what the test wants."""

    def __init__(self, server: RedisServer, blocking: redis.Redis) -> None:
        self._url = server.url
        self._redis = blocking
        self.now = NOW
        self.set_back = 0.0  # by how much the wall's clock is behind since

    def beat(self, steps: int, rows: int, answered: int, pictures: int, started_at: float = 1.0) -> None:
        info = EngineInfo("e", "m", "cpu", True, 0, 8, 1, 1, started_at, steps, rows, answered, pictures)
        self._redis.set(keys.heartbeat("e"), WIRE.encode(info))
        self._redis.zadd(keys.ENGINES, {"e": NOW})

    def looks(self, *steps: Any) -> list[dict[str, Any]]:
        """What is shown after each of these is done; a number passes so many seconds."""

        async def run() -> list[dict[str, Any]]:
            client = connect_async(self._url)
            now, clock = (lambda: self.now - self.set_back), (lambda: self.now)
            load = Load(client, TTL_S, now, clock)
            vitals = Vitals(client, Readiness(client, WIRE), load, TTL_S, now, clock)
            found = []
            try:
                for step in steps:
                    if callable(step):
                        step()
                    else:
                        self.now += step
                    found.append((await asyncio.gather(*(vitals.shown() for _ in range(3))))[0])
            finally:
                await client.aclose()
            return found

        return asyncio.run(run())


@pytest.fixture
def watch(redis_server: RedisServer, redis_client: redis.Redis) -> Watch:
    return Watch(redis_server, redis_client)


def test_rates_are_of_the_last_half_minute(watch: Watch) -> None:
    watch.beat(100, 1000, 50, 10)

    def later() -> None:
        watch.now += 10
        watch.beat(120, 3000, 70, 15)

    first, second = watch.looks(0, later)
    assert first["rates"]["images_per_s"] is None, "one look measures nothing"
    assert second["rates"] == {"window_s": 10.0, "requests_per_s": 2.0, "images_per_s": 0.5, "rows_per_step": 100.0}
    (_, idle, long_after) = watch.looks(0, 5, WINDOW_S * 3)
    assert (idle["rates"]["images_per_s"], idle["rates"]["rows_per_step"]) == (0.0, None)
    assert long_after["rates"]["images_per_s"] is None, "the last look is too long ago to measure from"


def test_an_engine_that_began_anew_counts_from_nothing(watch: Watch) -> None:
    """Its counts are below those of the one before it: a difference of the two was negative."""
    watch.beat(1000, 1000, 500, 500)

    def restarted() -> None:
        watch.now += 10
        watch.beat(4, 40, 20, 30, started_at=2.0)

    _, after = watch.looks(0, restarted)
    assert after["rates"] == {"window_s": 10.0, "requests_per_s": 2.0, "images_per_s": 3.0, "rows_per_step": 10.0}


def test_a_clock_that_is_set_back_leaves_no_old_figures(watch: Watch, redis_client: redis.Redis) -> None:
    """By the wall's clock what was read stayed fresh until that came to where it had been: an hour."""

    def back() -> None:
        watch.now += 10
        watch.set_back = 3600.0
        watch.beat(120, 3000, 70, 15)
        redis_client.hset(keys.DEPTH, "jobs", 7)
        redis_client.zadd(keys.ENDED, {f"ann/{i}": NOW - 3600 + TTL_S for i in range(60)})

    watch.beat(100, 1000, 50, 10)
    first, second = watch.looks(0, back)
    assert (first["queue"]["depth"], first["queue"]["eta_s"]) == (0, None)
    assert (second["queue"]["depth"], second["queue"]["eta_s"]) == (7, 7.0), "the pace is read anew too"
    assert second["rates"] == {"window_s": 10.0, "requests_per_s": 2.0, "images_per_s": 0.5, "rows_per_step": 100.0}


def test_redis_is_asked_once_a_second_however_many_look(watch: Watch, redis_client: redis.Redis) -> None:
    def calls() -> int:
        info: Any = redis_client.info("commandstats")
        return int(info.get("cmdstat_hmget", {"calls": 0})["calls"])

    redis_client.config_resetstat()
    watch.looks(0, 0.2, 0.2)
    assert calls() == 1
    watch.looks(0, 1.5)
    assert calls() == 3


def test_latency_is_of_a_bounded_number_of_jobs_that_were_answered_of_late(
    watch: Watch, redis_client: redis.Redis
) -> None:
    def end(name: str, ago_s: float, took_s: float, status: str = "succeeded") -> None:
        redis_client.zadd(keys.ENDED, {f"ann/{name}": NOW - ago_s + TTL_S})
        times: dict[Any, Any] = {"status": status, "created_at": NOW - ago_s - took_s, "completed_at": NOW - ago_s}
        redis_client.hset(keys.job(name), mapping=times)

    for i in range(10):
        end(f"j{i}", 10, (i + 1) / 10)
    end("failed", 5, 99, "failed")
    end("old", LATENCY_WINDOW_S + 1, 99)
    redis_client.zadd(keys.ENDED, {"ann/deleted": NOW + TTL_S})
    (shown,) = watch.looks(0)
    assert shown["latency"] == {"window_s": LATENCY_WINDOW_S, "count": 10, "p50_ms": 500.0, "p90_ms": 900.0}
    for i in range(2 * LATENCY_JOBS):
        end(f"more{i}", 1, 2.0)
    (shown,) = watch.looks(0)
    assert shown["latency"]["count"] == LATENCY_JOBS - 1, "the deleted one was looked at too"
    assert shown["latency"]["p50_ms"] == 2000.0

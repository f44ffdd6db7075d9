"""The gateway as a process: start, drain on SIGTERM, a Redis that goes and comes back."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import uvicorn

from photocall.redis_server import RedisServer, find_binary
from photocall.settings import GatewaySettings
from photocall_gateway.__main__ import Server
from photocall_gateway.app import create_app
from photocall_gateway.draining import Drain
from tests.gateway.conftest import KEY, POLICY
from tests.gateway.fake_backend import FakeBackend

TEXT = {"state": "text", "questions": {"q": {"type": "noul", "instructions": "Is it?"}}}


class Process:
    """A gateway process and its log."""

    def __init__(self, **environment: str) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PHOTOCALL_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "photocall_gateway"],
            env={**inherited, "PHOTOCALL_PORT": "0", "PHOTOCALL_SIGNING_KEY": KEY, **environment},
            stderr=subprocess.PIPE,
            text=True,
        )
        self.log: list[str] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.log.extend(iter(self.process.stderr.readline, ""))

    def address(self) -> str:
        until = time.monotonic() + 60
        while time.monotonic() < until and self.process.poll() is None:
            for line in self.log:
                if found := re.search(r"listening address=(\S+)", line):
                    return f"http://{found.group(1)}"
            time.sleep(0.02)
        raise AssertionError("".join(self.log))

    def end(self, timeout_s: float = 15) -> int:
        """The exit status."""
        status = self.process.wait(timeout_s)
        self._reading.join(5)
        return status


@contextlib.contextmanager
def running(**environment: str) -> Iterator[Process]:
    process = Process(**environment)
    try:
        yield process
    finally:
        process.process.kill()
        process.end()
        assert process.process.stderr is not None
        process.process.stderr.close()


def test_sigterm_finishes_open_calls_refuses_new_writes_and_exits_0(
    redis_server: RedisServer, eventually: Callable[..., Any]
) -> None:
    with (
        FakeBackend(redis_server.url, KEY.encode(), POLICY) as backend,
        running(PHOTOCALL_REDIS_URL=redis_server.url) as gateway,
        httpx.Client(base_url=gateway.address(), trust_env=False, timeout=15) as http,
        ThreadPoolExecutor(2) as pool,
    ):
        backend.hold.set()
        waiting = pool.submit(http.post, "/v1/systemone", json=TEXT)
        job_id = http.post("/v1/jobs", json={**TEXT, "state": "other"}).json()["id"]
        polling = pool.submit(http.get, f"/v1/jobs/{job_id}", headers={"prefer": "wait=10"})
        eventually(lambda: "photocall_waiting_calls 2.0" in http.get("/metrics").text)
        gateway.process.send_signal(signal.SIGTERM)
        eventually(lambda: any("draining" in line for line in gateway.log))
        refused = http.post("/v1/jobs", json=TEXT)
        assert (refused.status_code, refused.json()["code"]) == (503, "draining")
        assert "retry-after" in refused.headers
        backend.hold.clear()
        assert waiting.result().status_code == 200
        assert polling.result().json()["status"] == "succeeded"
        assert gateway.end() == 0
    assert any("draining" in line for line in gateway.log)
    assert not any("Traceback" in line for line in gateway.log)


def test_a_drain_does_not_wait_for_ever(redis_server: RedisServer) -> None:
    with (
        running(PHOTOCALL_REDIS_URL=redis_server.url, PHOTOCALL_DRAIN_S="0.5") as gateway,
        httpx.Client(base_url=gateway.address(), trust_env=False, timeout=30) as http,
        ThreadPoolExecutor(1) as pool,
    ):
        waiting = pool.submit(http.post, "/v1/jobs", json=TEXT, headers={"prefer": "wait=60"})
        time.sleep(0.3)
        gateway.process.send_signal(signal.SIGTERM)
        started = time.monotonic()
        assert gateway.end() == 0
        assert time.monotonic() - started < 10
        with contextlib.suppress(httpx.HTTPError):
            waiting.result()
    assert any("calls are left open" in line for line in gateway.log)


async def hang() -> None:
    await asyncio.Event().wait()


def test_calls_and_batches_have_one_drain_together() -> None:
    """It took two: what open calls had used up was given again to batches that were not handed back."""

    async def scenario() -> float:
        drain = Drain()
        drain.enter()  # a call that stays open
        parts: Any = SimpleNamespace(
            drain=drain,
            settings=SimpleNamespace(drain_s=2.0, drain_notice_s=0.0),
            wakes=SimpleNamespace(wake_all=lambda: None),
            desk=SimpleNamespace(keeper=SimpleNamespace(stop=hang)),
        )
        server = Server(uvicorn.Config("unused"), parts)
        started = time.monotonic()
        await server._drain()
        assert server.should_exit
        return time.monotonic() - started

    assert 1.9 < asyncio.run(scenario()) < 3.5


def test_batches_that_hang_do_not_keep_the_end(settings: GatewaySettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("photocall_gateway.app.END_S", 0.1)

    async def scenario() -> None:
        app = create_app(settings, POLICY)
        async with app.router.lifespan_context(app):
            keeper = app.state.services.desk.keeper
            runner: Any = SimpleNamespace(stop=lambda: None)
            hanging = keeper._running["x"] = runner, asyncio.create_task(hang())
        assert not hanging[1].done(), "left where it is"

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_a_second_signal_ends_at_once(redis_server: RedisServer) -> None:
    with (
        running(PHOTOCALL_REDIS_URL=redis_server.url, PHOTOCALL_DRAIN_S="60") as gateway,
        httpx.Client(base_url=gateway.address(), trust_env=False, timeout=30) as http,
        ThreadPoolExecutor(1) as pool,
    ):
        waiting = pool.submit(http.post, "/v1/jobs", json=TEXT, headers={"prefer": "wait=60"})
        time.sleep(0.3)
        gateway.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        gateway.process.send_signal(signal.SIGTERM)
        started = time.monotonic()
        assert gateway.end() == 0
        assert time.monotonic() - started < 5
        with contextlib.suppress(httpx.HTTPError):
            waiting.result()


@contextlib.contextmanager
def redis_up(server: RedisServer) -> Iterator[None]:
    """The server runs inside, and its data stays."""
    process = subprocess.Popen(server.command(), stdout=subprocess.DEVNULL)
    try:
        server.wait_ready()
        yield
    finally:
        process.terminate()
        process.wait(10)


def test_redis_gone_for_a_while() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="pc-") as directory,
        running(PHOTOCALL_REDIS_URL=f"unix://{directory}/redis.sock") as gateway,
        httpx.Client(base_url=gateway.address(), trust_env=False, timeout=15) as http,
    ):
        server = RedisServer(find_binary(), Path(directory), Path(directory) / "state")
        with redis_up(server):
            job_id = http.post("/v1/jobs", json=TEXT).json()["id"]
        for method, path in (("POST", "/v1/jobs"), ("GET", f"/v1/jobs/{job_id}"), ("POST", "/v1/systemone")):
            away = http.request(method, path, json=TEXT if method == "POST" else None)
            assert away.status_code == 503, path
            assert int(away.headers["retry-after"]) >= 1
        assert http.get("/healthz").status_code == 200
        with redis_up(server), FakeBackend(server.url, KEY.encode(), POLICY):
            done = http.get(f"/v1/jobs/{job_id}", headers={"prefer": "wait=10"}).json()
            assert done["status"] == "succeeded"
            assert http.post("/v1/systemone", json=TEXT).status_code == 200
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.end() == 0
    assert not any("Traceback" in line for line in gateway.log)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"PHOTOCALL_HOST": "0.0.0.0"}, "PHOTOCALL_HOST='0.0.0.0': expected a loopback address"),
        ({"PHOTOCALL_PORT": "http"}, "PHOTOCALL_PORT='http'"),
        ({"PHOTOCALL_API_KEYS": "/nonexistent"}, "PHOTOCALL_API_KEYS='/nonexistent'"),
    ],
)
def test_bad_settings_stop_the_start(environment: dict[str, str], message: str) -> None:
    with running(**environment) as gateway:
        assert gateway.end() == 2
    assert message in "".join(gateway.log)


def test_a_taken_port_is_said(redis_server: RedisServer) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        with running(PHOTOCALL_REDIS_URL=redis_server.url, PHOTOCALL_PORT=port) as gateway:
            assert gateway.end() == 3
    assert "address already in use" in "".join(gateway.log)

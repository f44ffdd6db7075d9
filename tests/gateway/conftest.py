"""A gateway for tests: the real app on the real Redis, in process or behind a real port, with a fake back end."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.testclient import TestClient

from photocall.operations import Policy
from photocall.redis_server import RedisServer
from photocall.settings import GatewaySettings
from photocall_gateway import courier
from photocall_gateway.app import create_app
from tests.gateway.fake_backend import FakeBackend

KEY = "test-signing-key"
POLICY = Policy(max_jobs=50, max_jobs_per_owner=50)


@pytest.fixture(scope="session", autouse=True)
def ends_quickly() -> Iterator[None]:
    """A courier looks whether it is to end between two waits: half a second at the end of nearly every test here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(courier, "BLOCK_S", 0.05)
        yield


@pytest.fixture
def settings(redis_server: RedisServer, tmp_path: Path) -> GatewaySettings:
    return GatewaySettings(redis_url=redis_server.url, signing_key_hex=KEY, data=tmp_path, max_body_bytes=1 << 20,
                           max_decompressed_bytes=2 << 20, max_image_bytes=1 << 19, drain_s=3.0)  # fmt: skip


@pytest.fixture
def backend(redis_server: RedisServer) -> Iterator[FakeBackend]:
    with FakeBackend(redis_server.url, KEY.encode(), POLICY) as fake:
        yield fake


@pytest.fixture
def client(settings: GatewaySettings) -> Iterator[TestClient]:
    """Calls the app in process, as a caller on this machine."""
    with TestClient(create_app(settings, POLICY), base_url="http://127.0.0.1:8080") as found:
        yield found


@contextlib.contextmanager
def served(
    settings: GatewaySettings, policy: Policy = POLICY, abandoned_after_s: float = 8.0, ping_s: float = 20.0
) -> Iterator[str]:
    """The app behind a real uvicorn on a free loopback port; gives its address."""
    app = create_app(settings, policy, abandoned_after_s)
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=0,
        log_config=None,
        access_log=False,
        lifespan="on",
        ws="websockets-sansio",
        ws_max_size=settings.max_body_bytes,
        ws_ping_interval=ping_s,
        ws_ping_timeout=ping_s,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until = time.monotonic() + 30
    while not server.started:
        assert time.monotonic() < until, "the server did not start"
        assert thread.is_alive(), "the server ended at its start"
        time.sleep(0.01)
    try:
        yield "http://{}:{}".format(*server.servers[0].sockets[0].getsockname())
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive(), "the server did not stop"


@pytest.fixture
def address(settings: GatewaySettings) -> Iterator[str]:
    with served(settings) as found:
        yield found


@pytest.fixture
def http(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=address, trust_env=False, timeout=30) as found:
        yield found


@pytest.fixture
def eventually() -> Callable[[Callable[[], Any], float], Any]:
    """Calls until the result is true; gives it. Fails when the time is over."""

    def wait(check: Callable[[], Any], timeout_s: float = 30.0) -> Any:
        until = time.monotonic() + timeout_s
        while not (found := check()):
            assert time.monotonic() < until, "it did not happen in time"
            time.sleep(0.02)
        return found

    return wait

"""Fixtures of every room. Redis is a real one: a private server on a unix socket, each write on its disk at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

# Before anything imports torch: threads that spin for a core that another process has make the engine's tests crawl.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
# Triton's own functions are interpreted or compiled as they are first imported, which transformers does as well.
if not Path("/dev/nvidiactl").exists():
    os.environ["TRITON_INTERPRET"] = "1"

import pytest
import redis

from photocall.connections import connect
from photocall.redis_server import RedisServer


@pytest.fixture(scope="session")
def redis_process() -> Iterator[RedisServer]:
    """One server for the whole run."""
    with RedisServer.start_temporary() as server:
        yield server


@pytest.fixture
def redis_server(redis_process: RedisServer) -> Iterator[RedisServer]:
    """The server, empty and with its own settings; `.url` is what clients take."""
    client = connect(redis_process.url)
    client.config_set("maxmemory", 0)
    client.flushall()
    yield redis_process
    client.close()


@pytest.fixture
def redis_client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    """A client of the empty server."""
    client = connect(redis_server.url)
    yield client
    client.close()

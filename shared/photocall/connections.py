"""Connections to Redis: one place for timeouts and for the traps of the client library."""

from __future__ import annotations

import redis
import redis.asyncio
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

# Longer than every blocking read of the project (3 s at most), so that a dead server is noticed and a quiet one is not.
TIMEOUT_S = 10.0
BLOCK_S = 3.0


def connect(url: str) -> redis.Redis:
    """A client for worker processes. Values are bytes; a lost connection is tried again once, then raised."""
    return redis.Redis.from_url(
        url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S, retry=Retry(ExponentialBackoff(cap=0.5), 1)
    )


def connect_async(url: str, max_connections: int = 64) -> redis.asyncio.Redis:
    """A client for the gateway. A call waits for a free connection of the pool rather than fail."""
    pool = redis.asyncio.BlockingConnectionPool.from_url(
        url,
        max_connections=max_connections,
        timeout=TIMEOUT_S,
        socket_timeout=TIMEOUT_S,
        socket_connect_timeout=TIMEOUT_S,
    )
    return redis.asyncio.Redis.from_pool(pool)

"""Connections to Redis: one place for timeouts and for the traps of the client library."""

from __future__ import annotations

import redis
import redis.asyncio
from redis._parsers import BaseParser
from redis.backoff import ExponentialBackoff
from redis.exceptions import OutOfMemoryError
from redis.retry import Retry

# Longer than every blocking read of the project (3 s at most), so that a dead server is noticed and a quiet one is not.
TIMEOUT_S = 10.0
BLOCK_S = 3.0


def connect(url: str) -> redis.Redis:
    """A client for worker processes. Values are bytes; a lost connection is tried again once, then raised.

    A server that takes no writes, for want of memory or of disk, raises OutOfMemoryError.
    """
    _name_refusals()
    return redis.Redis.from_url(
        url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S, retry=Retry(ExponentialBackoff(cap=0.5), 1)
    )


def connect_async(url: str, max_connections: int = 64) -> redis.asyncio.Redis:
    """`connect` for the gateway. A call waits for a free connection of the pool rather than fail."""
    _name_refusals()
    pool = redis.asyncio.BlockingConnectionPool.from_url(
        url,
        max_connections=max_connections,
        timeout=TIMEOUT_S,
        socket_timeout=TIMEOUT_S,
        socket_connect_timeout=TIMEOUT_S,
    )
    return redis.asyncio.Redis.from_pool(pool)


def _name_refusals() -> None:
    """The library has no name for a server that cannot write its append-only file: to us it is full like any other.

    Without one it is the error of a wrong command, which fails whatever was being written instead of waiting. The
    library's table is the only place that the parsers of both kinds of client share.
    """
    BaseParser.EXCEPTION_CLASSES["MISCONF"] = OutOfMemoryError

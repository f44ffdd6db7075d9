"""The first upload under an Idempotency-Key: while its body is read, a second one is told to come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import redis.asyncio
from redis.exceptions import RedisError
from starlette.requests import Request

from photocall import keys
from photocall.errors import CodedError
from photocall.questions import InvalidField
from photocall_gateway.tasks import stop

MAX_KEY = 255
MARK_S = 6  # as long as a lease


def idempotency_key(request: Request) -> str | None:
    """The header, checked. Raises InvalidField."""
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    if not 1 <= len(key) <= MAX_KEY:
        raise InvalidField(("Idempotency-Key",), f"Expected 1 to {MAX_KEY} characters", "key_length")
    return key


@asynccontextmanager
async def first_upload(client: redis.asyncio.Redis, owner: str, key: str | None) -> AsyncIterator[None]:
    """Open while a body is read and accepted. Raises CodedError `in_progress` while another's is, under the same key.

    Once a job is known under the key there is nothing to wait for: the record decides. Should this process die, or the
    store go away before the mark is taken back, it ends by itself in seconds.
    """
    if key is None or await cast(Any, client.exists(keys.idempotency(owner, key))):
        yield
        return
    mark = keys.uploading(owner, key)
    if not await client.set(mark, b"1", nx=True, ex=MARK_S):
        raise CodedError("in_progress", "The first request with this Idempotency-Key is still being read")
    keeping = asyncio.create_task(_keep(client, mark))
    try:
        yield
    finally:
        await stop(keeping)
        with suppress(RedisError, OSError):
            await cast(Any, client.delete(mark))


async def _keep(client: redis.asyncio.Redis, mark: str) -> None:
    while True:
        await asyncio.sleep(MARK_S / 3)
        with suppress(RedisError, OSError):
            await cast(Any, client.expire(mark, MARK_S))

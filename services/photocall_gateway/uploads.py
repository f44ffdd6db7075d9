"""The first upload under an Idempotency-Key: while its body is read, a second one is told to come back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import redis.asyncio
from starlette.requests import Request

from photocall import keys
from photocall.errors import CodedError
from photocall.questions import InvalidField
from photocall_gateway.reading import READ_TIMEOUT_S

MAX_KEY = 255


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

    Once a job is known under the key there is nothing to wait for: the record decides. The mark ends by itself should
    this process die.
    """
    if key is None or await cast(Any, client.exists(keys.idempotency(owner, key))):
        yield
        return
    mark = keys.uploading(owner, key)
    if not await client.set(mark, b"1", nx=True, ex=int(READ_TIMEOUT_S) + 15):
        raise CodedError("in_progress", "The first request with this Idempotency-Key is still being read")
    try:
        yield
    finally:
        await cast(Any, client.delete(mark))

"""Source pictures by the hash of their bytes, on the Redis with persistence.

The bytes are durable before a job that names them is accepted, and stay while a live job refers to them (the scripts
of the job record count); their time to live starts at the last release. A picture is stored once, but is unknown to a
caller that never uploaded it.
"""

from __future__ import annotations

import hashlib
import time
from typing import Any, cast

import redis
import redis.asyncio

from photocall import keys
from photocall.errors import HashMismatch, StoreFull
from photocall.scripts import Call, run, run_async

DEFAULT_TTL_S = 3600
MEMORY_SHARE = 0.8


class ImageStore:
    """Pictures over a synchronous client."""

    def __init__(self, client: redis.Redis, ttl_s: int = DEFAULT_TTL_S, memory_share: float = MEMORY_SHARE) -> None:
        self._redis = client
        self._ttl_s = ttl_s
        self._share = memory_share

    def put(self, sha256: str, data: bytes, owner: str) -> None:
        """Store bytes under their hash, for `owner`. Raises HashMismatch or StoreFull."""
        check(sha256, data)
        if not run(self._redis, _put(sha256, b"", owner, self._ttl_s, self._share)):
            run(self._redis, _put(sha256, data, owner, self._ttl_s, self._share))

    def get(self, sha256: str) -> bytes | None:
        """The bytes, or None when they are gone."""
        return cast("bytes | None", self._redis.hget(keys.image(sha256), "data"))

    def owned(self, sha256: str, owner: str) -> bool:
        """It is stored and this owner uploaded it."""
        return bool(self._redis.hexists(keys.image(sha256), f"owner:{owner}"))


class AsyncImageStore:
    """Pictures over an asyncio client; see ImageStore."""

    def __init__(
        self, client: redis.asyncio.Redis, ttl_s: int = DEFAULT_TTL_S, memory_share: float = MEMORY_SHARE
    ) -> None:
        self._redis = client
        self._ttl_s = ttl_s
        self._share = memory_share

    async def put(self, sha256: str, data: bytes, owner: str, kept: bool = False, brief: bool = False) -> None:
        """See ImageStore.put. A picture that is stored already is not sent again.

        `kept`: it was sent for itself, and does not go when a job with it is deleted. `brief`: it is wanted for its job
        only, and goes with it unless somebody else stores it meanwhile.
        """
        check(sha256, data)
        if not await run_async(self._redis, _put(sha256, b"", owner, self._ttl_s, self._share, kept, brief)):
            await run_async(self._redis, _put(sha256, data, owner, self._ttl_s, self._share, kept, brief))

    async def drop(self, sha256: str, owner: str) -> bool:
        """Forget a picture for an owner; False when it was not theirs. Live jobs keep what they need."""
        args = (owner, sha256, repr(time.time()))
        call = Call("drop_image", (keys.image(sha256), keys.FORGET), args, bool, job=False)
        return await run_async(self._redis, call)

    async def get(self, sha256: str) -> bytes | None:
        """See ImageStore.get."""
        return cast("bytes | None", await cast(Any, self._redis.hget(keys.image(sha256), "data")))

    async def owned(self, sha256: str, owner: str) -> bool:
        """See ImageStore.owned."""
        return bool(await cast(Any, self._redis.hexists(keys.image(sha256), f"owner:{owner}")))

    async def touch(self, sha256: str, owner: str) -> bool:
        """Whether it is stored and this owner's; then its time to live starts again."""
        if not await self.owned(sha256, owner):
            return False
        return await run_async(self._redis, _put(sha256, b"", owner, self._ttl_s, self._share))


def check(sha256: str, data: bytes) -> None:
    """Raises HashMismatch unless `sha256` is the hash of `data`."""
    actual = hashlib.sha256(data).hexdigest()
    if actual != sha256:
        raise HashMismatch(sha256, actual)


def _put(
    sha256: str, data: bytes, owner: str, ttl_s: int, share: float, kept: bool = False, brief: bool = False
) -> Call[bool]:
    def parse(found: list[Any]) -> bool:
        if found[0] == b"memory":
            raise StoreFull(int(found[1]), int(found[2]))
        return bool(found[0] == b"stored")

    args = (owner, ttl_s, share, data, int(kept), int(brief))
    return Call("put_image", (keys.image(sha256),), args, parse, job=False)

"""RedisBlobs: patch blobs on a Redis of their own, without persistence: for prep and engines on several hosts."""

from __future__ import annotations

import errno
import logging
from typing import Any, cast

import redis
from redis.exceptions import OutOfMemoryError

from photocall import keys
from photocall.blob_store import DEFAULT_MAX_BYTES, SWEEP_SHARE, SWEPT, TTL_S, BlobsAway, BlobsFull, Data
from photocall.connections import connect
from photocall.logs import fields

log = logging.getLogger(__name__)

_AWAY = (redis.ConnectionError, redis.TimeoutError)


class RedisBlobs:
    """Blobs on a Redis of their own, bounded by us whatever its own bound and policy are.

    How long ago a blob was used shows in the rest of its time to live, so eviction needs no help from the server.
    """

    def __init__(self, url: str, max_bytes: int = DEFAULT_MAX_BYTES, ttl_s: int = TTL_S) -> None:
        self._redis = connect(url)
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s

    def put(self, key: str, data: Data) -> None:
        """Store with a TTL. On a full server half of what is there goes first.

        Raises BlobsFull when that was not enough, BlobsAway.
        """
        try:
            try:
                unswept = self._set(key, data)
            except OutOfMemoryError:
                self._remove_down_to(self._held() // 2)
                unswept = self._set(key, data)
            if unswept * SWEEP_SHARE >= self._max_bytes:
                self.sweep()
        except OutOfMemoryError as error:
            raise BlobsFull(errno.ENOSPC, f"no room for {len(data)} bytes of a blob") from error
        except _AWAY as error:
            raise BlobsAway(errno.EHOSTUNREACH, f"the Redis of the blobs is away: {error}") from error

    def get(self, key: str) -> bytes | None:
        """Read, and start its TTL again."""
        try:
            return cast("bytes | None", self._redis.getex(keys.blob(key), ex=self._ttl_s))
        except _AWAY as error:
            log.warning("the Redis of the blobs is away: %s", error, extra=fields(blob=key))
            return None

    def size(self, key: str) -> int | None:
        """Look, and start its TTL again."""
        try:
            with self._redis.pipeline(transaction=False) as pipe:
                pipe.strlen(keys.blob(key))
                pipe.expire(keys.blob(key), self._ttl_s)
                found, there = pipe.execute()
        except _AWAY as error:
            log.warning("the Redis of the blobs is away: %s", error, extra=fields(blob=key))
            return None
        return int(found) if there else None

    def remove(self, key: str) -> None:
        """Delete."""
        self._redis.unlink(keys.blob(key))

    def remove_all(self, prefix: str) -> None:
        """Delete. Prefixes hold no character that a pattern gives a meaning to."""
        names = list(self._redis.scan_iter(match=keys.blob(f"{prefix}*"), count=1000))
        if names:
            self._redis.unlink(*names)

    def held(self) -> int:
        """The memory of that Redis, which has nothing else in it: counting would look at every key."""
        try:
            return int(self._redis.info("memory")["used_memory"])
        except _AWAY:
            return 0

    def sweep(self) -> int:
        """Down to seven eighths of the bound; the server removes what nobody used for long. 0 while it is away."""
        try:
            self._redis.delete(keys.BLOBS_UNSWEPT)
            return self._remove_down_to(int(self._max_bytes * SWEPT))
        except _AWAY as error:
            log.warning("the Redis of the blobs is away: %s", error)
            return 0

    def _set(self, key: str, data: Data) -> int:
        """Bytes put since the last sweep, by all processes."""
        with self._redis.pipeline(transaction=False) as pipe:
            pipe.set(keys.blob(key), data, ex=self._ttl_s)
            pipe.incrby(keys.BLOBS_UNSWEPT, len(data))
            pipe.expire(keys.BLOBS_UNSWEPT, self._ttl_s)
            return int(pipe.execute()[1])

    def _held(self) -> int:
        return sum(size for _, size, _ in self._blobs())

    def _blobs(self) -> list[tuple[int, int, bytes]]:
        """Milliseconds left, bytes and key of each, the longest unused first."""
        names = cast("list[bytes]", list(self._redis.scan_iter(match=keys.blob("*"), count=1000)))
        with self._redis.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.pttl(name)
                pipe.strlen(name)
            found = cast("list[int]", pipe.execute())
        return sorted(zip(found[::2], found[1::2], names, strict=True))

    def _remove_down_to(self, wanted: int) -> int:
        blobs = self._blobs()
        held = sum(size for _, size, _ in blobs)
        gone: list[Any] = []
        for _, size, name in blobs:
            if held <= wanted:
                break
            gone.append(name)
            held -= size
        if gone:
            self._redis.unlink(*gone)
        return len(gone)

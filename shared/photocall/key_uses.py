"""KeyUses: when each API key was last used, to the minute: a key costs a write a minute and not one for every call."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import redis.asyncio
from redis.exceptions import RedisError

from photocall import keys

log = logging.getLogger(__name__)

NOTE_EVERY_S = 60.0
KEPT_S = 400 * 86_400


class KeyUses:
    """Notes and reads. Ids are those of the keys."""

    def __init__(self, client: redis.asyncio.Redis, now: Callable[[], float] = time.time) -> None:
        self._redis = client
        self._now = now
        self._noted: dict[str, float] = {}
        self._writing: set[asyncio.Task[None]] = set()

    def note(self, key_id: str) -> None:
        """It is used now. Nobody waits for the note, and one that cannot be written is tried again in a minute."""
        now = self._now()
        if now - self._noted.get(key_id, float("-inf")) < NOTE_EVERY_S:
            return
        self._noted[key_id] = now
        task = asyncio.create_task(self._write(key_id, now))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def read(self, key_ids: Sequence[str]) -> list[float | None]:
        """Seconds since the epoch of each; None: not in living memory. Raises Redis' errors."""
        if not key_ids:
            return []
        found = await cast(Any, self._redis.mget([keys.key_used(key_id) for key_id in key_ids]))
        return [None if at is None else float(at) for at in found]

    async def close(self) -> None:
        """Wait for what is being written."""
        if self._writing:
            await asyncio.wait(self._writing)

    async def _write(self, key_id: str, now: float) -> None:
        try:
            await self._redis.set(keys.key_used(key_id), f"{now:.0f}", ex=KEPT_S)
        except (RedisError, OSError) as error:
            log.warning("the use of a key is not noted: %s", error)

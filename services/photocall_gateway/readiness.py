"""Whether a request would be answered now: a Redis that keeps it, an engine that has proved itself, a prep worker."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, cast

import redis.asyncio
from redis.exceptions import RedisError
from rq.worker_registration import WORKERS_BY_QUEUE_KEY

from photocall import keys
from photocall.errors import BadSignature, MalformedMessage, UnknownVersion
from photocall.messages import EngineInfo
from photocall.wire import Wire
from photocall_gateway.store_state import StoreState, read_store

CHECK_TIMEOUT_S = 2.0
AWAY = (RedisError, OSError, TimeoutError)  # how a Redis is away: refused, hung up, or silent


@dataclass(frozen=True, slots=True)
class State:
    """What was found. An engine is ready once it has run a real one-picture forward."""

    store: StoreState | None  # None: Redis does not answer
    engines: list[EngineInfo]
    prep_workers: int

    @property
    def ready(self) -> bool:
        keeps = self.store is not None and not self.store.faults
        return keeps and any(engine.ready for engine in self.engines) and self.prep_workers > 0

    def shown(self) -> dict[str, Any]:
        """The body of /readyz."""
        return {
            "ready": self.ready,
            "redis": self.store is not None,
            "store": None if self.store is None else self.store.shown(),
            "prep_workers": self.prep_workers,
            "engines": [
                {
                    "id": engine.engine_id,
                    "model": engine.model,
                    "device": engine.device,
                    "ready": engine.ready,
                    "load": engine.load,
                    "capacity": engine.capacity,
                    "pages_free": engine.pages_free,
                    "pages_total": engine.pages_total,
                }
                for engine in self.engines
            ],
        }


NOBODY = State(None, [], 0)  # what is found while Redis is away


class Readiness:
    """Asks Redis who is alive."""

    def __init__(self, client: redis.asyncio.Redis, wire: Wire) -> None:
        self._redis = client
        self._wire = wire

    async def state(self) -> State:
        """Never raises: a Redis that does not answer in time is a state too."""
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                return State(await read_store(self._redis), await self._engines(), await self._prep_workers())
        except AWAY:
            return NOBODY

    async def _engines(self) -> list[EngineInfo]:
        """The last heartbeat of every engine whose heartbeat is still there."""
        ids = [raw.decode() for raw in await cast(Any, self._redis.zrange(keys.ENGINES, 0, -1))]
        if not ids:
            return []
        beats = await cast(Any, self._redis.mget([keys.heartbeat(engine_id) for engine_id in ids]))
        found = []
        for beat in beats:
            if beat is None:
                continue
            try:
                message = self._wire.decode(beat).message
            except (BadSignature, UnknownVersion, MalformedMessage):
                continue
            if isinstance(message, EngineInfo):
                found.append(message)
        return found

    async def _prep_workers(self) -> int:
        """Prep workers whose registration has not run out."""
        members = await cast(Any, self._redis.smembers(WORKERS_BY_QUEUE_KEY % keys.PREP_QUEUE["interactive"]))
        return int(await cast(Any, self._redis.exists(*members))) if members else 0

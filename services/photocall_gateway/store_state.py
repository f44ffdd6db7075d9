"""How Redis keeps what it is given: whether it may throw records away, and how soon a write is on its disk.

"Accepted means kept" is no more than this store keeps, so it is looked at when the gateway starts, said in the log, and
part of /readyz from then on.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any, cast

import redis.asyncio
from redis.exceptions import RedisError, ResponseError

from photocall.backoff import Backoff
from photocall.logs import fields

log = logging.getLogger(__name__)

UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class StoreState:
    """`fsync`: `always`, `everysec` or `no` with an append-only file, `off` without one, `unknown` where not told."""

    eviction: str
    fsync: str
    writes: bool  # its last write to the append-only file succeeded
    used_bytes: int
    max_bytes: int  # 0: no bound

    @property
    def faults(self) -> list[str]:
        """Why nothing should be accepted."""
        found = []
        if self.max_bytes and self.eviction != "noeviction":
            found.append(f"maxmemory-policy is {self.eviction}: accepted work may be thrown away; set noeviction")
        if not self.writes:
            found.append("the last write to the append-only file failed")
        return found

    @property
    def warnings(self) -> list[str]:
        """What the operator should know, and may have wanted."""
        match self.fsync:
            case "off":
                return ["there is no append-only file: a restart of Redis loses accepted work"]
            case "everysec":
                return ["appendfsync is everysec: a crash of Redis loses up to 2 s of accepted work"]
            case "no":
                return ["appendfsync is no: a crash of Redis' machine loses accepted work of the last half minute"]
        return []

    def shown(self) -> dict[str, Any]:
        """For /readyz."""
        return {
            "eviction": self.eviction,
            "fsync": self.fsync,
            "used_bytes": self.used_bytes,
            "max_bytes": self.max_bytes,
            "faults": self.faults,
            "warnings": self.warnings,
        }


async def read_store(client: redis.asyncio.Redis) -> StoreState:
    """As it is now. A server that answers INFO alone, as hosted ones may, is enough. Raises Redis' errors."""
    async with client.pipeline(transaction=False) as pipe:
        pipe.info("memory")
        pipe.info("persistence")
        pipe.config_get("appendfsync")
        memory, persistence, config = await pipe.execute(raise_on_error=False)
    for found in (memory, persistence):
        if isinstance(found, Exception):
            raise found
    fsync = "off"
    if int(persistence.get("aof_enabled", 0)):
        fsync = UNKNOWN if isinstance(config, ResponseError) else _text(cast(Any, config).get("appendfsync", UNKNOWN))
    return StoreState(
        eviction=_text(memory.get("maxmemory_policy", UNKNOWN)),
        fsync=fsync,
        writes=persistence.get("aof_last_write_status", "ok") == "ok",
        used_bytes=int(memory["used_memory"]),
        max_bytes=int(memory.get("maxmemory", 0)),
    )


async def say_store(client: redis.asyncio.Redis) -> None:
    """Say in the log once how the store is, as soon as it answers."""
    away = Backoff(log, "the store cannot be looked at")
    while True:
        try:
            state = await read_store(client)
            away.succeeded()
            break
        except (RedisError, OSError) as error:
            await asyncio.sleep(away.failed(error))
    log.info("store", extra=fields(eviction=state.eviction, fsync=state.fsync, max_bytes=state.max_bytes))
    for fault in state.faults:
        log.error("the store is not fit to keep accepted work: %s", fault)
    for warning in state.warnings:
        log.warning("the store: %s", warning)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)

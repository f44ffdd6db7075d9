"""Calibrations as Redis keeps them: each belongs to an API key, and lives as long after its last use as the TTL says.

The id is the content's (`Recalibration.id`), so what an id means never changes: an answer that names one was corrected
by exactly that, whether the request sent it whole, named it here, or named it before it was deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, TypeVar, cast

import redis.asyncio

from photocall import keys
from photocall.errors import CalibrationsFull, CodedError, StoreFull, UnknownCalibration
from photocall.images import MEMORY_SHARE
from photocall.names import could_be_id
from photocall.recalibration import Recalibration, parse_recalibration
from photocall.scripts import Argument, Call, flat, run_async
from photocall.wire import pack, unpack

By: TypeAlias = Literal["question", "type"]
MAX_BYTES = 64 << 10  # of one with its reports, as it is stored: an owner may have many, for long
READ_AT_ONCE = 10  # of a list: whoever waits for the thread that parses waits for no more than these
# One thread, for it is arithmetic in Python: several would only take the interpreter from the event loop.
_PARSING = ThreadPoolExecutor(1, "calibrations")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class StoredCalibration:
    """A calibration and how it came about. Times are seconds since the epoch."""

    calibration: Recalibration
    created_at: float
    by: By
    metadata: Mapping[str, str] = field(default_factory=dict)
    reports: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by question or type; not in lists
    expires_in_s: float = 0.0  # filled in by whoever reads it from Redis


class AsyncCalibrations:
    """Calibrations for the gateway. To every owner those of others are as what never was.

    One has up to 1000 names, so it is packed and parsed in a thread: that is many milliseconds of Python.
    """

    def __init__(self, client: redis.asyncio.Redis, ttl_s: int, limit: int, memory_share: float = MEMORY_SHARE) -> None:
        """`limit`: how many an owner may have."""
        self._redis = client
        self._ttl_s = ttl_s
        self._limit = limit
        self._share = memory_share

    async def store(self, owner: str, stored: StoredCalibration) -> None:
        """Keep one. Raises CalibrationsFull, StoreFull, or CodedError `body_too_large`."""
        name, fields = await _aside(lambda: _packed(stored))
        size = sum(map(len, fields.values()))
        if size > MAX_BYTES:
            msg = f"A stored calibration has at most {MAX_BYTES} bytes with its reports, this one {size}"
            raise CodedError("body_too_large", msg, bytes=size, limit=MAX_BYTES)
        args: tuple[Argument, ...] = (
            name,
            repr(stored.created_at),
            self._ttl_s,
            self._limit,
            keys.calibration(owner, ""),
            self._share,
            *flat(fields),
        )

        def parse(found: list[Any]) -> None:
            if found[0] == b"full":
                raise CalibrationsFull(int(found[1]), self._limit)
            if found[0] == b"memory":
                raise StoreFull(int(found[1]), int(found[2]))

        places = (keys.calibration(owner, name), keys.calibrations(owner))
        await run_async(self._redis, Call("store_calibration", places, args, parse, job=False))

    async def use(self, owner: str, name: str) -> Recalibration:
        """What a request that names it is answered with; its time to live begins anew. Raises UnknownCalibration."""
        _check_id(name)
        places = (keys.calibration(owner, name), keys.calibrations(owner))
        found = await run_async(self._redis, Call("use_calibration", places, (self._ttl_s,), _raw, job=False))
        if found is None:
            raise UnknownCalibration(name)
        return await _aside(lambda: _applied(name, found))

    async def get(self, owner: str, name: str) -> StoredCalibration:
        """One with its reports. Raises UnknownCalibration."""
        _check_id(name)
        (found,) = await self._read(owner, [name], reports=True)
        if found is None:
            raise UnknownCalibration(name)
        return found

    async def of_owner(self, owner: str, after: str | None, limit: int) -> list[StoredCalibration]:
        """The owner's, newest first, behind `after`, `limit` at most; without their reports.

        Raises UnknownCalibration for an `after` that is not among them.
        """
        listed = await cast(Any, self._redis.zrevrange(keys.calibrations(owner), 0, -1))
        names = [raw.decode() for raw in listed]
        if after is not None:
            if after not in names:
                raise UnknownCalibration(after)
            names = names[names.index(after) + 1 :]
        found: list[StoredCalibration] = []
        while names and len(found) < limit:  # some of those that are listed may be gone
            size = min(READ_AT_ONCE, limit - len(found))
            page, names = names[:size], names[size:]
            found += [one for one in await self._read(owner, page) if one is not None]
        return found

    async def delete(self, owner: str, name: str) -> None:
        """Forget one; jobs that were accepted with it keep it. Raises UnknownCalibration."""
        _check_id(name)
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.delete(keys.calibration(owner, name))
            pipe.zrem(keys.calibrations(owner), name)
            deleted, _ = await pipe.execute()
        if not deleted:
            raise UnknownCalibration(name)

    async def _read(self, owner: str, names: list[str], reports: bool = False) -> list[StoredCalibration | None]:
        """Each as it is stored; None for one that is gone."""
        fields = ["applied", "told", "reports"] if reports else ["applied", "told"]
        async with self._redis.pipeline(transaction=True) as pipe:
            for name in names:
                pipe.hmget(keys.calibration(owner, name), fields)
                pipe.pttl(keys.calibration(owner, name))
            found = await pipe.execute() if names else []
        each = list(zip(names, found[::2], found[1::2], strict=True))
        return await _aside(lambda: [_stored(name, raw, ttl_ms) for name, raw, ttl_ms in each])


async def _aside(work: Callable[[], R]) -> R:
    return await asyncio.get_running_loop().run_in_executor(_PARSING, work)


def _check_id(name: str) -> None:
    if not could_be_id(name):
        raise UnknownCalibration(name)


def _packed(stored: StoredCalibration) -> tuple[str, dict[str, bytes]]:
    """Its id, and the fields that it is kept in."""
    told = {"created_at": stored.created_at, "by": stored.by, "metadata": dict(stored.metadata)}
    fields = {
        "applied": pack(stored.calibration.to_content()),
        "told": pack(told),
        "reports": pack(stored.reports),
    }
    return stored.calibration.id, fields


def _stored(name: str, raw: list[bytes | None], ttl_ms: int) -> StoredCalibration | None:
    applied, told, *reports = raw
    if applied is None or told is None:
        return None
    own = _applied(name, applied)
    shown = unpack(reports[0]) if reports and reports[0] else {}
    return StoredCalibration(calibration=own, **unpack(told), reports=shown, expires_in_s=max(0, ttl_ms) / 1000)


def _applied(name: str, packed: bytes) -> Recalibration:
    """What is stored under `name`, which is its id: hashing it again would cost more than all else."""
    own = parse_recalibration(unpack(packed))
    assert own is not None, "what corrects nothing is not stored"
    return replace(own, part_of=name)


def _raw(found: bytes | None) -> bytes | None:
    return found

"""Standings: the version of a job's record and its place among the unfinished, asked for by many at once.

A reader that kept what it made of a record compares the version, which every visible change moves, and need not read
the record again. The answer is as new as the question (`together.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import redis.asyncio

from photocall import keys
from photocall.scripts import Call, run_async
from photocall.together import Command, Together

APART_S = 0.005  # of two round trips: what a crowd waits at most for being asked about together


@dataclass(frozen=True, slots=True)
class Standing:
    """`version` is None when there is no such job; `rank` when it has ended: else so many unfinished are before it."""

    version: bytes | None
    rank: int | None


class Standings(Together):
    """Where jobs stand now."""

    def __init__(self, client: redis.asyncio.Redis, apart_s: float = APART_S) -> None:
        super().__init__(client, apart_s)

    async def of(self, job_id: str) -> Standing:
        """Raises Redis' errors."""
        found: Standing = await self.ask(job_id)
        return found

    async def _replies(self, commands: Sequence[Command]) -> list[Any]:
        ids = [str(job_id) for (job_id,) in commands]
        job_keys = (keys.DEADLINES, *map(keys.job, ids))
        return await run_async(self._redis, Call("standing", job_keys, tuple(ids), _standings, job=False))


def _standings(found: list[Any]) -> list[Standing]:
    return [Standing(version, rank) for version, rank in zip(found[::2], found[1::2], strict=True)]

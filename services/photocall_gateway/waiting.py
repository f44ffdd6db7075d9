"""Waiting for a job: one reader of the wake channel per process, fanned out to everyone who waits.

A wake-up is only a hint. Whoever waits subscribes first, reads the record, waits, and reads again every few seconds
whether it was woken or not, so a lost hint costs seconds and never the answer.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol, TypeVar

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from photocall.backoff import MOST_S, Backoff
from photocall.jobs import JobStatus
from photocall.records import AsyncRecords

log = logging.getLogger(__name__)

REREAD_S = 5.0
_FIRST_AWAY_S = 0.2


R = TypeVar("R")


class HasStatus(Protocol):
    """A record, or what is shown of it."""

    @property
    def status(self) -> JobStatus: ...


class Listener(Protocol):
    """What is told that a job may have changed: an asyncio.Event, or something that notes which job it was."""

    def set(self) -> None: ...


class WakeReader:
    """Reads the wake channel while `run` runs, and sets the event of everyone who listens to that job."""

    def __init__(self, records: AsyncRecords) -> None:
        self._records = records
        self._listeners: defaultdict[str, set[Listener]] = defaultdict(set)

    async def run(self) -> None:
        """Until cancelled; Redis away is waited out."""
        away = Backoff(log, "no wake channel")
        while True:
            try:
                async with self._records.wakes() as ids:
                    away.succeeded()
                    self.wake_all()  # what happened while nobody read the channel
                    async for job_id in ids:
                        for event in self._listeners.get(job_id, ()):
                            event.set()
            except (RedisConnectionError, RedisTimeoutError, OSError) as error:
                await asyncio.sleep(away.failed(error))

    def wake_all(self) -> None:
        """Make everyone read again."""
        for events in self._listeners.values():
            for event in events:
                event.set()

    @contextmanager
    def listen(self, job_id: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever the job may have changed; the listener clears it."""
        event = asyncio.Event()
        self.add(job_id, event)
        try:
            yield event
        finally:
            self.remove(job_id, event)

    def add(self, job_id: str, listener: Listener) -> None:
        """From now on it is told of this job, until `remove`."""
        self._listeners[job_id].add(listener)

    def remove(self, job_id: str, listener: Listener) -> None:
        """It is told no more."""
        self._listeners[job_id].discard(listener)
        if not self._listeners[job_id]:
            del self._listeners[job_id]

    @property
    def listeners(self) -> int:
        """How many callers wait now; what else listens is none."""
        return sum(isinstance(event, asyncio.Event) for events in self._listeners.values() for event in events)


async def wait_for(
    look: Callable[[str], Awaitable[R]],
    wakes: WakeReader,
    job_id: str,
    enough: Callable[[R], bool],
    timeout_s: float,
    reread_s: float = REREAD_S,
) -> R:
    """What `look` gives of the job as soon as it is `enough`, or as it is when the time is over.

    Raises UnknownJob or JobGone, and Redis' errors only when Redis was away at the end of the time too.
    """
    loop = asyncio.get_running_loop()
    ends = loop.time() + timeout_s
    away_s = _FIRST_AWAY_S
    with wakes.listen(job_id) as woken:
        while True:
            woken.clear()
            left = ends - loop.time()
            try:
                found = await look(job_id)
            except (RedisConnectionError, RedisTimeoutError):
                if left <= 0:
                    raise
                await asyncio.sleep(min(spread_s(away_s), left))
                away_s = min(2 * away_s, MOST_S)
                continue
            if enough(found) or left <= 0:
                return found
            with suppress(TimeoutError):
                async with asyncio.timeout(min(spread_s(reread_s), left)):
                    await woken.wait()


def spread_s(reread_s: float) -> float:
    """When to read again unwoken: a little earlier, by chance, so that those who came together do not stay together."""
    return reread_s * random.uniform(0.6, 1.0)


def ended(found: HasStatus) -> bool:
    """The job has its answer or its error."""
    return found.status.terminal

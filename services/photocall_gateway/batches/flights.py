"""Flights: the rows of one batch that are jobs now, which of those may have changed, and the rows to send again.

Knows nothing of why a row is sent or what becomes of its answer: that is the feeder's and the settler's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from photocall_gateway.batches.ledger import Row
from photocall_gateway.waiting import WakeReader


@dataclass(slots=True)
class Flight:
    """A row that is a job. `bytes` is what Redis keeps of it; `chars` and `pictures` are what its prompt is made of."""

    row: Row
    tries: int
    bytes: int
    chars: int
    pictures: int


class _Woken:
    """Notes which job may have changed."""

    def __init__(self, job_id: str, jobs: set[str], event: asyncio.Event) -> None:
        self._job_id, self._jobs, self._event = job_id, jobs, event

    def set(self) -> None:
        self._jobs.add(self._job_id)
        self._event.set()


class Flights:
    """Rows in flight by job id. Listens for each from `fly` to `land`; `close` ends all listening."""

    def __init__(self, wakes: WakeReader) -> None:
        self.again: deque[tuple[Row, int]] = deque()  # rows to send again, with how often they were sent
        self.event = asyncio.Event()  # a job may have changed, or the runner is to stop
        self._wakes = wakes
        self._flying: dict[str, Flight] = {}
        self._listeners: dict[str, _Woken] = {}
        self._woken: set[str] = set()

    def __len__(self) -> int:
        return len(self._flying)

    def __iter__(self) -> Iterator[str]:
        """The job ids, of this moment: rows may land meanwhile."""
        return iter(tuple(self._flying))

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._flying

    def __getitem__(self, job_id: str) -> Flight:
        return self._flying[job_id]

    @property
    def bytes(self) -> int:
        """What Redis keeps of all of them."""
        return sum(flight.bytes for flight in self._flying.values())

    @property
    def woken(self) -> bool:
        """A job may have changed since `take_woken`."""
        return bool(self._woken)

    def fly(self, job_id: str, flight: Flight) -> None:
        """A row became this job, or was found to be it."""
        self._flying[job_id] = flight
        self._listeners[job_id] = listener = _Woken(job_id, self._woken, self.event)
        self._wakes.add(job_id, listener)
        listener.set()  # it may have ended before anybody listened

    def land(self, job_id: str) -> Flight:
        """The job is no longer looked after."""
        self._unlisten(job_id)
        self._woken.discard(job_id)
        return self._flying.pop(job_id)

    def wake_all(self) -> None:
        """Any of them may have changed: `take_woken` gives every one."""
        self._woken.update(self._flying)

    def take_woken(self) -> list[str]:
        """Jobs in flight that may have changed, each once."""
        woken = [job_id for job_id in self._woken if job_id in self._flying]
        self._woken.clear()
        self.event.clear()
        return woken

    def close(self) -> None:
        """Listen to nothing any more. The jobs go on."""
        for job_id in tuple(self._listeners):
            self._unlisten(job_id)

    def _unlisten(self, job_id: str) -> None:
        self._wakes.remove(job_id, self._listeners.pop(job_id))

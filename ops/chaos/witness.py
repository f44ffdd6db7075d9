"""Witness: what the callers have seen, and everything that was wrong with it. All methods are for any thread."""

from __future__ import annotations

import itertools
import logging
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

log = logging.getLogger(__name__)

# Of an ended job, what may differ between two reads of it.
PASSING = ("queue", "webhook")


class Witness:
    """`open` are the callers that wait for something, by ticket; faults end up in the summary."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tickets = itertools.count()
        self._open: dict[int, str] = {}
        self._jobs: dict[str, str] = {}  # job by idempotency key
        self._ends: dict[str, dict[str, Any]] = {}  # how each job ended, as it was seen first
        self._answers: dict[str, Any] = {}  # of synchronous calls, by idempotency key
        self.outcomes: Counter[str] = Counter()
        self.retries: Counter[str] = Counter()
        self.faults: list[str] = []

    @property
    def open(self) -> dict[int, str]:
        """Who waits now, by ticket, and for what."""
        with self._lock:
            return dict(self._open)

    @property
    def jobs(self) -> dict[str, dict[str, Any]]:
        """Every job that was accepted, with its end; empty where none was seen."""
        with self._lock:
            return {job_id: self._ends.get(job_id, {}) for job_id in self._jobs.values()}

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Somebody waits inside."""
        with self._lock:
            ticket = next(self._tickets)
            self._open[ticket] = what
        try:
            yield
        finally:
            with self._lock:
                del self._open[ticket]

    def fault(self, what: str) -> None:
        """Something that must not be."""
        log.error("%s", what)
        with self._lock:
            self.faults.append(what)

    def tried_again(self, why: str) -> None:
        """A call broke off or was refused for a while: a status or the name of an error."""
        with self._lock:
            self.retries[why] += 1

    def accepted(self, key: str, job_id: str) -> None:
        """A key stands for a job, and for one only."""
        with self._lock:
            known = self._jobs.setdefault(key, job_id)
        if known != job_id:
            self.fault(f"two jobs under the key {key}: {known} and {job_id}")

    def ended(self, job: dict[str, Any]) -> None:
        """An end that was read; every read of a job gives the same one."""
        shown = {name: value for name, value in job.items() if name not in PASSING}
        with self._lock:
            known = self._ends.setdefault(job["id"], shown)
            if known is shown:
                self.outcomes[_end(job)] += 1
        if known != shown:
            self.fault(f"two answers of {job['id']}: {known} and {shown}")

    def answered(self, key: str, answers: Any) -> None:
        """What a synchronous call said; every try of it says the same."""
        with self._lock:
            known = self._answers.setdefault(key, answers)
            if known is answers:
                self.outcomes["answered at once"] += 1
        if known != answers:
            self.fault(f"two answers under the key {key}: {known} and {answers}")


def _end(job: dict[str, Any]) -> str:
    return str(job["status"] if job["status"] != "failed" else job["error"]["code"])

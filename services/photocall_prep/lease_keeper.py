"""Keeps a job's lease while its pictures are prepared: a thread renews it, since decoding blocks everything else."""

from __future__ import annotations

import logging
import threading
from types import TracebackType

import redis

from photocall.backoff import Backoff
from photocall.jobs import Lease
from photocall.logs import thread_about
from photocall.records import Records

log = logging.getLogger(__name__)

RENEW_S = 2.0


class LeaseKeeper:
    """While entered, renews the lease; `lost` says that the work is not wanted any more."""

    def __init__(self, records: Records, lease: Lease, every_s: float = RENEW_S) -> None:
        self._records = records
        self._lease = lease
        self._every_s = every_s
        self._done = threading.Event()
        self._lost = threading.Event()
        self._thread = thread_about(lease.job_id, self._renew, "lease")

    @property
    def lost(self) -> bool:
        """The job was cancelled, ran out of time, or is another's."""
        return self._lost.is_set()

    def __enter__(self) -> LeaseKeeper:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _renew(self) -> None:
        away = Backoff(log, f"cannot renew the lease of {self._lease.job_id}", most_s=self._every_s)
        wait_s = self._every_s
        while not self._done.wait(wait_s):
            try:
                if not self._records.renew(self._lease):
                    self._lost.set()
                    return
                away.succeeded()
                wait_s = self._every_s
            except redis.RedisError as error:  # the next try may still be in time; if not, the record decides
                wait_s = away.failed(error)

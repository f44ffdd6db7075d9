"""The leases this engine holds, renewed by a thread while the engine computes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection

import redis

from photocall.jobs import Lease
from photocall.logs import fields
from photocall.records import Records

log = logging.getLogger(__name__)

RENEW_S = 2.0


class LeaseBook:
    """Who holds what. `unwanted` are jobs whose lease was lost, or that the control channel took back."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._lock = threading.Lock()
        self._leases: dict[str, Lease] = {}
        self._unwanted: set[str] = set()

    def add(self, lease: Lease) -> None:
        """From now on it is renewed. What was said of an older lease of the same job does not count for it."""
        with self._lock:
            self._leases[lease.job_id] = lease
            self._unwanted.discard(lease.job_id)

    def remove(self, lease: Lease) -> None:
        """It is published or handed back. Nothing happens when the job is held under a newer lease by now."""
        with self._lock:
            if self._leases.get(lease.job_id) == lease:
                del self._leases[lease.job_id]
                self._unwanted.discard(lease.job_id)

    def interrupt(self, job_ids: Collection[str]) -> None:
        """The control channel says that these are not wanted; others than those held here do not matter."""
        with self._lock:
            self._unwanted |= self._leases.keys() & set(job_ids)

    def unwanted(self, job_ids: Collection[str]) -> set[str]:
        """Which of these to drop."""
        with self._lock:
            return self._unwanted & set(job_ids) if self._unwanted else set()

    def holds(self, lease: Lease) -> bool:
        """It is held, and wanted as far as is known."""
        with self._lock:
            return self._leases.get(lease.job_id) == lease and lease.job_id not in self._unwanted

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._leases

    def __len__(self) -> int:
        return len(self._leases)

    def renew_all(self) -> None:
        """Every lease once. While Redis is away nothing is given up: the record decides, by the fence."""
        with self._lock:
            leases = [lease for job_id, lease in self._leases.items() if job_id not in self._unwanted]
        for lease in leases:
            try:
                if not self._records.renew(lease):
                    log.info("a job is not wanted any more", extra=fields(job=lease.job_id))
                    self.interrupt([lease.job_id])
            except redis.RedisError as error:
                log.warning("cannot renew leases: %s", error)
                return

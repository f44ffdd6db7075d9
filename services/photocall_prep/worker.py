"""PrepWorker: an RQ worker that runs jobs in its own process and loses none.

RQ's own loop drops the intermediate list as soon as it serves two queues, ends when Redis is away, raises out of its
signal handler into whatever runs, takes commands from anybody on a channel, and writes a dozen times for a run. This
one serves the interactive lane before the batch lane, takes and drops entries by `entries.py`, and waits for Redis.
What a job does is not known here.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import redis
from redis.exceptions import OutOfMemoryError
from rq import Queue, worker_registration
from rq.job import Job
from rq.worker import SimpleWorker, WorkerStatus

from photocall.backoff import Backoff
from photocall.keys import LANES
from photocall.logs import fields
from photocall.queueing import PrepareJob, PrepQueues
from photocall_prep.entries import Entries, Entry
from photocall_prep.wear import Wear

log = logging.getLogger(__name__)

BLOCK_S = 0.5  # while idle, a stop or a batch job waits so long at most
HEARTBEAT_S = 5.0
MAINTENANCE_S = 60
WORKER_TTL_S = 30
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

_AWAY = (redis.ConnectionError, redis.TimeoutError, OutOfMemoryError)


class PrepWorker(SimpleWorker):
    """Serves the prep queues until it is told to stop, or is worn."""

    def __init__(
        self,
        client: redis.Redis,
        queues: PrepQueues,
        name: str | None = None,
        tidy: Callable[[], object] = lambda: None,
        wear: Wear | None = None,
    ) -> None:
        """`tidy` is called between two runs, each minute at most; `wear` says when to end between two runs."""
        super().__init__(
            [queues.queue(lane) for lane in LANES],
            name=name,
            connection=client,
            job_class=PrepareJob,
            serializer=queues.serializer,
            worker_ttl=WORKER_TTL_S,
            maintenance_interval=MAINTENANCE_S,
            log_job_description=False,
            prepare_for_work=False,  # it would ask Redis at once; Redis may come later
        )
        self.hostname, self.pid = socket.gethostname(), os.getpid()
        self._entries = Entries(client, self.queues)
        self._beat_at = float("-inf")
        self._tidy, self._tidied_at = tidy, time.monotonic()
        self._wear = wear or Wear()
        self._born = False

    @property
    def stopping(self) -> bool:
        """Told to stop: finish the current picture, take nothing more."""
        return bool(self._stop_requested)

    def request_stop(self, signum: int, frame: FrameType | None) -> None:
        """The signal handler. It only takes note: raising would tear whatever runs."""
        self._stop_requested = True

    @property
    def worn(self) -> str | None:
        """Why `serve` ended without being told to stop."""
        return None if self.stopping else self._wear.reason

    def serve(self, burst: bool = False) -> int:
        """Run jobs until told to stop or worn, or in `burst` until nothing waits; how many entries were run."""
        self._install_signal_handlers()  # type: ignore[no-untyped-call]
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)  # see `renew`
        ran, away = 0, Backoff(log, "cannot take pictures")
        while not self.stopping and not self._wear.reason:
            try:
                self._maintain()
                entry = self._entries.take(0.0 if burst else BLOCK_S)
                if entry is not None:
                    self._run(entry)
                    ran += 1
                    self._wear.look()
                elif burst:
                    break
                away.succeeded()
            except _AWAY as error:
                time.sleep(away.failed(error))
        self._sign_off()
        return ran

    def execute_job(self, job: Job, queue: Queue) -> None:
        """RQ's way to run a job is not taken: `_run` is ours."""
        raise NotImplementedError

    def _run(self, entry: Entry) -> None:
        """Run one entry. Until its job is leased nobody but its lane's list knows of it: it leaves that only then."""
        job = entry.job
        try:
            job.perform()  # without RQ's alarm, which raises into whatever runs: all that may hang has its own clock
        except _AWAY:
            raise
        except Exception:
            log.exception("an entry failed", extra=fields(entry=job.id))
            self._entries.give_back(job.id, entry.lane)
        else:
            self._entries.ran(entry)

    def _set_connection(self, connection: redis.Redis) -> redis.Redis:
        """RQ would stretch the timeouts of the connection; nothing here blocks for long."""
        return connection

    def heartbeat(self, timeout: int | None = None, pipeline: Any = None) -> None:
        """RQ beats several times per job and claims minutes; once in five seconds, for half a minute, is enough."""
        if time.monotonic() - self._beat_at >= HEARTBEAT_S:
            self._beat_at = time.monotonic()
            super().heartbeat(WORKER_TTL_S, pipeline)
            worker_registration.register(self, pipeline)  # others drop it while it looks dead

    def _maintain(self) -> None:
        if not self._born:
            self.register_birth()  # type: ignore[no-untyped-call]
            self.set_state(WorkerStatus.IDLE)
            self._born = True
            log.info("serving %s", ", ".join(self.queue_names()))
        self.heartbeat()
        if self.should_run_maintenance_tasks:
            self.run_maintenance_tasks()  # type: ignore[no-untyped-call]
        self._entries.recover()
        if time.monotonic() - self._tidied_at >= MAINTENANCE_S:
            self._tidied_at = time.monotonic()
            self._tidy()

    def _sign_off(self) -> None:
        try:
            self._entries.close()
            if self._born:
                self.register_death()  # type: ignore[no-untyped-call]
        except redis.RedisError as error:
            log.warning("ended without Redis: %s", error)

"""PrepWorker: an RQ worker that runs jobs in its own process and loses none.

RQ's own loop drops the intermediate list as soon as it serves two queues, ends when Redis is away, raises out of its
signal handler into whatever runs, and takes commands from anybody on a channel. This one serves the interactive lane
before the batch lane, keeps an entry on its lane's intermediate list until its run has ended, hands what a dead worker
left there to the outbox (whose sweeper enqueues it again if the job still needs it), and waits for Redis. What a job
does is not known here.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, cast

import redis
from redis.exceptions import OutOfMemoryError
from rq import Queue, worker_registration
from rq.exceptions import InvalidJobOperation, NoSuchJobError
from rq.executions import Execution
from rq.intermediate_queue import IntermediateQueue
from rq.job import Job
from rq.registry import StartedJobRegistry
from rq.worker import SimpleWorker, WorkerStatus

from photocall.errors import PhotocallError
from photocall.keys import LANES, OUTBOX, PREPARE_JOB
from photocall.logs import fields
from photocall.queueing import PrepareJob, PrepQueues

log = logging.getLogger(__name__)

BLOCK_S = 0.5  # while idle, a stop or a batch job waits so long at most
HEARTBEAT_S = 5.0
RECOVER_S = 5.0  # an entry seen on an intermediate list for so long was left by a dead worker, or has a lease by now
FORGET_S = 60
MAINTENANCE_S = 60
WORKER_TTL_S = 30
FIRST_BACKOFF_S, LAST_BACKOFF_S = 0.2, 5.0

_ENTRY = re.compile(r"prep-(?P<job>.+)-\d+")
_AWAY = (redis.ConnectionError, redis.TimeoutError, OutOfMemoryError)


class PrepWorker(SimpleWorker):
    """Serves the prep queues until it is told to stop."""

    def __init__(
        self,
        client: redis.Redis,
        queues: PrepQueues,
        name: str | None = None,
        tidy: Callable[[], object] = lambda: None,
    ) -> None:
        """`tidy` is called between two runs, each minute at most."""
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
        self._first_seen: dict[str, float] = {}  # entries on intermediate lists, by when this worker saw them first
        self._recovered_at = self._beat_at = -HEARTBEAT_S - RECOVER_S
        self._tidy, self._tidied_at = tidy, time.monotonic()
        self._born = False

    @property
    def stopping(self) -> bool:
        """Told to stop: finish the current picture, take nothing more."""
        return bool(self._stop_requested)

    def request_stop(self, signum: int, frame: FrameType | None) -> None:
        """The signal handler. It only takes note: raising would tear whatever runs."""
        self._stop_requested = True

    def serve(self, burst: bool = False) -> int:
        """Run jobs until told to stop, or in `burst` until nothing waits; how many were run."""
        self._install_signal_handlers()  # type: ignore[no-untyped-call]
        ran, backoff_s = 0, FIRST_BACKOFF_S
        while not self.stopping:
            try:
                self._maintain()
                found = self._take(block=not burst)
                if found is not None:
                    self.execute_job(*found)
                    ran += 1
                elif burst:
                    break
                backoff_s = FIRST_BACKOFF_S
            except _AWAY as error:
                self.executions.clear()  # what Redis lost of a run, the job's record gives out again
                log.warning("Redis is away: %s", error, extra=fields(retry_s=backoff_s))
                time.sleep(backoff_s)
                backoff_s = min(2 * backoff_s, LAST_BACKOFF_S)
        self._sign_off()
        return ran

    def execute_job(self, job: Job, queue: Queue) -> None:
        """Run one entry. Only then it leaves the intermediate list: until the job is leased nobody else knows of it."""
        done = self.perform_job(job, queue, self.prepare_execution(job))
        if not done:
            self._give_back(queue, job.id)
        with self.connection.pipeline() as pipe:
            self.set_state(WorkerStatus.IDLE, pipeline=pipe)
            pipe.lrem(_intermediate(queue), 1, job.id)
            pipe.execute()

    def prepare_job_execution(self, job: Job, remove_from_intermediate_queue: bool = False) -> None:
        """RQ's bookkeeping, but for the intermediate list; see execute_job."""
        super().prepare_job_execution(job, remove_from_intermediate_queue=False)

    def handle_job_success(
        self, job: Job, queue: Queue, started_job_registry: StartedJobRegistry, execution: Execution
    ) -> None:
        """RQ's end of a run. An entry may be enqueued twice, or be given back while it runs: its traces may be gone."""
        try:
            super().handle_job_success(job, queue, started_job_registry, execution)
        except (InvalidJobOperation, ValueError):  # no status, no execution
            self._forget(queue, job.id)

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
        self._recover()
        if time.monotonic() - self._tidied_at >= MAINTENANCE_S:
            self._tidied_at = time.monotonic()
            self._tidy()

    def _take(self, block: bool) -> tuple[Job, Queue] | None:
        """Move the oldest entry of the first lane that has one onto its intermediate list, and read it."""
        for queue in self.queues:
            while entry := self.connection.lmove(queue.key, _intermediate(queue), "LEFT", "RIGHT"):
                found = self._read(queue, _text(entry))
                if found is not None:
                    return found
        if not block:
            return None
        first = self.queues[0]
        entry = self.connection.blmove(first.key, _intermediate(first), cast(int, BLOCK_S), "LEFT", "RIGHT")
        return None if entry is None else self._read(first, _text(entry))

    def _read(self, queue: Queue, entry_id: str) -> tuple[Job, Queue] | None:
        """The job of an entry; None for one that may not or cannot be run."""
        try:
            job = self.job_class.fetch(entry_id, connection=self.connection, serializer=self.serializer)
            _ = job.func  # verifies and decodes: refused here, before anything is run
            if job.func_name != PREPARE_JOB:
                self.connection.persist(job.key)  # what may run out while it waits must not while it runs
        except (NoSuchJobError, PhotocallError, ValueError, TypeError, LookupError) as error:
            log.warning("an entry is not run: %s", error, extra=fields(entry=entry_id))
            self._give_back(queue, entry_id)
            return None
        job.redis_server_version = self.get_redis_server_version()  # type: ignore[no-untyped-call]
        return job, queue

    def _give_back(self, queue: Queue, entry_id: str) -> None:
        """Leave it to the outbox whether the job is enqueued again: its sweeper looks at the record, this does not."""
        named = _ENTRY.fullmatch(entry_id)
        if named is not None:
            self.connection.zadd(OUTBOX, {named["job"]: time.time()}, nx=True)
        self._forget(queue, entry_id)

    def _forget(self, queue: Queue, entry_id: str) -> None:
        """RQ's own traces of an entry that will not be run again: it would clean them up in minutes, or never."""
        started = queue.started_job_registry.key
        runs = [run for raw in self.connection.zrange(started, 0, -1) if (run := _text(raw)).startswith(f"{entry_id}:")]
        with self.connection.pipeline() as pipe:
            for run in runs:
                pipe.zrem(started, run)
                pipe.delete(f"rq:execution:{run}")
            pipe.zrem(queue.failed_job_registry.key, entry_id)
            pipe.delete(f"rq:executions:{entry_id}")
            pipe.expire(self.job_class.key_for(entry_id), FORGET_S)  # a slow worker may be at it yet
            pipe.lrem(_intermediate(queue), 1, entry_id)
            pipe.execute()

    def _recover(self) -> None:
        """Give back what stays on the intermediate lists. An entry in a live worker's hands has a lease by then."""
        now = time.monotonic()
        if now - self._recovered_at < RECOVER_S / 2:
            return
        self._recovered_at = now
        seen: dict[str, float] = {}
        for queue in self.queues:
            for raw in cast("list[bytes]", self.connection.lrange(_intermediate(queue), 0, -1)):
                entry_id = _text(raw)
                seen[entry_id] = self._first_seen.get(entry_id, now)
                if now - seen[entry_id] >= RECOVER_S:
                    log.info("an entry left by another worker", extra=fields(entry=entry_id))
                    self._give_back(queue, entry_id)
        self._first_seen = seen

    def _sign_off(self) -> None:
        try:
            if self._born:
                self.register_death()  # type: ignore[no-untyped-call]
        except redis.RedisError as error:
            log.warning("ended without Redis: %s", error)


def _intermediate(queue: Queue) -> str:
    return IntermediateQueue.get_intermediate_queue_key(queue.key)


def _text(raw: Any) -> str:
    return raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)

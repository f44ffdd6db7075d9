"""RedisOutlet: outcomes and events to the job records, in order, by a thread of its own.

The engine's loop never waits for Redis. While Redis is away or full, an answer is kept and tried again for as long as
its lease lasts; the lease book goes on renewing it.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import redis
from redis.exceptions import OutOfMemoryError

from photocall import failpoints, jobs, keys
from photocall.backoff import Backoff
from photocall.logs import about_job, fields
from photocall.messages import Progress, StreamText
from photocall.records import Records
from photocall.scripts import Call, run
from photocall.sessions import Remembered
from photocall.tracing import Spans
from photocall_engine.edges import Answered, Cancelled, EngineRequest, Outcome, Refused
from photocall_engine.intake import Ticket
from photocall_engine.lease_book import LeaseBook
from photocall_engine.spans import record_spans
from photocall_engine.tally import Tally
from photocall_engine.transcript import TurnEnd

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Write:
    """What is to be written, for whom (None: for no request, and worth no wait), and whether it ends the request."""

    what: str
    write: Callable[[], object]
    ticket: Ticket | None
    last: bool = False


class RedisOutlet:
    """The engine's outlet over a synchronous client of its own."""

    def __init__(
        self,
        records: Records,
        leases: LeaseBook,
        engine_id: str,
        tally: Tally | None = None,
        spans: Spans | None = None,
    ) -> None:
        self._records = records
        self._engine_id = engine_id
        self._leases = leases
        self._tally = tally or Tally()
        self._spans = spans
        self._writes: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._giving_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="outlet", daemon=True)

    @property
    def unwritten(self) -> int:
        """Answers and events that wait."""
        return self._writes.qsize()

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Write what is left; False when time ran out, which leaves the rest to the sweeper."""
        self._writes.put(None)
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._giving_up.set()
            self._thread.join()
            return False
        return True

    def publish(self, request: EngineRequest, outcome: Outcome) -> None:
        """See Outlet. A request that was cancelled, or that is handed back, goes back: its record knows which."""
        ticket = cast(Ticket, request.ticket)
        asked_at = time.time()

        def write() -> None:
            if isinstance(outcome, Answered | Refused):
                failpoints.reach("engine.publish")
                written = _outcome(outcome, request, self._engine_id)
                counts = self._records.publish(ticket.lease, written, ticket.ref)
                failpoints.reach("engine.published")
                self._count(written, ticket, counts)
                if self._spans is not None:
                    record_spans(self._spans, request, outcome, ticket, asked_at)
            else:
                self._records.hand_back(ticket.lease, "running", ticket.ref)
                self._tally.outcomes["cancelled" if isinstance(outcome, Cancelled) else "handed_back", ""] += 1

        self._writes.put(_Write(request.job_id, write, ticket, last=True))

    def event(self, request: EngineRequest, kind: str, data: Mapping[str, Any]) -> None:
        """See Outlet."""
        job_id, ticket = request.job_id, cast(Ticket, request.ticket)

        def write() -> None:
            if kind == "stream":
                text = StreamText(job_id, data["question"], data["offset"], data["text"])
                self._records.event(ticket.lease, text)
            else:
                done, total = data["answered"], data["questions"]
                value = {"done": done, "total": total}
                self._records.progress(ticket.lease, Progress(job_id, "running", done, total), value)

        self._writes.put(_Write(job_id, write, ticket))

    def released(self, session_id: str) -> None:
        """See Outlet. What another engine says it holds stays."""
        call = Call(
            "release_held", (keys.session_held(session_id),), (keys.engine_stream(self._engine_id),), bool, job=False
        )
        self._writes.put(_Write(session_id, lambda: run(self._records.redis, call), None))

    def _count(self, written: jobs.Outcome, ticket: Ticket, counts: bool) -> None:
        if not counts:
            self._tally.outcomes["lost", ""] += 1
        elif isinstance(written, jobs.Answered):
            self._tally.answered(written.body, written.timings, len(ticket.prepared))
        else:
            self._tally.outcomes["refused", written.code] += 1

    def _run(self) -> None:
        while (item := self._writes.get()) is not None:
            with about_job(item.what if item.ticket is not None else ""):
                try:
                    self._until_written(item)
                except Exception:
                    log.exception("a write failed", extra=fields(of=item.what))
            if item.last and item.ticket is not None:
                self._leases.remove(item.ticket.lease)

    def _until_written(self, item: _Write) -> None:
        away = Backoff(log, f"cannot write for {item.what}")
        while True:
            try:
                item.write()
                return
            except (redis.ConnectionError, redis.TimeoutError, OutOfMemoryError) as error:
                if item.ticket is None or (isinstance(error, OutOfMemoryError) and not item.last):
                    return  # an event is worth no wait
                if self._giving_up.is_set() or not self._leases.holds(item.ticket.lease):
                    log.warning("an answer is given up: %s", error)
                    return
                self._giving_up.wait(away.failed(error))


def _outcome(outcome: Answered | Refused, request: EngineRequest, engine_id: str) -> jobs.Outcome:
    """The engine's outcome in the record's terms, with the time before the engine."""
    ticket = cast(Ticket, request.ticket)
    if isinstance(outcome, Refused):
        left = jobs.TurnLeft(notices=outcome.notices) if outcome.notices else None
        return jobs.Refused(outcome.code, outcome.message, outcome.data, turn=left)
    timings = dict(outcome.timings)
    timings["queue"] = timings.get("queue", 0.0) + ticket.queued_s
    timings["prepare"] = ticket.prepare_s
    return jobs.Answered(outcome.body, timings, _left(outcome.turn, request, engine_id), engine_id)


def _left(end: TurnEnd | None, request: EngineRequest, engine_id: str) -> jobs.TurnLeft | None:
    """What a turn leaves behind, in the record's terms."""
    if end is None:
        return None
    entry = b""
    if end.said is not None:
        ticket = cast(Ticket, request.ticket)
        ask = request.ask.to_content()
        entry = Remembered(end.report["turn"], request.job_id, ask, list(end.said), ticket.prepared).pack()
    holding = None
    if end.tokens:
        until = end.report["held"]["until"]
        holding = jobs.Holding(engine_id, end.tokens, end.held_bytes, end.lease_s, until)
    return jobs.TurnLeft(entry, holding, True, end.report["reused"], end.notices)

"""Prep and engine in one thread, through the real records, queues and streams: no picture is decoded, no model runs.

What it answers is scripted per test; everything around the answer (leases, fences, hand-over, publish) is the real
thing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from redis.exceptions import OutOfMemoryError

from photocall import keys
from photocall.asks import Ask
from photocall.connections import connect
from photocall.errors import JobGone, UnknownJob
from photocall.jobs import Answered, Holding, JobRecord, Lease, Outcome, Refused, StreamRef, TurnLeft
from photocall.messages import EngineInfo, Prepared, TurnRequest
from photocall.operations import Policy
from photocall.questions import Box, Choice, Noul, Number, Question, Score
from photocall.queueing import PrepQueues
from photocall.records import Records
from photocall.sessions import Remembered
from photocall.wire import Wire, unpack

Script = Callable[[Ask, JobRecord], Outcome]


def answer(question: Question) -> dict[str, Any]:
    """A plausible answer of each type: always the first option, the lowest level, yes."""
    if isinstance(question, Choice):
        rest = 0.2 / max(1, len(question.options) - 1)
        spread = {o.label: 0.8 if i == 0 else rest for i, o in enumerate(question.options)}
        return {"type": "choice", "choice": question.options[0].label, "confidence": 0.75, "probabilities": spread}
    if isinstance(question, Noul):
        return {"type": "noul", "noul": 0.875}
    if isinstance(question, Score):
        levels = range(len(question.levels))
        return {
            "type": "score",
            "score": 0.0,
            "confidence": 1.0,
            "legend": {str(i): question.levels[i] for i in levels},
            "probabilities": {str(i): float(i == 0) for i in levels},
        }
    if isinstance(question, Number):
        return {
            "type": "number",
            "number": 2,
            "expected": 2.0,
            "confidence": 0.9,
            "probabilities": {"2": 1.0},
            "alternatives": [],
            "interval": [2, 2],
        }
    if isinstance(question, Box):
        box = {"top": 0.25, "bottom": 0.75, "left": 0.125, "right": 0.5}
        return {"type": "box", "box": box, "confidence": 0.75, "presence": 0.9375}
    return {"type": "text", "text": "two boxes", "logprob": -1.5, "truncated": False}


def answered(ask: Ask, record: JobRecord) -> Outcome:
    """Every question answered."""
    answers = {question.name: answer(question) for question in ask.questions}
    usage = {"input_tokens": 42, "output_tokens": len(answers), "image_tokens": 140 * len(ask.images)}
    body = {"model": "photocall-mini", "answers": answers, "usage": usage}
    return Answered(body, {"queue": 0.001, "prepare": 0.0, "prefill": 0.0125, "readout": 0.00125})


class FakeBackend:
    """`prepare` and `respond` may be replaced by a test; `hold` makes the engine wait, `stall` and `delay_s` slow.

    Jobs may be cancelled and deleted at any moment: as in the real rooms, what is gone is passed over.
    """

    def __init__(self, url: str, key: bytes, policy: Policy | None = None) -> None:
        self.prepare: Callable[[JobRecord], Refused | None] = lambda record: None
        self.respond: Script = answered
        self.hold = threading.Event()  # set: the engine takes nothing
        self.stall = threading.Event()  # set: what the engine has taken is not answered, and its lease is kept
        self.renewing = threading.Event()  # cleared: a stalled engine asks nothing, and so hears of no cancel
        self.renewing.set()
        self.delay_s = 0.0  # only to be slow: whatever has to happen in that time is better waited for, with `stall`
        self.seen: list[str] = []  # jobs that reached the engine
        self.renewed_lost = 0  # leases that a renewal found lost
        self._wire = Wire(key, "fake-backend")
        self._redis = connect(url)
        self._records = Records(self._redis, self._wire, policy)
        self._queues = PrepQueues(self._redis, self._wire)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> FakeBackend:
        for lane in (*keys.LANES, "fake"):
            self._redis.xgroup_create(keys.engine_stream(lane), keys.ENGINE_GROUP, "0", mkstream=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(30)
        assert not self._thread.is_alive(), "the back end did not stop"
        self._redis.close()

    def announce(self, ready: bool = True) -> None:
        """An engine's heartbeat and a prep worker's registration."""
        info = EngineInfo("fake", "photocall-mini", "cpu", ready, 0, 8, 100, 100, time.time())
        self._redis.set(keys.heartbeat("fake"), self._wire.encode(info), ex=30)
        self._redis.zadd(keys.ENGINES, {"fake": time.time()})
        self._redis.sadd("rq:workers:prep", "rq:worker:fake")
        self._redis.hset("rq:worker:fake", "name", "fake")

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                busy = self._prep_one() | self._engine_one()
            except OutOfMemoryError:  # a server whose disk is full lets nobody take anything either
                busy = False
            if not busy:
                time.sleep(0.005)

    def _prep_one(self) -> bool:
        for lane in keys.LANES:
            queue = self._queues.queue(lane)
            entry_id = cast("bytes | None", self._redis.lpop(queue.key))
            if entry_id is None:
                continue
            entry = queue.fetch_job(entry_id.decode())
            if entry is None:
                return True  # its job was deleted between the two reads
            entry.delete()  # as the worker does at the end
            if entry.func_name == keys.FORGET_JOB:
                self._redis.zrem(keys.FORGET, entry.args[0])  # it made nothing of any picture
                return True
            assert entry.func_name == keys.PREPARE_JOB
            job_id, _, *more = entry.args
            for each in (job_id, *more):
                lease = self._records.lease(each, "preparing")
                if lease is not None:
                    self._prepare(lease)
            return True
        return False

    def _prepare(self, lease: Lease) -> None:
        record = self._read(lease)
        if record is None:
            return
        refused = self.prepare(record)
        if refused is not None:
            self._records.publish(lease, refused)
            return
        images = [
            {"sha256": sha, "blob_key": f"{sha}-140-x", "grid_height": 30, "grid_width": 42, "num_soft": 140}
            for sha in record.images
        ]
        self._records.prepared(lease, images)

    def _engine_one(self) -> bool:
        if self.hold.is_set():
            return False
        for lane in (*keys.LANES, "fake"):
            stream = keys.engine_stream(lane)
            found = self._redis.xreadgroup(keys.ENGINE_GROUP, "fake", {stream: ">"}, count=1)
            for _, entries in cast(Any, found) or ():
                for entry_id, values in entries:
                    self._serve(StreamRef(lane, entry_id.decode()), values[b"m"])
                    return True
        return False

    def _serve(self, ref: StreamRef, data: bytes) -> None:
        message = self._wire.decode(data).message
        assert isinstance(message, Prepared | TurnRequest)
        lease = self._records.lease(message.job_id, "running")
        if lease is None:  # a replay, or a job that was cancelled
            self._pass_over(ref)
            return
        self.seen.append(message.job_id)
        record = self._read(lease)
        if record is None:  # deleted since
            self._pass_over(ref)
            return
        ends = time.monotonic() + self.delay_s
        while (self.stall.is_set() or time.monotonic() < ends) and not self._stopped.is_set():
            time.sleep(0.02)
            if self.renewing.is_set() and not self._records.renew(lease):
                self.renewed_lost += 1
                break
        ask = Ask.from_content(unpack(record.ask))
        outcome = self.respond(ask, record)
        if record.session_id and isinstance(outcome, Answered):
            outcome = replace(outcome, turn=self._left(ask, record))
        self._records.publish(lease, outcome, ref)

    def _pass_over(self, ref: StreamRef) -> None:
        stream = keys.engine_stream(ref.lane)
        self._redis.xack(stream, keys.ENGINE_GROUP, ref.entry_id)
        self._redis.xdel(stream, ref.entry_id)

    def _read(self, lease: Lease) -> JobRecord | None:
        """The record; None when it was deleted since it was leased."""
        try:
            return self._records.get(lease.job_id)
        except (JobGone, UnknownJob):
            return None

    def _left(self, ask: Ask, record: JobRecord) -> TurnLeft:
        """What an engine says of a turn that was answered."""
        said: list[str | None] = ["A"] * len(ask.questions)
        entry = Remembered(record.turn, record.job_id, ask.to_content(), said, record.prepared).pack()
        holding = Holding("fake", 100 * record.turn, 4096 * record.turn, 30.0, time.time() + 30.0)
        first = record.turn == 1
        notices = ("Backend: fake",) if first else ()
        return TurnLeft(entry if record.remember else b"", holding, True, 0 if first else 100, notices)

"""The job records: one owner of every retry, kept in Redis, changed by scripts only (the rules: PROTOCOL.md).

`Records` is for prep, the engine and the sweeper, `AsyncRecords` for the gateway; both run the same calls.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import redis
import redis.asyncio

from photocall import keys
from photocall.errors import IdempotencyMismatch, JobGone, UnknownImage, UnknownJob
from photocall.jobs import (
    SHOWN_FIELDS,
    Accepted,
    JobRecord,
    JobStatus,
    Lease,
    NewJob,
    Outcome,
    Stage,
    StreamRef,
)
from photocall.messages import Header, Message, StreamText
from photocall.names import could_be_id
from photocall.operations import Operations, Policy, full
from photocall.scripts import Argument, run, run_all_async, run_async
from photocall.together import Together
from photocall.wire import Wire, pack, unpack

__all__ = [
    "Accepted",
    "AsyncRecords",
    "JobRecord",
    "JobStatus",
    "Lease",
    "NewJob",
    "Policy",
    "Records",
    "StreamRef",
]

Clock = Callable[[], float]
LIST_PAGE = 100


class Records:
    """Job records over a synchronous client. Without a clock, times are the Redis server's."""

    def __init__(
        self, client: redis.Redis, wire: Wire, policy: Policy | None = None, clock: Clock | None = None
    ) -> None:
        self.redis = client
        self.operations = Operations(wire, policy or Policy())
        self._clock = clock

    def accept(self, new: NewJob) -> Accepted:
        """Keep a job. Raises what Operations.accept says; then nothing was written."""
        return run(self.redis, self.operations.accept(new, self._now()))

    def get(self, job_id: str) -> JobRecord:
        """Read a record. Raises UnknownJob or JobGone."""
        raw = cast("dict[bytes, bytes]", self.redis.hgetall(keys.job(job_id)))
        if not raw:
            raise _gone(job_id, cast("bytes | None", self.redis.get(keys.tombstone(job_id))))
        return JobRecord.from_hash(job_id, raw)

    def lease(self, job_id: str, stage: Stage, cause: Header | None = None) -> Lease | None:
        """Take a job for a stage; None: gone, ended, held, or not this stage's. A message for it is then a replay.

        With the request's header as `cause`, the `busy` event is added with the lease.
        """
        return run(self.redis, self.operations.lease(job_id, stage, cause, self._now()))

    def renew(self, lease: Lease) -> bool:
        """Keep a lease for another while; every 2 s. False: stop, the work is not wanted any more."""
        return run(self.redis, self.operations.renew(lease, self._now()))

    def transition(
        self,
        job_id: str,
        fence: int | None,
        from_: JobStatus,
        to: JobStatus,
        fields: Mapping[str, Argument] | None = None,
    ) -> bool:
        """Compare and set the state; False when the job was not in `from_` under this fence."""
        return run(self.redis, self.operations.transition(job_id, fence, from_, to, fields, self._now()))

    def hand_back(self, lease: Lease, stage: Stage, ack: StreamRef | None = None, images: Sequence[str] = ()) -> bool:
        """Give a job back for `stage`, not counted as a failure. `images`: all that it turned out to need."""
        try:
            record = self.get(lease.job_id)
        except (JobGone, UnknownJob):
            return False
        return run(self.redis, self.operations.hand_back(lease, record, stage, ack, images, self._now()))

    def prepared(self, lease: Lease, images: Sequence[Mapping[str, Any]]) -> bool:
        """Hand a prepared job over to the engine; False when the lease is lost or the job cancelled."""
        try:
            record = self.get(lease.job_id)
        except (JobGone, UnknownJob):
            return False
        return run(self.redis, self.operations.prepared(lease, record, images))

    def fetched(self, lease: Lease, ask: bytes, images: Sequence[str], new: Mapping[str, int]) -> bool:
        """Put hashes in the place of URLs; `new`: the pictures fetched, with their bytes. False: the lease is lost."""
        return run(self.redis, self.operations.fetched(lease, ask, images, new))

    def publish(self, lease: Lease, outcome: Outcome, ack: StreamRef | None = None) -> bool:
        """Write the answer. False: an old fence, a cancelled or deleted job. Raises redis' OutOfMemoryError."""
        return run(self.redis, self.operations.publish(lease, outcome, ack, self._now()))

    def event(self, lease: Lease, message: Message) -> bool:
        """Add an event of a leased job; text that was added before (by an earlier attempt) is not repeated."""
        known = run(self.redis, self.operations.event(lease, message))
        if known >= 0 and isinstance(message, StreamText):
            rest = StreamText(message.job_id, message.question, known, message.text[known - message.offset :])
            known = run(self.redis, self.operations.event(lease, rest))
        return known == -1

    def progress(self, lease: Lease, message: Message, value: Mapping[str, Any]) -> bool:
        """Add an event and set the record's `progress` with it."""
        return run(self.redis, self.operations.event(lease, message, "progress", pack(dict(value)))) == -1

    def cancel(self, job_id: str) -> JobRecord:
        """Cancel; a job that has ended stays as it is. Raises UnknownJob or JobGone."""
        run(self.redis, self.operations.cancel(self.get(job_id), self._now()))
        return self.get(job_id)

    def delete(self, job_id: str) -> None:
        """Cancel and remove. Raises UnknownJob or JobGone."""
        run(self.redis, self.operations.delete(self.get(job_id), now=self._now()))

    def postpone(self, job_ids: Sequence[str], until: float) -> None:
        """Jobs behind another: those that are in the outbox are due at `until`, in case nobody comes to them."""
        self.redis.zadd(keys.OUTBOX, dict.fromkeys(job_ids, until), xx=True)

    def clear_outbox(self, job_id: str) -> None:
        """The job is on its queue."""
        run(self.redis, self.operations.clear_outbox(job_id))

    def _now(self) -> float | None:
        return self._clock() if self._clock else None


class AsyncRecords:
    """Job records over an asyncio client: what the gateway needs of `Records`, and lists and waiting."""

    def __init__(
        self, client: redis.asyncio.Redis, wire: Wire, policy: Policy | None = None, clock: Clock | None = None
    ) -> None:
        self.redis = client
        self.operations = Operations(wire, policy or Policy())
        self._clock = clock
        self._reads = Together(client)

    async def accept(self, new: NewJob) -> Accepted:
        """See Records.accept."""
        return await run_async(self.redis, self.operations.accept(new, self._now()))

    async def replayed(self, owner: str, idempotency_key: str | None, request_hash: str) -> Accepted | None:
        """What `accept` would give for a key that is known; None where it is not. Raises IdempotencyMismatch."""
        if idempotency_key is None:
            return None
        place = keys.idempotency(owner, idempotency_key)
        job, known = await cast(Any, self.redis.hmget(place, ["job", "hash"]))
        if job is None:
            return None
        if known != request_hash.encode():
            raise IdempotencyMismatch(idempotency_key)
        return Accepted(job.decode(), created=False)

    async def check_room(self, new: NewJob, stored: Sequence[str] = ()) -> None:
        """Raises QueueFull, KeyBusy or UnknownImage where `accept` would: asked before pictures are stored in vain.

        `stored` are those of its pictures that must be stored already.

        Room that goes in between is noticed by `accept`, which decides; so is the replay of a known key, always let on.
        """
        bounds = self.operations.bounds(new)
        async with self.redis.pipeline(transaction=False) as pipe:
            pipe.hmget(keys.DEPTH, [field for _, field, _, _ in bounds])
            pipe.exists(keys.idempotency(new.owner, new.idempotency_key or ""))
            for sha256 in stored:
                pipe.hexists(keys.image(sha256), f"owner:{new.owner}")
            held, known, *owned = await pipe.execute()
        for (shown, _, more, allowed), found in zip(bounds, held, strict=True):
            if not known and int(found or 0) + more > allowed:
                raise full(new, shown, int(found or 0), allowed)
        for sha256, found in zip(stored, owned, strict=True):
            if not known and not found:
                raise UnknownImage(sha256)

    async def get(self, job_id: str) -> JobRecord:
        """See Records.get."""
        return await self._record(job_id, await self._reads.ask("HGETALL", keys.job(job_id)))

    async def look(self, job_id: str) -> JobRecord:
        """`get` for those who only show the job: `ask`, `prepared` and `header`, which can be large, are left out."""
        values = await self._reads.ask("HMGET", keys.job(job_id), *SHOWN_FIELDS)
        raw = {name: value for name, value in zip(SHOWN_FIELDS, values, strict=True) if value is not None}
        return await self._record(job_id, raw)

    async def _record(self, job_id: str, raw: Mapping[bytes, bytes]) -> JobRecord:
        if not raw:
            raise _gone(job_id, await self._reads.ask("GET", keys.tombstone(job_id)))
        return JobRecord.from_hash(job_id, raw)

    async def cancel(self, job_id: str) -> JobRecord:
        """See Records.cancel."""
        await run_async(self.redis, self.operations.cancel(await self.get(job_id), self._now()))
        return await self.get(job_id)

    async def replace(self, job_id: str, by: str) -> None:
        """Cancel a waiting turn for a newer one, `by`. Raises UnknownJob or JobGone."""
        await run_async(self.redis, self.operations.replace(await self.get(job_id), by, self._now()))

    async def delete(self, job_id: str, purge: bool = False) -> None:
        """See Records.delete. `purge`: with the pictures that nothing else needs, and what was prepared from them."""
        await run_async(self.redis, self.operations.delete(await self.get(job_id), purge, self._now()))

    async def unjoin(self, record: JobRecord) -> None:
        """The ended job stays, but its idempotency key stands for the next request that has it."""
        await run_async(self.redis, self.operations.unjoin(record))

    async def clear_outbox(self, job_id: str) -> None:
        """See Records.clear_outbox."""
        await run_async(self.redis, self.operations.clear_outbox(job_id))

    async def postpone(self, job_ids: Sequence[str], until: float) -> None:
        """See Records.postpone."""
        await cast(Any, self.redis.zadd(keys.OUTBOX, dict.fromkeys(job_ids, until), xx=True))

    async def forget(self, owner: str, job_ids: Sequence[str]) -> None:
        """Remove every trace of ended jobs whose answers are kept elsewhere."""
        await run_all_async(self.redis, [self.operations.forget(owner, job_id) for job_id in job_ids])

    async def read(self, job_ids: Sequence[str]) -> list[JobRecord | None]:
        """The records of several jobs; None for one that is not there."""
        async with self.redis.pipeline(transaction=False) as pipe:
            for job_id in job_ids:
                pipe.hgetall(keys.job(job_id))
            found = await pipe.execute()
        return [JobRecord.from_hash(job_id, raw) if raw else None for job_id, raw in zip(job_ids, found, strict=True)]

    async def statuses(self, job_ids: Sequence[str]) -> list[JobStatus | None]:
        """The state of each job; None for one that is not there."""
        async with self.redis.pipeline(transaction=False) as pipe:
            for job_id in job_ids:
                pipe.hget(keys.job(job_id), "status")
            found = await pipe.execute()
        return [None if raw is None else JobStatus(raw.decode()) for raw in found]

    async def list(
        self,
        owner: str,
        status: JobStatus | None = None,
        after: str | None = None,
        limit: int = 20,
        metadata: Mapping[str, str] | None = None,
    ) -> list[JobRecord]:
        """The owner's jobs, newest first; `metadata`: only those that have all of it.

        `after` is the last id of the page before, and may have ended or been deleted since: its tombstone knows its
        place. Raises UnknownJob where it has none.
        """
        index = keys.index(owner)
        score, last = ("+inf", "") if after is None else await self._place(owner, after)
        found: list[JobRecord] = []
        start = 0
        while len(found) < limit:
            page = await cast(
                Any, self.redis.zrevrangebyscore(index, score, "-inf", start=start, num=LIST_PAGE, withscores=True)
            )
            if not page:
                break
            start += len(page)
            # Of those made in the same instant, the order is that of their ids.
            ids = [raw.decode() for raw, at in page if not (last and repr(at) == score and raw.decode() >= last)]
            found += await self._matching(ids, status, metadata or {})
        return found[:limit]

    async def _place(self, owner: str, job_id: str) -> tuple[str, str]:
        """Where a page goes on behind a job: the score of its entry, and its id. Raises UnknownJob."""
        if not could_be_id(job_id):
            raise UnknownJob(job_id)
        at = await cast(Any, self.redis.zscore(keys.index(owner), job_id))
        if at is None:
            gone = await cast(Any, self.redis.get(keys.tombstone(job_id)))
            whose, _, created = (gone or b"").decode().rpartition("/")
            if whose != owner:
                raise UnknownJob(job_id)
            at = float(created)
        return repr(float(at)), job_id

    async def _matching(
        self, ids: Sequence[str], status: JobStatus | None, metadata: Mapping[str, str]
    ) -> Sequence[JobRecord]:
        """The records of these; where few may match, the small fields are read first."""
        if status is not None or metadata:
            async with self.redis.pipeline(transaction=False) as pipe:
                for job_id in ids:
                    pipe.hmget(keys.job(job_id), "status", "metadata")
                small = await pipe.execute()
            ids = [
                job_id
                for job_id, (state, packed) in zip(ids, small, strict=True)
                if state is not None
                and (status is None or state.decode() == status.value)
                and (not metadata or metadata.items() <= (unpack(packed) if packed else {}).items())
            ]
        async with self.redis.pipeline(transaction=False) as pipe:
            for job_id in ids:
                pipe.hgetall(keys.job(job_id))
            hashes = await pipe.execute()
        return [JobRecord.from_hash(job_id, raw) for job_id, raw in zip(ids, hashes, strict=True) if raw]

    async def depth(self) -> dict[str, int]:
        """Unfinished work: `jobs` and `bytes` in total, `jobs:<owner>` and `bytes:<owner>` of each."""
        raw = await cast(Any, self.redis.hgetall(keys.DEPTH))
        return {name.decode(): int(value) for name, value in raw.items()}

    async def counters(self) -> dict[str, int]:
        """Refused and dead-lettered messages, ended leases, poison."""
        raw = await cast(Any, self.redis.hgetall(keys.COUNTERS))
        return {name.decode(): int(value) for name, value in raw.items()}

    @asynccontextmanager
    async def wakes(self) -> AsyncIterator[AsyncIterator[str]]:
        """The ids of jobs that change, as they change: a hint, read by one reader per process and fanned out."""
        pubsub = self.redis.pubsub(ignore_subscribe_messages=True)
        await pubsub.subscribe(keys.WAKE)

        async def ids() -> AsyncIterator[str]:
            while True:
                message = await pubsub.get_message(timeout=1.0)
                if message is not None:
                    yield message["data"].decode()

        try:
            yield ids()
        finally:
            await pubsub.aclose()  # type: ignore[no-untyped-call]

    def _now(self) -> float | None:
        return self._clock() if self._clock else None


def _gone(job_id: str, tombstone: bytes | None) -> JobGone | UnknownJob:
    """Why there is no record."""
    return UnknownJob(job_id) if tombstone is None else JobGone(job_id, tombstone.decode().rpartition("/")[0])

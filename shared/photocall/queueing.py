"""RQ, as far as it is trusted: a signed serializer, job classes that run their own functions only, and the enqueues.

RQ runs any dotted name it finds in a job's data and imports the callbacks named in the job's hash. Here data is
verified before it is decoded, only the queue's own functions may run, and callbacks, webhooks, retries and repeats in a
hash are ignored. Retrying belongs to the job record alone.
"""

from __future__ import annotations

import hashlib
import logging
import zlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, cast

import redis
from rq import Queue
from rq.exceptions import NoSuchJobError
from rq.job import Job, JobStatus
from rq.utils import import_attribute, now, utcformat

from photocall import keys
from photocall.errors import BadSignature, MalformedMessage, RefusedFunction, UnknownVersion
from photocall.logs import fields
from photocall.messages import DecideRequest, RqValue
from photocall.scripts import Call, run
from photocall.wire import Wire

log = logging.getLogger(__name__)

JOB_TIMEOUT_S = 120  # RQ's own bound on one run; the job record's clock is shorter in practice
RESULT_TTL_S = 0  # the entry goes with its success: nothing of it is read again
FAILURE_TTL_S = 60
ASIDE_TTL_S = 30
MAX_DATA_BYTES = 4 * 1024 * 1024  # of an entry; ours have some hundred bytes
WEBHOOK_ENTRY_TTL_S = 120  # then a delivery that is still due is enqueued again


class SignedSerializer:
    """RQ's serializer: every value is a signed message; nothing is ever pickled."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.__qualname__ = type(self).__qualname__  # RQ's worker prints the serializer as if it were a class

    def dumps(self, value: Any, /) -> bytes:
        """A job's (function, instance, args, kwargs), or any other value msgpack can carry."""
        if isinstance(value, tuple) and len(value) == 4:
            function, instance, args, kwargs = value
            if instance is not None or kwargs:
                raise MalformedMessage("a queue entry has a function and positional arguments only")
            return self._wire.encode(DecideRequest(function, list(args)))
        return self._wire.encode(RqValue(value))

    def loads(self, data: bytes, /) -> Any:
        """Verify, then decode. Raises BadSignature, UnknownVersion or MalformedMessage."""
        message = self._wire.decode(data).message
        if isinstance(message, DecideRequest):
            return message.function, None, tuple(message.args), {}
        if isinstance(message, RqValue):
            return message.value
        raise MalformedMessage(f"{message.msg_type} does not belong into a queue")


class OwnJob(Job):
    """A queue entry that can only run the functions in `allowed`. What it refuses is counted in `keys.COUNTERS`."""

    allowed: ClassVar[tuple[str, ...]] = ()

    def restore(self, raw_data: Any) -> Any:
        """Read the hash, without what could make RQ import, call or repeat something."""
        super().restore(raw_data)
        self._success_callback_name = self._failure_callback_name = self._stopped_callback_name = None
        self.webhooks = []
        self.retries_left = self.repeats_left = self.number_of_retries = None
        self._dependency_ids = []

    def restore_work(self, hashed: Mapping[bytes, bytes]) -> None:
        """Read what is to be run, and nothing else of an entry's hash. Raises NoSuchJobError, MalformedMessage."""
        try:
            packed = hashed[b"data"]
        except KeyError:
            raise NoSuchJobError(f"nothing is stored of {self.id}") from None
        inflate = zlib.decompressobj()
        try:
            self.data = inflate.decompress(packed, MAX_DATA_BYTES)
        except zlib.error:
            self.data = packed  # as RQ has it; whatever it is, its signature is checked
        else:
            if inflate.unconsumed_tail:
                raise MalformedMessage(f"an entry of more than {MAX_DATA_BYTES} bytes")

    @property
    def func(self) -> Callable[..., Any]:
        """The project's own function. Raises RefusedFunction for any other name."""
        name = str(self.func_name)
        if name not in self.allowed:
            self._count("refused_function")
            log.warning("refused a queue entry", extra=fields(function=name, entry=self.id))
            raise RefusedFunction(name)
        return import_attribute(name)

    def _deserialize_data(self) -> None:
        try:
            self._func_name, self._instance, self._args, self._kwargs = self.serializer.loads(self.data)
        except BadSignature:
            self._count("bad_signature")
            log.warning("refused a queue entry without our signature", extra=fields(entry=self.id))
            raise
        except UnknownVersion:
            self._count("unknown_version")
            raise

    def _count(self, counter: str) -> None:
        self.connection.hincrby(keys.COUNTERS, counter, 1)


class PrepareJob(OwnJob):
    """Work of the prep room: a job's pictures, mostly."""

    allowed = keys.PREP_JOBS


class DeliverJob(OwnJob):
    """Makes one attempt of a webhook's delivery."""

    allowed = (keys.DELIVER_JOB,)


class WebhookQueue:
    """The queue of due deliveries: enqueued by the sweeper, taken by a courier. An entry that is lost is due again."""

    def __init__(self, client: redis.Redis, wire: Wire) -> None:
        self._redis = client
        self._serializer = SignedSerializer(wire)
        self._queue = Queue(keys.WEBHOOK_QUEUE, connection=client, serializer=self._serializer, job_class=DeliverJob)

    def enqueue(self, delivery_id: str, attempt: int) -> None:
        """Put an attempt on the queue, unless it is there already."""
        entry_id = keys.webhook_rq_id(delivery_id, attempt)
        if self._redis.exists(DeliverJob.key_for(entry_id)):
            return
        with self._redis.pipeline() as pipe:
            self._queue.enqueue_call(
                keys.DELIVER_JOB,
                args=(delivery_id, attempt),
                job_id=entry_id,
                result_ttl=RESULT_TTL_S,
                failure_ttl=FAILURE_TTL_S,
                description=entry_id,
                pipeline=pipe,
            )
            pipe.expire(DeliverJob.key_for(entry_id), WEBHOOK_ENTRY_TTL_S)
            pipe.execute()

    def take(self, block_s: float) -> str | None:
        """The oldest entry's id, taken off the queue; None when there is none for a while."""
        found = cast("tuple[bytes, bytes] | None", self._redis.blpop([self._queue.key], timeout=block_s))
        return None if found is None else found[1].decode()

    def fetch(self, entry_id: str) -> DeliverJob:
        """An entry that was taken. Raises NoSuchJobError."""
        return cast(DeliverJob, DeliverJob.fetch(entry_id, connection=self._redis, serializer=self._serializer))

    def forget(self, entry_id: str) -> None:
        """It is run, or refused."""
        self._redis.delete(DeliverJob.key_for(entry_id))


class PrepQueues:
    """The two prep queues, for whoever enqueues (the gateway, its sweeper) and for prep's worker."""

    def __init__(self, client: redis.Redis, wire: Wire) -> None:
        self._redis = client
        self.serializer = SignedSerializer(wire)
        self._queues = {
            lane: Queue(name, connection=client, serializer=self.serializer, job_class=PrepareJob)
            for lane, name in keys.PREP_QUEUE.items()
        }
        self._forms: dict[tuple[keys.Lane, int], dict[str, Any]] = {}

    def queue(self, lane: keys.Lane) -> Queue:
        """The RQ queue of a lane."""
        return self._queues[lane]

    def enqueue(self, job_id: str, attempt: int, lane: keys.Lane, *more: str) -> str:
        """Put one attempt on its queue; its id. Doing it twice is harmless: the job's lease is taken once.

        `more`: jobs that the same entry prepares behind it. What RQ costs is paid per entry, not per picture.
        """
        entry_id = keys.rq_id(job_id, attempt)
        self._put(lane, entry_id, keys.PREPARE_JOB, (job_id, attempt, *more), FAILURE_TTL_S)
        return entry_id

    def enqueue_aside(self, function: str, sha256: str, view: str = "") -> None:
        """Work on one picture that belongs to no job, unless it waits already. Nothing is lost with the entry."""
        of_view = f"-{hashlib.sha256(view.encode()).hexdigest()[:16]}" if view else ""
        entry_id = f"{function.rpartition('.')[2]}-{sha256}{of_view}"
        args = (sha256, view) if view else (sha256,)
        self._put("interactive", entry_id, function, args, failure_ttl_s=1, waits_s=ASIDE_TTL_S)

    def _put(
        self, lane: keys.Lane, entry_id: str, function: str, args: tuple[Any, ...], failure_ttl_s: int, waits_s: int = 0
    ) -> None:
        """Enqueue as RQ does, in one call: RQ's own way sends six commands, which a lone caller waits for.

        With `waits_s` the entry is forgotten when it waited so long, and is left as it is when it waits already.
        """
        queue, at = self._queues[lane], utcformat(now())
        data = zlib.compress(self.serializer.dumps((function, None, args, {})))
        own = {"data": data, "description": entry_id, "created_at": at, "enqueued_at": at}
        hashed = self._form(lane, failure_ttl_s) | own
        own_keys = (queue.key, PrepareJob.key_for(entry_id), Queue.redis_queues_keys)
        flat = (each for pair in hashed.items() for each in pair)
        run(self._redis, Call("put_entry", own_keys, (entry_id, waits_s, *flat), bool, job=False))

    def _form(self, lane: keys.Lane, failure_ttl_s: int) -> dict[str, Any]:
        """What all entries of a kind have in their hashes, as RQ writes it."""
        form = self._forms.get((lane, failure_ttl_s))
        if form is None:
            job = PrepareJob.create(
                keys.PREPARE_JOB,
                connection=self._redis,
                serializer=self.serializer,
                origin=self._queues[lane].name,
                timeout=JOB_TIMEOUT_S,
                result_ttl=RESULT_TTL_S,
                failure_ttl=failure_ttl_s,
            )
            form = {name: value for name, value in job.to_dict().items() if value != ""}
            form["status"] = JobStatus.QUEUED.value
            self._forms[lane, failure_ttl_s] = form
        return form

    def waiting(self) -> dict[keys.Lane, int]:
        """Entries on each queue."""
        return {lane: int(queue.count) for lane, queue in self._queues.items()}

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
from functools import cached_property
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
from photocall.scripts import Call, flat, run
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


class OwnQueue(Queue):
    """A queue whose entries are put as RQ puts them, by one script: RQ's own way sends six commands."""

    def put(
        self, entry_id: str, function: str, args: tuple[Any, ...], failure_ttl_s: int = FAILURE_TTL_S, waits_s: int = 0
    ) -> None:
        """With `waits_s` an entry is forgotten when it waited so long, and is left as it is when it waits already."""
        at = utcformat(now())
        data = zlib.compress(self.serializer.dumps((function, None, args, {})))
        own = {"data": data, "description": entry_id, "created_at": at, "enqueued_at": at, "failure_ttl": failure_ttl_s}
        own_keys = (self.key, self.job_class.key_for(entry_id), self.redis_queues_keys)
        run(self.connection, Call("put_entry", own_keys, (entry_id, waits_s, *flat(self._form | own)), bool, job=False))

    @cached_property
    def _form(self) -> dict[str, Any]:
        """What all entries have in their hashes, as RQ writes it."""
        job = self.job_class.create(
            keys.PREPARE_JOB,  # in `data`, which each entry has anew
            connection=self.connection,
            serializer=self.serializer,
            origin=self.name,
            timeout=JOB_TIMEOUT_S,
            result_ttl=RESULT_TTL_S,
        )
        said = {name: value for name, value in job.to_dict().items() if value != ""}
        return said | {"status": JobStatus.QUEUED.value}


class WebhookQueue:
    """The queue of due deliveries: enqueued by the sweeper, taken by a courier. An entry that is lost is due again."""

    def __init__(self, client: redis.Redis, wire: Wire) -> None:
        self._redis = client
        self._serializer = SignedSerializer(wire)
        self._queue = OwnQueue(keys.WEBHOOK_QUEUE, connection=client, serializer=self._serializer, job_class=DeliverJob)

    def enqueue(self, delivery_id: str, attempt: int) -> None:
        """Put an attempt on the queue, unless it is there already."""
        entry_id = keys.webhook_rq_id(delivery_id, attempt)
        self._queue.put(entry_id, keys.DELIVER_JOB, (delivery_id, attempt), waits_s=WEBHOOK_ENTRY_TTL_S)

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
            lane: OwnQueue(name, connection=client, serializer=self.serializer, job_class=PrepareJob)
            for lane, name in keys.PREP_QUEUE.items()
        }

    def queue(self, lane: keys.Lane) -> Queue:
        """The RQ queue of a lane."""
        return self._queues[lane]

    def enqueue(self, job_id: str, attempt: int, lane: keys.Lane, *more: str) -> str:
        """Put one attempt on its queue; its id. Doing it twice is harmless: the job's lease is taken once.

        `more`: jobs that the same entry prepares behind it. What RQ costs is paid per entry, not per picture.
        """
        entry_id = keys.rq_id(job_id, attempt)
        self._queues[lane].put(entry_id, keys.PREPARE_JOB, (job_id, attempt, *more))
        return entry_id

    def enqueue_aside(self, function: str, sha256: str, view: str = "") -> None:
        """Work on one picture that belongs to no job, unless it waits already. Nothing is lost with the entry."""
        of_view = f"-{hashlib.sha256(view.encode()).hexdigest()[:16]}" if view else ""
        entry_id = f"{function.rpartition('.')[2]}-{sha256}{of_view}"
        args = (sha256, view) if view else (sha256,)
        self._queues["interactive"].put(entry_id, function, args, failure_ttl_s=1, waits_s=ASIDE_TTL_S)

    def waiting(self) -> dict[keys.Lane, int]:
        """Entries on each queue."""
        return {lane: int(queue.count) for lane, queue in self._queues.items()}

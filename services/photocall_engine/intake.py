"""RedisIntake: from stream entries to requests the engine can run.

A thread fetches as much as the engine has room for: reads the lanes (interactive first), leases each job, loads its
patch blobs. So the engine's loop never waits for Redis. Every entry ends in one way: taken, or acknowledged as a
replay (the job has ended, is held, or is prep's again), or dead-lettered, or its job is sent back to prep because a
blob has vanished.

A job that was in an engine when it died is a suspect: it runs alone, so that one that kills engines never takes its
neighbours with it to the end of their attempts.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import redis
from redis.exceptions import ResponseError

from photocall import keys
from photocall.asks import Ask
from photocall.blobs import BlobStore
from photocall.errors import BadSignature, JobGone, MalformedMessage, UnknownJob, UnknownVersion
from photocall.grid import PATCH_BYTES
from photocall.jobs import JobRecord, Lease, Refused, StreamRef
from photocall.keys import LANES, Lane
from photocall.logs import fields
from photocall.messages import Header, Prepared
from photocall.records import Records
from photocall.streams import FIELD, DeadLetters, Entry, entries_of
from photocall.wire import Wire, unpack
from photocall_engine.edges import EngineRequest
from photocall_engine.lease_book import LeaseBook
from photocall_engine.runner import PatchImage

log = logging.getLogger(__name__)

BLOCK_MS = 500
RECLAIM_EVERY_S = 3.0
RECLAIM_IDLE_MS = 10_000  # longer than a lease: entries of an engine that died before it took the lease
CONSUMER_IDLE_MS = 3_600_000
AWAY_S = 0.5
EMPTY_POLL_S = 0.02
MAX_RETURNS = 5  # to prep, for want of a blob: then prep and engine do not agree on where or what blobs are


@dataclass(frozen=True, slots=True)
class Ticket:
    """What the outlet needs to end a request."""

    lease: Lease
    ref: StreamRef
    queued_s: float  # in queues, before the engine took it
    prepare_s: float


@dataclass(frozen=True, slots=True)
class Offer:
    """A message that offers a job, and the header of the request that caused it."""

    message: Prepared
    cause: Header | None


class RedisIntake:
    """The engine's intake over a synchronous client of its own."""

    def __init__(
        self,
        client: redis.Redis,
        wire: Wire,
        records: Records,
        blobs: BlobStore,
        leases: LeaseBook,
        engine_id: str,
        processor_hash: str,
    ) -> None:
        self._redis = client
        self._wire = wire
        self._records = records
        self._blobs = blobs
        self._leases = leases
        self._consumer = engine_id
        self._processor_hash = processor_hash
        self._dead = DeadLetters(client)
        self._ready: queue.SimpleQueue[EngineRequest] = queue.SimpleQueue()
        self._wanted = 0  # requests the engine has room for, beyond those that are ready or being fetched
        self._fetching = 0
        self._room = threading.Condition()
        self._stopped = threading.Event()
        self._suspects: deque[tuple[Lane, Entry]] = deque()  # read, not leased
        self._alone = ""  # the suspect that runs, or was the last to
        self._reclaimed_at = float("-inf")
        self._grouped = False
        self._thread = threading.Thread(target=self._run, name="intake", daemon=True)

    def start(self) -> None:
        """Begin to fetch."""
        self._thread.start()

    def stop(self) -> None:
        """Fetch nothing more; `take` still gives what was fetched, for the engine to hand back or finish."""
        self._stopped.set()
        with self._room:
            self._room.notify()
        self._thread.join()

    def take(self, limit: int, wait_s: float) -> list[EngineRequest]:
        """See Intake."""
        with self._room:
            self._wanted = limit - self._ready.qsize() - self._fetching
            if self._wanted > 0:
                self._room.notify()
        taken: list[EngineRequest] = []
        try:
            while len(taken) < limit:
                taken.append(self._ready.get(timeout=wait_s) if wait_s and not taken else self._ready.get_nowait())
        except queue.Empty:
            pass
        return taken

    def cancelled(self, job_ids: Collection[str]) -> set[str]:
        """See Intake. Jobs whose lease was lost count too: nobody would take their answer."""
        return self._leases.unwanted(job_ids)

    def _run(self) -> None:
        while not self._stopped.is_set():
            with self._room:
                if self._wanted <= 0:
                    self._room.wait(1.0)
                    continue
                self._fetching, self._wanted = self._wanted, 0
            try:
                self._fetch(self._fetching)
            except ResponseError as error:
                if not str(error).startswith("NOGROUP"):
                    raise
                self._grouped = False  # the streams were deleted
            except redis.RedisError as error:
                log.warning("cannot take requests: %s", error, extra=fields(retry_s=AWAY_S))
                self._stopped.wait(AWAY_S)
            except Exception:  # an engine that takes nothing any more would look alive for ever
                log.exception("cannot take requests", extra=fields(retry_s=AWAY_S))
                self._stopped.wait(AWAY_S)
            finally:
                with self._room:
                    self._fetching = 0

    def _fetch(self, wanted: int) -> None:
        """One look at the lanes, blocking a while when both are empty."""
        if not self._grouped:
            self._make_groups()
        if self._suspects or self._alone in self._leases:
            self._fetch_suspect()
            return
        for lane, entry in self._entries(wanted):
            try:
                offer = self._read_message(entry)
            except (BadSignature, UnknownVersion, MalformedMessage) as error:
                self._dead.refuse(keys.engine_stream(lane), keys.ENGINE_GROUP, entry, error)
                continue
            if offer.message.attempt > 1:
                self._suspects.append((lane, entry))
            else:
                self._accept(lane, entry, offer)

    def _fetch_suspect(self) -> None:
        """The next suspect, once the engine is empty; until it has ended nothing else is fetched."""
        if len(self._leases) or not self._suspects:  # the one that ran may have ended since the caller looked
            self._stopped.wait(EMPTY_POLL_S)
            return
        lane, entry = self._suspects.popleft()
        offer = self._read_message(entry)
        self._alone = offer.message.job_id
        self._accept(lane, entry, offer)

    def _entries(self, wanted: int) -> list[tuple[Lane, Entry]]:
        found: list[tuple[Lane, Entry]] = []
        if time.monotonic() - self._reclaimed_at >= RECLAIM_EVERY_S:
            self._reclaimed_at = time.monotonic()
            for lane in LANES:
                found += [(lane, entry) for entry in self._reclaim(lane, wanted)]
        for lane in LANES:
            if len(found) < wanted:
                found += [(lane, entry) for entry in self._read([lane], wanted - len(found), None)]
        if not found:
            streams = {keys.engine_stream(lane): lane for lane in LANES}
            reply = self._read_reply(LANES, max(1, wanted // len(LANES)), BLOCK_MS)
            found = [(streams[stream.decode()], entry) for stream, entries in reply or () for entry in entries]
        return found

    def _read(self, lanes: Collection[Lane], count: int, block_ms: int | None) -> list[Entry]:
        return entries_of(self._read_reply(lanes, count, block_ms))

    def _read_reply(self, lanes: Collection[Lane], count: int, block_ms: int | None) -> Any:
        streams = {keys.engine_stream(lane): ">" for lane in lanes}
        return self._redis.xreadgroup(
            keys.ENGINE_GROUP, self._consumer, cast(Any, streams), count=count, block=block_ms
        )

    def _reclaim(self, lane: Lane, count: int) -> list[Entry]:
        """Entries that a dead engine had read; a job that is held is left to its lease, here and elsewhere."""
        stream = keys.engine_stream(lane)
        reply = cast(
            Any,
            self._redis.xautoclaim(
                stream, keys.ENGINE_GROUP, self._consumer, min_idle_time=RECLAIM_IDLE_MS, start_id="0-0", count=count
            ),
        )
        for consumer in cast(Any, self._redis.xinfo_consumers(stream, keys.ENGINE_GROUP)):
            if consumer["pending"] == 0 and consumer["idle"] > CONSUMER_IDLE_MS:
                self._redis.xgroup_delconsumer(stream, keys.ENGINE_GROUP, consumer["name"])
        return [entry for entry in reply[1] if entry[1]]

    def _read_message(self, entry: Entry) -> Offer:
        """Raises BadSignature, UnknownVersion or MalformedMessage."""
        envelope = self._wire.decode(entry[1].get(FIELD, b""))
        if not isinstance(envelope.message, Prepared):
            raise MalformedMessage(f"{envelope.message.msg_type} does not belong on an engine stream")
        return Offer(envelope.message, envelope.parent_header)

    def _accept(self, lane: Lane, entry: Entry, offer: Offer) -> None:
        """Lease and load one entry's job; ready for the engine, unless it is a replay or goes elsewhere."""
        ref = StreamRef(lane, entry[0].decode())
        job_id = offer.message.job_id
        lease = self._records.lease(job_id, "running", offer.cause)
        if lease is None:
            self._acknowledge(ref)
            return
        self._leases.add(lease)
        request: EngineRequest | None = None
        try:
            request = self._load(self._records.get(job_id), lease, ref)
        except (UnknownJob, JobGone):  # deleted since
            self._acknowledge(ref)
        except (ValueError, LookupError, TypeError) as error:  # a record that cannot be read fails its own job
            log.exception("a job cannot be loaded", extra=fields(job=job_id))
            self._records.publish(lease, Refused("internal", f"the job cannot be loaded: {error}"), ref)
        finally:
            if request is None:  # also when Redis went away: then the lease ends, and the sweeper gives the job on
                self._leases.remove(lease)
            else:
                self._ready.put(request)

    def _load(self, record: JobRecord, lease: Lease, ref: StreamRef) -> EngineRequest | None:
        """The request with its pictures; None when its job went elsewhere."""
        images: dict[str, PatchImage] = {}
        for described in record.prepared:
            image = self._image(described)
            if image is None:
                self._send_back(record, lease, ref, str(described.get("blob_key")))
                return None
            images[described["sha256"]] = image
        if images.keys() != set(record.images):
            self._send_back(record, lease, ref, "not every picture was prepared")
            return None
        now = time.time()
        prepare_s = max(0.0, record.prepared_at - record.started_at) if record.prepared_at else 0.0
        return EngineRequest(
            job_id=record.job_id,
            ask=Ask.from_content(unpack(record.ask)),
            images=images,
            owner=record.owner,
            priority=record.priority,
            arrived_at=now,
            deadline_at=record.deadline_at,
            ticket=Ticket(lease, ref, max(0.0, now - record.created_at - prepare_s), prepare_s),
        )

    def _image(self, described: dict[str, Any]) -> PatchImage | None:
        """A picture's patches; None when the blob has vanished, is not whole, or was made for another checkpoint."""
        blob_key = str(described["blob_key"])
        if not blob_key.endswith(f"-{self._processor_hash}"):
            return None
        height, width = int(described["grid_height"]), int(described["grid_width"])
        data = self._blobs.get(blob_key)
        if data is None or len(data) != height * width * PATCH_BYTES:
            return None
        patches = np.frombuffer(data, dtype=np.uint8).reshape(height * width, PATCH_BYTES)
        return PatchImage(patches, height, width)

    def _send_back(self, record: JobRecord, lease: Lease, ref: StreamRef, why: str) -> None:
        if record.returns >= MAX_RETURNS:
            message = f"prepared pictures were missing {MAX_RETURNS + 1} times; do prep and engine share their blobs?"
            self._records.publish(lease, Refused("internal", message), ref)
            return
        log.warning("a patch blob is missing, back to prep", extra=fields(job=record.job_id, blob=why))
        self._records.hand_back(lease, "preparing", ref)

    def _acknowledge(self, ref: StreamRef) -> None:
        stream = keys.engine_stream(ref.lane)
        with self._redis.pipeline() as pipe:
            pipe.xack(stream, keys.ENGINE_GROUP, ref.entry_id)
            pipe.xdel(stream, ref.entry_id)
            pipe.execute()

    def _make_groups(self) -> None:
        for lane in LANES:
            try:
                self._redis.xgroup_create(keys.engine_stream(lane), keys.ENGINE_GROUP, id="0", mkstream=True)
            except ResponseError as error:
                if not str(error).startswith("BUSYGROUP"):
                    raise
        self._grouped = True

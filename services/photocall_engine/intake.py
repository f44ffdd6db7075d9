"""RedisIntake: from stream entries to requests the engine can run.

A thread fetches as much as the engine has room for: reads the engine's own stream and the interactive lane, by turns
which of the two first, and then the batch lane; leases each job, loads its patch blobs, and a turn's transcript. So the
engine's loop never waits for Redis. Every entry ends in one way: taken, or acknowledged as a replay (the job has ended,
is held, or is prep's again), or dead-lettered, or its job is sent back to prep because a blob has vanished. What was
left for an engine that is gone, or leaves, is anyone's.

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

from photocall import failpoints, keys
from photocall.asks import Ask
from photocall.backoff import Backoff
from photocall.blob_store import BlobStore
from photocall.errors import BadSignature, JobGone, MalformedMessage, UnknownJob, UnknownSession, UnknownVersion
from photocall.grid import PATCH_BYTES
from photocall.jobs import JobRecord, Lease, Refused, StreamRef
from photocall.keys import LANES
from photocall.logs import about_job, fields
from photocall.messages import Header, Prepared, TurnRequest
from photocall.records import Records
from photocall.scripts import Call, run
from photocall.sessions import Remembered, read_transcript
from photocall.streams import FIELD, DeadLetters, Entry, entries_of
from photocall.views import described_name
from photocall.wire import Wire, unpack
from photocall_engine.edges import EngineRequest
from photocall_engine.lease_book import LeaseBook
from photocall_engine.runner import PatchImage
from photocall_engine.transcript import Exchange, Turn

log = logging.getLogger(__name__)

BLOCK_MS = 500
RECLAIM_EVERY_S = 3.0
RECLAIM_IDLE_MS = 10_000  # longer than a lease: entries of an engine that died before it took the lease
CONSUMER_IDLE_MS = 3_600_000
EMPTY_POLL_S = 0.02
MAX_RETURNS = 5  # to prep, for want of a blob: then prep and engine do not agree on where or what blobs are


@dataclass(frozen=True, slots=True)
class Ticket:
    """What the outlet needs to end a request."""

    lease: Lease
    ref: StreamRef
    queued_s: float  # in queues, before the engine took it
    prepare_s: float
    offered_at: float  # to the engines
    prepared: list[dict[str, Any]]  # prep's descriptions of its own pictures


@dataclass(frozen=True, slots=True)
class Offer:
    """A message that offers a job, and the header of the request that caused it."""

    message: Prepared | TurnRequest
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
        hold_s: float = 300.0,
    ) -> None:
        self._redis = client
        self._wire = wire
        self._records = records
        self._blobs = blobs
        self._leases = leases
        self._consumer = engine_id
        self._processor_hash = processor_hash
        self._hold_s = hold_s
        self._lanes = (engine_id, *LANES)  # the first two change places with each look: neither can starve the other
        self._dead = DeadLetters(client)
        self._ready: queue.SimpleQueue[EngineRequest] = queue.SimpleQueue()
        self._wanted = 0  # requests the engine has room for, beyond those that are ready or being fetched
        self._fetching = 0
        self._room = threading.Condition()
        self._stopped = threading.Event()
        self._suspects: deque[tuple[str, Entry]] = deque()  # read, not leased
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
        away = Backoff(log, "cannot take requests")
        while not self._stopped.is_set():
            with self._room:
                if self._wanted <= 0:
                    self._room.wait(1.0)
                    continue
                self._fetching, self._wanted = self._wanted, 0
            try:
                self._fetch(self._fetching)
                away.succeeded()
            except redis.RedisError as error:
                if isinstance(error, ResponseError) and str(error).startswith("NOGROUP"):
                    self._grouped = False  # the streams were deleted
                    continue
                self._stopped.wait(away.failed(error))
            except Exception as error:  # an engine that takes nothing any more would look alive for ever
                log.exception("a defect in taking requests")
                self._stopped.wait(away.failed(error))
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

    def _entries(self, wanted: int) -> list[tuple[str, Entry]]:
        found: list[tuple[str, Entry]] = []
        if time.monotonic() - self._reclaimed_at >= RECLAIM_EVERY_S:
            self._reclaimed_at = time.monotonic()
            for lane in self._lanes:
                found += [(lane, entry) for entry in self._reclaim(lane, wanted)]
            for engine_id in self._orphaned():
                entries = self._reclaim(engine_id, wanted) + self._read([engine_id], wanted, None)
                found += [(engine_id, entry) for entry in entries]
                self._forget_if_empty(engine_id)
        first, second, *rest = self._lanes
        self._lanes = (second, first, *rest)
        for lane in self._lanes:
            if len(found) < wanted:
                found += [(lane, entry) for entry in self._read([lane], wanted - len(found), None)]
        if not found:
            streams = {keys.engine_stream(lane): lane for lane in self._lanes}
            reply = self._read_reply(self._lanes, max(1, wanted // len(self._lanes)), BLOCK_MS)
            found = [(streams[stream.decode()], entry) for stream, entries in reply or () for entry in entries]
        return found

    def _read(self, lanes: Collection[str], count: int, block_ms: int | None) -> list[Entry]:
        return entries_of(self._read_reply(lanes, count, block_ms))

    def _read_reply(self, lanes: Collection[str], count: int, block_ms: int | None) -> Any:
        streams = {keys.engine_stream(lane): ">" for lane in lanes}
        return self._redis.xreadgroup(
            keys.ENGINE_GROUP, self._consumer, cast(Any, streams), count=count, block=block_ms
        )

    def _orphaned(self) -> list[str]:
        """Engines that have a stream of their own and no heartbeat: nobody but the others will read it."""
        engines = sorted(raw.decode() for raw in cast(Any, self._redis.smembers(keys.INBOXES)))
        others = [engine_id for engine_id in engines if engine_id != self._consumer]
        return [engine_id for engine_id in others if not self._redis.exists(keys.heartbeat(engine_id))]

    def _forget_if_empty(self, engine_id: str) -> None:
        """The stream of an engine that is gone goes, once what was left in it is gone too."""
        own_keys = (keys.engine_stream(engine_id), keys.heartbeat(engine_id), keys.INBOXES)
        run(self._redis, Call("forget_inbox", own_keys, (engine_id,), bool, job=False))

    def _reclaim(self, lane: str, count: int) -> list[Entry]:
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
        if not isinstance(envelope.message, Prepared | TurnRequest):
            raise MalformedMessage(f"{envelope.message.msg_type} does not belong on an engine stream")
        return Offer(envelope.message, envelope.parent_header)

    def _accept(self, lane: str, entry: Entry, offer: Offer) -> None:
        """Lease and load one entry's job; ready for the engine, unless it is a replay or goes elsewhere."""
        with about_job(offer.message.job_id):
            self._take_on(StreamRef(lane, entry[0].decode()), offer)

    def _take_on(self, ref: StreamRef, offer: Offer) -> None:
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
        except UnknownSession:
            self._records.publish(lease, Refused("cancelled", "the session was closed"), ref)
        except (ValueError, LookupError, TypeError) as error:  # a record that cannot be read fails its own job
            log.exception("a job cannot be loaded")
            self._records.publish(lease, Refused("internal", f"the job cannot be loaded: {error}"), ref)
        finally:
            if request is None:  # also when Redis went away: then the lease ends, and the sweeper gives the job on
                self._leases.remove(lease)
            else:
                failpoints.reach("engine.take", *request.images)
                self._ready.put(request)

    def _load(self, record: JobRecord, lease: Lease, ref: StreamRef) -> EngineRequest | None:
        """The request with its pictures; None when its job went elsewhere."""
        ask = Ask.from_content(unpack(record.ask))
        turn, remembered = self._turn(record)
        described = {described_name(image): image for entry in remembered for image in entry.images}
        described |= {described_name(image): image for image in record.prepared}
        pictures = ask.pictures
        wanted = dict.fromkeys([*described, *pictures.values()])
        images: dict[str, PatchImage] = {}
        for name in wanted:
            image = self._image(described[name]) if name in described else None
            if image is None:
                why = str(described.get(name, {}).get("blob_key", "not every picture was prepared"))
                self._send_back(record, lease, ref, why, tuple(wanted) if turn else ())
                return None
            images[name] = image
        now = time.time()
        prepare_s = max(0.0, record.prepared_at - record.started_at) if record.prepared_at else 0.0
        return EngineRequest(
            job_id=record.job_id,
            ask=ask,
            images=images,
            owner=record.owner,
            priority=record.priority,
            arrived_at=now,
            deadline_at=record.deadline_at,
            ticket=Ticket(
                lease,
                ref,
                max(0.0, now - record.created_at - prepare_s),
                prepare_s,
                record.prepared_at or record.created_at,
                [described[name] for name in dict.fromkeys(pictures.values())],
            ),
            turn=turn,
        )

    def _turn(self, record: JobRecord) -> tuple[Turn | None, list[Remembered]]:
        """What makes the job a turn, and the transcript it stands behind. Raises UnknownSession."""
        if not record.session_id:
            return None, []
        session, remembered = read_transcript(self._redis, record.session_id)
        history = tuple(Exchange(Ask.from_content(entry.ask), tuple(entry.said)) for entry in remembered)
        turn = Turn(record.session_id, record.turn, session.state, history, record.remember, self._hold_s)
        return turn, remembered

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
        return PatchImage(patches, height, width, described.get("budget"), described.get("fidelity"))

    def _send_back(
        self, record: JobRecord, lease: Lease, ref: StreamRef, why: str, images: tuple[str, ...] = ()
    ) -> None:
        if record.returns >= MAX_RETURNS:
            message = f"prepared pictures were missing {MAX_RETURNS + 1} times; do prep and engine share their blobs?"
            self._records.publish(lease, Refused("internal", message), ref)
            return
        log.warning("a patch blob is missing, back to prep", extra=fields(blob=why))
        self._records.hand_back(lease, "preparing", ref, images)

    def _acknowledge(self, ref: StreamRef) -> None:
        stream = keys.engine_stream(ref.lane)
        with self._redis.pipeline() as pipe:
            pipe.xack(stream, keys.ENGINE_GROUP, ref.entry_id)
            pipe.xdel(stream, ref.entry_id)
            pipe.execute()

    def _make_groups(self) -> None:
        self._redis.sadd(keys.INBOXES, self._consumer)
        for lane in self._lanes:
            try:
                self._redis.xgroup_create(keys.engine_stream(lane), keys.ENGINE_GROUP, id="0", mkstream=True)
            except ResponseError as error:
                if not str(error).startswith("BUSYGROUP"):
                    raise
        self._grouped = True

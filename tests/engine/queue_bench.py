"""What the tests of the engine's edges share: jobs on a real Redis, blobs in a directory, an intake over both."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import redis

from photocall import keys
from photocall.asks import Ask
from photocall.blobs import DirBlobs
from photocall.connections import connect
from photocall.images import ImageStore
from photocall.jobs import Lease, NewJob
from photocall.messages import Message
from photocall.operations import Policy
from photocall.questions import Noul
from photocall.records import Records
from photocall.wire import Wire, pack
from photocall_engine.edges import EngineRequest
from photocall_engine.intake import RedisIntake
from photocall_engine.lease_book import LeaseBook

WIRE = Wire(b"a key for tests", "engine-1")
HASH = "f" * 16
QUESTION = Noul("q", "Is it so?")
BODY = {"model": "m", "answers": {"q": {"type": "noul", "noul": 0.5}}, "usage": {"input_tokens": 1}}


class QueueBench:
    """One engine's side of the queue."""

    def __init__(self, client: redis.Redis, blob_dir: Path, policy: Policy | None = None) -> None:
        self.redis = client
        self.records = Records(client, WIRE, policy)
        self.blobs = DirBlobs(blob_dir)
        self.leases = LeaseBook(self.records)
        self.intake = self.new_intake("engine-1")

    def new_intake(self, engine_id: str) -> RedisIntake:
        return RedisIntake(self.redis, WIRE, self.records, self.blobs, self.leases, engine_id, HASH)

    def drop_lease(self, job_id: str) -> None:
        """The engine forgets a lease, as one that died does."""
        self.leases.remove(self.leases._leases[job_id])

    def accept_text(self, job_id: str, **changes: Any) -> None:
        """A job without pictures: on an engine stream at once."""
        now = time.time()
        ask = pack(Ask(None, "state", (QUESTION,), {}).to_content())
        new = NewJob(job_id, "local", "job", ask, (), "interactive", now, now + 1000, "h", body_bytes=1)
        self.records.accept(replace(new, **changes))

    def accept_picture(self, job_id: str, seed: int = 1, processor_hash: str = HASH, store: bool = True) -> bytes:
        """A job with one picture that prep has prepared; its patches."""
        data = b"picture %d" % seed
        sha256 = hashlib.sha256(data).hexdigest()
        ImageStore(self.redis).put(sha256, data, "local")
        ask = pack(Ask(None, "see pic", (QUESTION,), {"pic": sha256}).to_content())
        self.accept_text(job_id, images=(sha256,), ask=ask)
        self.prepare(job_id, seed, processor_hash, store)
        return self.patches(seed)

    def prepare(self, job_id: str, seed: int = 1, processor_hash: str = HASH, store: bool = True) -> None:
        """What prep does with the job."""
        lease = self.records.lease(job_id, "preparing")
        assert lease is not None
        [sha256] = self.records.get(job_id).images
        blob_key = keys.blob_key(sha256, "140fast", processor_hash)
        if store:
            self.blobs.put(blob_key, self.patches(seed))
        image = {"sha256": sha256, "blob_key": blob_key, "grid_height": 3, "grid_width": 6, "num_soft": 2}
        assert self.records.prepared(lease, [image])

    @staticmethod
    def patches(seed: int) -> bytes:
        return np.random.default_rng(seed).integers(0, 256, (18, 768), dtype=np.uint8).tobytes()

    def take(self, limit: int = 10, within_s: float = 5.0) -> list[EngineRequest]:
        """What the started intake gives, once it gives something."""
        end = time.monotonic() + within_s
        while time.monotonic() < end:
            taken = self.intake.take(limit, 0.05)
            if taken:
                return taken
        return []

    def pending(self, lane: keys.Lane = "interactive") -> int:
        stream = keys.engine_stream(lane)
        return int(cast(Any, self.redis.xpending(stream, keys.ENGINE_GROUP))["pending"])

    def entries(self, lane: keys.Lane = "interactive") -> int:
        return int(cast(Any, self.redis.xlen(keys.engine_stream(lane))))

    def events(self, job_id: str) -> list[Message]:
        entries = cast(Any, self.redis.xrange(keys.events(job_id)))
        return [WIRE.decode(values[b"m"]).message for _, values in entries]

    def counters(self) -> dict[bytes, bytes]:
        return cast("dict[bytes, bytes]", self.redis.hgetall(keys.COUNTERS))


def until(look: Callable[[], object], what: str, within_s: float = 10.0) -> None:
    end = time.monotonic() + within_s
    while not look():
        assert time.monotonic() < end, f"waited {within_s:.0f} s for {what}"
        time.sleep(0.02)


def another_client(url: str) -> redis.Redis:
    return connect(url)


def expired(lease: Lease, bench: QueueBench) -> None:
    """Let a lease's time be over, as if its holder had died six seconds ago."""
    bench.redis.hset(keys.job(lease.job_id), "lease_until", str(time.time() - 0.1))
    bench.redis.zadd(keys.LEASES, {lease.job_id: time.time() - 0.1})

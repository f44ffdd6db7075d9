"""What the tests of jobs and worker share: a checkpoint folder, accepted jobs, and the sweeper's part of the outbox."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import redis

from photocall import keys
from photocall.asks import Ask
from photocall.blobs import DirBlobs
from photocall.images import ImageStore
from photocall.jobs import NewJob
from photocall.keys import Lane
from photocall.questions import Noul
from photocall.queueing import PrepQueues
from photocall.records import Policy, Records
from photocall.scripts import run
from photocall.views import PLAIN, Budget, View
from photocall.wire import Wire, pack
from photocall_prep.jobs import Preparer
from photocall_prep.prepare import ImagePrep, Prep, PreparedImage
from photocall_prep.shelf import PatchShelf
from tests.prep.pictures import TestLimits

KEY = b"a key for tests"


@dataclass
class Workshop:
    """A prep room on a Redis and a blob directory."""

    redis: redis.Redis
    blob_dir: Path
    policy: Policy = field(default_factory=Policy)

    def __post_init__(self) -> None:
        self.wire = Wire(KEY, "tests")
        self.records = Records(self.redis, self.wire, self.policy)
        self.images = ImageStore(self.redis)
        self.queues = PrepQueues(self.redis, self.wire)
        self.shelf = PatchShelf(DirBlobs(self.blob_dir), 140, "settings-hash", (70, 140, 280))

    def preparer(self, prep: Prep | None = None, **options: Any) -> Preparer:
        """What does the work."""
        return Preparer(self.records, self.images, self.shelf, prep or ImagePrep(TestLimits()), **options)

    def accept(
        self,
        job_id: str,
        pictures: dict[str, bytes],
        lane: Lane = "interactive",
        deadline_s: float = 60,
        urls: dict[str, str] | None = None,
        budget: Budget | None = None,
        views: dict[str, View] | None = None,
    ) -> str:
        """Store the pictures and accept a job that asks about them, and about those at the URLs; its id."""
        assets = {name: hashlib.sha256(data).hexdigest() for name, data in pictures.items()}
        for name, data in pictures.items():
            self.images.put(assets[name], data, "local")
        assets |= urls or {}
        ask = Ask(None, " ".join(assets), (Noul("q", "Is it red?"),), assets, budget=budget, views=views or {})
        now = time.time()
        accepted = self.records.accept(
            NewJob(
                job_id=job_id,
                owner="local",
                shape="job",
                ask=pack(ask.to_content()),
                images=ask.images,
                priority=lane,
                created_at=now,
                deadline_at=now + deadline_s,
                request_hash=job_id,
                to_prepare=bool(assets),
            )
        )
        return accepted.job_id

    def enqueue(self, job_id: str, lane: Lane = "interactive", attempt: int = 1) -> str:
        """What the gateway does after accepting."""
        entry = self.queues.enqueue(job_id, attempt, lane)
        self.records.clear_outbox(job_id)
        return entry

    def sweep_outbox(self) -> list[str]:
        """What the gateway's sweeper does with due entries: enqueue them, if their jobs still need it."""
        due = cast("list[bytes]", self.redis.zrangebyscore(keys.OUTBOX, "-inf", time.time() + 60))
        enqueued = []
        for raw in due:
            job_id = raw.decode()
            claim = run(self.redis, self.records.operations.claim_outbox(job_id, time.time() + 60))
            if claim is not None:
                enqueued.append(self.enqueue(job_id, claim[1], claim[0]))
        return enqueued

    def engine_messages(self, lane: Lane = "interactive") -> list[Any]:
        """What the engine would read."""
        entries = cast("list[tuple[bytes, dict[bytes, bytes]]]", self.redis.xrange(keys.engine_stream(lane)))
        return [self.wire.decode(values[b"m"]).message for _, values in entries]

    def events(self, job_id: str) -> list[Any]:
        """What a client would read."""
        entries = cast("list[tuple[bytes, dict[bytes, bytes]]]", self.redis.xrange(keys.events(job_id)))
        return [self.wire.decode(values[b"m"]).message for _, values in entries]


class CountingPrep(ImagePrep):
    """Counts what is decoded."""

    def __init__(self) -> None:
        super().__init__(TestLimits())
        self.calls = 0

    def prepare(self, data: bytes, budget: Budget, view: View = PLAIN) -> PreparedImage:
        self.calls += 1
        return super().prepare(data, budget, view)


def checkpoint(folder: Path) -> Path:
    """A folder with as much of a checkpoint as prep reads."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"vision_config": {"position_embedding_size": 840}}))
    settings = {"image_processor": {"patch_size": 16, "pooling_kernel_size": 3, "max_soft_tokens": 140}}
    (folder / "processor_config.json").write_text(json.dumps(settings))
    return folder

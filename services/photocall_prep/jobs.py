"""One job's pictures: lease, prepare each, hand over to the engine, or end the job with a clear error.

`prepare` is what the queue names. Running it twice, or for a job that has ended, is harmless: the record's lease is
taken once, and blobs are found by what they were made from. Nothing here decides about retries; the record does.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, TypeAlias

import redis
from redis.exceptions import OutOfMemoryError

from photocall import failpoints, tracing
from photocall.asks import Ask
from photocall.backoff import Backoff
from photocall.blob_store import BlobsRefused
from photocall.errors import JobGone, StoreFull, UnknownJob
from photocall.images import ImageStore
from photocall.jobs import JobRecord, Lease, Refused
from photocall.logs import about_job, fields
from photocall.records import Records
from photocall.tracing import Spans, Value
from photocall.views import PLAIN, View
from photocall.wire import pack, unpack
from photocall_prep.fetch import Fetcher
from photocall_prep.lease_keeper import LeaseKeeper
from photocall_prep.metrics import PrepMetrics
from photocall_prep.prepare import Prep
from photocall_prep.refusal import ImageRefused
from photocall_prep.shelf import PatchShelf, Shelved
from photocall_prep.wear import Wear

log = logging.getLogger(__name__)

FULL_STORE_WAIT_S = 0.5
MOST_AWAY_S = 1.0  # a picture is in hand, and its lease is lost 3 s after Redis is back
BEHIND_S = 8.0  # longer than most pictures take; that a job is enqueued twice does no harm

Outcome: TypeAlias = list[dict[str, Any]] | Refused | None  # the prepared pictures, a refusal, or to be handed back

# The queue calls `prepare` by its name, with ids only; the worker's composition root says who does the work.
PREPARER: ContextVar[Preparer] = ContextVar("preparer")


def prepare(job_id: str, attempt: int, *more: str) -> None:
    """Prepare the pictures of one job, and of `more` behind it. `attempt` is the entry's; the records' own count.

    The further jobs stay in the outbox until they are leased here, so an entry that is lost halfway loses none. While
    one is prepared, those behind it are due there soon: should it end this process, they do not wait for it.
    """
    preparer = PREPARER.get()
    waiting = [job_id, *more]
    while waiting:
        each, *waiting = waiting
        if waiting:
            preparer.keep(waiting)
        preparer.prepare(each)


class Preparer:
    """Prepares jobs for one checkpoint. `stopping` says that the process is to end after the current picture."""

    def __init__(
        self,
        records: Records,
        images: ImageStore,
        shelf: PatchShelf,
        prep: Prep,
        stopping: Callable[[], bool] = lambda: False,
        fetcher: Fetcher | None = None,
        wear: Wear | None = None,
        metrics: PrepMetrics | None = None,
        spans: Spans | None = None,
    ) -> None:
        self._records = records
        self._images = images
        self._shelf = shelf
        self._prep = prep
        self._stopping = stopping
        self._fetcher = fetcher  # None: pictures by URL are refused
        self._wear = wear or Wear()
        self._metrics = metrics or PrepMetrics()
        self._spans = spans

    def prepare(self, job_id: str) -> None:
        """Take the job and see it through to the engine, to an error, or back to the queue. Raises redis' errors."""
        with about_job(job_id):
            lease = self._lease(job_id)
            if lease is None:
                self._metrics.jobs.labels("nothing").inc()
                log.info("nothing to do")
                return
            started = time.perf_counter()
            with LeaseKeeper(self._records, lease) as keeper:
                outcome, kept = self._through_outages(lease, keeper)
            took_s = time.perf_counter() - started
            self._count(outcome, kept, took_s)
            if self._spans is not None:
                about: dict[str, Value] = {"job": job_id, "outcome": _summary(outcome), "attempt": lease.attempt}
                now = time.time()
                self._spans.record("prepare", tracing.parent_of(lease.cause), now - took_s, now, **about)
            log.info(_summary(outcome), extra=fields(attempt=lease.attempt, ms=round(1000 * took_s, 1), kept=kept))

    def keep(self, job_ids: Sequence[str]) -> None:
        """These wait for this worker, and for others if it dies; no longer than a lease."""
        self._records.postpone(job_ids, time.time() + BEHIND_S)

    def _count(self, outcome: Outcome, kept: bool, took_s: float) -> None:
        self._metrics.job_seconds.observe(took_s)
        if not kept:
            self._metrics.jobs.labels("lost").inc()
        elif outcome is None:
            self._metrics.jobs.labels("handed_back").inc()
        elif isinstance(outcome, Refused):
            self._metrics.jobs.labels("refused").inc()
            self._metrics.refusals.labels(outcome.code).inc()
        else:
            self._metrics.jobs.labels("prepared").inc()

    def _through_outages(self, lease: Lease, keeper: LeaseKeeper) -> tuple[Outcome, bool]:
        """All steps may be taken twice. So Redis is waited for under the lease: otherwise this job would wait longer,
        for its lease to end and for others to find that out."""
        away = Backoff(log, f"cannot go on with {lease.job_id}", most_s=MOST_AWAY_S)
        while True:
            try:
                return self._see_through(lease, keeper)
            except (redis.ConnectionError, redis.TimeoutError) as error:
                if keeper.lost or self._stopping():
                    raise
                time.sleep(away.failed(error))

    def _see_through(self, lease: Lease, keeper: LeaseKeeper) -> tuple[Outcome, bool]:
        """What became of the pictures, and whether the record took it. Raises redis' errors."""
        outcome = self._outcome(lease, keeper)
        if outcome is None:
            return outcome, self._records.hand_back(lease, "preparing")
        if isinstance(outcome, Refused):
            return outcome, self._insist(keeper, lambda: self._records.publish(lease, outcome))
        failpoints.reach("prep.prepared")
        return outcome, self._insist(keeper, lambda: self._records.prepared(lease, outcome))

    def _lease(self, job_id: str) -> Lease | None:
        """The job with its `busy` event in one write, which passes in a full store too; None: not to be prepared."""
        cause, accepted_at = None, 0.0
        try:
            record = self._records.get(job_id)
            cause, accepted_at = record.header, record.created_at
        except (UnknownJob, JobGone):
            return None
        except (ValueError, LookupError, TypeError):  # it fails its job, under a lease
            pass
        lease = self._records.lease(job_id, "preparing", cause)
        if lease is not None and accepted_at and lease.attempt == 1:
            now = time.time()
            self._metrics.queue_seconds.observe(max(0.0, now - accepted_at))
            if self._spans is not None:
                self._spans.record("queue wait", tracing.parent_of(lease.cause), accepted_at, now, job=job_id)
        return lease

    def _outcome(self, lease: Lease, keeper: LeaseKeeper) -> Outcome:
        """The prepared pictures, or how the job ends, or None when the work is to stop here. Raises redis' errors."""
        job_id = lease.job_id
        try:
            record = self._with_fetched(self._records.get(job_id), lease, keeper)
            return None if record is None else self._prepare_all(record, keeper)
        except (UnknownJob, JobGone):
            return None
        except _Refusal as refusal:
            return refusal.outcome
        except redis.RedisError:
            raise
        except Exception as error:  # a defect of ours: this job fails, its neighbours and the process go on
            log.exception("cannot prepare a job")
            return Refused("internal", f"preparing the pictures failed: {type(error).__name__}")

    def _with_fetched(self, record: JobRecord, lease: Lease, keeper: LeaseKeeper) -> JobRecord | None:
        """The record once no picture of it is named by URL any more; None when the work is to stop here.

        What was fetched is stored before the record says so: whoever takes the job on does not fetch it again.
        """
        ask = Ask.from_content(unpack(record.ask))
        if not ask.urls:
            return record
        hashes: dict[str, str] = {}
        new: dict[str, int] = {}
        for url in ask.urls:
            if keeper.lost or self._stopping():
                return None
            data = self._fetch(ask, url)
            hashes[url] = hashlib.sha256(data).hexdigest()
            if hashes[url] not in record.images:
                new[hashes[url]] = len(data)
            while not self._stored(hashes[url], data, record.owner):
                if keeper.lost or self._stopping():
                    return None
                time.sleep(FULL_STORE_WAIT_S)
        ask = ask.with_fetched(hashes)
        images = tuple(dict.fromkeys((*record.images, *hashes.values())))  # a turn has those of earlier turns too
        kept = self._records.fetched(lease, pack(ask.to_content()), images, new)
        return self._records.get(record.job_id) if kept else None

    def _fetch(self, ask: Ask, url: str) -> bytes:
        name = next(key for key, value in ask.assets.items() if value == url)
        if self._fetcher is None:
            raise _of_picture("image_url_refused", f"image {name} is a URL, and none is fetched here", name)
        try:
            return self._fetcher.fetch(url)
        except ImageRefused as refused:
            raise _of_picture(refused.code, f"cannot fetch image {name}: {refused.reason}", name) from refused

    def _stored(self, sha256: str, data: bytes, owner: str) -> bool:
        try:
            self._images.put(sha256, data, owner)
        except (StoreFull, OutOfMemoryError):
            log.warning("the store is full, waiting")
            return False
        return True

    def _prepare_all(self, record: JobRecord, keeper: LeaseKeeper) -> list[dict[str, Any]] | None:
        """Describe each distinct picture, in the record's order; None when the work is to stop here."""
        described: list[dict[str, Any]] = []
        ask = Ask.from_content(unpack(record.ask))
        # A turn's record has the pictures of earlier turns too, which are plain.
        asked = [(sha256, view) for sha256 in record.images for view in ask.views_of(sha256)]
        whole = {(sha256, view): self._whole(ask, sha256, view) for sha256, view in asked}
        for (sha256, view), shown in whole.items():
            if keeper.lost or self._stopping():
                return None
            found = self._shelf.find(sha256, shown)
            self._metrics.pictures.labels("made" if found is None else "shelf").inc()
            found = found or self._prepare_one(record, sha256, shown, keeper)
            if found is None:
                return None
            grid = found.grid
            described.append(
                {
                    "sha256": sha256,
                    **({} if view == PLAIN else {"view": str(view)}),
                    "blob_key": self._shelf.key(sha256, shown),
                    "grid_height": grid.height,
                    "grid_width": grid.width,
                    "num_soft": grid.num_soft,
                    "budget": found.budget,
                    "fidelity": self._shelf.fidelity,
                }
            )
        return described

    def _whole(self, ask: Ask, sha256: str, view: View) -> View:
        """The view with the budget that it, or the job, or the worker says. Raises _Refusal."""
        budget = view.budget or ask.budget or self._shelf.budget
        message = self._shelf.why_not(budget)
        if message is None:
            return replace(view, budget=budget)
        of_its_own = next((key for key, its in ask.views.items() if its == view and ask.assets[key] == sha256), None)
        loc = ["budget"] if view.budget is None or of_its_own is None else ["assets", of_its_own, "budget"]
        raise _Refusal("budget_unsupported", message, budget=budget, allowed=list(self._shelf.allowed), loc=loc)

    def _prepare_one(self, record: JobRecord, sha256: str, view: View, keeper: LeaseKeeper) -> Shelved | None:
        """The picture with its patches on the shelf; None when the work is to stop here."""
        data = self._images.get(sha256)
        name = _name(record, sha256)
        if data is None:
            raise _of_picture("image_lost", f"the bytes of image {name} are gone", name, sha256)
        failpoints.reach("prep.decode", sha256)
        self._wear.add()
        self._metrics.picture_bytes.inc(len(data))
        try:
            with self._metrics.picture_seconds.time():
                prepared = self._prep.prepare(data, view.budget or self._shelf.budget, view)
        except ImageRefused as refused:
            raise _of_picture(refused.code, f"cannot decode image {name}: {refused.reason}", name, sha256) from refused
        while True:
            try:
                self._shelf.put(sha256, view, prepared)
                self._metrics.blob_bytes.inc(len(prepared.patches))
                return Shelved(prepared.grid, prepared.budget)
            except BlobsRefused as error:  # an accepted job is not failed for want of room that others have taken
                if keeper.lost or self._stopping():
                    return None
                log.warning("a blob cannot be stored yet, waiting: %s", error)
                time.sleep(FULL_STORE_WAIT_S)

    def _insist(self, keeper: LeaseKeeper, write: Callable[[], bool]) -> bool:
        """Write; a full store keeps the lease and is tried again until the lease is lost."""
        while True:
            try:
                return write()
            except OutOfMemoryError:
                if keeper.lost:
                    return False
                log.warning("the store is full, waiting")
                time.sleep(FULL_STORE_WAIT_S)


class _Refusal(Exception):
    """The job cannot be prepared."""

    def __init__(self, code: str, message: str, **data: Any) -> None:
        super().__init__(message)
        self.outcome = Refused(code, message, data)


def _of_picture(code: str, message: str, asset: str, sha256: str | None = None) -> _Refusal:
    """One picture fails its job."""
    known = {} if sha256 is None else {"sha256": sha256}
    return _Refusal(code, message, asset=asset, **known, loc=["assets", asset])


def _summary(outcome: Outcome) -> str:
    if outcome is None:
        return "handed back"
    return f"refused: {outcome.message}" if isinstance(outcome, Refused) else f"prepared {len(outcome)}"


def _name(record: JobRecord, sha256: str) -> str:
    """What the caller called a picture; the start of its hash where it has no name."""
    assets = Ask.from_content(unpack(record.ask)).assets if record.ask else {}
    return next((key for key, value in assets.items() if value == sha256), sha256[:12])

"""What readers of a job are shown, encoded once per version of its record and kept for whoever asks next.

Nothing that is shown is older than the question: every look asks Redis for the job's version first, many looks
together. What is kept is one owner's, like the record it was made of; whoever shows it compares the owner.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from photocall.jobs import JobRecord, JobStatus
from photocall.records import AsyncRecords
from photocall.standings import Standings
from photocall_gateway.job_object import etag, job_object
from photocall_gateway.load import Load

KEPT_BYTES = 32 << 20
LARGEST_KEPT_BYTES = 1 << 18  # of one body: a larger one is read by its caller and hardly again
_OVERHEAD_BYTES = 1000  # of an entry beside its body


@dataclass(frozen=True, slots=True)
class JobView:
    """One version of a job as its readers see it: the JSON body around the value of `queue`, which moves by itself."""

    owner: str
    status: JobStatus
    version: bytes
    tag: str
    before: bytes
    after: bytes
    hooked: JobRecord | None  # the record of an ended job with a webhook: what was delivered is shown with it, not here

    @classmethod
    def of(cls, record: JobRecord) -> JobView:
        """Encode a record."""
        shown = job_object(record)
        names = list(shown)
        at = names.index("queue")
        before = _json({name: shown[name] for name in names[:at]})
        after = _json({name: shown[name] for name in names[at + 1 :]})
        hooked = record if record.webhook is not None and record.status.terminal else None
        version = str(record.version).encode()
        return cls(
            record.owner,
            record.status,
            version,
            etag(record),
            before[:-1] + b',"queue":',
            b"," + after[1:],
            hooked,
        )

    @property
    def waits(self) -> bool:
        """It has a place in the queue."""
        return self.status in (JobStatus.QUEUED, JobStatus.PREPARING)

    @property
    def size(self) -> int:
        """Bytes it takes to keep."""
        return len(self.before) + len(self.after) + _OVERHEAD_BYTES

    def body(self, queue: bytes) -> bytes:
        """The job object. `queue` is JSON."""
        return self.before + queue + self.after


class JobViews:
    """Views by job; those not asked for in a long time go first."""

    def __init__(self, records: AsyncRecords, standings: Standings, load: Load, kept_bytes: int = KEPT_BYTES) -> None:
        self._records = records
        self._standings = standings
        self._load = load
        self._room = kept_bytes
        self._kept: OrderedDict[str, JobView] = OrderedDict()

    async def look(self, job_id: str) -> JobView:
        """The job as it is now. Raises UnknownJob or JobGone, and Redis' errors."""
        return (await self._look(job_id))[0]

    async def look_with_queue(self, job_id: str) -> tuple[JobView, bytes]:
        """`look`, and the job's place in the queue as JSON, for `JobView.body`."""
        view, rank = await self._look(job_id)
        if rank is None or not view.waits:
            return view, b"null"
        place = await self._load.place_at(rank)
        eta_s = "null" if place.eta_s is None else repr(place.eta_s)
        return view, f'{{"position":{place.position},"eta_s":{eta_s}}}'.encode()

    async def _look(self, job_id: str) -> tuple[JobView, int | None]:
        standing = await self._standings.of(job_id)
        view = self._kept.get(job_id)
        if view is None or view.version != standing.version:
            self._drop(job_id)
            view = JobView.of(await self._records.look(job_id))
            self._keep(job_id, view)
        else:
            self._kept.move_to_end(job_id)
        return view, standing.rank

    def _keep(self, job_id: str, view: JobView) -> None:
        self._drop(job_id)  # another look may have kept it meanwhile
        if view.hooked is not None or view.size > LARGEST_KEPT_BYTES:
            return
        self._kept[job_id] = view
        self._room -= view.size
        while self._room < 0:
            self._room += self._kept.popitem(last=False)[1].size

    def _drop(self, job_id: str) -> None:
        view = self._kept.pop(job_id, None)
        if view is not None:
            self._room += view.size


def _json(value: Any) -> bytes:
    """As JSONResponse writes it."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()

"""Replaying: what a finished job asked, asked once more as a new job. Whoever wants to know compares the two answers.

The ask is taken as the record has it, so pictures by URL are those that were fetched then, and every shape's questions
are the engine's own. Nothing is joined or looked up: the new job runs.
"""

from __future__ import annotations

import hashlib

from starlette.background import BackgroundTasks

from photocall.asks import Ask
from photocall.errors import CodedError
from photocall.jobs import Accepted, JobRecord, JobStatus
from photocall.operations import MAX_KEPT_ASK
from photocall.wire import unpack
from photocall_gateway.parsing import ParsedRequest
from photocall_gateway.services import Services

REPLAY_OF = "replay_of"  # in the new job's metadata, with the id of the first one


async def accept_replay(
    s: Services, record: JobRecord, key: str | None, after_response: BackgroundTasks | None = None
) -> Accepted:
    """Keep the job that asks again, for the owner of the first.

    Raises CodedError `not_replayable` and what Dispatcher.accept says: UnknownImage where a picture is stored no more.
    """
    ask = Ask.from_content(unpack(_kept(record)))
    digest = hashlib.sha256(f"replay of {record.job_id}".encode()).hexdigest()
    request = ParsedRequest(ask, {}, digest, record.view)
    s.dispatcher.check_model(request)
    return await s.dispatcher.accept(
        request,
        owner=record.owner,
        shape=record.shape,
        priority=record.priority,
        deadline_s=s.settings.default_deadline_s,
        idempotency_key=key,
        metadata={REPLAY_OF: record.job_id},
        after_response=after_response,
    )


def _kept(record: JobRecord) -> bytes:
    """What the job asked. Raises CodedError `not_replayable`."""
    if record.session_id:
        why = "it is a turn, and what was said before it belongs to its session"
    elif not record.status.terminal:
        why = "it has not ended"
    elif record.status is not JobStatus.SUCCEEDED:
        why = f"it {record.status.value}, so there is no answer to compare with"
    elif not record.ask and record.keeps_ask:
        why = f"what it asked has more than the {MAX_KEPT_ASK} bytes that are kept"
    elif not record.ask:
        why = "it was asked without `provenance: true`, so what it asked was not kept"
    else:
        return record.ask
    raise CodedError("not_replayable", f"job {record.job_id!r} cannot be replayed: {why}", job_id=record.job_id)

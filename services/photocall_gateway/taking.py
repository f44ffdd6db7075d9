"""Taking a body in: a native job or a turn of a session, checked and kept, whichever way it came."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from starlette.background import BackgroundTasks
from starlette.requests import Request
from starlette.responses import Response

from photocall.errors import UnknownSession
from photocall.jobs import Accepted
from photocall.names import could_be_id
from photocall.sessions import SessionRecord
from photocall_gateway.body import Body, Limits
from photocall_gateway.dispatch import TurnOf
from photocall_gateway.job_response import POLL_AFTER_S, job_response
from photocall_gateway.parsing import parse_job, parse_turn
from photocall_gateway.prefer import preferred_wait_s, while_connected
from photocall_gateway.reading import read_body
from photocall_gateway.services import Services, owner
from photocall_gateway.sync_route import INLINE_PARSE_BYTES
from photocall_gateway.uploads import first_upload, idempotency_key
from photocall_gateway.waiting import ended, wait_for

MAX_DEADLINE_S = 86_400.0

P = TypeVar("P")


async def accept_job(
    s: Services, caller: str, body: Body, key: str | None, after_response: BackgroundTasks | None = None
) -> Accepted:
    """Check a native body and keep it as a job. Raises what parsing and Dispatcher.accept say."""
    parsed, options = await _parsed(parse_job, body, s.limits)
    s.dispatcher.check_model(parsed)
    return await s.dispatcher.accept(
        parsed,
        owner=caller,
        shape="job",
        priority=options.priority,
        deadline_s=options.deadline_s or s.settings.default_deadline_s,
        idempotency_key=key,
        metadata=options.metadata,
        webhook=options.webhook,
        after_response=after_response,
    )


async def accept_turn(
    s: Services, session: SessionRecord, body: Body, key: str | None, after_response: BackgroundTasks | None = None
) -> Accepted:
    """Check a turn and keep it as a job; in `newest` mode it replaces the turns that no engine is at."""
    parsed, options = await _parsed(parse_turn, body, s.limits)
    # The same words in another session are another turn, under one Idempotency-Key too.
    parsed = replace(parsed, hash=hashlib.sha256(f"{session.session_id} {parsed.hash}".encode()).hexdigest())
    s.dispatcher.check_model(parsed)
    pictures = await s.sessions.pictures(session.session_id)
    images = tuple(image["sha256"] for image in pictures)
    remember = session.remember if options.remember is None else options.remember
    accepted = await s.dispatcher.accept(
        parsed,
        owner=session.owner,
        shape="turn",
        priority="interactive",
        deadline_s=options.deadline_s or s.settings.default_deadline_s,
        idempotency_key=key,
        metadata=options.metadata,
        after_response=after_response,
        turn=TurnOf(session.session_id, images, remember),
    )
    if session.mode == "newest" and accepted.created:
        await s.sessions.replace_waiting(session.session_id, accepted.job_id)
    return accepted


async def take_in(
    request: Request,
    s: Services,
    accept: Callable[[Body, str | None, BackgroundTasks | None], Awaitable[Accepted]],
) -> Response:
    """Read a body, `accept` it and answer: 202 and its job, or 200 with its end when the caller prefers to wait and it
    ends in time. `accept` takes the body, the idempotency key, and what is done after the response where nobody waits.
    """
    key = idempotency_key(request)
    wait_s = preferred_wait_s(request, s.settings.max_wait_s)
    after_response = BackgroundTasks() if wait_s is None else None
    async with first_upload(s.redis, owner(request), key):
        body = await read_body(request, s.settings.max_body_bytes)
        accepted = await accept(body, key, after_response)
    headers = {"location": f"/v1/jobs/{accepted.job_id}"}
    if wait_s is None:
        record = await s.records.look(accepted.job_id)
    else:
        record = await while_connected(request, wait_for(s.records.look, s.wakes, accepted.job_id, ended, wait_s))
        headers["preference-applied"] = f"wait={wait_s:g}"
    done = wait_s is not None and record.status.terminal
    if not done:
        headers["retry-after"] = str(POLL_AFTER_S)
    response = await job_response(s, record, 200 if done else 202, headers)
    response.background = after_response
    return response


async def own_session(s: Services, session_id: str, caller: str) -> SessionRecord:
    """Another caller's session is as unknown as none. Raises UnknownSession."""
    if not could_be_id(session_id):
        raise UnknownSession(session_id)
    session = await s.sessions.get(session_id)
    if session.owner != caller:
        raise UnknownSession(session_id)
    return session


async def _parsed(parse: Callable[[Body, Limits, float], P], body: Body, limits: Limits) -> P:
    """A large body is parsed off the event loop."""
    if len(body.data) <= INLINE_PARSE_BYTES:
        return parse(body, limits, MAX_DEADLINE_S)
    return await asyncio.to_thread(parse, body, limits, MAX_DEADLINE_S)

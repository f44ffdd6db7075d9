"""Whose a thing is. What is somebody else's is to a caller as what never was; an admin sees jobs and batches of all."""

from __future__ import annotations

import asyncio

from photocall.errors import JobGone, UnknownJob
from photocall.names import could_be_id
from photocall_gateway.caller import Caller
from photocall_gateway.job_views import JobView
from photocall_gateway.services import Services


async def seen_view(s: Services, job_id: str, caller: Caller) -> tuple[JobView, bytes]:
    """A job that the caller sees, as it is now, and its place in the queue. Raises UnknownJob; JobGone if it saw it."""
    if not could_be_id(job_id):
        raise UnknownJob(job_id)
    try:
        found = await s.views.look_with_queue(job_id)
    except JobGone as gone:
        if not caller.sees(gone.owner):
            raise UnknownJob(job_id) from None
        raise
    if not caller.sees(found[0].owner):
        raise UnknownJob(job_id)
    return found


async def own_view(s: Services, job_id: str, caller: Caller) -> JobView:
    """A job of the caller's own: an admin sees and cancels others, and does nothing else to them. As `seen_view`."""
    view, _ = await seen_view(s, job_id, caller)
    if view.owner != caller.id:
        raise UnknownJob(job_id)
    return view


async def batch_owner(s: Services, batch_id: str, caller: Caller) -> str:
    """Among whose batches the caller finds this one: its own, or anybody's that has it for an admin."""
    if not caller.is_admin:
        return caller.id
    return await asyncio.to_thread(s.desk.batches.owner_of, batch_id) or caller.id


def listed_owner(caller: Caller, asked: str | None) -> str:
    """Whose things are listed: `?key=`, which only an admin may say. Raises CodedError `missing_scope`."""
    if asked is None or asked == caller.id:
        return caller.id
    caller.need("admin")
    return asked

"""A job's events as server-sent events: resumable, ended when the job is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from photocall.errors import JobGone, UnknownJob
from photocall.messages import Error, Message, Prepared, Progress, Result, Status, StreamText
from photocall.records import AsyncRecords
from photocall.streams import AsyncEvents, Event
from photocall_gateway.draining import Drain
from photocall_gateway.job_object import job_object
from photocall_gateway.waiting import WakeReader

KEEPALIVE_S = 15.0
REREAD_S = 5.0
_PAGE = 100


async def sse(
    job_id: str, last_event_id: str | None, records: AsyncRecords, events: AsyncEvents, wakes: WakeReader, drain: Drain
) -> AsyncIterator[bytes]:
    """The events behind `last_event_id` as they come, until the job has ended, or this process leaves.

    A client whose last event has left the capped stream gets one `snapshot` of the job first.
    """
    after = last_event_id or "0"
    loop = asyncio.get_running_loop()
    quiet_since = loop.time()
    with wakes.listen(job_id) as woken:
        behind = last_event_id is not None
        while not drain.started:
            woken.clear()
            page: list[Event] = []
            try:
                # The record first: events written before its end are then all there to be read.
                record = await records.get(job_id)
                terminal = record.status.terminal
                if behind and await events.lost(job_id, after):
                    yield _event("snapshot", job_object(record))
                behind = False
                page = await events.read(job_id, after, _PAGE)
            except (JobGone, UnknownJob):
                return
            except (RedisConnectionError, RedisTimeoutError):  # waited out: the wake channel calls when it is back
                terminal = False
            for event in page:
                after = event.event_id
                yield _event(event.envelope.message.msg_type, shown(event.envelope.message), event.event_id)
            if page:
                quiet_since = loop.time()
            if len(page) == _PAGE:
                continue
            if terminal:
                return
            try:
                async with asyncio.timeout(REREAD_S):
                    await woken.wait()
            except TimeoutError:
                if loop.time() - quiet_since >= KEEPALIVE_S:
                    quiet_since = loop.time()
                    yield b": still here\n\n"


def shown(message: Message) -> dict[str, Any]:
    """What a caller sees of an event: nothing of blobs or processes."""
    if isinstance(message, Prepared):
        return {
            "job_id": message.job_id,
            "attempt": message.attempt,
            "images": [
                {name: image[name] for name in ("sha256", "grid_height", "grid_width", "num_soft") if name in image}
                for image in message.images
            ],
        }
    if isinstance(message, Status | Progress | StreamText | Result | Error):
        return message.to_content()
    return {}


def _event(kind: str, data: dict[str, Any], event_id: str | None = None) -> bytes:
    head = f"id: {event_id}\n" if event_id else ""
    return f"{head}event: {kind}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()

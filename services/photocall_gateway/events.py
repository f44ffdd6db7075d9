"""Event streams of the service as server-sent events: resumable, ended when what they are about is.

A `Subject` is what a stream is about: a job, a session, or anything else that has a capped event stream, an id on the
wake channel and a state to show. `follow` yields what is new; `sse` writes it down.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from starlette.requests import Request
from starlette.responses import StreamingResponse

from photocall import keys
from photocall.errors import CodedError, JobGone, UnknownJob, UnknownSession
from photocall.messages import BatchProgress, Error, Message, Prepared, Progress, Result, Status, StreamText
from photocall.questions import InvalidField
from photocall.sessions import AsyncSessions
from photocall.streams import AsyncEvents, Event
from photocall_gateway.batches.desk import BatchDesk
from photocall_gateway.job_views import JobViews
from photocall_gateway.session_object import session_object
from photocall_gateway.waiting import WakeReader, spread_s

KEEPALIVE_S = 15.0
REREAD_S = 5.0
_PAGE = 100


class Subject(Protocol):
    """What a stream of events is about."""

    @property
    def stream(self) -> str:
        """The key of its events."""

    @property
    def wake_id(self) -> str:
        """What the wake channel calls it."""

    async def ended(self) -> bool | None:
        """Whether no event will follow those there are; None: it is gone."""

    async def snapshot(self) -> dict[str, Any] | None:
        """The object as a caller sees it; None: it is gone."""


@dataclass(frozen=True, slots=True)
class JobEvents:
    """The events of a job."""

    views: JobViews
    wake_id: str

    @property
    def stream(self) -> str:
        return keys.events(self.wake_id)

    async def ended(self) -> bool | None:
        try:
            return (await self.views.look(self.wake_id)).status.terminal
        except (JobGone, UnknownJob):
            return None

    async def snapshot(self) -> dict[str, Any] | None:
        try:
            view = await self.views.look(self.wake_id)
        except (JobGone, UnknownJob):
            return None
        shown: dict[str, Any] = json.loads(view.body(b"null"))
        return shown


@dataclass(frozen=True, slots=True)
class SessionEvents:
    """The events of all turns of a session; they go on until it is closed."""

    sessions: AsyncSessions
    wake_id: str

    @property
    def stream(self) -> str:
        return keys.session_events(self.wake_id)

    async def ended(self) -> bool | None:
        return None if await self.snapshot() is None else False

    async def snapshot(self) -> dict[str, Any] | None:
        try:
            return session_object(await self.sessions.view(self.wake_id))
        except UnknownSession:
            return None


@dataclass(frozen=True, slots=True)
class BatchEvents:
    """The events of a batch; the last one tells of its end. Its ledger is on the disk, and outlives its events."""

    desk: BatchDesk
    owner: str
    wake_id: str

    @property
    def stream(self) -> str:
        return keys.batch_events(self.wake_id)

    async def ended(self) -> bool | None:
        return await self.desk.is_told(self.owner, self.wake_id)  # so is one that was deleted

    async def snapshot(self) -> dict[str, Any] | None:
        try:
            return await self.desk.news.shown(await self.desk.batch(self.owner, self.wake_id))
        except CodedError:
            return None


@dataclass(frozen=True, slots=True)
class Shown:
    """One event for a caller. `event_id` is None for a snapshot, which no stream holds; `envelope` with it."""

    kind: str
    data: dict[str, Any]
    event_id: str | None = None
    event: Event | None = None


async def follow(
    subject: Subject, last_event_id: str | None, events: AsyncEvents, wakes: WakeReader, leaving: Callable[[], bool]
) -> AsyncIterator[Shown | None]:
    """The events behind `last_event_id` as they come, until there are no more, or `leaving` says so after a wake.

    A reader whose last event has left the capped stream gets one `snapshot` first, and so does one who comes when all
    of it is gone. None: nothing for a while.
    """
    after = last_event_id or "0"
    loop = asyncio.get_running_loop()
    quiet_since = loop.time()
    with wakes.listen(subject.wake_id) as woken:
        first = True
        while not leaving():
            woken.clear()
            page: list[Event] = []
            ended = False
            try:
                # Its state first: events written before its end are then all there to be read.
                found = await subject.ended()
                if found is None:
                    return
                ended = found
                if first and await events.lost(subject.stream, last_event_id, ended):
                    if (snapshot := await subject.snapshot()) is None:
                        return
                    yield Shown("snapshot", snapshot)
                first = False
                page = await events.read(subject.stream, after, _PAGE)
            except (RedisConnectionError, RedisTimeoutError):  # waited out: the wake channel calls when it is back
                ended = False
            for event in page:
                after = event.event_id
                message = event.envelope.message
                yield Shown(message.msg_type, shown(message), event.event_id, event)
            if page:
                quiet_since = loop.time()
            if len(page) == _PAGE:
                continue
            if ended:
                return
            try:
                async with asyncio.timeout(spread_s(REREAD_S)):
                    await woken.wait()
            except TimeoutError:
                if loop.time() - quiet_since >= KEEPALIVE_S:
                    quiet_since = loop.time()
                    yield None


async def sse(
    subject: Subject, last_event_id: str | None, events: AsyncEvents, wakes: WakeReader, leaving: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """`follow`, as server-sent events."""
    async for item in follow(subject, last_event_id, events, wakes, leaving):
        if item is None:
            yield b": still here\n\n"
        else:
            head = f"id: {item.event_id}\n" if item.event_id else ""
            yield f"{head}event: {item.kind}\ndata: {json.dumps(item.data, ensure_ascii=False)}\n\n".encode()


def last_event_id(request: Request) -> str | None:
    """The Last-Event-ID header, checked. Raises InvalidField."""
    return checked_id(request.headers.get("last-event-id"), ("Last-Event-ID",))


def checked_id(last: Any, loc: tuple[str, ...]) -> str | None:
    """The id of an event, or None. Raises InvalidField."""
    if last is not None and not (isinstance(last, str) and re.fullmatch(r"[0-9]{1,18}(-[0-9]{1,18})?", last)):
        raise InvalidField(loc, "Expected the id of an event", "event_id")
    return last


_OF_A_PICTURE = ("sha256", "view", "grid_height", "grid_width", "num_soft")


def sse_response(stream: AsyncIterator[bytes]) -> StreamingResponse:
    """A stream that nobody between here and the caller keeps back."""
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(stream, media_type="text/event-stream", headers=headers)


def shown(message: Message) -> dict[str, Any]:
    """What a caller sees of an event: nothing of blobs or processes."""
    if isinstance(message, Prepared):
        return {
            "job_id": message.job_id,
            "attempt": message.attempt,
            "images": [{name: image[name] for name in _OF_A_PICTURE if name in image} for image in message.images],
        }
    if isinstance(message, Status | Progress | StreamText | Result | Error | BatchProgress):
        return message.to_content()
    return {}

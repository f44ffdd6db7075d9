"""One WebSocket that carries shell, control and iopub: requests in, replies and events out.

Each request is answered by a reply of its own, bad ones by a reply that says why; the events of what was asked, and of
what was subscribed to, come on iopub with the ids that a client subscribes again behind. What is sent waits in one
bounded line: followers of events wait for a slow client, requests are not read meanwhile, and one that takes nothing
for too long is cut off. Nothing is lost by that, since events stay where they are.

A message needs the scope that the same call needs over HTTP, and counts like one. A revoked key ends the connection.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Coroutine, Mapping
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from photocall.errors import CodedError
from photocall.messages import VERSION
from photocall.questions import InvalidField, Json
from photocall.sessions import SessionRecord
from photocall_gateway.body import Body
from photocall_gateway.caller import Caller
from photocall_gateway.events import BatchEvents, JobEvents, SessionEvents, Subject, checked_id, follow
from photocall_gateway.frames import BadFrame, Frame, read_frame, write_frame
from photocall_gateway.job_object import job_object
from photocall_gateway.ownership import batch_owner, seen_view
from photocall_gateway.problems import problem_of
from photocall_gateway.services import Services
from photocall_gateway.taking import accept_job, accept_turn, own_session
from photocall_gateway.tasks import stop
from photocall_gateway.waiting import ended, wait_for

QUEUE = 64  # frames that wait to be sent
MAX_SUBSCRIPTIONS = 64
MAX_REQUESTS = 64  # unfinished requests of one connection
SLOW_S = 30.0  # a client that takes no frame for so long is cut off
PING_S = 20.0  # an idle connection is pinged so often, and cut off when no pong comes for as long
TOO_BIG, TOO_SLOW, NO_KEY = 1009, 1008, 1008  # RFC 6455
WAIT_S = 86_400.0


class Connection:
    """One client. `serve` runs until it leaves."""

    def __init__(self, socket: WebSocket, s: Services, caller: Caller) -> None:
        self._socket = socket
        self._s = s
        self._caller = caller
        self._session = f"channel-{secrets.token_hex(6)}"
        self._out: asyncio.Queue[str] = asyncio.Queue(QUEUE)
        self._following: dict[str, asyncio.Task[None]] = {}  # by what the wake channel calls it
        self._working: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Read, answer, and send, until the client leaves or is cut off."""
        beside = [asyncio.create_task(self._send())]
        if self._caller.gone is not None:
            beside.append(asyncio.create_task(self._leave_with(self._caller.gone)))
        try:
            await self._receive()
        except WebSocketDisconnect:
            pass
        finally:
            for task in (*self._working, *self._following.values(), *beside):
                await stop(task)

    async def _leave_with(self, gone: asyncio.Future[None]) -> None:
        await asyncio.wait((gone,))
        for task in (*self._working, *self._following.values()):
            task.cancel()  # nothing that is under way is answered any more
        await self._socket.close(NO_KEY, "the API key has been revoked")

    async def _send(self) -> None:
        while True:
            text = await self._out.get()
            try:
                async with asyncio.timeout(SLOW_S):
                    await self._socket.send_text(text)
            except TimeoutError:
                await self._socket.close(TOO_SLOW, "the client takes no frames")
                return

    async def _receive(self) -> None:
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            text = message.get("text")
            if text is None:
                await self._refuse(BadFrame("A frame is text, not bytes"))
                continue
            if len(text) > self._s.settings.max_body_bytes:
                await self._socket.close(TOO_BIG, f"a frame has at most {self._s.settings.max_body_bytes} characters")
                return
            try:
                frame = await asyncio.to_thread(read_frame, text) if len(text) > 65_536 else read_frame(text)
            except BadFrame as error:
                await self._refuse(error)
                continue
            if len(self._working) >= MAX_REQUESTS:
                busy = CodedError("queue_full", f"{MAX_REQUESTS} requests of this connection are unfinished")
                await self._reply(frame, {"status": "error", "error": problem_of(self._socket.scope, busy)})
                continue
            self._start(self._handle(frame))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _handle(self, frame: Frame) -> None:
        """One request, to its reply. What fails is said in the reply, and in no other place."""
        try:
            content = await self._answer(frame)
        except Exception as error:
            content = {"status": "error", "error": problem_of(self._socket.scope, error)}
        await self._reply(frame, content)

    async def _answer(self, frame: Frame) -> dict[str, Any]:
        await self._s.turnstile.count(self._caller)
        match frame.msg_type:
            case "decide_request" | "turn_request":
                return await self._decide(frame)
            case "engine_info_request":
                readiness = await self._s.readiness.state()
                return {"status": "ok", "protocol_version": VERSION, **readiness.shown()}
            case "subscribe_request":
                return await self._subscribe(frame)
            case "unsubscribe_request":
                name = next(
                    filter(None, (_text(frame.content, of) for of in ("job_id", "session_id", "batch_id"))), None
                )
                task = self._following.pop(name or "", None)
                if task is not None:
                    await stop(task)
                return {"status": "ok", "subscribed": task is not None}
            case _:
                return await self._interrupt(frame)

    async def _decide(self, frame: Frame) -> dict[str, Any]:
        """Accept a job or a turn, send its events, and give its end."""
        self._caller.need("ask")
        if self._s.drain.started:
            raise CodedError("draining", "The server is shutting down; try again")
        key = _text(frame.metadata, "idempotency_key")
        asked = {name: value for name, value in frame.content.items() if name != "session_id"}
        body = Body(json.dumps(asked, ensure_ascii=False).encode(), "application/json", "")
        if frame.msg_type == "turn_request":
            session = await self._session_of(_required(frame.content, "session_id"))
            accepted = await accept_turn(self._s, session, body, key)
        else:
            accepted = await accept_job(self._s, self._caller.id, body, key)
        told = {"job_id": accepted.job_id, "created": accepted.created}
        await self._put(write_frame("iopub", "accepted", told, frame.header, self._session))
        subject = JobEvents(self._s.views, accepted.job_id)
        self._follow(subject, "0", frame.header)
        record = await wait_for(self._s.records.look, self._s.wakes, accepted.job_id, ended, WAIT_S)
        following = self._following.get(accepted.job_id)
        if following is not None:  # the reply comes last, behind every event of its cause
            await asyncio.wait((following,))
        return {"status": "ok", "job": job_object(record)}

    async def _subscribe(self, frame: Frame) -> dict[str, Any]:
        last = checked_id(frame.content.get("last_event_id"), ("last_event_id",))
        subject: Subject
        if (session_id := _text(frame.content, "session_id")) is not None:
            await self._session_of(session_id)
            subject = SessionEvents(self._s.sessions, session_id)
        elif (batch_id := _text(frame.content, "batch_id")) is not None:
            owner = await self._batch_owner(batch_id)
            await self._s.desk.batch(owner, batch_id)
            subject = BatchEvents(self._s.desk, owner, batch_id)
        else:
            subject = JobEvents(self._s.views, await self._seen_job(frame))
        if subject.wake_id not in self._following and len(self._following) >= MAX_SUBSCRIPTIONS:
            raise CodedError("queue_full", f"{MAX_SUBSCRIPTIONS} subscriptions of this connection are open")
        old = self._following.pop(subject.wake_id, None)
        if old is not None:
            await stop(old)
        self._follow(subject, last, frame.header)
        return {"status": "ok"}

    async def _interrupt(self, frame: Frame) -> dict[str, Any]:
        if (session_id := _text(frame.content, "session_id")) is not None:
            await self._session_of(session_id)
            waiting = frame.content.get("waiting", False)
            if not isinstance(waiting, bool):
                raise InvalidField(("waiting",), "Expected true or false", "bool_type")
            return {"status": "ok", "interrupted": await self._s.sessions.interrupt(session_id, waiting)}
        if (batch_id := _text(frame.content, "batch_id")) is not None:
            owner = await self._batch_owner(batch_id)
            return {"status": "ok", "batch": await self._s.desk.cancel(owner, batch_id)}
        return {"status": "ok", "job": job_object(await self._s.records.cancel(await self._seen_job(frame)))}

    async def _session_of(self, session_id: str) -> SessionRecord:
        self._caller.need("ask")
        return await own_session(self._s, session_id, self._caller.id)

    async def _batch_owner(self, batch_id: str) -> str:
        self._caller.need("batch", "admin")
        return await batch_owner(self._s, batch_id, self._caller)

    async def _seen_job(self, frame: Frame) -> str:
        self._caller.need("ask", "admin")
        job_id = _required(frame.content, "job_id")
        await seen_view(self._s, job_id, self._caller)
        return job_id

    def _follow(self, subject: Subject, last: str | None, parent: Mapping[str, Json]) -> None:
        if subject.wake_id not in self._following:
            self._following[subject.wake_id] = asyncio.create_task(self._events(subject, last, parent))

    async def _events(self, subject: Subject, last: str | None, parent: Mapping[str, Json]) -> None:
        """Send what happens to a subject. `parent` is the request that asked for it, and the cause of a snapshot."""
        s = self._s
        try:
            async for item in follow(subject, last, s.events, s.wakes, s.leaving(self._caller)):
                if item is None:
                    continue
                header = item.event.envelope.header if item.event else None
                metadata = {"subject": subject.wake_id} | ({"event_id": item.event_id} if item.event_id else {})
                frame = write_frame("iopub", item.kind, item.data, parent, self._session, header, metadata)
                await self._put(frame)
        finally:
            if self._following.get(subject.wake_id) is asyncio.current_task():
                del self._following[subject.wake_id]

    async def _refuse(self, error: BadFrame) -> None:
        content = {"status": "error", "error": problem_of(self._socket.scope, error)}
        await self._put(write_frame(error.channel, "error", content, error.header, self._session))

    async def _reply(self, frame: Frame, content: Mapping[str, Any]) -> None:
        msg_type = frame.msg_type.removesuffix("_request") + "_reply"
        await self._put(write_frame(frame.channel, msg_type, content, frame.header, self._session))

    async def _put(self, text: str) -> None:
        await self._out.put(text)


def _text(content: Mapping[str, Json], name: str) -> str | None:
    value = content.get(name)
    if value is not None and not (isinstance(value, str) and 1 <= len(value) <= 255):
        raise InvalidField((name,), "Expected 1 to 255 characters", "string_type")
    return value


def _required(content: Mapping[str, Json], name: str) -> str:
    found = _text(content, name)
    if found is None:
        raise InvalidField((name,), "Field required", "missing")
    return found

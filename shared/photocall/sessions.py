"""Sessions as Redis keeps them: a hash each, with its transcript, its line of unfinished turns, and what is held.

The transcript and what is held are written with the end of a turn (`lua/publish.lua`), the line by every script that
begins or ends one; here sessions are made, read and closed. A session without unfinished turns lives as long as its
time to live says, counted from its last turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

import redis
import redis.asyncio

from photocall import keys
from photocall.errors import JobGone, SessionFull, UnknownJob, UnknownSession
from photocall.jobs import Holding
from photocall.messages import ReleaseRequest
from photocall.names import could_be_id
from photocall.operations import CONTROL_LIMIT
from photocall.questions import Json
from photocall.records import AsyncRecords
from photocall.scripts import Argument, Call, flat, run_async
from photocall.wire import Wire, pack, unpack

Mode: TypeAlias = Literal["every", "newest"]
MAX_SESSIONS = 1000  # of one owner
LIST_PAGE = 100  # read at once


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A session as it is kept. Times are seconds since the epoch."""

    session_id: str
    owner: str
    created_at: float
    ttl_s: int
    mode: Mode  # newest: a turn replaces those of its session that no engine is at
    remember: bool  # whether turns stay in the transcript, where they do not say
    state: Json  # in front of every turn; None: there is none
    metadata: dict[str, str]
    turns: int = 0  # accepted
    answered: int = 0
    reused_turns: int = 0  # answered on a prefix that was held, and how many tokens of it in all
    reused_tokens: int = 0

    @classmethod
    def from_hash(cls, session_id: str, raw: Mapping[bytes, bytes]) -> SessionRecord:
        """Read the hash of a session."""

        def count(name: bytes) -> int:
            return int(raw.get(name, b"0"))

        return cls(
            session_id=session_id,
            owner=raw[b"owner"].decode(),
            created_at=float(raw[b"created_at"]),
            ttl_s=int(raw[b"ttl_s"]),
            turns=count(b"turns"),
            answered=count(b"answered"),
            reused_turns=count(b"reused_turns"),
            reused_tokens=count(b"reused_tokens"),
            **unpack(raw[b"told"]),
        )


@dataclass(frozen=True, slots=True)
class SessionView:
    """What there is to see of a session beside its record."""

    record: SessionRecord
    line: list[str]  # unfinished turns, by job id, in order
    remembered: int  # turns in the transcript
    holding: Holding | None
    notices: list[str]
    expires_in_s: float | None  # None while a turn is unfinished


@dataclass(frozen=True, slots=True)
class Remembered:
    """One turn of a transcript. `images` are prep's descriptions of its pictures, as in a `prepared` message."""

    turn: int
    job_id: str
    ask: dict[str, Any]  # the content of an Ask
    said: list[str | None]  # None: a question that was not asked
    images: list[dict[str, Any]]

    def pack(self) -> bytes:
        """As an entry of the transcript."""
        return pack([self.turn, self.job_id, self.ask, self.said, self.images])

    @classmethod
    def unpack(cls, entry: bytes) -> Remembered:
        return cls(*unpack(entry))


def read_transcript(client: redis.Redis, session_id: str) -> tuple[SessionRecord, list[Remembered]]:
    """A session and its answered turns, for the engine. Raises UnknownSession."""
    with client.pipeline(transaction=True) as pipe:
        pipe.hgetall(keys.session(session_id))
        pipe.lrange(keys.session_transcript(session_id), 0, -1)
        raw, entries = pipe.execute()
    if not raw:
        raise UnknownSession(session_id)
    return SessionRecord.from_hash(session_id, raw), [Remembered.unpack(entry) for entry in entries]


class AsyncSessions:
    """Sessions for the gateway."""

    def __init__(self, records: AsyncRecords, wire: Wire) -> None:
        self._records = records
        self._redis = records.redis
        self._wire = wire

    async def create(self, session: SessionRecord, limit: int = MAX_SESSIONS) -> None:
        """Keep a new session. Raises SessionFull when its owner has `limit` of them."""
        told = {"mode": session.mode, "remember": session.remember, "state": session.state}
        fields: dict[str, Argument] = {
            "owner": session.owner,
            "created_at": repr(session.created_at),
            "ttl_s": session.ttl_s,
            "told": pack(told | {"metadata": session.metadata}),
        }
        pairs = flat(fields)
        args: tuple[Argument, ...] = (
            session.session_id,
            repr(session.created_at),
            session.ttl_s,
            limit,
            keys.session(""),
            *pairs,
        )
        own_keys = (keys.session(session.session_id), keys.sessions(session.owner))
        held = await run_async(self._redis, Call("create_session", own_keys, args, int, job=False))
        if held:
            raise SessionFull("sessions of this key", held, limit)

    async def get(self, session_id: str) -> SessionRecord:
        """Raises UnknownSession."""
        raw = await cast(Any, self._redis.hgetall(keys.session(session_id)))
        if not raw:
            raise UnknownSession(session_id)
        return SessionRecord.from_hash(session_id, raw)

    async def view(self, session_id: str) -> SessionView:
        """A session as it is now. Raises UnknownSession."""
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.hgetall(keys.session(session_id))
            pipe.lrange(keys.session_line(session_id), 0, -1)
            pipe.llen(keys.session_transcript(session_id))
            pipe.hmget(keys.session_held(session_id), ["heartbeat", "shown"])
            pipe.lrange(keys.session_notices(session_id), 0, -1)
            pipe.pttl(keys.session(session_id))
            raw, line, remembered, (heartbeat, shown), notices, ttl_ms = await pipe.execute()
        if not raw:
            raise UnknownSession(session_id)
        holding = None
        if shown and await cast(Any, self._redis.exists(heartbeat)):
            holding = Holding(**unpack(shown))
        return SessionView(
            record=SessionRecord.from_hash(session_id, raw),
            line=[job_id.decode() for job_id in line],
            remembered=remembered,
            holding=holding,
            notices=[notice for lines in notices for notice in unpack(lines)],
            expires_in_s=ttl_ms / 1000 if ttl_ms >= 0 else None,
        )

    async def of_owner(self, owner: str, after: str | None, limit: int) -> list[SessionRecord]:
        """The owner's sessions, newest first, behind `after`, which may have ended since.

        Raises UnknownSession for one that is not on the owner's list.
        """
        found: dict[str, SessionRecord] = {}  # by id: one that is made meanwhile shifts the others
        start = 0
        if after is not None:
            if not could_be_id(after):
                raise UnknownSession(after)
            place = await cast(Any, self._redis.zrevrank(keys.sessions(owner), after))
            if place is None:
                raise UnknownSession(after)
            start = place + 1
        while len(found) < limit:
            page = await cast(Any, self._redis.zrevrange(keys.sessions(owner), start, start + LIST_PAGE - 1))
            if not page:
                break
            start += len(page)
            async with self._redis.pipeline(transaction=False) as pipe:
                for raw in page:
                    pipe.hgetall(keys.session(raw.decode()))
                records = zip(page, await pipe.execute(), strict=True)
            found |= {name.decode(): SessionRecord.from_hash(name.decode(), raw) for name, raw in records if raw}
        return list(found.values())[:limit]

    async def pictures(self, session_id: str) -> list[dict[str, Any]]:
        """Prep's descriptions of the pictures in the transcript, each once."""
        entries = await cast(Any, self._redis.lrange(keys.session_transcript(session_id), 0, -1))
        found = {image["sha256"]: image for entry in entries for image in Remembered.unpack(entry).images}
        return list(found.values())

    async def interrupt(self, session_id: str, waiting: bool) -> list[str]:
        """Cancel the turn that is first in line, or, with `waiting`, all of them; the ids of those cancelled."""
        line = await cast(Any, self._redis.lrange(keys.session_line(session_id), 0, -1 if waiting else 0))
        cancelled = []
        for raw in reversed(line):  # the last first: nobody is called who is cancelled next
            try:
                await self._records.cancel(raw.decode())
            except (UnknownJob, JobGone):
                continue
            cancelled.append(raw.decode())
        return cancelled[::-1]

    async def replace_waiting(self, session_id: str, by: str) -> None:
        """Turns in front of `by` that no engine is at end as replaced."""
        for raw in await cast(Any, self._redis.lrange(keys.session_line(session_id), 0, -1)):
            if raw.decode() == by:
                return
            try:
                await self._records.replace(raw.decode(), by)
            except (UnknownJob, JobGone):
                continue

    async def close(self, session: SessionRecord) -> None:
        """Cancel its unfinished turns and remove all of it; the engine that holds its prefix lets go.

        Its id keeps its place on the owner's list, so that lists go on behind it, until room is needed there.
        """
        session_id = session.session_id
        await self.interrupt(session_id, waiting=True)
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.delete(
                keys.session(session_id),
                keys.session_line(session_id),
                keys.session_transcript(session_id),
                keys.session_events(session_id),
                keys.session_notices(session_id),
                keys.session_held(session_id),
            )
            release = {b"m": self._wire.encode(ReleaseRequest([session_id]))}
            pipe.xadd(keys.CONTROL, cast(Any, release), maxlen=CONTROL_LIMIT)
            pipe.publish(keys.WAKE, session_id)
            await pipe.execute()

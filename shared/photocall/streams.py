"""Reading streams: the events of a job for the gateway, and what becomes of entries that cannot be read.

A message with a bad signature is refused and counted. One of an unknown major version is left where it is for a newer
process, and becomes a dead letter once it has waited long enough.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, cast

import redis
import redis.asyncio

from photocall import keys
from photocall.errors import BadSignature, MalformedMessage, UnknownVersion
from photocall.logs import fields
from photocall.messages import Envelope
from photocall.together import Together
from photocall.wire import Wire

log = logging.getLogger(__name__)

FIELD = b"m"
DEAD_LIMIT = 1000
LEFT_FOR_NEWER_S = 60.0
DECODED = 512  # of the last events, and none over DECODED_BYTES: 2 MiB at most
DECODED_BYTES = 4096

Entry: TypeAlias = tuple[bytes, Mapping[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a job. `event_id` is its stream id, which is its SSE id too."""

    event_id: str
    envelope: Envelope


class AsyncEvents:
    """Event streams, by key, as the gateway reads them. Never blocks: `AsyncRecords.wakes` says when to read again."""

    def __init__(self, client: redis.asyncio.Redis, wire: Wire, event_limit: int = 1000) -> None:
        self._redis = client
        self._wire = wire
        self._event_limit = event_limit
        self._reads = Together(client)
        # An event is read by everyone who follows its job, and by those who follow its session.
        self._decoded = lru_cache(DECODED)(wire.decode)

    async def read(self, stream: str, after: str = "0", limit: int = 100) -> list[Event]:
        """Events behind `after`, oldest first. Entries that cannot be read are counted and removed.

        Readers of the same entry are given the same envelope, which none may change.
        """
        start = "-" if after == "0" else f"({after}"
        entries = await self._reads.ask("XRANGE", stream, start, "+", "COUNT", limit)
        found = []
        for entry_id, values in entries:
            try:
                data = values.get(FIELD, b"")
                decode = self._decoded if len(data) <= DECODED_BYTES else self._wire.decode
                found.append(Event(entry_id.decode(), decode(data)))
            except (BadSignature, UnknownVersion, MalformedMessage) as error:
                await cast(Any, self._redis.hincrby(keys.COUNTERS, counter(error), 1))
                await cast(Any, self._redis.xdel(stream, entry_id))
        return found

    async def last(self, stream: str) -> str:
        """The id of the newest event; "0" where there is none."""
        found = await cast(Any, self._redis.xrevrange(stream, count=1))
        return str(found[0][0].decode()) if found else "0"

    async def lost(self, stream: str, last_event_id: str | None, ended: bool) -> bool:
        """Events behind `last_event_id` may be gone, so a client needs a snapshot first.

        They have left the capped stream; or all of it has, of a subject that `ended`.
        """
        if last_event_id is None and not ended:
            return False
        first = await cast(Any, self._redis.xrange(stream, count=1))
        if not first:
            return ended
        if last_event_id is None:
            return False
        full = await cast(Any, self._redis.xlen(stream)) >= self._event_limit
        return bool(full) and stream_order(first[0][0].decode()) > stream_order(last_event_id)


class DeadLetters:
    """What becomes of entries that cannot be read, on a synchronous client."""

    def __init__(self, client: redis.Redis) -> None:
        self._redis = client

    def refuse(self, stream: str, group: str, entry: Entry, error: Exception, now: float | None = None) -> bool:
        """Deal with one entry of a group's stream; True when it is gone, False when it is left for a newer process."""
        entry_id, values = entry
        self._redis.hincrby(keys.COUNTERS, counter(error), 1)
        added_at = int(entry_id.partition(b"-")[0]) / 1000
        if isinstance(error, UnknownVersion) and (now or time.time()) - added_at < LEFT_FOR_NEWER_S:
            return False
        log.warning("dead letter", extra=fields(stream=stream, entry=entry_id.decode(), reason=str(error)))
        letter = {b"stream": stream.encode(), b"reason": str(error).encode(), FIELD: values.get(FIELD, b"")}
        with self._redis.pipeline() as pipe:
            pipe.xadd(keys.DEAD, cast(Any, letter), maxlen=DEAD_LIMIT)
            pipe.xack(stream, group, cast(Any, entry_id))
            pipe.xdel(stream, cast(Any, entry_id))
            pipe.execute()
        return True


def counter(error: Exception) -> str:
    """Where a refused message is counted."""
    if isinstance(error, BadSignature):
        return "bad_signature"
    return "unknown_version" if isinstance(error, UnknownVersion) else "malformed"


def stream_order(entry_id: str) -> tuple[int, int]:
    """Stream ids as they sort."""
    milliseconds, _, sequence = entry_id.partition("-")
    return int(milliseconds), int(sequence or 0)


def entries_of(reply: Sequence[Any] | None) -> list[Entry]:
    """The entries of an XREADGROUP reply over one stream."""
    return [entry for _, entries in reply or () for entry in entries]

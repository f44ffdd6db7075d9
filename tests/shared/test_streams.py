"""Reading events, and what becomes of entries that cannot be read."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
import redis

from photocall import keys
from photocall.connections import connect_async
from photocall.errors import BadSignature, MalformedMessage, UnknownVersion
from photocall.messages import Progress
from photocall.redis_server import RedisServer
from photocall.streams import LEFT_FOR_NEWER_S, AsyncEvents, DeadLetters, Event, stream_order
from photocall.wire import Wire

WIRE = Wire(b"a key for tests", "test")


def progress(done: int) -> bytes:
    return WIRE.encode(Progress("j1", "running", done, 9))


def add(client: redis.Redis, data: bytes, stream: str = keys.events("j1")) -> str:
    return cast(bytes, client.xadd(stream, {"m": data})).decode()


def read(server: RedisServer, after: str = "0", limit: int = 100) -> list[Event]:
    async def scenario() -> list[Event]:
        client = connect_async(server.url)
        events = await AsyncEvents(client, WIRE).read(keys.events("j1"), after, limit)
        await client.aclose()
        return events

    return asyncio.run(scenario())


def test_events_behind_an_id(redis_client: redis.Redis, redis_server: RedisServer) -> None:
    ids = [add(redis_client, progress(done)) for done in range(4)]
    assert [event.event_id for event in read(redis_server)] == ids
    assert [event.event_id for event in read(redis_server, ids[1])] == ids[2:]
    assert [event.event_id for event in read(redis_server, ids[0], 2)] == ids[1:3]
    assert read(redis_server, ids[3]) == []
    assert cast(Progress, read(redis_server)[2].envelope.message).done == 2


def test_an_event_is_decoded_once_for_all_who_read_it(
    redis_client: redis.Redis, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by its place in the stream, but by its bytes: a changed one is looked at anew."""
    decoded = []
    decode = Wire.decode

    def counted(self: Wire, data: bytes) -> Any:
        decoded.append(data)
        return decode(self, data)

    monkeypatch.setattr(Wire, "decode", counted)
    small, large = progress(1), WIRE.encode(Progress("j1", "x" * 5000, 1, 9))
    for stream in (keys.events("j1"), keys.session_events("s1")):
        add(redis_client, small, stream)
        add(redis_client, large, stream)

    async def scenario() -> list[Event]:
        client = connect_async(redis_server.url)
        events = AsyncEvents(client, WIRE)
        found = [await events.read(keys.events("j1")) for _ in range(4)]
        found.append(await events.read(keys.session_events("s1")))
        await client.aclose()
        return [page[0] for page in found]

    found = asyncio.run(scenario())
    assert all(event.envelope is found[0].envelope for event in found)
    assert sorted(decoded) == sorted([small] + 5 * [large])


def test_events_that_cannot_be_read_are_counted_once(redis_client: redis.Redis, redis_server: RedisServer) -> None:
    add(redis_client, b"rubbish")
    good = add(redis_client, progress(1))
    redis_client.xadd(keys.events("j1"), {"other": "field"})
    assert [event.event_id for event in read(redis_server)] == [good]
    assert [event.event_id for event in read(redis_server)] == [good]
    assert redis_client.hget(keys.COUNTERS, "bad_signature") == b"2"


@pytest.mark.parametrize(("seen", "lost"), [(0, True), (5, False), (8, False)])
def test_lost_events(redis_client: redis.Redis, redis_server: RedisServer, seen: int, lost: bool) -> None:
    ids = []
    for done in range(9):
        ids.append(
            cast(bytes, redis_client.xadd(keys.events("j1"), {"m": progress(done)}, maxlen=5, approximate=False))
        )

    async def scenario() -> bool:
        client = connect_async(redis_server.url)
        answer = await AsyncEvents(client, WIRE, event_limit=5).lost(keys.events("j1"), ids[seen].decode(), False)
        await client.aclose()
        return answer

    assert asyncio.run(scenario()) == lost


def test_nothing_is_lost_of_a_short_stream(redis_client: redis.Redis, redis_server: RedisServer) -> None:
    add(redis_client, progress(0))

    async def scenario() -> list[bool]:
        client = connect_async(redis_server.url)
        events = AsyncEvents(client, WIRE, event_limit=5)
        answers = [await events.lost(keys.events("j1"), "0", False), await events.lost("none", "0", False)]
        answers += [await events.lost(keys.events("j1"), last, True) for last in ("0", None)]
        await client.aclose()
        return answers

    assert asyncio.run(scenario()) == [False] * 4


@pytest.mark.parametrize("last", [None, "7-0"])
def test_all_is_lost_of_what_ended_when_its_stream_is_gone(redis_server: RedisServer, last: str | None) -> None:
    async def scenario() -> list[bool]:
        client = connect_async(redis_server.url)
        events = AsyncEvents(client, WIRE, event_limit=5)
        answers = [await events.lost("none", last, ended) for ended in (True, False)]
        await client.aclose()
        return answers

    assert asyncio.run(scenario()) == [True, False]


STREAM = keys.engine_stream("interactive")


@pytest.fixture
def pending(redis_client: redis.Redis) -> Any:
    """Adds an entry and reads it into the group; gives the entry."""
    redis_client.xgroup_create(STREAM, keys.ENGINE_GROUP, id="0", mkstream=True)

    def add_and_read(data: bytes) -> Any:
        add(redis_client, data, STREAM)
        return cast(Any, redis_client.xreadgroup(keys.ENGINE_GROUP, "c", {STREAM: ">"}))[0][1][0]

    return add_and_read


@pytest.mark.parametrize(
    ("error", "counted"), [(BadSignature("x"), b"bad_signature"), (MalformedMessage("x"), b"malformed")]
)
def test_a_refused_entry_is_counted_and_kept_as_a_dead_letter(
    redis_client: redis.Redis, pending: Any, error: Exception, counted: bytes
) -> None:
    entry = pending(b"rubbish")
    assert DeadLetters(redis_client).refuse(STREAM, keys.ENGINE_GROUP, entry, error)
    assert cast(Any, redis_client.hgetall(keys.COUNTERS)) == {counted: b"1"}
    assert redis_client.xlen(STREAM) == 0
    assert cast(Any, redis_client.xpending(STREAM, keys.ENGINE_GROUP))["pending"] == 0
    [(_, letter)] = cast(Any, redis_client.xrange(keys.DEAD))
    assert letter == {b"stream": STREAM.encode(), b"reason": b"x", b"m": b"rubbish"}


def test_an_unknown_version_is_left_for_a_newer_process_and_then_dead_lettered(
    redis_client: redis.Redis, pending: Any
) -> None:
    entry = pending(b"from the future")
    added_at = stream_order(entry[0].decode())[0] / 1000
    letters = DeadLetters(redis_client)
    early, late = added_at + LEFT_FOR_NEWER_S - 1, added_at + LEFT_FOR_NEWER_S + 1
    assert not letters.refuse(STREAM, keys.ENGINE_GROUP, entry, UnknownVersion("2.0"), early)
    assert cast(Any, redis_client.xpending(STREAM, keys.ENGINE_GROUP))["pending"] == 1
    assert letters.refuse(STREAM, keys.ENGINE_GROUP, entry, UnknownVersion("2.0"), late)
    assert redis_client.xlen(keys.DEAD) == 1
    assert redis_client.hget(keys.COUNTERS, "unknown_version") == b"2"

"""Reads that go together: one trip for many, nothing old, and nobody drawn into another's end."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
import redis.asyncio
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from photocall.connections import connect_async
from photocall.redis_server import RedisServer
from photocall.together import MOST, Together


def with_server(server: RedisServer, scenario: Callable[[redis.asyncio.Redis, Together], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        client = connect_async(server.url)
        try:
            return await scenario(client, Together(client))
        finally:
            await client.aclose()
            await client.connection_pool.disconnect()

    return asyncio.run(run())


class FakeClient:
    """A pipeline that a test opens, and that notes what was sent in each trip."""

    def __init__(self, *failures: Exception | None) -> None:
        self.trips: list[list[tuple[Any, ...]]] = []
        self.let_go = asyncio.Event()
        self._failures = list(failures)

    def pipeline(self, transaction: bool) -> FakeClient:
        self._commands: list[tuple[Any, ...]] = []
        return self

    async def __aenter__(self) -> FakeClient:
        return self

    async def __aexit__(self, *error: object) -> None: ...

    def execute_command(self, *command: Any) -> None:
        self._commands.append(command)

    async def execute(self, raise_on_error: bool) -> list[Any]:
        self.trips.append(self._commands)
        await self.let_go.wait()
        if self._failures and (failure := self._failures.pop(0)) is not None:
            raise failure
        return [" ".join(map(str, command)) for command in self._commands]


class TimelessLoop(asyncio.SelectorEventLoop):
    """Its time passes only while nothing is to be done, and then at once: what waits is exact on a busy machine."""

    def __init__(self) -> None:
        self.now = 0.0
        loop = self

        class Selector(selectors.DefaultSelector):
            def select(self, timeout: float | None = None) -> Any:
                loop.now += timeout or 0.0
                return super().select(0)

        super().__init__(Selector())

    def time(self) -> float:
        return self.now


def together(client: FakeClient) -> Together:
    return Together(cast(redis.asyncio.Redis, client))


def test_everyone_gets_the_reply_to_what_they_asked(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    redis_client.hset("a", mapping={"x": "1", "y": "2"})
    redis_client.zadd("z", {"m": 1.0, "n": 2.0})

    async def scenario(client: redis.asyncio.Redis, reads: Together) -> Any:
        asked = [reads.ask("HGETALL", "a"), reads.ask("ZRANK", "z", "n"), reads.ask("HMGET", "a", b"y", b"none")]
        asked += [reads.ask("GET", "a"), reads.ask("EXISTS", "z")]
        return await asyncio.gather(*asked, return_exceptions=True)

    *found, wrong, there = with_server(redis_server, scenario)
    assert found == [{b"x": b"1", b"y": b"2"}, 1, [b"2", None]]
    assert isinstance(wrong, ResponseError)  # and of nobody else
    assert there == 1


def test_a_read_sees_what_was_written_before_it_was_asked_for(
    redis_server: RedisServer, redis_client: redis.Redis
) -> None:
    async def scenario(client: redis.asyncio.Redis, reads: Together) -> None:
        for n in range(200):
            early = asyncio.create_task(reads.ask("GET", "n"))  # under way, maybe, when the next value is written
            await asyncio.sleep(0)
            await client.set("n", n)
            assert await reads.ask("GET", "n") == str(n).encode()
            await early

    with_server(redis_server, scenario)


def test_those_who_come_meanwhile_go_together_and_equal_ones_once() -> None:
    async def run() -> list[list[tuple[Any, ...]]]:
        client = FakeClient()
        reads = together(client)
        first = asyncio.create_task(reads.ask("GET", "a"))
        await asyncio.sleep(0.01)
        later = [asyncio.create_task(reads.ask("GET", key)) for key in ("a", "b", "a")]
        await asyncio.sleep(0.01)
        client.let_go.set()
        assert await first == "GET a"
        assert [await one for one in later] == ["GET a", "GET b", "GET a"]
        many = await asyncio.gather(*(reads.ask("GET", n) for n in range(MOST + 1)))
        assert many[MOST] == f"GET {MOST}"
        return client.trips

    first, second, third, fourth = asyncio.run(run())
    assert (first, second) == ([("GET", "a")], [("GET", "a"), ("GET", "b")])  # `a` again: the first may be older
    assert (len(third), len(fourth)) == (MOST, 1)


def test_trips_can_be_kept_apart_and_nobody_alone_waits() -> None:
    async def run() -> tuple[list[int], float, float]:
        client = FakeClient()
        client.let_go.set()
        reads = Together(cast(redis.asyncio.Redis, client), apart_s=0.2)
        loop = asyncio.get_running_loop()
        started = loop.time()
        await reads.ask("GET", "first")
        alone = loop.time() - started
        crowd = []
        for n in range(10):
            crowd.append(asyncio.create_task(reads.ask("GET", n)))
            for _ in range(20):  # turns of the loop in which a trip of its own would have been made
                await asyncio.sleep(0)
        await asyncio.gather(*crowd)
        return [len(trip) for trip in client.trips], alone, loop.time() - started

    with asyncio.Runner(loop_factory=TimelessLoop) as runner:
        trips, alone, both = runner.run(run())
    assert trips == [1, 10]
    assert alone == 0.0
    assert both == pytest.approx(0.2)


def test_one_that_leaves_takes_no_other_along() -> None:
    async def run() -> None:
        client = FakeClient()
        reads = together(client)
        leaving, staying = (asyncio.create_task(reads.ask("GET", "a")) for _ in range(2))
        await asyncio.sleep(0.01)
        leaving.cancel()
        client.let_go.set()
        assert await staying == "GET a"
        with pytest.raises(asyncio.CancelledError):
            await leaving

    asyncio.run(run())


@pytest.mark.parametrize(
    ("failure", "behind"), [(RedisConnectionError("away"), 0), (RedisTimeoutError("does not answer"), 1)]
)
def test_a_failed_trip_is_told_to_all_in_it_and_a_timeout_to_those_behind(failure: Exception, behind: int) -> None:
    async def run() -> None:
        client = FakeClient(failure)
        reads = together(client)
        inside = [asyncio.create_task(reads.ask("GET", key)) for key in "ab"]
        await asyncio.sleep(0.01)
        after = asyncio.create_task(reads.ask("GET", "c"))
        await asyncio.sleep(0.01)
        client.let_go.set()
        found = await asyncio.gather(*inside, after, return_exceptions=True)
        assert [isinstance(one, type(failure)) for one in found] == [True, True, bool(behind)]
        assert await reads.ask("GET", "d") == "GET d"  # and it goes on

    asyncio.run(run())

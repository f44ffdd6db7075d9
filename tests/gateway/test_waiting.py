"""Waiting for a job: hints that get lost, a Redis that goes away, callers that leave."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from starlette.requests import ClientDisconnect, Request

from photocall.errors import CodedError, UnknownJob
from photocall.jobs import JobRecord
from photocall.records import AsyncRecords
from photocall_gateway.caller import CALLER, LOCAL, Caller
from photocall_gateway.draining import Drain
from photocall_gateway.prefer import preferred_wait_s, while_connected
from photocall_gateway.tasks import stop
from photocall_gateway.waiting import WakeReader, wait_for


@dataclass
class Record:
    """As much of a record as waiting looks at."""

    done: bool = False


@dataclass
class FakeRecords:
    """A record, and a wake channel that a test fills; either can be away."""

    record: Record = field(default_factory=Record)
    away: bool = False
    reads: int = 0
    subscriptions: int = 0
    hints: asyncio.Queue[str] = field(default_factory=asyncio.Queue)

    async def get(self, job_id: str) -> Record:
        self.reads += 1
        if self.away:
            raise RedisConnectionError("away")
        if job_id == "none":
            raise UnknownJob(job_id)
        return self.record

    @asynccontextmanager
    async def wakes(self) -> AsyncIterator[AsyncIterator[str]]:
        if self.away:
            raise RedisConnectionError("away")
        self.subscriptions += 1

        async def ids() -> AsyncIterator[str]:
            while True:
                hint = await self.hints.get()
                if hint == "lost":
                    raise RedisConnectionError("lost")
                yield hint

        yield ids()


def done(record: JobRecord) -> bool:
    return cast(Any, record).done  # type: ignore[no-any-return]


def wait(records: FakeRecords, wakes: WakeReader, timeout_s: float, reread_s: float = 5.0, job: str = "j") -> Any:
    return wait_for(cast(Any, records).get, wakes, job, done, timeout_s, reread_s)


def reader(records: FakeRecords) -> WakeReader:
    return WakeReader(cast(AsyncRecords, records))


def test_a_hint_ends_the_wait_at_once() -> None:
    async def run() -> float:
        records = FakeRecords()
        wakes = reader(records)
        running = asyncio.create_task(wakes.run())
        waiting = asyncio.create_task(wait(records, wakes, 10))
        await asyncio.sleep(0.05)
        assert wakes.listeners == 1
        records.record = Record(done=True)
        started = time.monotonic()
        records.hints.put_nowait("another job")
        records.hints.put_nowait("j")
        assert (await waiting).done
        assert wakes.listeners == 0
        await stop(running)
        return time.monotonic() - started

    assert asyncio.run(run()) < 1.0


def test_a_lost_hint_costs_one_reread_and_never_the_answer() -> None:
    async def run() -> None:
        records = FakeRecords()
        waiting = asyncio.create_task(wait(records, reader(records), 10, reread_s=0.1))
        await asyncio.sleep(0.02)
        records.record = Record(done=True)  # and nobody says so
        assert (await asyncio.wait_for(waiting, 9)).done

    asyncio.run(run())


def test_the_end_of_the_time_gives_the_record_as_it_is() -> None:
    async def run() -> None:
        records = FakeRecords()
        assert not (await wait(records, reader(records), 0.1)).done
        assert records.reads == 2
        assert not (await wait(records, reader(records), 0.0)).done

    asyncio.run(run())


def test_redis_away_is_waited_out_by_those_who_wait() -> None:
    async def run() -> None:
        records = FakeRecords(record=Record(done=True), away=True)
        waiting = asyncio.create_task(wait(records, reader(records), 5))
        await asyncio.sleep(0.1)
        records.away = False
        assert (await waiting).done
        records.away = True
        with pytest.raises(RedisConnectionError):
            await wait(records, reader(records), 0.3)

    asyncio.run(run())


def test_an_unknown_job_is_not_waited_for() -> None:
    async def run() -> None:
        records = FakeRecords()
        with pytest.raises(UnknownJob):
            await wait(records, reader(records), 5, job="none")

    asyncio.run(run())


def test_the_reader_subscribes_again_and_makes_everyone_read() -> None:
    async def run() -> None:
        records = FakeRecords(away=True)
        wakes = reader(records)
        running = asyncio.create_task(wakes.run())
        await asyncio.sleep(0.1)
        assert (records.subscriptions, running.done()) == (0, False)
        records.away = False
        waiting = asyncio.create_task(wait(records, wakes, 10))
        await asyncio.sleep(0.3)
        assert records.subscriptions == 1
        records.record = Record(done=True)
        records.hints.put_nowait("lost")  # the connection breaks, and with it the hint for this job
        assert (await asyncio.wait_for(waiting, 9)).done
        assert records.subscriptions == 2
        await stop(running)

    asyncio.run(run())


def request(*messages: dict[str, Any], **headers: str) -> Request:
    """A request whose body has been read; `messages` come next, then silence."""
    queue = list(messages)

    async def receive() -> dict[str, Any]:
        if queue:
            return queue.pop(0)
        await asyncio.sleep(60)
        raise AssertionError

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": "GET", "path": "/", "headers": raw, CALLER: LOCAL}, receive)


def test_a_caller_that_leaves_ends_the_work() -> None:
    async def run() -> None:
        ended = asyncio.Event()

        async def work() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                ended.set()

        with pytest.raises(ClientDisconnect):
            await while_connected(request({"type": "http.disconnect"}), work())
        assert ended.is_set()

        async def quick() -> int:
            return 7

        assert await while_connected(request(), quick()) == 7

    asyncio.run(run())


def test_a_caller_whose_key_is_revoked_waits_no_longer() -> None:
    async def run() -> None:
        gone = asyncio.get_running_loop().create_future()
        waiting = request()
        waiting.scope[CALLER] = Caller("ann", frozenset({"ask"}), gone)
        asyncio.get_running_loop().call_later(0.05, gone.set_result, None)
        with pytest.raises(CodedError) as refused:
            await while_connected(waiting, asyncio.sleep(60))
        assert refused.value.code == "bad_key"

    asyncio.run(run())


def test_stop_ends_a_task_that_drops_a_cancellation() -> None:
    async def run() -> int:
        dropped = 0

        async def stubborn() -> None:
            nonlocal dropped
            while True:
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    dropped += 1
                    if dropped == 3:
                        raise

        task = asyncio.create_task(stubborn())
        await asyncio.sleep(0)
        await asyncio.wait_for(stop(task), 30)
        return dropped

    assert asyncio.run(run()) == 3


def test_an_error_that_nobody_waits_for_is_not_reported_as_a_defect() -> None:
    """A caller whose time is over leaves its work behind, whose refusal then stood in the log with a traceback."""
    reported: list[object] = []

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))

        async def refused() -> None:
            raise UnknownJob("j1")

        task = asyncio.create_task(refused())
        await asyncio.sleep(0)
        await stop(task)
        del task
        gc.collect()

    asyncio.run(run())
    assert reported == []


@pytest.mark.parametrize(
    ("prefer", "wait_s"),
    [
        ("wait=5", 5.0),
        ("respond-async, wait=5", 5.0),
        ('wait="7"; x=1', 7.0),
        ("WAIT = 3", 3.0),
        ("wait=0", 0.0),
        ("wait=999", 60.0),
        ("wait=" + "9" * 5000, 60.0),
        ("respond-async", None),
        ("wait=-1", None),
        ("wait=soon", None),
        ("no-wait=5", None),
        ("return=minimal", None),
    ],
)
def test_prefer(prefer: str, wait_s: float | None) -> None:
    assert preferred_wait_s(request(prefer=prefer), 60.0) == wait_s


def test_drain_waits_for_open_calls() -> None:
    async def run() -> None:
        drain = Drain()
        assert await drain.finished(0.0)
        drain.enter()
        drain.enter()
        assert not await drain.finished(0.05)
        leaving = asyncio.create_task(drain.finished(5))
        await asyncio.sleep(0)
        drain.leave()
        await asyncio.sleep(0.01)
        assert not leaving.done()
        drain.leave()
        assert await leaving

    asyncio.run(run())

"""One value that is dear to read: once for all who ask, again when it is old, and again after a failure."""

from __future__ import annotations

import asyncio

import pytest

from photocall_gateway.fresh import Fresh


def test_one_reads_for_all_until_it_is_old() -> None:
    async def go() -> None:
        now, reads, go_on = [0.0], 0, asyncio.Event()

        async def read() -> int:
            nonlocal reads
            reads += 1
            await go_on.wait()
            return reads

        fresh = Fresh(read, 1.0, lambda: now[0])
        asking = [asyncio.create_task(fresh.value()) for _ in range(3)]
        while not reads:
            await asyncio.sleep(0)
        asking[0].cancel()
        now[0] = 0.75  # a value is as old as its reading
        go_on.set()
        assert await asyncio.gather(*asking[1:]) == [1, 1]
        now[0] = 1.0
        assert await fresh.value() == 1
        now[0] = 1.01
        assert await fresh.value() == 2

    asyncio.run(go())


def test_a_failure_is_nobody_elses_value() -> None:
    async def go() -> None:
        found: list[Exception | int] = [OSError("away"), 7]

        async def read() -> int:
            one = found.pop(0)
            if isinstance(one, Exception):
                raise one
            return one

        fresh = Fresh(read, 1.0)
        with pytest.raises(OSError, match="away"):
            await fresh.value()
        assert await fresh.value() == 7

    asyncio.run(go())

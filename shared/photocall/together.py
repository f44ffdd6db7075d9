"""Reads of many callers in one round trip: those that come while one is under way go together in the next.

Nothing is kept: a read is sent after it was asked for, so whoever asks sees all that was written before. Two callers
that ask for the same get one answer, which neither may change. A round trip costs this process more than what travels
in it, so trips can be kept apart: in a crowd each carries more, and somebody alone waits for nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import Any, TypeAlias, cast

import redis.asyncio
from redis.exceptions import TimeoutError as RedisTimeoutError

Command: TypeAlias = tuple[str | bytes | int, ...]

MOST = 200  # commands of one round trip: the first of them waits for the last


class Together:
    """Commands that only read, over one connection at a time; two trips start at least `apart_s` after one another."""

    def __init__(self, client: redis.asyncio.Redis, apart_s: float = 0.0) -> None:
        self._redis = client
        self._apart_s = apart_s
        self._last_sent = float("-inf")
        self._waiting: dict[Command, list[asyncio.Future[Any]]] = {}  # not sent yet
        self._sending: asyncio.Task[None] | None = None

    async def ask(self, *command: str | bytes | int) -> Any:
        """The reply, as the client gives it. Raises its errors."""
        # Each caller's own: one that is cancelled takes no other along.
        answer = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(command, []).append(answer)
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_all())
        return await answer

    async def _send_all(self) -> None:
        """Until nobody waits."""
        batch: dict[Command, list[asyncio.Future[Any]]] = {}
        try:
            while self._waiting:
                if self._apart_s:
                    await self._keep_apart()
                batch = {command: self._waiting.pop(command) for command in list(islice(self._waiting, MOST))}
                replies = await self._send(list(batch))
                if isinstance(replies[0], RedisTimeoutError):  # nor will it answer those behind
                    for answers in self._waiting.values():
                        _give(replies[0], answers)
                    self._waiting.clear()
                for reply, answers in zip(replies, batch.values(), strict=True):
                    _give(reply, answers)
        finally:
            for answers in (*batch.values(), *self._waiting.values()):  # the loop ends: they are let go with it
                for answer in answers:
                    answer.cancel()
            self._waiting.clear()
            self._sending = None

    async def _keep_apart(self) -> None:
        loop = asyncio.get_running_loop()
        if (early_s := self._last_sent + self._apart_s - loop.time()) > 0:
            await asyncio.sleep(early_s)
        self._last_sent = loop.time()

    async def _send(self, commands: Sequence[Command]) -> list[Any]:
        """A reply or an error for each command; a failure of the round trip is everyone's."""
        try:
            return await self._replies(commands)
        except Exception as error:  # whoever asked raises it
            return [error] * len(commands)

    async def _replies(self, commands: Sequence[Command]) -> list[Any]:
        """One reply, or error, for each command."""
        async with self._redis.pipeline(transaction=False) as pipe:
            for command in commands:
                cast(Any, pipe).execute_command(*command)
            return await pipe.execute(raise_on_error=False)


def _give(reply: Any, answers: Sequence[asyncio.Future[Any]]) -> None:
    for answer in answers:
        if answer.done():  # its caller has left
            continue
        if isinstance(reply, Exception):
            answer.set_exception(reply)
        else:
            answer.set_result(reply)

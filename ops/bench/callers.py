"""Callers of /v1/systemone for benches: as little work a call as may be, so that what is measured is not the bench."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

QUESTIONS = {"q": {"type": "noul", "instructions": "Is it?"}}


class Callers:
    """Calls to one gateway, each over a connection that is free or a new one."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._free: list[_Connection] = []

    async def ask(self, text: str) -> tuple[int, float]:
        """One question about this text: the status, and after how many seconds a refused caller may come back."""
        while self._free:
            connection = self._free.pop()
            if not connection.lost:
                break
        else:
            loop = asyncio.get_running_loop()
            connection = (await loop.create_connection(_Connection, "127.0.0.1", self._port))[1]
        body = json.dumps({"state": text, "questions": QUESTIONS}).encode()
        status, head = await connection.post("/v1/systemone", body)
        self._free.append(connection)
        wait = head.partition(b"retry-after-ms: ")[2].partition(b"\r\n")[0]
        return status, int(wait or 0) / 1000


class _Connection(asyncio.Protocol):
    """One call at a time."""

    def __init__(self) -> None:
        self._data = b""
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._transport: asyncio.Transport
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("the gateway closed the connection"))

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """The status and the head of the answer, once its body has come."""
        head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        return await self._answer

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        if not found or len(body) < int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]):
            return
        self._data = b""
        answer = cast(Any, self._answer)
        if not answer.done():
            answer.set_result((int(head[9:12]), head))

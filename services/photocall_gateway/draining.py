"""Shutdown: said first, so that a load balancer looks elsewhere; then new work is refused, open calls are finished."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Receive, Scope, Send

from photocall.errors import CodedError
from photocall_gateway.auth import WRITES


class Drain:
    """Whether the process is leaving, and how many calls it still answers."""

    def __init__(self) -> None:
        self.announced = False
        self.started = False
        self.open = 0
        self._changed = asyncio.Event()

    def announce(self) -> None:
        """From now on /readyz says that the process is leaving; everything is still served."""
        self.announced = True

    def start(self) -> None:
        """From now on writes are refused."""
        self.announced = self.started = True
        self._changed.set()

    def enter(self) -> None:
        self.open += 1

    def leave(self) -> None:
        self.open -= 1
        self._changed.set()

    async def finished(self, timeout_s: float) -> bool:
        """Wait until no call is open; False when the time was over first."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + timeout_s
        while self.open:
            self._changed.clear()
            try:
                async with asyncio.timeout_at(ends):
                    await self._changed.wait()
            except TimeoutError:
                return False
        return True


class DrainGate:
    """Middleware: counts open calls and refuses writes once the drain has started."""

    def __init__(self, app: ASGIApp, drain: Drain) -> None:
        self._app = app
        self._drain = drain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._drain.started and scope["method"] in WRITES:
            raise CodedError("draining", "The server is shutting down; try again")
        self._drain.enter()
        try:
            await self._app(scope, receive, send)
        finally:
            self._drain.leave()

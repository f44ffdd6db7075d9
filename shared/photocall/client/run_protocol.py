"""Who runs a flow to its end: what the clients lend to whatever hangs on them."""

from __future__ import annotations

from typing import Protocol

from photocall.client.flows import Flow, T


class Run(Protocol):
    """Runs a flow, and blocks."""

    def __call__(self, flow: Flow[T], /) -> T: ...


class AsyncRun(Protocol):
    """Runs a flow on the event loop."""

    async def __call__(self, flow: Flow[T], /) -> T: ...

"""`python -m photocall_gateway`: read the settings, listen, serve, drain on SIGTERM, exit 0."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import sys
from types import FrameType

import uvicorn

from photocall import failpoints
from photocall.logs import fields, set_up
from photocall.settings import GatewaySettings, SettingsError
from photocall.tracing import open_spans
from photocall_gateway.app import create_app
from photocall_gateway.auth import check_bind
from photocall_gateway.channels import PING_S
from photocall_gateway.services import Services

log = logging.getLogger(__name__)

CLOSE_S = 1  # for connections to close once every call is answered; app.py's END_S comes behind it
GC_NEW_OBJECTS = 20_000
LINGER_S = 0.5  # after the drain has begun, new calls on open connections are still told so


class Server(uvicorn.Server):
    """uvicorn, with a drain between the signal and the end; a second signal ends at once."""

    def __init__(self, config: uvicorn.Config, parts: Services) -> None:
        super().__init__(config)
        self._parts = parts
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)  # type: ignore[arg-type]
        for server in self.servers:
            for sock in server.sockets:
                log.info("listening", extra=fields(address="{}:{}".format(*sock.getsockname()[:2])))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called on a signal, in the main thread, between two steps of anything."""
        if self._loop is None or self._parts.drain.announced:
            self.should_exit = self.force_exit = True
        else:
            self._loop.call_soon_threadsafe(self._start_draining)

    def _start_draining(self) -> None:
        if self._draining is None:
            self._draining = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        drain, settings = self._parts.drain, self._parts.settings
        timeout_s = settings.drain_s
        drain.announce()
        if settings.drain_notice_s:
            log.info("leaving", extra=fields(notice_s=settings.drain_notice_s))
            await asyncio.sleep(settings.drain_notice_s)
        drain.start()
        ends = asyncio.get_running_loop().time() + timeout_s  # for open calls and for batches, together
        self._parts.wakes.wake_all()
        handing_back = asyncio.ensure_future(self._parts.desk.keeper.stop())  # another gateway goes on at once
        log.info("draining", extra=fields(open=drain.open, timeout_s=timeout_s))
        await asyncio.sleep(min(LINGER_S, timeout_s))
        if not await drain.finished(max(0.0, ends - asyncio.get_running_loop().time())):
            log.warning("calls are left open", extra=fields(open=drain.open))
        await asyncio.wait((handing_back,), timeout=max(0.0, ends - asyncio.get_running_loop().time()))
        self.should_exit = True


def main() -> int:
    """Serve until a signal. 2 for settings that cannot be used, 3 when the port cannot be listened on."""
    set_up("gateway")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # what it says of its start is said here
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # a caller's mistake is told to the caller
    try:
        settings = GatewaySettings.from_env(os.environ)
        set_up("gateway", form=settings.log_format)
        failpoints.arm(settings)
        check_bind(settings)
        spans = open_spans(settings.traces, "gateway", f"{socket.gethostname()}-{os.getpid()}")
        app = create_app(settings, spans=spans)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    # What is here now stays, and with thousands of connections a full collection stops all of them for tenths of a
    # second: what is there is not looked at again, and what comes is looked at seldom.
    gc.freeze()
    gc.set_threshold(GC_NEW_OBJECTS, 20, 50)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing here looks at the caller's address
        timeout_graceful_shutdown=CLOSE_S,
        timeout_keep_alive=75,
        lifespan="on",
        ws="websockets-sansio",
        ws_max_size=settings.max_body_bytes,
        ws_ping_interval=PING_S,
        ws_ping_timeout=PING_S,
    )
    server = Server(config, app.state.services)
    try:
        server.run()
    except SystemExit:  # uvicorn's way to say that it could not listen; it has logged why
        return 3
    if spans is not None:
        spans.close()
    log.info("stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main())

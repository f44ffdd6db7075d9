"""The control channel: cancelled jobs, closed sessions and the word to shut down, read apart from the work."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any, cast

import redis

from photocall import keys
from photocall.backoff import Backoff
from photocall.errors import BadSignature, MalformedMessage, UnknownVersion
from photocall.messages import InterruptRequest, Message, ReleaseRequest, ShutdownRequest
from photocall.streams import FIELD, counter
from photocall.wire import Wire
from photocall_engine.lease_book import LeaseBook

log = logging.getLogger(__name__)

BLOCK_MS = 500


class Control:
    """A thread that reads the broadcast stream and this engine's own, from the time of its start on."""

    def __init__(
        self,
        client: redis.Redis,
        wire: Wire,
        engine_id: str,
        leases: LeaseBook,
        shut_down: Callable[[str], None],
        release: Callable[[Iterable[str]], None] = lambda session_ids: None,
    ) -> None:
        self._redis = client
        self._wire = wire
        self._leases = leases
        self._shut_down = shut_down
        self._release = release
        self._streams = (keys.CONTROL, keys.control(engine_id))
        self._after: dict[str, str] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        away = Backoff(log, "no control channel")
        while not self._stopped.is_set():
            try:
                self._read()
                away.succeeded()
            except redis.RedisError as error:
                self._stopped.wait(away.failed(error))

    def _read(self) -> None:
        for stream in self._streams:
            if stream not in self._after:  # "$" would miss what is added between two reads
                last = cast(Any, self._redis.xrevrange(stream, count=1))
                self._after[stream] = last[0][0].decode() if last else "0"
        reply = cast(Any, self._redis.xread(cast(Any, self._after), count=100, block=BLOCK_MS))
        for stream, entries in reply or ():
            for entry_id, values in entries:
                self._after[stream.decode()] = entry_id.decode()
                self._handle(values.get(FIELD, b""))

    def _handle(self, data: bytes) -> None:
        try:
            message: Message = self._wire.decode(data).message
        except (BadSignature, UnknownVersion, MalformedMessage) as error:
            log.warning("a control message is ignored: %s", error)
            self._redis.hincrby(keys.COUNTERS, counter(error), 1)
            return
        if isinstance(message, InterruptRequest):
            self._leases.interrupt(message.job_ids)
        elif isinstance(message, ReleaseRequest):
            self._release(message.session_ids)
        elif isinstance(message, ShutdownRequest):
            self._shut_down(message.reason)

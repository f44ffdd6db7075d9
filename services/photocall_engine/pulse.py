"""What the engine does each two seconds whatever it computes: renew its leases and show that it lives."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import redis

from photocall import keys
from photocall.backoff import Backoff
from photocall.messages import EngineInfo
from photocall.wire import Wire
from photocall_engine.lease_book import RENEW_S, LeaseBook

log = logging.getLogger(__name__)

HEARTBEAT_TTL_S = 8  # four beats
FORGET_S = 3600.0  # engines without a beat for so long leave the list


class Pulse:
    """A thread of its own. `info` says how the engine is now; it is asked from that thread."""

    def __init__(self, client: redis.Redis, wire: Wire, leases: LeaseBook, info: Callable[[], EngineInfo]) -> None:
        self._redis = client
        self._wire = wire
        self._leases = leases
        self._info = info
        self._stopped = False
        self._leaving = False
        self._told = threading.Event()  # one of the two has changed
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)

    def start(self) -> None:
        """The first beat comes at once."""
        self._thread.start()

    def leave(self) -> None:
        """No beat after this, and the last is taken back: nothing more is offered to this engine, and what lies in its
        own stream is anyone's. Its leases are still renewed."""
        self._leaving = True
        self._told.set()

    def stop(self) -> None:
        """Nothing is renewed after this, and nobody counts on this engine."""
        self._leaving = self._stopped = True
        self._told.set()
        self._thread.join()

    def beat(self) -> None:
        """Show that the engine lives and takes what it is offered. Raises redis' errors."""
        info = self._info()
        with self._redis.pipeline(transaction=False) as pipe:
            pipe.set(keys.heartbeat(info.engine_id), self._wire.encode(info), ex=HEARTBEAT_TTL_S)
            pipe.zadd(keys.ENGINES, {info.engine_id: time.time()})
            pipe.zremrangebyscore(keys.ENGINES, "-inf", time.time() - FORGET_S)
            pipe.execute()

    def _take_back(self) -> None:
        self._redis.delete(keys.heartbeat(self._info().engine_id))

    def _run(self) -> None:
        away = Backoff(log, "no heartbeat", most_s=RENEW_S)
        while True:
            last, wait_s = self._stopped, RENEW_S
            try:
                if self._leaving:
                    self._take_back()
                else:
                    self.beat()
                away.succeeded()
            except redis.RedisError as error:
                wait_s = away.failed(error)
            if last:
                return
            self._leases.renew_all()
            self._told.wait(wait_s)
            self._told.clear()

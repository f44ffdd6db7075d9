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
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)

    def start(self) -> None:
        """The first beat comes at once."""
        self._thread.start()

    def stop(self) -> None:
        """No beat after this; the heartbeat is taken back, so that nobody counts on this engine."""
        self._stopped.set()
        self._thread.join()
        try:
            self._redis.delete(keys.heartbeat(self._info().engine_id))
        except redis.RedisError as error:
            log.warning("cannot take the heartbeat back: %s", error)

    def beat(self) -> None:
        """Show that the engine lives. Raises redis' errors."""
        info = self._info()
        with self._redis.pipeline(transaction=False) as pipe:
            pipe.set(keys.heartbeat(info.engine_id), self._wire.encode(info), ex=HEARTBEAT_TTL_S)
            pipe.zadd(keys.ENGINES, {info.engine_id: time.time()})
            pipe.zremrangebyscore(keys.ENGINES, "-inf", time.time() - FORGET_S)
            pipe.execute()

    def _run(self) -> None:
        away = Backoff(log, "no heartbeat", most_s=RENEW_S)
        while True:
            wait_s = RENEW_S
            try:
                self.beat()
                away.succeeded()
            except redis.RedisError as error:
                wait_s = away.failed(error)
            self._leases.renew_all()
            if self._stopped.wait(wait_s):
                return

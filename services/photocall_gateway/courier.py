"""The courier of this gateway: takes due deliveries from their RQ queue and makes them in threads of its own.

No job waits for it: a target that hangs holds one of its threads for seconds, and never more than a few of them. What
is owed stands in Redis (photocall/webhooks.py); should this process die, the sweeper enqueues the delivery again.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, cast

import redis
from redis.exceptions import RedisError
from rq.exceptions import NoSuchJobError

from photocall import keys, webhooks
from photocall.addresses import BadUrl, parse_url
from photocall.backoff import Backoff
from photocall.errors import PhotocallError
from photocall.logs import about_job, fields
from photocall.queueing import WebhookQueue
from photocall.scripts import run
from photocall.webhooks import Attempt, Delivery
from photocall_gateway.delivery import Outcome

log = logging.getLogger(__name__)

THREADS = 16
PER_HOST = 4  # deliveries to one host at once: a dead one does not take every thread
BLOCK_S = 0.5
CROWDED_S = 1.0  # a delivery to a host that has its share comes back after this

# The queue names `deliver`, with ids only; the courier that runs it says who does the work.
COURIER: ContextVar[Courier] = ContextVar("courier")


def deliver(delivery_id: str, attempt: int) -> None:
    """Make one attempt of a delivery."""
    COURIER.get().make(delivery_id, attempt)


class Courier:
    """Serves the queue from `start` to `stop`. `send` makes one attempt and says how it went."""

    def __init__(
        self,
        client: redis.Redis,
        queue: WebhookQueue,
        send: Callable[[Delivery], Outcome],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._redis = client
        self._queue = queue
        self._send = send
        self._clock = clock
        self._stopped = threading.Event()
        self._slots = threading.Semaphore(THREADS)
        self._hosts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="courier", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 2.0) -> None:
        """Take nothing more. Attempts under way end by themselves, or are due again elsewhere."""
        self._stopped.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        COURIER.set(self)
        away = Backoff(log, "cannot take deliveries")
        while not self._stopped.is_set():
            try:
                self._serve_one()
                away.succeeded()
            except (RedisError, OSError) as error:
                self._stopped.wait(away.failed(error))
            except Exception as error:
                log.exception("the courier failed and goes on")
                self._stopped.wait(away.failed(error))

    def _serve_one(self) -> None:
        if not self._slots.acquire(timeout=BLOCK_S):
            return
        try:
            entry = self._queue.take(BLOCK_S)
            if entry is not None:
                self._execute(entry)
        finally:
            self._slots.release()

    def _execute(self, entry_id: str) -> None:
        """Run what an entry names: verified, and this project's own function, or refused and counted."""
        try:
            entry = self._queue.fetch(entry_id)
            function, args = entry.func, entry.args
        except (NoSuchJobError, PhotocallError, ValueError, TypeError, LookupError) as error:
            log.warning("an entry is not run: %s", error, extra=fields(entry=entry_id))
            return
        finally:
            self._queue.forget(entry_id)
        function(*args)

    def make(self, delivery_id: str, attempt: int) -> None:
        """Begin an attempt in a thread; later when the host has its share of them."""
        raw = cast("dict[bytes, bytes]", self._redis.hgetall(keys.webhook(delivery_id)))
        if not raw:
            return
        host = _host(raw.get(b"url", b"").decode())
        with self._lock:
            crowded = self._hosts[host] >= PER_HOST
            if not crowded:
                self._hosts[host] += 1
        if crowded:
            later = self._clock() + CROWDED_S * random.uniform(1.0, 2.0)
            self._redis.zadd(keys.WEBHOOKS, {delivery_id: later}, xx=True)
            return
        self._slots.acquire()
        # A thread that the end of the process does not wait for, as it would for a pool's.
        arguments = (delivery_id, attempt, host)
        threading.Thread(target=self._attempt, args=arguments, name="webhook", daemon=True).start()

    def _attempt(self, delivery_id: str, attempt: int, host: str) -> None:
        with about_job(delivery_id if delivery_id.startswith("job_") else ""):
            self._attempt_once(delivery_id, attempt, host)

    def _attempt_once(self, delivery_id: str, attempt: int, host: str) -> None:
        try:
            if run(self._redis, webhooks.begin(delivery_id, attempt, self._clock())) is None:
                return
            raw = cast("dict[bytes, bytes]", self._redis.hgetall(keys.webhook(delivery_id)))
            self._settle(delivery_id, attempt, self._send(Delivery.from_hash(delivery_id, raw)))
        except (RedisError, OSError) as error:  # it is due again in a while
            log.warning("an attempt was not noted: %s", error, extra=fields(delivery=delivery_id))
        except Exception:
            log.exception("an attempt failed", extra=fields(delivery=delivery_id))
        finally:
            with self._lock:
                self._hosts[host] -= 1
                if not self._hosts[host]:
                    del self._hosts[host]
            self._slots.release()

    def _settle(self, delivery_id: str, number: int, outcome: Outcome) -> None:
        now = self._clock()
        noted = Attempt(round(now, 3), outcome.ms, outcome.status, outcome.error)
        pause = None if outcome.final else webhooks.pause_s(number, outcome.retry_after_s)
        state: webhooks.State = "delivered" if outcome.heard else "failed" if pause is None else "pending"
        run(self._redis, webhooks.end(delivery_id, number, noted, state, now + (pause or 0.0)))
        if state == "failed":
            self._bury(delivery_id, outcome)

    def _bury(self, delivery_id: str, outcome: Outcome) -> None:
        reason = outcome.error or f"status {outcome.status}"
        log.warning("a webhook is given up", extra=fields(delivery=delivery_id, reason=reason))
        entry: dict[Any, Any] = {"reason": f"webhook: {reason}", "from": keys.webhook(delivery_id)}
        self._redis.xadd(keys.DEAD, entry, maxlen=1000, approximate=True)


def _host(url: str) -> str:
    try:
        return parse_url(url, plain_http=True).host
    except BadUrl:
        return ""

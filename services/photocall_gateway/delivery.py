"""One attempt of a delivery: the body, the signed headers, the call, and what its answer means."""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import redis

from photocall import __version__, keys
from photocall.addresses import BadUrl, RefusedAddress, parse_url
from photocall.errors import JobGone, UnknownJob
from photocall.outbound import AnswerTooLarge, Caller, OutboundError
from photocall.records import Records
from photocall.webhooks import Delivery, secret_of, signature
from photocall_gateway.job_object import job_object

MAX_ANSWER_BYTES = 1 << 16  # what a target says is not kept
_GONE = 410


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt went. `heard`: the target has it. `final`: it is not tried again."""

    ms: float
    status: int | None = None
    error: str | None = None
    retry_after_s: float | None = None
    final: bool = False

    @property
    def heard(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


class Sender:
    """Makes attempts over a caller whose rules are those of pictures by URL."""

    def __init__(
        self, records: Records, caller: Caller, signing_key: bytes, clock: Callable[[], float] = time.time
    ) -> None:
        self._records = records
        self._redis: redis.Redis = records.redis
        self._caller = caller
        self._key = signing_key
        self._clock = clock

    def send(self, delivery: Delivery) -> Outcome:
        """One call. Raises redis' errors only."""
        started = time.perf_counter()

        def took() -> float:
            return round(1000 * (time.perf_counter() - started), 1)

        body = delivery.body or self._job_body(delivery)
        if body is None:
            return Outcome(took(), error="the job has expired or was deleted", final=True)
        try:
            url = parse_url(delivery.url, plain_http=bool(self._caller.rules.allowed))
            answer = self._caller.exchange("POST", url, self.headers(delivery, body), body)
        except AnswerTooLarge as error:
            return Outcome(took(), error.status, str(error))
        except BadUrl as error:
            return Outcome(took(), error=str(error), final=True)
        except RefusedAddress:
            return Outcome(took(), error="its name is not at a public address")
        except OutboundError as error:
            return Outcome(took(), error=str(error))
        wait = answer.headers.get("retry-after", "")
        retry_after_s = float(wait) if wait.isdecimal() and len(wait) < 6 else None
        return Outcome(took(), answer.status, None, retry_after_s, final=answer.status == _GONE)

    def headers(self, delivery: Delivery, body: bytes) -> dict[str, str]:
        """As Standard Webhooks has them; the id is the same for every attempt, so that a target can tell a repeat."""
        timestamp = int(self._clock())
        return {
            "Content-Type": "application/json",
            "User-Agent": f"photocall/{__version__}",
            "webhook-id": delivery.delivery_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": signature(secret_of(self._key, delivery.owner), delivery.delivery_id, timestamp, body),
        }

    def _job_body(self, delivery: Delivery) -> bytes | None:
        """The job as its caller sees it; kept with the delivery, since it may outlive the record."""
        try:
            record = self._records.get(delivery.job_id)
        except (JobGone, UnknownJob):
            return None
        body = event_body(delivery.event, record.completed_at, job_object(record))
        self._redis.hset(keys.webhook(delivery.delivery_id), "body", body)
        return body


def event_body(event: str, at: float, data: dict[str, Any]) -> bytes:
    """The JSON of an event: `type`, `timestamp`, `data`."""
    timestamp = datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat()
    return json.dumps({"type": event, "timestamp": timestamp, "data": data}, ensure_ascii=False).encode()

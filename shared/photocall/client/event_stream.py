"""A job's events as they come: server-sent events read from a connection, and gone on with on the next one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from photocall.client.errors import refused
from photocall.client.flows import (
    AGAIN,
    FIRST_PAUSE_S,
    LAST_PAUSE_S,
    LONGEST_PAUSE_S,
    MAX_TRIES,
    Reply,
    problem,
    retry_after_s,
)
from photocall.client.shown import Job

READ_S = 60.0  # the server says every 15 s that it is still there


@dataclass(frozen=True, slots=True)
class Event:
    """What happened to a job. `kind`: status, prepared, progress, stream, result, error; snapshot where events are
    missing; ended, which comes last, with the `job`. `data` is what the server said, `id` what to go on behind."""

    kind: str
    data: dict[str, Any]
    id: str | None = None
    job: Job | None = None

    @property
    def text(self) -> str:
        """Of a `stream` event: what was added to the answer of `data["question"]`; empty for any other."""
        return str(self.data.get("text", "")) if self.kind == "stream" else ""


class EventStream:
    """One job's events over as many connections as it takes. It makes none: the clients do, and tell it what came.

    Before each connection they look at the job: where it had ended before, and the connection ended by itself, all
    events were there.
    """

    def __init__(self, job_id: str, after: str | None) -> None:
        self.path = f"/v1/jobs/{job_id}/events"
        self._after = after
        self._left = MAX_TRIES
        self._pause_s = FIRST_PAUSE_S
        self._rest = b""

    @property
    def headers(self) -> dict[str, str]:
        """Of the next connection."""
        self._rest = b""  # half an event of the last one: it comes again
        return {"accept": "text/event-stream", **({"last-event-id": self._after} if self._after else {})}

    def feed(self, piece: bytes) -> Iterator[Event]:
        """The events that are complete with these bytes."""
        *blocks, self._rest = (self._rest + piece).split(b"\n\n")
        for block in blocks:
            lines = [line.partition(": ") for line in block.decode().splitlines()]
            found = {field: value for field, _, value in lines if field}  # a comment has no field
            if "event" in found:
                self._after = found.get("id", self._after)
                self._left, self._pause_s = MAX_TRIES, FIRST_PAUSE_S
                yield Event(found["event"], json.loads(found.get("data", "{}")), found.get("id"))

    def broken(self, reply: Reply) -> float:
        """How long to pause after a connection that was refused, or got no answer. Raises RequestRefused."""
        self._left -= 1
        wanted_s = retry_after_s(reply) or self._pause_s
        if not self._left or wanted_s > LONGEST_PAUSE_S or (reply.status and reply.status not in AGAIN):
            raise refused(reply.status, problem(reply), retry_after_s=retry_after_s(reply))
        self._pause_s = min(2 * self._pause_s, LAST_PAUSE_S)
        return wanted_s

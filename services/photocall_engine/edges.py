"""What crosses the engine's two edges: requests in, outcomes and events out.

The engine does not know where requests come from or where answers go; `Intake` and `Outlet` are all it asks of the
queue, and a test passes lists.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from photocall.asks import Ask
from photocall_engine.runner import PatchImage
from photocall_engine.transcript import Turn, TurnEnd


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One request as the intake hands it over. `ticket` is the queue's own (lease, message) and opaque here."""

    job_id: str
    ask: Ask
    images: Mapping[str, PatchImage]  # by hash and view, as `Ask.pictures` names them
    owner: str = "local"  # API key, for fairness
    priority: Literal["interactive", "batch"] = "interactive"
    arrived_at: float = 0.0  # seconds, the engine's clock
    deadline_at: float = float("inf")
    ticket: object = None
    turn: Turn | None = None  # of a session; None: a request of its own


@dataclass(frozen=True, slots=True)
class Answered:
    """The response body, and seconds spent: queue, prefill, readout."""

    body: dict[str, Any]
    timings: dict[str, float] = field(default_factory=dict)
    turn: TurnEnd | None = None  # what a turn leaves behind; None for other requests


@dataclass(frozen=True, slots=True)
class Refused:
    """This request failed, with a code of the table in `photocall.errors`."""

    code: str
    message: str
    data: dict[str, Any] = field(default_factory=dict)
    notices: tuple[str, ...] = ()  # of a turn, for its session


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The caller took it back; its rows have left the batch."""


@dataclass(frozen=True, slots=True)
class HandedBack:
    """Not finished here and nothing is wrong with it: another engine, or this one's next start, may take it."""

    reason: str


Outcome: TypeAlias = Answered | Refused | Cancelled | HandedBack


class Intake(Protocol):
    """Where requests come from."""

    def take(self, limit: int, wait_s: float) -> list[EngineRequest]:
        """At most `limit` new requests; waits up to `wait_s` for the first, 0 only looks."""

    def cancelled(self, job_ids: Collection[str]) -> set[str]:
        """Which of these were taken back by their callers; cheap, asked before every step."""


class Outlet(Protocol):
    """Where outcomes go. Each request gets exactly one, except that a job taken again while it runs replaces itself."""

    def publish(self, request: EngineRequest, outcome: Outcome) -> None:
        """The end of a request."""

    def event(self, request: EngineRequest, kind: str, data: Mapping[str, Any]) -> None:
        """On the way: `progress` {answered, questions}, `stream` {question, offset, text}."""

    def released(self, session_id: str) -> None:
        """Nothing of this session is held here any more."""

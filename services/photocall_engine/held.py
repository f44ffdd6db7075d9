"""What sessions hold here between their turns: prefixes pinned in the prefix cache, each under a lease.

A turn begins by asking what its session holds and ends by holding its own prefix instead. Pins give way when pages are
needed; then, or when the lease is over, the next turn computes its prefix again from the transcript, and says so. It
knows no queue and no clock: whoever calls says what time it is.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from photocall.questions import Text
from photocall_engine.prefix_cache import PrefixCache
from photocall_engine.sequence import Request
from photocall_engine.steps import Step
from photocall_engine.transcript import TurnEnd, said

REMEMBERED = 1000  # sessions of which it is known why they hold nothing


@dataclass(slots=True)
class _Held:
    key: bytes
    tokens: int
    bytes: int
    until: float


@dataclass(slots=True)
class _Running:
    """A turn under way: what it counts on, and what has happened to it."""

    held: _Held | None
    notices: list[str]
    batched_prefills: int = 0


@dataclass(slots=True)
class HeldPrefixes:
    """`page_bytes` and `sliding_page_bytes`: K/V of one page of each pool. `backend` names the device, for people."""

    cache: PrefixCache
    page_bytes: int
    sliding_page_bytes: int
    backend: str
    context: int  # positions of the longest sequence
    _held: dict[str, _Held] = field(default_factory=dict)
    _running: dict[str, _Running] = field(default_factory=dict)  # by job id
    _gone: OrderedDict[str, str] = field(default_factory=OrderedDict)  # by session: why nothing is held
    _asked: set[str] = field(default_factory=set)  # sessions to let go of, from another thread
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, request: Request) -> None:
        """A turn was taken. Nothing happens for other requests."""
        turn = request.origin.turn
        if turn is None:
            return
        notices = [f"Backend: {self.backend}"]
        held = self._held.get(turn.session_id)
        if held is not None and request.keys.at(min(held.tokens, request.prefix.end)) != held.key:
            notices.append(f"the prompt does not extend the {held.tokens} tokens held; they are not used")
            held = None
        elif held is None and turn.history:
            why = self._gone.get(turn.session_id, "it was held by another engine or process, if at all")
            notices.append(f"no prefix is held ({why}): prefilled again from the transcript")
        self._running[request.job_id] = _Running(held, notices)

    def saw(self, step: Step) -> None:
        """A step has run."""
        if self._running:
            prefilling = {part.request.job_id for part in step.parts if part.rows > 1}
            for job_id in prefilling & self._running.keys():
                self._running[job_id].batched_prefills += 1

    def end(self, request: Request, now: float) -> TurnEnd | None:
        """A turn was answered: its prefix is held from now on. None for other requests."""
        turn, running = request.origin.turn, self._running.pop(request.job_id, None)
        if turn is None or running is None or request.hold_at is None:
            return None
        notices, reused = running.notices, 0
        if running.held is not None:
            reused = running.held.tokens if request.usage.cached_rows >= running.held.tokens else 0
            if not reused:
                notices.append("the prefix held was given up for pages while the turn waited: prefilled again")
        held = self._hold(request, request.hold_at, now + turn.lease_s)
        if held is None:
            notices.append("the prefix is not held: its pages were needed for other work")
        answers = [inquiry.answer or {} for inquiry in request.inquiries]
        questions = request.origin.ask.questions
        report = {
            "id": turn.session_id,
            "turn": turn.number,
            "prompt_tokens": request.prefix.end,
            "context": self.context,
            "reused": reused,
            "context_capped": any(
                isinstance(asked, Text) and asked != inquiry.question
                for asked, inquiry in zip(questions, request.inquiries, strict=True)
            ),
            "batched_prefills": running.batched_prefills,
            "held": None if held is None else {"tokens": held.tokens, "bytes": held.bytes, "until": held.until},
            "notices": notices,
        }
        kept = None
        if turn.remember:
            kept = tuple(said(question, answer) for question, answer in zip(questions, answers, strict=True))
        tokens, size = (held.tokens, held.bytes) if held else (0, 0)
        new = notices if running.held is None else notices[1:]
        return TurnEnd(report, kept, tokens, size, turn.lease_s, tuple(new))

    def give_up(self, request: Request, notice: str = "") -> tuple[str, ...]:
        """A turn ended without an answer; what is held stays. Gives its notices."""
        running = self._running.pop(request.job_id, None)
        return () if running is None else (*running.notices, *([notice] if notice else []))

    def ask_release(self, session_ids: Iterable[str]) -> None:
        """Let go of these when `lapsed` is next called. From any thread."""
        with self._lock:
            self._asked.update(session_ids)

    def lapsed(self, now: float) -> list[str]:
        """Sessions that hold nothing any more since the last call; what they held is given up here."""
        with self._lock:
            asked, self._asked = self._asked, set()
        gone = dict.fromkeys(self.cache.take_lost(), "its pages were needed for other work")
        gone |= dict.fromkeys(asked & self._held.keys(), "its session was closed")
        gone |= {name: "its lease was over" for name, held in self._held.items() if held.until <= now}
        for name, why in gone.items():
            self.cache.unpin(name)
            self._held.pop(name, None)
            self._gone[name] = why
            self._gone.move_to_end(name)
        while len(self._gone) > REMEMBERED:
            self._gone.popitem(last=False)
        return list(gone)

    @property
    def held_bytes(self) -> int:
        """Of all sessions; pages that two of them share count for both."""
        return sum(held.bytes for held in self._held.values())

    def _hold(self, request: Request, position: int, until: float) -> _Held | None:
        turn = request.origin.turn
        assert turn is not None, "only turns hold"
        size = self.cache.pin(turn.session_id, request.keys, position)
        self._held.pop(turn.session_id, None)
        if size is None:
            self._gone[turn.session_id] = "its pages were needed for other work"
            return None
        pages, sliding = size
        held = _Held(
            request.keys.at(position), position, pages * self.page_bytes + sliding * self.sliding_page_bytes, until
        )
        self._held[turn.session_id] = held
        self._gone.pop(turn.session_id, None)
        return held

"""Matrix: goes through the strikes of a schedule, and measures how long each keeps somebody waiting."""

from __future__ import annotations

import logging
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from ops.chaos.strikes import Strike
from ops.chaos.world import World
from photocall import failpoints
from photocall.logs import fields

log = logging.getLogger(__name__)

REACH_S, REACH_SELDOM_S = 30.0, 240.0  # a point that nobody comes to in this time is not being tested
RECOVERY_S = 20.0  # the longest that may pass, an engine's own start excluded
MOST_AT_ONCE = 3  # strikes that somebody is recovering from
GIVE_UP_S = 60.0  # then it is taken for lost, and the next strike is made


@dataclass
class Hit:
    """A strike under way, or over. Times are monotonic."""

    strike: Strike
    asked_at: float
    struck_at: float = 0.0
    waiting: dict[int, str] = field(default_factory=dict)  # whoever waited for something when it struck
    batch: object = None  # how far the batch was
    recovery_s: float | None = None  # None: not yet, or never
    fault: str = ""
    dice: float = field(default=0.0)

    @property
    def over(self) -> bool:
        return self.recovery_s is not None or bool(self.fault)


class Matrix:
    """`waiting` tells who waits for an answer now, `batch` changes when the batch gets on."""

    def __init__(
        self,
        world: World,
        schedule: Iterator[tuple[Strike, float]],
        seed: int,
        waiting: Callable[[], dict[int, str]],
        batch: Callable[[], object],
    ) -> None:
        self._world = world
        self._schedule = schedule
        self._drawn = random.Random(f"{seed}/victims")
        self._waiting = waiting
        self._batch = batch
        self.hits: list[Hit] = []
        self._next: tuple[Strike, float] | None = None
        self._next_at = 0.0
        self._advance()

    @property
    def over(self) -> bool:
        """Every strike has been made and got over."""
        return self._next is None and all(hit.over for hit in self.hits)

    def end(self) -> None:
        """Begin no other strike."""
        self._next = None

    def poll(self) -> None:
        """Begin, strike, notice who has recovered. Often."""
        now = time.monotonic()
        open_hits = [hit for hit in self.hits if not hit.over]
        for hit in open_hits:
            if not hit.struck_at:
                self._try(hit, now)
            else:
                self._look(hit, now)
        if self._next is not None and now >= self._next_at and self._may_begin(open_hits):
            self._begin(self._next[0], now)
            self._advance()

    def _may_begin(self, open_hits: list[Hit]) -> bool:
        """One strike is prepared at a time, and what two rooms of a kind cost is not counted as one recovery."""
        assert self._next is not None
        hurried = [hit for hit in open_hits if hit.struck_at or not hit.strike.seldom]
        if not self._world.whole or any(not hit.struck_at for hit in hurried) or len(hurried) >= MOST_AT_ONCE:
            return False
        if any(self._next[0].holders & hit.strike.holders for hit in open_hits):
            return False
        # One more death would end a job as poison, which is right, but not what is tried here.
        return not (self._next[0].holders and self._world.endangered())

    def _advance(self) -> None:
        self._next = next(self._schedule, None)
        if self._next is not None:
            self._next_at = time.monotonic() + self._next[1]

    def _begin(self, strike: Strike, now: float) -> None:
        hit = Hit(strike, now, dice=self._drawn.random())
        self.hits.append(hit)
        if strike.point:
            failpoints.ask(self._world.data, strike.point)
        if strike.first is not None:
            victim = self._world.find(strike.first, None, hit.dice)
            assert victim is not None, "the world is whole"
            self._world.kill(victim)

    def _try(self, hit: Hit, now: float) -> None:
        """Strike, if the moment has come."""
        it = self._world.standing(hit.strike.point) if hit.strike.point else None
        if hit.strike.point and it is None:
            if now - hit.asked_at > (REACH_SELDOM_S if hit.strike.seldom else REACH_S):
                failpoints.withdraw(self._world.data, hit.strike.point)
                hit.fault = "nobody came to the point"
                log.error("not reached", extra=fields(point=hit.strike.point))
            return
        found = [self._world.find(victim, it, hit.dice) for victim in hit.strike.victims]
        hit.waiting, hit.batch, hit.struck_at = self._waiting(), self._batch(), time.monotonic()
        for victim in found:
            if victim is not None:
                self._world.kill(victim)
        if it is not None and it not in found:
            with suppress(ProcessLookupError):
                os.kill(it, signal.SIGCONT)

    def _look(self, hit: Hit, now: float) -> None:
        took = now - hit.struck_at
        took -= self._world.starting_s(hit.struck_at, now)
        waiting = [what for ticket, what in self._waiting().items() if ticket in hit.waiting]
        if not waiting and hit.batch != self._batch():
            hit.recovery_s = took
            log.info("recovered from %s", hit.strike.name, extra=fields(s=round(took, 1), waited=len(hit.waiting)))
        elif took > GIVE_UP_S:
            hit.fault = "it did not recover"
            known = fields(waiting=waiting, batch=self._batch() != hit.batch, whole=self._world.whole)
            log.error("not recovered from %s", hit.strike.name, extra=known)

"""Backoff: how long a loop waits before it asks Redis again, and what the log says of it.

Each wait is about twice the last, up to a bound, and drawn from its upper half: those whom one outage has cut off
together do not come back together. Every loop that outlives a Redis has one of its own.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

from photocall.logs import fields

FIRST_S = 0.1
MOST_S = 2.0  # somebody waits for all of these loops, and few ask: a process has a handful


class Backoff:
    """For one loop, on one thread or event loop. `what` is what it could not do: "cannot take requests"."""

    def __init__(
        self,
        log: logging.Logger,
        what: str,
        first_s: float = FIRST_S,
        most_s: float = MOST_S,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._log = log
        self._what = what
        self._first_s = first_s
        self._most_s = most_s
        self._draw = draw
        self._failures = 0

    @property
    def failing(self) -> bool:
        """The last try failed."""
        return self._failures > 0

    def failed(self, error: Exception) -> float:
        """It failed again: say so, and the seconds to wait."""
        full_s = min(self._most_s, self._first_s * 2.0 ** min(self._failures, 30))
        self._failures += 1
        wait_s = full_s * (0.5 + 0.5 * self._draw())
        self._log.warning("%s: %s", self._what, error, extra=fields(tries=self._failures, retry_s=round(wait_s, 3)))
        return wait_s

    def succeeded(self) -> None:
        """It works, or works again; that is worth a line then."""
        if self._failures:
            self._log.info("it works again, after: %s", self._what, extra=fields(tries=self._failures))
            self._failures = 0

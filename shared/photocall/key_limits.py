"""What one API key may do at most: calls in a time, and unfinished jobs. As text: `rate=10/s,concurrency=32`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

WINDOWS_S = {"s": 1, "min": 60, "h": 3600}
MOST = 1_000_000

_RATE = re.compile(r"([1-9][0-9]{0,6})/(s|min|h)")
_NUMBER = re.compile(r"[1-9][0-9]{0,6}")


class BadLimit(ValueError):
    """A limit that is none; the message says what one looks like."""


@dataclass(frozen=True, slots=True)
class Rate:
    """`count` calls in `window_s` seconds, in the long run; up to `burst` of them at once after a pause."""

    count: int
    window_s: int
    burst: int

    @property
    def every_s(self) -> float:
        """Seconds for one call more."""
        return self.window_s / self.count

    @property
    def shown(self) -> str:
        """As it is written: `10/s`."""
        return f"{self.count}/{next(name for name, seconds in WINDOWS_S.items() if seconds == self.window_s)}"


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """None: not limited."""

    rate: Rate | None = None
    concurrency: int | None = None  # unfinished jobs

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `rate=10/s,burst=20,concurrency=32`, or some of it; the burst is the rate's own count unless said.

        Raises BadLimit.
        """
        parts: dict[str, str] = {}
        for part in filter(None, text.split(",")):
            name, _, value = part.partition("=")
            if name not in ("rate", "burst", "concurrency") or name in parts:
                raise BadLimit("limits are rate=N/s, burst=N and concurrency=N, between commas")
            parts[name] = value
        return cls.of(*(parts.get(name) for name in ("rate", "burst", "concurrency")))

    @classmethod
    def of(cls, rate: str | None, burst: str | None, concurrency: str | None) -> Self:
        """Limits from their texts. Raises BadLimit."""
        if rate is None and burst is not None:
            raise BadLimit("a burst is part of a rate")
        found = None if rate is None else parse_rate(rate, None if burst is None else parse_number(burst))
        return cls(found, None if concurrency is None else parse_number(concurrency))

    @property
    def shown(self) -> str:
        """As `parse` reads it; empty without any."""
        parts = []
        if self.rate is not None:
            parts.append(f"rate={self.rate.shown}")
            if self.rate.burst != self.rate.count:
                parts.append(f"burst={self.rate.burst}")
        if self.concurrency is not None:
            parts.append(f"concurrency={self.concurrency}")
        return ",".join(parts)


def parse_rate(text: str, burst: int | None = None) -> Rate:
    """`10/s`, `600/min` or `5000/h`. Raises BadLimit."""
    found = _RATE.fullmatch(text)
    if found is None or int(found[1]) > MOST:
        raise BadLimit(f"a rate such as 10/s, 600/min or 5000/h, {MOST} at most")
    return Rate(int(found[1]), WINDOWS_S[found[2]], burst or int(found[1]))


def parse_number(text: str) -> int:
    """Raises BadLimit."""
    if not _NUMBER.fullmatch(text) or int(text) > MOST:
        raise BadLimit(f"a number from 1 to {MOST}")
    return int(text)

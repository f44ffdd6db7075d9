"""The grammar of number answers: which digit may follow, and whether a number within the limits can still come of it.

A number is written the one way: an optional minus, no leading zeros, a point only before decimals. Values are exact
decimals. This file knows neither tokens nor probabilities.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from photocall.questions import Number

DIGITS = "0123456789"
END = ""
_MAX_WHOLE = 15  # digits before the point; with the decimals below they fit Decimal's 28 digits
_MAX_DECIMALS = 12
_DECIMALS = 6  # digits behind the point where no step or limit says more


class NoNumber(ValueError):
    """No number can meet the limits, or they are too large or too fine to be written."""


class NumberGrammar:
    """Numbers of one question: within [min, max], on the grid min + k * step. Raises NoNumber where there is none."""

    def __init__(self, question: Number) -> None:
        self.low = _decimal(question.min)
        self.high = _decimal(question.max)
        self.step = _decimal(question.step)
        bounds = [bound for bound in (self.low, self.high) if bound is not None]
        if self.step is None:
            self.decimals = max([_DECIMALS, *map(_places, bounds)])
            self.grid, self.origin = Decimal(1).scaleb(-self.decimals), Decimal(0)
        else:
            self.grid, self.origin = self.step, self.low or Decimal(0)
            self.decimals = max(0, _places(self.step), _places(self.origin))
        if self.decimals > _MAX_DECIMALS:
            raise NoNumber(f"min, max and step have at most {_MAX_DECIMALS} decimals")
        if any(abs(bound) >= 10**_MAX_WHOLE for bound in bounds):
            raise NoNumber(f"min and max have at most {_MAX_WHOLE} digits before the point")
        self.whole = len(str(int(max(map(abs, bounds))))) if len(bounds) == 2 else _MAX_WHOLE
        if not self.following(""):
            raise NoNumber("no number meets min, max and step")

    def following(self, text: str) -> list[str]:
        """The characters, and END, that may follow; empty only if no number within the limits starts like this."""
        found = [END] if self._complete(text) and self._allowed(_interval(text)[0]) else []
        return found + [c for c in "-." + DIGITS if self._well_formed(text, c) and self._reachable(text + c)]

    def _complete(self, text: str) -> bool:
        return text[-1:].isdigit() and (not text.startswith("-") or Decimal(text) != 0)

    def _well_formed(self, text: str, char: str) -> bool:
        body = text.removeprefix("-")
        whole, point, decimals = body.partition(".")
        if char == "-":
            return text == ""
        if char == ".":
            return whole != "" and not point and self.decimals > 0
        if point:
            return len(decimals) < self.decimals
        return whole != "0" and len(whole) < self.whole

    def _reachable(self, text: str) -> bool:
        """Whether some completion of this beginning is a number that is allowed."""
        if text == "-":
            return self._any_between(None, Decimal(0), high_open=True)
        negative = text.startswith("-")
        whole, point, decimals = text.removeprefix("-").partition(".")
        start, width = _interval(text)
        start = abs(start)
        if point:
            return self._any_of(negative, start, start + width, len(decimals) == self.decimals)
        more = 0 if whole == "0" else self.whole - len(whole)
        return any(self._any_of(negative, start * 10**k, (start + 1) * 10**k, False) for k in range(more + 1))

    def _any_of(self, negative: bool, start: Decimal, end: Decimal, only_start: bool) -> bool:
        """Whether an allowed number has its absolute value in [start, end), or is `start` itself."""
        if only_start:
            value = -start if negative else start
            return self._allowed(value) and not (negative and value == 0)
        if negative:
            return self._any_between(-end, -start, low_open=True, high_open=start == 0)
        return self._any_between(start, end, high_open=True)

    def _any_between(self, low: Decimal | None, high: Decimal, low_open: bool = False, high_open: bool = False) -> bool:
        """Whether an allowed number lies in the interval."""
        if self.low is not None and (low is None or self.low > low):
            low, low_open = self.low, False
        if self.high is not None and self.high < high:
            high, high_open = self.high, False
        if low is None:
            return True
        last = self.origin + ((high - self.origin) / self.grid).to_integral_value(ROUND_FLOOR) * self.grid
        if high_open and last == high:
            last -= self.grid
        first = self.origin + ((low - self.origin) / self.grid).to_integral_value(ROUND_CEILING) * self.grid
        if low_open and first == low:
            first += self.grid
        return first <= last

    def _allowed(self, value: Decimal) -> bool:
        if (self.low is not None and value < self.low) or (self.high is not None and value > self.high):
            return False
        return (value - self.origin) % self.grid == 0


def _interval(text: str) -> tuple[Decimal, Decimal]:
    """The value of a beginning as it stands, and the width of what its further decimals can add."""
    decimals = text.partition(".")[2]
    return Decimal(text.removesuffix(".")), Decimal(1).scaleb(-len(decimals))


def _decimal(value: float | None) -> Decimal | None:
    return None if value is None else Decimal(str(value))


def _places(value: Decimal) -> int:
    exponent = value.normalize().as_tuple().exponent
    assert isinstance(exponent, int), "limits are finite"
    return -exponent

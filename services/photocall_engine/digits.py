"""The grammar of number answers: which digit may follow, and whether a number within the limits can still come of it.

A number is written the one way: an optional minus, no leading zeros, a point only before decimals. Values are exact
decimals. This file knows neither tokens nor probabilities.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import lru_cache

from photocall.questions import Number

DIGITS = "0123456789"
END = ""
_MAX_WHOLE = 15  # digits before the point; with the decimals below they fit Decimal's 28 digits
_MAX_DECIMALS = 12
_MAX_KNOWN = 4096  # beginnings whose continuations are kept
_DECIMALS = 6  # digits behind the point where no step or limit says more


class NoNumber(ValueError):
    """No number can meet the limits, or they are too large or too fine to be written."""


def grammar_of(question: Number) -> NumberGrammar:
    """The grammar of a question's limits; questions with equal limits share one, and what it has found out."""
    return _grammar(question.min, question.max, question.step)


@lru_cache(maxsize=64)
def _grammar(low: float | None, high: float | None, step: float | None) -> NumberGrammar:
    return NumberGrammar(Number("", None, low, high, step))


class NumberGrammar:
    """Numbers of one question: within [min, max], on the grid min + k * step. Raises NoNumber where there is none.

    It counts in units of the last decimal: integers are exact however long, and a grid may be finer than Decimal is.
    """

    def __init__(self, question: Number) -> None:
        low, high, step = (_decimal(value) for value in (question.min, question.max, question.step))
        bounds = [bound for bound in (low, high) if bound is not None]
        origin = Decimal(0)
        if step is None:
            self.decimals = max([_DECIMALS, *map(_places, bounds)])
        else:
            origin = low or origin
            self.decimals = max(0, _places(step), _places(origin))
        if self.decimals > _MAX_DECIMALS:
            raise NoNumber(f"min, max and step have at most {_MAX_DECIMALS} decimals")
        if any(abs(value) >= 10**_MAX_WHOLE for value in (*bounds, step or 0)):
            raise NoNumber(f"min, max and step have at most {_MAX_WHOLE} digits before the point")
        self.whole = len(str(int(max(map(abs, bounds))))) if len(bounds) == 2 else _MAX_WHOLE
        self._grid = 1 if step is None else self._units(step)
        self._origin = self._units(origin)
        written = 10 ** (self.whole + self.decimals) - 1  # what there is room for, limits or not
        self._known: dict[str, list[str]] = {}
        self._low = -written if low is None else max(-written, self._units(low, ROUND_CEILING))
        self._high = written if high is None else min(written, self._units(high, ROUND_FLOOR))
        if not self.following(""):
            raise NoNumber("no number meets min, max and step")

    def following(self, text: str) -> list[str]:
        """The characters, and END, that may follow; empty only if no number within the limits starts like this.

        The list is kept and must not be changed.
        """
        found = self._known.get(text)
        if found is None:
            found = [END] if self._complete(text) else []
            found += [c for c in "-." + DIGITS if self._well_formed(text, c) and self._reachable(text + c)]
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[text] = found
        return found

    def _complete(self, text: str) -> bool:
        if not text[-1:].isdigit():
            return False
        value = self._units(Decimal(text))
        return self._any_between(value, value) and not (text.startswith("-") and value == 0)

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
            return self._any_between(self._low, -1)
        negative = text.startswith("-")
        whole, point, decimals = text.removeprefix("-").partition(".")
        start, width = int(whole + decimals), 10 ** (self.decimals - len(decimals))
        more = 0 if point or whole == "0" else self.whole - len(whole)  # digits that may still come before the point
        return any(self._any_of(negative, start * width * 10**k, width * 10**k) for k in range(more + 1))

    def _any_of(self, negative: bool, start: int, width: int) -> bool:
        """Whether an allowed number has its absolute value in [start, start + width)."""
        end = start + width - 1
        return self._any_between(-end, min(-start, -1)) if negative else self._any_between(start, end)

    def _any_between(self, low: int, high: int) -> bool:
        """Whether an allowed number lies in [low, high]."""
        low, high = max(low, self._low), min(high, self._high)
        return low <= self._origin + (high - self._origin) // self._grid * self._grid

    def _units(self, value: Decimal, rounding: str = ROUND_FLOOR) -> int:
        return int(value.scaleb(self.decimals).to_integral_value(rounding))


def _decimal(value: float | None) -> Decimal | None:
    return None if value is None else Decimal(str(value))


def _places(value: Decimal) -> int:
    exponent = value.normalize().as_tuple().exponent
    assert isinstance(exponent, int), "limits are finite"
    return -exponent

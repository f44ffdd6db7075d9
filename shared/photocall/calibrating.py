"""Fitting a calibration: from labelled answers to a temperature, and for yes-no a bias, that make them honest.

Each row is a distribution that was answered and which of its options was right. What is minimised is the negative
log likelihood, which is convex in 1 / temperature and bias (Platt 1999, Guo et al. 2017), by Newton's steps; what is
reported is held out: every row is judged by a fit of the four fifths that it is not in. A correction that does not
help there is not made.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from photocall.recalibration import Correction

FOLDS = 5
MIN_ROWS = 50
MIN_OF_EACH = 10  # of yes and of no
BINS = 15
_STEPS = 40
_RIDGE = 1.0  # of one row's weight, towards no correction: answers that are all right have no best temperature
_LEAST = 1e-12  # of a probability
_SLOPES = (1 / 20, 20.0)


class TooLittle(ValueError):
    """Not enough labelled answers to fit anything; the message has the numbers."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """A distribution that was answered, and the index of the right option. Of a yes-no: (yes, no)."""

    probabilities: tuple[float, ...]
    label: int


@dataclass(frozen=True, slots=True)
class Report:
    """How good distributions are: ECE over BINS bins of equal mass of the likeliest option's probability."""

    accuracy: float
    brier: float
    ece: float
    nll: float


@dataclass(frozen=True, slots=True)
class Bin:
    """A point of a reliability diagram."""

    confidence: float
    accuracy: float
    count: int


@dataclass(frozen=True, slots=True)
class Fit:
    """`correction` is None where none helps. `after` and its bins are of rows held out."""

    correction: Correction | None
    count: int
    before: Report
    after: Report
    bins_before: tuple[Bin, ...]
    bins_after: tuple[Bin, ...]


def fit(rows: Sequence[Labelled], yes_no: bool) -> Fit:
    """Raises TooLittle."""
    if len(rows) < MIN_ROWS:
        raise TooLittle(f"{len(rows)} labelled answers, at least {MIN_ROWS} are needed")
    if yes_no and min(counts := [sum(row.label == side for row in rows) for side in (0, 1)]) < MIN_OF_EACH:
        raise TooLittle(f"{counts[0]} times yes and {counts[1]} times no, at least {MIN_OF_EACH} of each are needed")
    held_out: list[Labelled] = [*rows]
    for fold in range(FOLDS):
        correction = _fitted([row for i, row in enumerate(rows) if i % FOLDS != fold], yes_no)
        for i in range(fold, len(rows), FOLDS):
            held_out[i] = Labelled(tuple(corrected(rows[i].probabilities, correction)), rows[i].label)
    before, after = report(rows), report(held_out)
    helps = after.nll < before.nll
    shown = held_out if helps else rows
    return Fit(
        _fitted(rows, yes_no) if helps else None,
        len(rows),
        before,
        after if helps else before,
        tuple(bins(rows)),
        tuple(bins(shown)),
    )


def corrected(probabilities: Sequence[float], correction: Correction) -> list[float]:
    """The distribution that is meant. A bias is added to the log odds of the first of two."""
    logs = [math.log(max(p, _LEAST)) / correction.temperature for p in probabilities]
    logs[0] += correction.bias
    top = max(logs)
    weights = [math.exp(value - top) for value in logs]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def report(rows: Sequence[Labelled]) -> Report:
    """Of distributions as they are."""
    count = len(rows)
    right = [_best(row) == row.label for row in rows]
    squares = [sum((p - (i == row.label)) ** 2 for i, p in enumerate(row.probabilities)) for row in rows]
    logs = [-math.log(max(row.probabilities[row.label], _LEAST)) for row in rows]
    ece = sum(one.count * abs(one.confidence - one.accuracy) for one in bins(rows)) / count
    return Report(sum(right) / count, math.fsum(squares) / count, ece, math.fsum(logs) / count)


def bins(rows: Sequence[Labelled]) -> list[Bin]:
    """At most BINS of about equal mass, by the probability of the likeliest option. Equal ones share a bin: cut
    between, the right ones would be on one side and the wrong ones on the other, as if they had been told apart."""
    ranked = sorted((row.probabilities[_best(row)], _best(row) == row.label) for row in rows)
    parts: defaultdict[int, list[tuple[float, bool]]] = defaultdict(list)
    start = 0
    for _, ties in groupby(ranked, key=itemgetter(0)):
        part = parts[start * BINS // len(ranked)]
        before = len(part)
        part += ties
        start += len(part) - before
    return [
        Bin(sum(p for p, _ in part) / len(part), sum(r for _, r in part) / len(part), len(part))
        for part in parts.values()
    ]


def _fitted(rows: Sequence[Labelled], yes_no: bool) -> Correction:
    """Newton's steps on (slope, bias), slope = 1 / temperature; without a bias on the slope alone."""
    logs = [[math.log(max(p, _LEAST)) for p in row.probabilities] for row in rows]
    slope, bias = 1.0, 0.0
    for _ in range(_STEPS):
        g_slope, g_bias = _RIDGE * (slope - 1), _RIDGE * bias
        h_slope, h_both, h_bias = _RIDGE, 0.0, _RIDGE
        for row, found in zip(rows, logs, strict=True):
            p = corrected_logs(found, slope, bias)
            mean = math.fsum(q * x for q, x in zip(p, found, strict=True))
            g_slope += mean - found[row.label]
            h_slope += math.fsum(q * (x - mean) ** 2 for q, x in zip(p, found, strict=True))
            if yes_no:
                g_bias += p[0] - (row.label == 0)
                h_bias += p[0] * (1 - p[0])
                h_both += p[0] * (found[0] - mean)
        if yes_no:
            determinant = h_slope * h_bias - h_both**2
            d_slope = (h_bias * g_slope - h_both * g_bias) / determinant
            d_bias = (h_slope * g_bias - h_both * g_slope) / determinant
        else:
            d_slope, d_bias = g_slope / h_slope, 0.0
        length = max(abs(d_slope), abs(d_bias) / 4, 0.5) / 0.5  # no step longer than half a slope
        slope = min(max(slope - d_slope / length, _SLOPES[0]), _SLOPES[1])
        bias -= d_bias / length
        if abs(d_slope) + abs(d_bias) < 1e-9:
            break
    return Correction(1 / slope, bias)


def corrected_logs(logs: Sequence[float], slope: float, bias: float) -> list[float]:
    """As `corrected`, of logarithms."""
    values = [slope * x for x in logs]
    values[0] += bias
    top = max(values)
    weights = [math.exp(value - top) for value in values]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def _best(row: Labelled) -> int:
    return max(range(len(row.probabilities)), key=lambda i: (row.probabilities[i], -i))

"""The orders in which one question's options are asked, and one distribution out of those that came of them.

The options are first put into an order of their own (labels by code point), and then turned round: each option stands
at each place once, so what a model thinks of a place cancels out, and the prompts are the same however the caller
ordered them. A scale is asked upwards and downwards, for turned round it is no scale. Nothing here knows any model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from photocall.questions import Choice, Noul, Option, Score

MAX_ORDERS = 10  # of more options not every place is taken by each, but places all over the list
CLOSE = 0.2  # the two likeliest are no further apart: "auto" asks the other orders too

Lettered: TypeAlias = Choice | Noul | Score
Permutation: TypeAlias = tuple[int, ...]  # the option, by the caller's count, at each place


def orders_of(question: Lettered) -> list[Permutation]:
    """All orders that a debiased question is asked in; the first one is asked first."""
    if isinstance(question, Noul):
        return [(0, 1), (1, 0)]
    if isinstance(question, Score):
        up = tuple(range(len(question.levels)))
        return [up, up[::-1]] if len(up) > 1 else [up]
    labels = [option.label for option in question.options]
    own = sorted(range(len(labels)), key=labels.__getitem__)
    turns = min(len(own), MAX_ORDERS)
    starts = [turn * len(own) // turns for turn in range(turns)]
    return [tuple(own[start:] + own[:start]) for start in starts]


def in_order(question: Lettered, order: Permutation) -> Lettered:
    """The question to ask for its options in this order. A yes-no whose sides change places is a choice of the two."""
    if isinstance(question, Choice):
        return replace(question, options=tuple(question.options[i] for i in order))
    if isinstance(question, Score):
        return replace(question, levels=tuple(question.levels[i] for i in order))
    if order == (0, 1):
        return question
    sides = (Option("yes", question.true), Option("no", question.false))
    return Choice(question.name, question.instructions, tuple(sides[i] for i in order), question.asking)


def as_given(order: Permutation, probabilities: Sequence[float]) -> list[float]:
    """Probabilities by place put back into the caller's order; a slot behind the options stays where it is."""
    found = list(probabilities)
    for place, option in enumerate(order):
        found[option] = probabilities[place]
    return found


def close(probabilities: Sequence[float]) -> bool:
    """Whether the two likeliest could change places in another order."""
    ranked = sorted(probabilities, reverse=True)
    return len(ranked) > 1 and ranked[0] - ranked[1] <= CLOSE


def averaged(read: Sequence[Sequence[float]]) -> list[float]:
    """The mean of distributions over the same options, of their logarithms: what a place adds to them cancels."""
    with np.errstate(divide="ignore"):
        logs = np.log(np.asarray(read, dtype=np.float64)).mean(axis=0)
    if not np.isfinite(logs.max()):  # no option that was possible in every order
        return [float(p) for p in np.asarray(read, dtype=np.float64).mean(axis=0)]
    weights = np.exp(logs - logs.max()).tolist()
    total = math.fsum(weights)  # exact: the same whatever the options' order
    return [weight / total for weight in weights]


def spread(read: Sequence[Sequence[float]]) -> float:
    """The most that the order moved the probability of any option."""
    return float(np.ptp(np.asarray(read, dtype=np.float64), axis=0).max())

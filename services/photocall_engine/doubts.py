"""Abstaining: what an answer says of itself when it was asked to, and when it is better not taken.

Lettered questions have one slot more for what the picture does not show; texts, numbers and boxes are without an answer
where the model ends its turn at once. Label mass is how much of the whole next-token distribution the labels hold: a
model that would rather say something else has not answered, however sure it is between the labels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from photocall.asking import Abstain
from photocall_engine.reading import Floats


def mass(values: Floats) -> float:
    """Label mass of what a `Letters` with `whole` gives: the labels' logits and behind them that of all tokens."""
    labels, everything = values[:-1].astype(np.float64), float(values[-1])
    return min(1.0, float(np.exp(labels - everything).sum()))


def without_slot(probabilities: Sequence[float]) -> tuple[list[float], float]:
    """The options' own distribution, and the probability of the slot behind them."""
    *options, slot = probabilities
    known = math.fsum(options)
    if known <= 0:
        return [1 / len(options)] * len(options), slot
    return [p / known for p in options], slot


def doubted(
    answer: Mapping[str, Any],
    abstain: Abstain | None,
    best: float,
    cannot_tell: float | None = None,
    label_mass: float | None = None,
) -> Mapping[str, Any]:
    """The answer with what there is against it. `best`: the probability of the likeliest label beside the slot."""
    if abstain is None:
        return answer
    found = dict(answer)
    if cannot_tell is not None:
        found["cannot_tell"] = cannot_tell
    if label_mass is not None:
        found["label_mass"] = label_mass
    unknown = cannot_tell is not None and cannot_tell > best
    floor = abstain.label_mass
    if unknown or (floor is not None and label_mass is not None and label_mass < floor):
        found["answer_status"] = "abstained"
        if "confidence" in found:
            found["confidence"] = 0.0
    return found

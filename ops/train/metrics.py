"""Accuracy, intervals by bootstrap over pictures, and expected calibration error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BINS = 15


@dataclass(frozen=True, slots=True)
class Judged:
    """One answer: which picture it belongs to, whether it is right, and how sure the model was of it."""

    picture: int
    right: bool
    confidence: float


def ece(confidence: NDArray[np.float64], right: NDArray[np.float64], bins: int = BINS) -> float:
    """Expected calibration error over bins of equal mass: mean |accuracy - confidence|, weighted by their sizes.

    Equal confidences share a bin, whatever its mass becomes."""
    ranks = np.searchsorted(np.sort(confidence), confidence)  # of equal ones the lowest
    number = ranks * min(bins, len(confidence)) // len(confidence)
    off = np.bincount(number, right - confidence)
    return float(np.abs(off).sum() / len(confidence))


def summary(judged: list[Judged], rounds: int = 1000, seed: int = 0) -> dict[str, object]:
    """Accuracy and ECE with 95 % intervals; whole pictures are drawn again, because their answers hang together."""
    right = np.asarray([j.right for j in judged], np.float64)
    confidence = np.asarray([j.confidence for j in judged], np.float64)
    _, picture = np.unique([j.picture for j in judged], return_inverse=True)
    members = [np.flatnonzero(picture == i) for i in range(picture.max() + 1)]
    rng = np.random.default_rng(seed)
    accuracies, errors = [], []
    for _ in range(rounds):
        drawn = np.concatenate([members[i] for i in rng.integers(len(members), size=len(members))])
        accuracies.append(right[drawn].mean())
        errors.append(ece(confidence[drawn], right[drawn]))
    return {
        "questions": len(judged),
        "pictures": len(members),
        "accuracy": round(float(right.mean()), 4),
        "accuracy_95": [round(float(v), 4) for v in np.percentile(accuracies, (2.5, 97.5))],
        "ece": round(ece(confidence, right), 4),
        "ece_95": [round(float(v), 4) for v in np.percentile(errors, (2.5, 97.5))],
    }

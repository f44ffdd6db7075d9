"""What a reader of a question wants to be read, and what it is: the words between readers, branches and steps.

Nothing of pages or batches; what a reader asks for never depends on the order in which values come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]
Path: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Letters:
    """Read the logits of these token ids only; behind them, where `whole`, the log of the sum over all tokens."""

    ids: tuple[int, ...]
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Logits:
    """Read the logits of the whole vocabulary."""


@dataclass(frozen=True, slots=True)
class Greedy:
    """Read the likeliest token that may be said, and its log probability: [token id, log probability]."""


Read: TypeAlias = Letters | Logits | Greedy


class Want(NamedTuple):
    """Read the question followed by `path`. `extends`: the sequence just read grows by the path's last token."""

    path: Path
    read: Read
    extends: bool = False


class Reader(Protocol):
    """What one question wants from the model, and in the end its answer."""

    answer: Mapping[str, Any] | None  # set by the last `take`, see photocall/answers.py
    output_tokens: int  # tokens the answer was made of, counted as the wire's usage counts them

    def begin(self) -> list[Want]:
        """The first wants; the question itself, path (), is among them."""

    def take(self, path: Path, values: Floats) -> list[Want]:
        """What was read at `path`; further wants, or `answer` is set once nothing is missing."""

    def longest(self) -> int:
        """Tokens behind the question that a sequence can grow to."""


def softmax(logits: Floats, temperature: float) -> NDArray[np.float64]:
    """Probabilities at a temperature; float64, so that they sum to 1 far below 1e-6."""
    scaled = logits.astype(np.float64) / temperature
    weights = np.exp(scaled - scaled.max())
    return np.asarray(weights / weights.sum())

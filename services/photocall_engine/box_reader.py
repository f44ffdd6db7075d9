"""Box answers: four edges, each the expectation over the hundredths that the model's digits spell.

The answer has a fixed form: a letter for the edge (T, B, L, R) and two digits, the hundredth of the picture's height or
width, counted from the top left, in which the edge lies. The edges do not depend on each other, so that every digit of
all four is read in one forward: after the letter the first digit, after each first digit the second.

Whether there is anything to put a box around is read where the answer begins: a model that sees nothing ends its turn
at once instead of naming an edge.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from photocall.answers import BoxAnswer
from photocall.asking import Abstain
from photocall_engine.doubts import doubted, mass
from photocall_engine.reading import Floats, Letters, Path, Want, softmax
from photocall_engine.tokenizer import ChatTokenizer

MARKS = "TBLR"  # top, bottom, left, right
PLACES = 100
_CENTRES = (np.arange(PLACES) + 0.5) / PLACES  # an edge that lies in a hundredth is taken to lie in its middle
_DIGITS = "0123456789"


class BoxReader:
    """Edges that would cross are given in order: top is never below bottom, left never right of right.

    With a slot "cannot tell" the answer is abstained where the end of the turn is likelier than all edges.
    """

    def __init__(self, tokenizer: ChatTokenizer, temperature: float, abstain: Abstain | None = None) -> None:
        self._temperature = temperature
        self._abstain = abstain
        self._slot = abstain is not None and abstain.cannot_tell  # the end of the turn is one of the labels
        self._end = tokenizer.end
        self._label_mass: float | None = None
        self._marks = tuple(tokenizer.single(mark) for mark in MARKS)
        self._digits = tuple(tokenizer.single(digit) for digit in _DIGITS)
        self._read: dict[Path, NDArray[np.float64]] = {}
        self.answer: Mapping[str, Any] | None = None
        self.output_tokens = 3 * len(MARKS)

    def begin(self) -> list[Want]:
        paths = [(mark, *rest) for mark in self._marks for rest in ((), *((digit,) for digit in self._digits))]
        # Which edge the model would name first decides nothing; that it would name one is the presence.
        weighs = self._abstain is not None and self._abstain.label_mass is not None
        return [
            Want((), Letters((*self._marks, self._end), weighs)),
            *(Want(path, Letters(self._digits)) for path in paths),
        ]

    def take(self, path: Path, values: Floats) -> list[Want]:
        if not path and self._abstain is not None and self._abstain.label_mass is not None:
            self._label_mass = mass(np.append(values[: len(MARKS) + self._slot], values[-1]))
            values = values[:-1]
        self._read[path] = softmax(values, self._temperature)
        if len(self._read) == 1 + len(self._marks) * (1 + len(self._digits)):
            *begun, nothing = map(float, self._read[()])
            answer = box_answer([self._places(mark) for mark in self._marks], math.fsum(begun))
            slot = nothing if self._slot else None
            self.answer = doubted(answer, self._abstain, answer["presence"], slot, self._label_mass)
        return []

    def longest(self) -> int:
        return 2

    def _places(self, mark: int) -> NDArray[np.float64]:
        """Probability of each hundredth: P(first digit) x P(second | first)."""
        first = self._read[mark,]
        return np.concatenate([p * self._read[mark, digit] for p, digit in zip(first, self._digits, strict=True)])


def box_answer(edges: list[NDArray[np.float64]], presence: float = 1.0) -> BoxAnswer:
    """The wire's answer, given the probability of each hundredth for top, bottom, left and right.

    Confidence is that of the least certain edge: 1 - E|x - E x| / (the same for an even spread), never below 0.
    """
    places = [float(p @ _CENTRES) for p in edges]
    confidence = min(_confidence(p, place) for p, place in zip(edges, places, strict=True))
    top, bottom = sorted(places[:2])
    left, right = sorted(places[2:])
    return {
        "type": "box",
        "box": {"top": top, "bottom": bottom, "left": left, "right": right},
        "confidence": confidence,
        "presence": presence,
    }


def _confidence(probabilities: NDArray[np.float64], place: float) -> float:
    even = float(np.abs(_CENTRES - 0.5).mean())
    return max(0.0, 1.0 - float(probabilities @ np.abs(_CENTRES - place)) / even)

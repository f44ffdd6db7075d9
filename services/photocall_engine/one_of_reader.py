"""Texts of a list: the probability of each, exactly, by the tree of their tokens.

Where two texts part, the model's distribution is restricted to the tokens that go on with one of them, so the
probabilities of all texts sum to 1. Only the places where texts part are read, all of them in one forward.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from photocall.answers import TextAnswer
from photocall.questions import Text
from photocall_engine.doubts import doubted, mass
from photocall_engine.reading import Floats, Letters, Path, Want, softmax
from photocall_engine.tokenizer import ChatTokenizer


class NoText(ValueError):
    """No text, or none that a model could say, is what was asked for."""


class OneOfReader:
    """The likeliest of the question's texts; equal ones go to the text that sorts first by code point."""

    def __init__(self, question: Text, texts: tuple[str, ...], tokenizer: ChatTokenizer) -> None:
        self._abstain = question.asking.abstain
        self._end = tokenizer.end
        self._weighs = self._abstain is not None and self._abstain.label_mass is not None
        self._tokens: dict[str, Path] = {text: (*tokenizer.encode(text), tokenizer.end) for text in texts}
        if len(set(self._tokens.values())) < len(texts):
            raise NoText("two texts of one_of are the same tokens to this model")
        following: dict[Path, dict[int, None]] = {(): {}}
        for tokens in self._tokens.values():
            for length in range(len(tokens)):
                following.setdefault(tokens[:length], {})[tokens[length]] = None
        if self._abstain is not None and self._abstain.cannot_tell:
            following[()][self._end] = None
        self._nodes = {path: tuple(ids) for path, ids in following.items() if not path or len(ids) > 1}
        self._read: dict[Path, dict[int, float]] = {}
        self._label_mass: float | None = None
        self.answer: Mapping[str, Any] | None = None
        self.output_tokens = 0

    def begin(self) -> list[Want]:
        return [Want(path, Letters(ids, self._weighs and not path)) for path, ids in self._nodes.items()]

    def take(self, path: Path, values: Floats) -> list[Want]:
        ids = self._nodes[path]
        if self._weighs and not path:
            self._label_mass = mass(values)
        found = softmax(values[: len(ids)], 1.0)
        self._read[path] = {token: float(p) for token, p in zip(ids, found, strict=True)}
        if len(self._read) == len(self._nodes):
            self.answer = self._answer()
        return []

    def longest(self) -> int:
        return max(len(path) for path in self._nodes)

    def _answer(self) -> Mapping[str, Any]:
        slot = self._read[()][self._end] if self._end in self._nodes[()] else None
        among = {text: self._probability(tokens) for text, tokens in self._tokens.items()}
        total = sum(among.values())
        shares = {text: p / total if total else 1 / len(among) for text, p in among.items()}
        best = min(shares, key=lambda text: (-shares[text], text))
        self.output_tokens = len(self._tokens[best])
        answer: TextAnswer = {
            "type": "text",
            "text": best,
            "logprob": math.log(shares[best]),
            "truncated": False,
            "probability": shares[best],
            "probabilities": shares,
        }
        return doubted(answer, self._abstain, among[best], slot, self._label_mass)

    def _probability(self, tokens: Path) -> float:
        """Of a text among all, a slot "cannot tell" included."""
        places = [length for length in range(len(tokens)) if tokens[:length] in self._read]
        return math.prod(self._read[tokens[:length]][tokens[length]] for length in places)

"""Number answers: a best-first walk over the tree of digits, giving a distribution over exact values.

At every node the model's distribution is restricted to the characters that the question's grammar still allows, so a
node's children sum to its own probability. Nodes are expanded in rounds: the next round depends on the values of the
whole last one and on nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np

from photocall.answers import NumberAnswer
from photocall.questions import Number
from photocall_engine.digits import DIGITS, END, grammar_of
from photocall_engine.doubts import doubted
from photocall_engine.reading import Floats, Logits, Path, Want, softmax
from photocall_engine.tokenizer import ChatTokenizer

MAX_NODES = 64  # expanded per question, the question itself included
ROUND = 8  # nodes expanded at once
NEGLIGIBLE = 1e-3  # probability left unexpanded at most, unless MAX_NODES comes first
SHOWN = 32  # values in `probabilities`
ALTERNATIVES = 5
INTERVAL = 0.90


class NumberReader:
    """The value, its probability and the rest of the distribution. Raises NoNumber for limits that nothing meets."""

    def __init__(self, question: Number, tokenizer: ChatTokenizer, temperature: float) -> None:
        self._grammar = grammar_of(question)
        self._abstain = question.asking.abstain
        self._no_number = 0.0  # filled when the question itself is read, as is the next
        self._nothing = 0.0
        self._tokens = {char: tokenizer.single(char) for char in "-." + DIGITS} | {END: tokenizer.end}
        self._chars = {token: char for char, token in self._tokens.items()}
        self._temperature = temperature
        self._frontier: dict[str, float] = {}  # beginnings not expanded yet, with their probability
        self._expanding: dict[str, float] = {"": 1.0}
        self._round: dict[str, Floats] = {}
        self._values: defaultdict[Decimal, float] = defaultdict(float)
        self._written: dict[Decimal, tuple[float, str]] = {}  # the likeliest way to write each value
        self._num_expanded = 0
        self.answer: Mapping[str, Any] | None = None
        self.output_tokens = 0

    def begin(self) -> list[Want]:
        return [Want((), Logits())]

    def take(self, path: Path, values: Floats) -> list[Want]:
        self._round["".join(self._chars[token] for token in path)] = values
        if len(self._round) < len(self._expanding):
            return []
        if "" in self._expanding:
            self._begin(self._round[""])
        for text, probability in self._expanding.items():
            self._expand(text, probability, self._round[text])
        self._round, self._expanding = {}, self._next_round()
        if not self._expanding:
            slot = self._nothing if self._abstain and self._abstain.cannot_tell else None
            floor = self._abstain is not None and self._abstain.label_mass is not None
            label_mass = 1.0 - self._no_number if floor else None
            self.answer = doubted(self._answer(), self._abstain, 1.0 - self._nothing, slot, label_mass)
        return [Want(tuple(self._tokens[char] for char in text), Logits()) for text in self._expanding]

    def longest(self) -> int:
        return 1 + self._grammar.whole + 1 + self._grammar.decimals

    def _begin(self, values: Floats) -> None:
        """Whether there is a number at all: what of the whole distribution begins none, and whether it is an end."""
        starts = [self._tokens[char] for char in self._grammar.following("")]
        everything = softmax(values, 1.0)
        self._no_number = max(0.0, 1.0 - float(everything[starts].sum()))
        self._nothing = float(softmax(values[[*starts, self._tokens[END]]], self._temperature)[-1])

    def _expand(self, text: str, probability: float, values: Floats) -> None:
        self._num_expanded += 1
        chars = self._grammar.following(text)
        for char, p in zip(chars, softmax(values[[self._tokens[c] for c in chars]], self._temperature), strict=True):
            self._add(text, char, probability * float(p))

    def _add(self, text: str, char: str, probability: float) -> None:
        """One child. A beginning that only one character can follow needs no reading."""
        while char != END:
            text += char
            chars = self._grammar.following(text)
            if len(chars) > 1:
                self._frontier[text] = probability
                return
            char = chars[0]
        value = Decimal(text).normalize() + 0
        self._values[value] += probability
        self._written[value] = max(self._written.get(value, (0.0, "")), (probability, text))

    def _next_round(self) -> dict[str, float]:
        ranked = sorted(self._frontier.items(), key=lambda item: (-item[1], item[0]))
        left = sum(probability for _, probability in ranked)
        chosen: dict[str, float] = {}
        room = min(ROUND, MAX_NODES - self._num_expanded) if self._values else ROUND
        for text, probability in ranked[: max(0, room)]:
            if left <= NEGLIGIBLE and self._values:
                break
            chosen[text] = self._frontier.pop(text)
            left -= probability
        return chosen

    def _answer(self) -> NumberAnswer:
        total = sum(self._values.values())
        by_value = {value: p / total for value, p in sorted(self._values.items())}
        ranked = sorted(by_value.items(), key=lambda item: (-item[1], item[0]))
        best, confidence = ranked[0]
        self.output_tokens = len(self._written[best][1])
        return {
            "type": "number",
            "number": _plain(best),
            "expected": float(sum(float(value) * p for value, p in by_value.items())),
            "confidence": confidence,
            "probabilities": {_key(value): p for value, p in sorted(ranked[:SHOWN])},
            "alternatives": [{"number": _plain(value), "probability": p} for value, p in ranked[1 : 1 + ALTERNATIVES]],
            "interval": _interval(by_value),
            "no_number": self._no_number,
        }


def _interval(by_value: dict[Decimal, float]) -> list[int | float]:
    """The values between which the middle INTERVAL of the distribution lies, ends included."""
    values = list(by_value)
    cumulative = np.cumsum(list(by_value.values()))
    tail = (1 - INTERVAL) / 2
    low, high = (min(int(np.searchsorted(cumulative, q)), len(values) - 1) for q in (tail, 1 - tail))
    return [_plain(values[low]), _plain(values[high])]


def _plain(value: Decimal) -> int | float:
    return int(value) if value == value.to_integral_value() else float(value)


def _key(value: Decimal) -> str:
    return format(value, "f")

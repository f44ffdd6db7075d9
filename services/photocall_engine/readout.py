"""From logits to answers: lettered options and free texts, fed with what the model says at the ends of sequences.

A reader says which sequences it wants read and turns the values into the answer that the wire carries. It knows token
ids and probabilities, but neither pages nor batches. Numbers, boxes and bound texts have files of their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from photocall.answers import ChoiceAnswer, NoulAnswer, ScoreAnswer, TextAnswer
from photocall.asking import Abstain
from photocall.questions import Choice, Json, Noul, Score, Text, num_options
from photocall_engine.detokenizer import Detokenizer
from photocall_engine.doubts import doubted, mass, without_slot
from photocall_engine.prompt import option_codes
from photocall_engine.reading import Floats as Floats
from photocall_engine.reading import Greedy as Greedy
from photocall_engine.reading import Letters as Letters
from photocall_engine.reading import Logits as Logits
from photocall_engine.reading import Path as Path
from photocall_engine.reading import Read as Read
from photocall_engine.reading import Reader as Reader
from photocall_engine.reading import Want as Want
from photocall_engine.reading import softmax as softmax
from photocall_engine.tokenizer import LETTERS, ChatTokenizer

_GREEDY = Greedy()


class LetterReader:
    """Probabilities of lettered options: one letter each up to 26, else P(first) x P(second | first).

    With a slot "cannot tell" it is one option more, behind the others.
    """

    def __init__(
        self,
        question: Choice | Noul | Score,
        letters: Sequence[int],
        temperature: float,
        abstain: Abstain | None = None,
    ) -> None:
        self._question = question
        self._temperature = temperature
        self._abstain = abstain
        self._weighs = abstain is not None and abstain.label_mass is not None
        count = num_options(question) + (abstain is not None and abstain.cannot_tell)
        codes = option_codes(count)
        self.answer: Mapping[str, Any] | None = None
        self.output_tokens = len(codes[0])
        if count <= len(LETTERS):
            self._wants: dict[Path, Sequence[int]] = {(): letters[:count]}
        else:
            groups = [codes[i : i + len(LETTERS)] for i in range(0, count, len(LETTERS))]
            self._wants = {(): letters[: len(groups)]}
            self._wants |= {(first,): letters[: len(group)] for first, group in zip(letters, groups, strict=False)}
        self._read: dict[Path, NDArray[np.float64]] = {}
        self._masses: dict[Path, float] = {}
        self._firsts: NDArray[np.float64] = np.empty(0)

    def begin(self) -> list[Want]:
        return [Want(path, Letters(tuple(ids), self._weighs)) for path, ids in self._wants.items()]

    def take(self, path: Path, values: Floats) -> list[Want]:
        if self._weighs:
            self._masses[path] = mass(values)
            if not path:
                self._firsts = softmax(values[: len(self._wants[path])], 1.0)  # masses are of the model, not calibrated
        self._read[path] = softmax(values[: len(self._wants[path])], self._temperature)
        if len(self._read) == len(self._wants):
            self.answer = letter_answer(self._question, self.probabilities(), self._abstain, self.label_mass())
        return []

    def longest(self) -> int:
        return self.output_tokens - 1

    def probabilities(self) -> list[float]:
        """Of each option as it was asked, and of the slot behind them; once everything is read."""
        first = self._read[()]
        seconds = [self._read[path] for path in self._wants if path]
        parts = [p * second for p, second in zip(first, seconds, strict=True)] if seconds else [first]
        return [float(p) for p in np.concatenate(parts)]

    def label_mass(self) -> float | None:
        """Of the codes, both letters counted; None where it was not asked for."""
        if not self._weighs:
            return None
        seconds = [self._masses[path] for path in self._wants if path]
        of_seconds = float(self._firsts @ np.asarray(seconds)) if seconds else 1.0
        return self._masses[()] * of_seconds


def letter_answer(
    question: Choice | Noul | Score,
    probabilities: Sequence[float],
    abstain: Abstain | None = None,
    label_mass: float | None = None,
) -> Mapping[str, Any]:
    """The wire's answer, given the probability of each option in the caller's order, a slot's behind them."""
    slot = None
    best = max(probabilities[: num_options(question)])
    if len(probabilities) > num_options(question):
        probabilities, slot = without_slot(probabilities)
    return doubted(_answer(question, probabilities), abstain, best, slot, label_mass)


def _answer(question: Choice | Noul | Score, probabilities: Sequence[float]) -> NoulAnswer | ScoreAnswer | ChoiceAnswer:
    if isinstance(question, Noul):
        return {"type": "noul", "noul": probabilities[0]}
    if isinstance(question, Score):
        return {
            "type": "score",
            "score": sum(level * p for level, p in enumerate(probabilities)),
            "confidence": score_confidence(probabilities),
            "legend": {str(i): _legend(level, i) for i, level in enumerate(question.levels)},
            "probabilities": {str(i): p for i, p in enumerate(probabilities)},
        }
    by_label = {option.label: p for option, p in zip(question.options, probabilities, strict=True)}
    best = max(by_label.values())
    return {
        "type": "choice",
        "choice": min(label for label, p in by_label.items() if p == best),
        "confidence": choice_confidence(probabilities),
        "probabilities": by_label,
    }


def choice_confidence(probabilities: Sequence[float]) -> float:
    """(p_max - 1/K) / (1 - 1/K): 0 for an even split, 1 for certainty and for a single option."""
    even = 1 / len(probabilities)
    return 1.0 if even == 1 else max(0.0, (max(probabilities) - even) / (1 - even))


def score_confidence(probabilities: Sequence[float]) -> float:
    """max(0, 1 - sum p_i |i - mode| / mean_i |i - (K-1)/2|); a tie has its mode at the lowest level."""
    count = len(probabilities)
    if count == 1:
        return 1.0
    mode = max(range(count), key=lambda i: (probabilities[i], -i))
    spread = sum(p * abs(i - mode) for i, p in enumerate(probabilities))
    even = sum(abs(i - (count - 1) / 2) for i in range(count)) / count
    return max(0.0, 1 - spread / even)


class TextReader:
    """A greedy decode: never a control token other than the end of the turn, ties to the lowest id."""

    def __init__(self, question: Text, tokenizer: ChatTokenizer) -> None:
        self._max_tokens = question.max_tokens
        self._abstain = question.asking.abstain
        self._end = tokenizer.end
        self._logprob = 0.0
        self.answer: Mapping[str, Any] | None = None
        self.output_tokens = 0
        self._said = Detokenizer(tokenizer)
        self._told = 0  # characters of the text that `news` has given

    def begin(self) -> list[Want]:
        return [Want((), Greedy())]

    def take(self, path: Path, values: Floats) -> list[Want]:
        said, logprob = values.tolist()
        token = int(said)  # exact: ids are far below 2^24
        self._logprob += logprob
        ended = token == self._end
        tokens = path if ended else (*path, token)
        self.output_tokens = len(tokens)
        truncated = not ended and len(tokens) >= self._max_tokens
        if not ended:
            self._said.add(token)
        if ended or truncated:
            self._said.finish()
            answer: TextAnswer = {
                "type": "text",
                "text": self.text,
                "logprob": self._logprob,
                "truncated": truncated,
            }
            self.answer = self._doubted(answer, tokens)
            return []
        return [Want(tokens, _GREEDY, extends=True)]

    def longest(self) -> int:
        return self._max_tokens - 1

    def _doubted(self, answer: TextAnswer, tokens: Path) -> Mapping[str, Any]:
        """A turn that ended at once says that there is no answer; how probable that was is known only then."""
        slot = math.exp(self._logprob) if self._abstain and self._abstain.cannot_tell and not tokens else None
        return doubted(answer, self._abstain, 0.0, slot)

    @property
    def text(self) -> str:
        """What has been decoded so far, a character that is only begun left out."""
        return self._said.text

    def news(self) -> tuple[int, str] | None:
        """(offset, text) by which it has grown since the last call; None if it has not."""
        offset, self._told = self._told, max(self._told, len(self.text))
        return (offset, self.text[offset:]) if self._told > offset else None


def _legend(level: Json, index: int) -> Json:
    """A level as the caller described it; the wire allows neither null nor bare numbers here."""
    return level if isinstance(level, str | list | dict) else str(index if level is None else level)

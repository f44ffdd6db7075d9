"""From logits to answers: one reader per question, fed with what the model says at the ends of its sequences.

A reader says which sequences it wants read and turns the values into the answer that the wire carries. It knows token
ids and probabilities, but neither pages nor batches; what it asks for never depends on the order in which values come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from photocall.answers import ChoiceAnswer, NoulAnswer, ScoreAnswer, TextAnswer
from photocall.questions import Choice, Json, Noul, Score, Text
from photocall_engine.detokenizer import Detokenizer
from photocall_engine.prompt import option_codes
from photocall_engine.tokenizer import LETTERS, ChatTokenizer

Floats: TypeAlias = NDArray[np.float32]
Path: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Letters:
    """Read the logits of these token ids only."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Logits:
    """Read the logits of the whole vocabulary."""


@dataclass(frozen=True, slots=True)
class Greedy:
    """Read the likeliest token that may be said, and its log probability: [token id, log probability]."""


Read: TypeAlias = Letters | Logits | Greedy
_GREEDY = Greedy()


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


class LetterReader:
    """Probabilities of lettered options: one letter each up to 26, else P(first) x P(second | first)."""

    def __init__(self, question: Choice | Noul | Score, letters: Sequence[int], temperature: float) -> None:
        self._question = question
        self._temperature = temperature
        count = _num_options(question)
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

    def begin(self) -> list[Want]:
        return [Want(path, Letters(tuple(ids))) for path, ids in self._wants.items()]

    def take(self, path: Path, values: Floats) -> list[Want]:
        self._read[path] = softmax(values, self._temperature)
        if len(self._read) == len(self._wants):
            self.answer = letter_answer(self._question, self._probabilities())
        return []

    def longest(self) -> int:
        return self.output_tokens - 1

    def _probabilities(self) -> list[float]:
        first = self._read[()]
        seconds = [self._read[path] for path in self._wants if path]
        parts = [p * second for p, second in zip(first, seconds, strict=True)] if seconds else [first]
        return [float(p) for p in np.concatenate(parts)]


def letter_answer(
    question: Choice | Noul | Score, probabilities: Sequence[float]
) -> NoulAnswer | ScoreAnswer | ChoiceAnswer:
    """The wire's answer to a lettered question, given the probability of each option in the caller's order."""
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
            self.answer = answer
            return []
        return [Want(tokens, _GREEDY, extends=True)]

    def longest(self) -> int:
        return self._max_tokens - 1

    @property
    def text(self) -> str:
        """What has been decoded so far, a character that is only begun left out."""
        return self._said.text

    def news(self) -> tuple[int, str] | None:
        """(offset, text) by which it has grown since the last call; None if it has not."""
        offset, self._told = self._told, max(self._told, len(self.text))
        return (offset, self.text[offset:]) if self._told > offset else None


def _num_options(question: Choice | Noul | Score) -> int:
    if isinstance(question, Choice):
        return len(question.options)
    return len(question.levels) if isinstance(question, Score) else 2


def _legend(level: Json, index: int) -> Json:
    """A level as the caller described it; the wire allows neither null nor bare numbers here."""
    return level if isinstance(level, str | list | dict) else str(index if level is None else level)

"""Texts that a regular expression allows: a greedy decode among the tokens that can still come to a match.

llguidance turns the expression into an automaton over the model's own tokens, lazily, by derivatives: no expression
makes it go back, and each step has a budget. One that needs more is refused. Syntax: that of Rust's `regex`, as a
whole match.
"""

from __future__ import annotations

import math

import llguidance
import numpy as np
from numpy.typing import NDArray

from photocall.answers import TextAnswer
from photocall.questions import Text
from photocall_engine.doubts import doubted
from photocall_engine.one_of_reader import NoText
from photocall_engine.reading import Floats, Logits, Path, Want, softmax
from photocall_engine.readout import TextReader
from photocall_engine.tokenizer import ChatTokenizer

_FUEL = 200_000  # of the automaton for its first states, and for each step: milliseconds
_STATES = 5_000
_LOGITS = Logits()
MAX_SHOWN = 200  # characters of a library's complaint


class Patterns:
    """Matchers of one tokenizer. It is prepared at the first expression: that takes up to a second."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self._tokenizer = tokenizer
        self._prepared: llguidance.LLTokenizer | None = None

    def matcher(self, pattern: str) -> Matcher:
        """A new one. Raises NoText for an expression that is none, or too much of one."""
        if self._prepared is None:
            self._prepared = llguidance.LLTokenizer(self._tokenizer.serialized(), eos_token=self._tokenizer.end)
        limits = llguidance.LLParserLimits(
            initial_lexer_fuel=_FUEL, step_lexer_fuel=_FUEL, max_lexer_states=_STATES, verbose_errors=False
        )
        grammar = llguidance.LLMatcher.grammar_from_regex(pattern)
        matcher = llguidance.LLMatcher(self._prepared, grammar, log_level=0, limits=limits)
        return Matcher(matcher, self._tokenizer)


class Matcher:
    """How far one text has come in its expression."""

    def __init__(self, matcher: llguidance.LLMatcher, tokenizer: ChatTokenizer) -> None:
        self._matcher = matcher
        self._sayable = tokenizer.sayable()
        self._end = tokenizer.end
        self._check()
        self._allowed = self._look()

    @property
    def allowed(self) -> NDArray[np.bool_]:
        """[vocab_size] what may be said now; the end of the turn where the text matches."""
        return self._allowed

    @property
    def complete(self) -> bool:
        """Whether the text matches and nothing could follow."""
        return int(self._allowed.sum()) == 1 and bool(self._allowed[self._end])

    @property
    def matches(self) -> bool:
        """Whether the text, as it is, is one that the expression allows."""
        return bool(self._allowed[self._end])

    def say(self, token: int) -> None:
        """One token more, an allowed one. Raises NoText where the automaton becomes too large."""
        self._matcher.consume_token(token)
        self._check()
        self._allowed = self._look()

    def _look(self) -> NDArray[np.bool_]:
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        self._check()
        allowed = np.unpackbits(bits, bitorder="little")[: len(self._sayable)].astype(np.bool_)
        allowed[: len(self._sayable)] &= self._sayable
        if not allowed.any():
            raise NoText("the pattern allows nothing that this model could say")
        return allowed

    def _check(self) -> None:
        if self._matcher.is_error():
            raise NoText(f"the pattern cannot be used: {self._matcher.get_error()[:MAX_SHOWN]}")


class PatternReader(TextReader):
    """The likeliest allowed token, one after another; ties to the lowest id.

    `probability` is that of the tokens said among those allowed at each place. A text that is cut, at `max_tokens` or
    where the automaton has used up its budget, is `truncated` and matches nothing yet.
    """

    def __init__(self, question: Text, matcher: Matcher, tokenizer: ChatTokenizer) -> None:
        super().__init__(question, tokenizer)
        self._matcher = matcher
        self._label_mass: float | None = None
        self._slot: float | None = None

    def begin(self) -> list[Want]:
        return [Want((), _LOGITS)]

    def take(self, path: Path, values: Floats) -> list[Want]:
        allowed = np.flatnonzero(self._matcher.allowed)
        found = values[allowed].astype(np.float64)
        place = int(found.argmax())
        token = int(allowed[place])
        if not path:
            self._weigh(values, allowed)
        self._logprob -= math.log(np.exp(found - found[place]).sum())
        ended = token == self._end
        tokens = path if ended else (*path, token)
        self.output_tokens = len(tokens)
        cut = False
        if not ended:
            self._said.add(token)
            try:
                self._matcher.say(token)
            except NoText:
                cut = True
            ended = not cut and self._matcher.complete
        if not ended and not cut and len(tokens) < self._max_tokens:
            return [Want(tokens, _LOGITS, extends=True)]
        self._said.finish()
        answer: TextAnswer = {
            "type": "text",
            "text": self.text,
            "logprob": self._logprob,
            "truncated": cut or not (ended or self._matcher.matches),
            "probability": math.exp(self._logprob),
        }
        self.answer = doubted(answer, self._abstain, 1.0 - (self._slot or 0.0), self._slot, self._label_mass)
        return []

    def _weigh(self, values: Floats, allowed: NDArray[np.int64]) -> None:
        """What there is against any text at all, at the place where it would begin."""
        if self._abstain is None:
            return
        if self._abstain.label_mass is not None:
            self._label_mass = min(1.0, float(softmax(values, 1.0)[allowed].sum()))
        if self._abstain.cannot_tell:
            starts = values[np.union1d(allowed, [self._end])]
            self._slot = float(np.exp(float(values[self._end]) - _log_sum(starts)))


def _log_sum(logits: Floats) -> float:
    values = logits.astype(np.float64)
    top = float(values.max())
    return top + math.log(float(np.exp(values - top).sum()))

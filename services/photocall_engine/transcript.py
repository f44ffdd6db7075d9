"""The transcript of a session as the model reads it: earlier turns, then the new one, with the template's marks.

A turn's prompt is the last one's prefix with more behind it: the questions that were asked and what was answered, then
the new content. Every part is tokenized by itself, so that an earlier prompt is token for token the start of a later
one. How an answer stands in the transcript is decided here; how state and questions do, in `prompt.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from photocall.asks import Ask
from photocall.errors import PhotocallError
from photocall.questions import Choice, Json, Noul, Question, Score, num_options
from photocall_engine.prompt import ImageSpan, RunTooLong, TokenRun, branch_run, content_run, option_codes
from photocall_engine.tokenizer import ChatTokenizer


class NoConversation(PhotocallError):
    """The checkpoint's chat template has no second turn."""

    code = "unanswerable"


@dataclass(frozen=True, slots=True)
class Exchange:
    """A turn that was answered: what was asked, and what the model is shown to have said to each question."""

    ask: Ask
    said: tuple[str | None, ...]  # None: not asked


@dataclass(frozen=True, slots=True)
class Turn:
    """What makes a request a turn of a session."""

    session_id: str
    number: int  # from 1
    base: Json = None  # the session's own state, in front of everything; None: there is none
    history: tuple[Exchange, ...] = ()
    remember: bool = True  # False: the turn leaves nothing in the transcript
    lease_s: float = 300.0  # how long its prefix is held afterwards


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """What an answered turn leaves behind. `said` is None for one that leaves nothing in the transcript."""

    report: dict[str, Any]
    said: tuple[str | None, ...] | None
    tokens: int  # of the prefix now held; 0: nothing
    held_bytes: int
    lease_s: float
    notices: tuple[str, ...]  # what is new to the session among those of the report


@dataclass(frozen=True, slots=True)
class Conversation:
    """The prefix of a turn, the keys of its spans being names of pictures; what ends at `hold_at` is worth holding."""

    run: TokenRun
    hold_at: int


def said(question: Question, answer: Mapping[str, Any]) -> str | None:
    """What the model is shown to have answered, in the words in which it was asked to; None: it was not asked."""
    if answer["type"] == "not_asked":
        return None
    slot = question.asking.cannot_tell
    silent = slot and answer.get("answer_status") == "abstained"
    if isinstance(question, Choice | Noul | Score):
        codes = option_codes(num_options(question) + slot)
        if silent:
            return codes[-1]
        if isinstance(question, Noul):
            return "A" if answer["noul"] >= 0.5 else "B"
        if isinstance(question, Choice):
            labels = [option.label for option in question.options]
            return codes[labels.index(answer["choice"])]
        probabilities = [answer["probabilities"][str(i)] for i in range(len(question.levels))]
        return codes[probabilities.index(max(probabilities))]
    return "" if silent else str(answer.get(answer["type"], ""))


def conversation(
    tokenizer: ChatTokenizer, turn: Turn, ask: Ask, num_soft: Mapping[str, int], most: int
) -> Conversation:
    """The prefix of a turn. `num_soft` gives the soft tokens of each picture by its hash and view.

    Raises RunTooLong for more than `most` tokens, and NoConversation.
    """
    between = tokenizer.marks.between
    if between is None:
        raise NoConversation("the checkpoint's chat template has no second turn, so it cannot hold a session")
    made = _Run(most)
    made.add(tokenizer.marks.header)
    if turn.base is not None:
        made.add_run(content_run(tokenizer, turn.base, {}, most), {})
    for exchange in turn.history:
        pictures = exchange.ask.pictures
        soft = {key: num_soft[name] for key, name in pictures.items()}
        if exchange.ask.state is not None:
            made.add_run(content_run(tokenizer, exchange.ask.state, soft, most), pictures)
        for question, answer in zip(exchange.ask.questions, exchange.said, strict=True):
            if answer is None:
                continue
            made.add_run(branch_run(tokenizer, question, soft, most, question.asking.cannot_tell), pictures)
            made.add((*tokenizer.encode(answer), *between))
    kept = len(made.ids)
    if ask.state is not None:
        soft = {key: num_soft[name] for key, name in ask.pictures.items()}
        made.add_run(content_run(tokenizer, ask.state, soft, most), ask.pictures)
    run = TokenRun(tuple(made.ids), tuple(made.spans))
    return Conversation(run, len(run.ids) if turn.remember else kept)


class _Run:
    """Token ids and spans that grow part by part."""

    def __init__(self, most: int) -> None:
        self.ids: list[int] = []
        self.spans: list[ImageSpan] = []
        self._most = most

    def add(self, ids: tuple[int, ...]) -> None:
        self.ids += ids
        if len(self.ids) > self._most:
            raise RunTooLong(len(self.ids))

    def add_run(self, run: TokenRun, names: Mapping[str, str]) -> None:
        start = len(self.ids)
        self.spans += [ImageSpan(names[span.key], start + span.start, start + span.end) for span in run.spans]
        self.add(run.ids)

"""A request as the scheduler sees it: one prefix, and the questions behind it, each with a branch or more.

It holds state and says what is left to do; who runs is the scheduler's to decide.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from photocall.answers import Refusal
from photocall_engine.branch import Branch as Branch
from photocall_engine.branch import Sequence as Sequence
from photocall_engine.edges import EngineRequest
from photocall_engine.inquiry import Inquiry
from photocall_engine.prefix_cache import CHECKPOINT_EVERY, PageKeys, PictureSpan
from photocall_engine.rows import PAGE_SIZE
from photocall_engine.runner import PatchImage


@dataclass(slots=True)
class Times:
    """When a request reached each stage, on the engine's clock. Filled by the scheduler; None: not yet."""

    admitted: float | None = None
    prefilled: float | None = None  # every question has been read once


@dataclass(slots=True)
class Usage:
    """What a request took. Filled as it runs; rows of a second run after a preemption count again."""

    prompt_rows: int = 0
    decode_rows: int = 0
    cached_rows: int = 0  # positions of the prefix that were not computed at its first run
    steps: int = 0

    def add(self, rows: int, prompt_rows: int) -> None:
        """Rows that have run, so many of them in front of an answer."""
        self.prompt_rows += prompt_rows
        self.decode_rows += rows - prompt_rows


class Request:
    """One request inside the engine."""

    def __init__(
        self,
        origin: EngineRequest,
        prefix: Sequence,
        inquiries: list[Inquiry],
        keys: PageKeys,
        hold_at: int | None = None,
        refused: Mapping[str, Refusal] | None = None,
    ) -> None:
        self.origin = origin
        self.prefix = prefix
        self.inquiries = inquiries
        self.branches = [branch for inquiry in inquiries for branch in inquiry.branches]
        self.keys = keys
        self.hold_at = hold_at  # where the prefix ends that its session holds afterwards; None: no turn
        self.refused = refused or {}  # by name: the questions that have no branch, since nothing could answer them
        self._asks = {branch: inquiry for inquiry in inquiries for branch in inquiry.branches}
        self._followers: defaultdict[str, list[Inquiry]] = defaultdict(list)  # by the question that they come after
        for inquiry in inquiries:
            if inquiry.question.asking.after is not None:
                self._followers[inquiry.question.asking.after.question].append(inquiry)
        self._unanswered = set(inquiries)
        for name, answer in self.refused.items():
            self._tell_followers(name, answer)
        self.times = Times()
        self.usage = Usage()
        self.prefix_key = keys.at(prefix.end)
        self.order = -1  # of the first admission
        self.rank = (True, -1)  # seniority, filled by `admit`: class, then order
        self.failures = 0  # steps that raised while it took part
        self.state_read = 0  # tokens of the prefix that every question was read behind: filled with `times.prefilled`
        self.told = 0  # answers whose event has been published: filled by the engine
        self.left = False  # it has its outcome: set by the scheduler, and what a step still brings is thrown away
        self.error: Exception | None = None  # what a reader of it raised: filled by the scheduler

    def admit(self, order: int) -> None:
        """Its first admission."""
        self.order, self.rank = order, (self.origin.priority != "interactive", order)

    @property
    def job_id(self) -> str:
        return self.origin.job_id

    @property
    def input_tokens(self) -> int:
        """Of the state and of every question asked, in each of its orders."""
        return len(self.prefix.tokens) + sum(branch.question_tokens for branch in self.branches if branch.counts)

    @property
    def image_tokens(self) -> int:
        """Those of them that stand for pictures."""
        asked = [self.prefix, *(branch.base for branch in self.branches if branch.counts)]
        return sum(span.end - span.start for sequence in asked for span in sequence.spans)

    @property
    def done(self) -> bool:
        return not self._unanswered

    @property
    def num_answered(self) -> int:
        return len(self.inquiries) - len(self._unanswered)

    def took(self, branch: Branch) -> None:
        """A branch is done: its question may be answered by it, and others then be asked, or not."""
        inquiry = self._asks[branch]
        inquiry.took()
        if inquiry.answer is not None:
            self._unanswered.discard(inquiry)
            self._tell_followers(inquiry.question.name, inquiry.answer)

    def _tell_followers(self, name: str, answer: Mapping[str, Any]) -> None:
        told = [(name, answer)]
        while told:
            name, answer = told.pop()
            for follower in self._followers[name]:
                follower.follow(name, answer)
                if follower.answer is not None:
                    self._unanswered.discard(follower)
                    told.append((follower.question.name, follower.answer))

    def sequences(self) -> Iterator[Sequence]:
        """Every sequence, parents first."""
        yield self.prefix
        for branch in self.branches:
            yield branch.base
            yield from branch.forks

    def pending(self) -> Iterator[tuple[Branch, Sequence]]:
        """Sequences behind the prefix that still need rows, parents first."""
        for branch in self.branches:
            for sequence in branch.pending():
                yield branch, sequence

    def picture(self, span: PictureSpan) -> PatchImage:
        """The patches behind a span."""
        return self.origin.images[span.key.partition(":")[0]]

    def checkpoints(self, start: int, end: int, bidirectional: bool) -> list[int]:
        """Positions in (start, end] of the prefix where its window is worth keeping.

        Each picture's start (another picture may follow the same words) and end, the branch point, what a session
        is to hold, and every CHECKPOINT_EVERY tokens outside bidirectional spans.
        """
        spans = self.prefix.spans
        regular = list(range(CHECKPOINT_EVERY, end + 1, CHECKPOINT_EVERY))
        if bidirectional:
            regular = [p for p in regular if not any(span.start < p < span.end for span in spans)]
        starts = [span.start for span in spans if span.start >= PAGE_SIZE]  # a shorter hit is not worth its page
        wanted = {*regular, *starts, *(span.end for span in spans), self.prefix.end}
        if self.hold_at is not None:
            wanted.add(self.hold_at)
        return [position for position in wanted if start < position <= end]

    def body(self, model: str) -> dict[str, Any]:
        """The response body, once every question is answered."""
        found = {inquiry.question.name: inquiry.answer for inquiry in self.inquiries} | dict(self.refused)
        answers = {question.name: found[question.name] for question in self.origin.ask.questions}
        usage = {
            "input_tokens": self.input_tokens,
            "output_tokens": sum(branch.reader.output_tokens for branch in self.branches if branch.counts),
            "image_tokens": self.image_tokens,
            **asdict(self.usage),
        }
        return {"model": model, "answers": answers, "usage": usage}

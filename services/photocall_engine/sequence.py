"""A request as the scheduler sees it: one prefix, and a question branch or more behind it.

A `Sequence` is a run of own tokens behind its parent's: the prefix stands on nothing, a question on the prefix, a fork
(a second letter, a beginning of a number) on its question. Where a parent's last page is only partly filled, each child
has a private copy of it. This file holds state and says what is left to do; who runs is the scheduler's to decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from photocall.answers import Refusal
from photocall.questions import Question
from photocall_engine.edges import EngineRequest
from photocall_engine.prefix_cache import CHECKPOINT_EVERY, PageKeys, PictureSpan
from photocall_engine.readout import Floats, Path, Read, Reader
from photocall_engine.rows import PAGE_SIZE
from photocall_engine.runner import PatchImage
from photocall_engine.window import BlockTable


class Sequence:
    """Own tokens at positions [start, end) behind the parent's, of which the first `computed` have their K/V.

    The tokens behind the first `known` are being picked on the device: one while a step is planned, and never more than
    two. Rows can be planned for them, and nothing else.
    """

    def __init__(
        self,
        parent: Sequence | None,
        tokens: tuple[int, ...],
        spans: tuple[PictureSpan, ...],
        table: BlockTable,
        path: Path = (),
        read: Read | None = None,
    ) -> None:
        self.parent = parent
        self.start = parent.end if parent else 0
        self.tokens = list(tokens)
        self.spans = spans  # at positions of the whole sequence
        self.table = table
        self.path = path  # tokens behind the question, for its reader
        self.read = read  # what to read at the last token; None: nothing (any more)
        self.computed = 0
        self.known = len(self.tokens)
        self.pick = -1  # of a last token that is not known: which of the picks of the step under way it is
        self.question_end = self.end - len(path)  # position behind the question itself
        self.tail_source: int | None = None  # cached page that this one's last page starts as; held until copied

    @property
    def end(self) -> int:
        """Position behind the last token."""
        return self.start + len(self.tokens)

    @property
    def position(self) -> int:
        """Position of the next row."""
        return self.start + self.computed

    @property
    def remaining(self) -> int:
        """Own tokens without K/V."""
        return len(self.tokens) - self.computed

    @property
    def decoding(self) -> bool:
        """Whether there is something of an answer behind the question, be it known or not."""
        return self.end > self.question_end

    @property
    def held_pages(self) -> list[int]:
        """Every page that it reads or will copy."""
        return self.table.pages if self.tail_source is None else [*self.table.pages, self.tail_source]

    @property
    def live(self) -> bool:
        """Whether it holds pages."""
        return bool(self.table.pages)

    def expect(self, pick: int) -> None:
        """It goes on behind what is read at its end now, before the token is known."""
        self.tokens.append(0)
        self.pick = pick

    def extend(self, path: Path, read: Read) -> None:
        """One decoded token more, the last of `path`, whether its place was expected or not."""
        if self.known < len(self.tokens):
            self.tokens[self.known] = path[-1]
        else:
            self.tokens.append(path[-1])
        self.known += 1
        self.path = path
        self.read = read

    def release_tail_source(self) -> None:
        """It is copied, or will not be."""
        if self.tail_source is not None:
            self.table.unhold(self.tail_source)
            self.tail_source = None

    def forget_expected(self) -> None:
        """The steps that would have picked them do not count."""
        del self.tokens[self.known :]

    def chunk(self, limit: int, bidirectional: bool) -> int:
        """Rows of the next chunk, at most `limit`; 0 if the next picture does not fit in.

        Where picture rows see to the end of their picture, a chunk never ends inside one.
        """
        end = min(self.end, self.position + limit)
        if bidirectional:
            end = next((span.start for span in self.spans if span.start < end < span.end), end)
        return max(0, end - self.position)


class Branch:
    """One question under way: its sequence, the forks on it, and the reader they feed."""

    def __init__(self, question: Question, reader: Reader, base: Sequence, trained: bool = True) -> None:
        self.question = question
        self.trained = trained  # whether the model was, for questions of this type
        self.reader = reader
        self.base = base
        self.forks: list[Sequence] = []
        for want in reader.begin():
            if want.path:
                self._fork(want.path, want.read)
            else:
                base.read = want.read

    @property
    def done(self) -> bool:
        """Whether the answer is there."""
        return self.reader.answer is not None

    @property
    def begun(self) -> bool:
        """Whether the question itself has been read."""
        return self.base.read is None or bool(self.base.path)

    def answer(self) -> Mapping[str, Any]:
        """The wire's answer; once `done`."""
        assert self.reader.answer is not None, "read to its end"
        return self.reader.answer if self.trained else {**self.reader.answer, "answer_status": "untrained"}

    def pending(self) -> list[Sequence]:
        """Sequences that still need rows, parents first."""
        if self.done:
            return []
        base = self.base
        if base.remaining and (base.read is not None or self.forks):
            return [base, *self.forks]
        return [fork for fork in self.forks if fork.remaining]

    def expect(self, sequence: Sequence, pick: int) -> None:
        """A token is being picked at the end of this sequence: unless the answer ends with it, the text goes on."""
        if sequence.end - sequence.question_end < self.reader.longest():
            sequence.expect(pick)

    def take(self, sequence: Sequence, values: Floats) -> None:
        """What was read at the end of one of this branch's sequences; those no longer needed give up their pages."""
        sequence.read = None
        for want in self.reader.take(sequence.path, values):
            if want.extends:
                sequence.extend(want.path, want.read)
            else:
                self._fork(want.path, want.read)
        if sequence is not self.base:
            self.forks.remove(sequence)
            sequence.table.release()
        if self.done:
            self.base.table.release()

    def _fork(self, path: Path, read: Read) -> None:
        self.forks.append(Sequence(self.base, path, (), self.base.table.sibling(), path, read))


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
        branches: list[Branch],
        keys: PageKeys,
        hold_at: int | None = None,
        refused: Mapping[str, Refusal] | None = None,
    ) -> None:
        self.origin = origin
        self.prefix = prefix
        self.branches = branches
        self.keys = keys
        self.hold_at = hold_at  # where the prefix ends that its session holds afterwards; None: no turn
        self.refused = refused or {}  # by name: the questions that have no branch, since nothing could answer them
        self.times = Times()
        self.usage = Usage()
        self.prefix_key = keys.at(prefix.end)
        self.input_tokens = len(prefix.tokens) + sum(len(branch.base.tokens) for branch in branches)
        self.image_tokens = sum(span.end - span.start for sequence in self.sequences() for span in sequence.spans)
        self.order = -1  # of the first admission
        self.rank = (True, -1)  # seniority, filled by `admit`: class, then order
        self.failures = 0  # steps that raised while it took part
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
    def done(self) -> bool:
        return all(branch.done for branch in self.branches)

    @property
    def num_answered(self) -> int:
        return sum([branch.reader.answer is not None for branch in self.branches])

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
        found = {**{branch.question.name: branch.answer() for branch in self.branches}, **self.refused}
        answers = {question.name: found[question.name] for question in self.origin.ask.questions}
        usage = {
            "input_tokens": self.input_tokens,
            "output_tokens": sum(branch.reader.output_tokens for branch in self.branches),
            "image_tokens": self.image_tokens,
            **asdict(self.usage),
        }
        return {"model": model, "answers": answers, "usage": usage}

"""A sequence of tokens behind its parent's, and a branch: one question under way on it.

The prefix of a request stands on nothing, a question on the prefix, a fork (a second letter, a beginning of a number)
on its question. Where a parent's last page is only partly filled, each child has a private copy of it. This file holds
state and says what is left to do; who runs is the scheduler's to decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from photocall.questions import Question
from photocall_engine.prefix_cache import PictureSpan
from photocall_engine.reading import Floats, Path, Read, Reader
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

    def __init__(self, question: Question, reader: Reader, base: Sequence, variant: int = 0) -> None:
        self.question = question
        self.variant = variant  # which of the orders of its options this is
        self.asleep = False  # not to run before its inquiry says so
        self.skipped = False  # never to run: its answer is not needed
        self.reader = reader
        self.base = base
        self.question_tokens = len(base.tokens)
        self.forks: list[Sequence] = []
        for want in reader.begin():
            if want.path:
                self._fork(want.path, want.read)
            else:
                base.read = want.read

    @property
    def done(self) -> bool:
        """Whether the answer is there."""
        return self.skipped or self.reader.answer is not None

    @property
    def counts(self) -> bool:
        """Whether it has been asked, or will be for all that is known."""
        return not (self.asleep or self.skipped)

    @property
    def begun(self) -> bool:
        """Whether the question itself has been read."""
        return self.base.read is None or bool(self.base.path)

    def answer(self) -> Mapping[str, Any]:
        """The wire's answer; once `done`."""
        assert self.reader.answer is not None, "read to its end"
        return self.reader.answer

    def skip(self) -> None:
        """Its answer will not be needed. It has not run yet, and holds nothing."""
        self.asleep, self.skipped, self.base.read = False, True, None

    def pending(self) -> list[Sequence]:
        """Sequences that still need rows, parents first."""
        if self.done or self.asleep:
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

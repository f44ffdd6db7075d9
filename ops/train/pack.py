"""One request as one packed row: its prefix once, each question as a branch, and where answers are predicted.

The prompt is the one that serving uses (`photocall_engine.prompt`); a letter is one token, a number its digits and the
end of the turn, a text its characters one by one and the end of the turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ops.train.asker import Answer, Asked
from ops.train.model import SUB
from ops.train.requests import Request
from photocall.questions import Box, Choice, Noul, Question, Score, Text
from photocall_engine.box_reader import MARKS
from photocall_engine.prompt import TokenRun, branch_run, option_codes, prefix_run
from photocall_engine.tokenizer import LETTERS, ChatTokenizer

Int32 = NDArray[np.int32]


@dataclass(slots=True)
class PackedRows:
    """Arrays of R requests, to be filled row by row; the fields are those of `model.Packed`."""

    tokens: Int32  # [R, L]
    pos: Int32  # [R, L]
    segment: Int32  # [R, L]
    reach: Int32  # [R, L]
    soft: Int32  # [R, L]
    place: Int32  # [R, A]
    target: Int32  # [R, A]
    weight: NDArray[np.float32]  # [R, A]

    @staticmethod
    def empty(rows: int, length: int, answers: int) -> PackedRows:
        long = np.zeros((5, rows, length), np.int32)
        short = np.zeros((2, rows, answers), np.int32)
        weight = np.zeros((rows, answers), np.float32)
        return PackedRows(long[0], long[1], long[2], long[3], long[4], short[0], short[1], weight)

    def clear(self) -> None:
        """Nothing but padding."""
        for array in (self.tokens, self.pos, self.reach, self.place, self.weight):
            array.fill(0)
        for array in (self.segment, self.soft):
            array.fill(-1)
        self.target.fill(-100)
        self.reach.fill(1)


def answer_ids(
    tokenizer: ChatTokenizer, question: Question, answer: Answer, slot: bool = False
) -> tuple[list[int], list[float]]:
    """Token ids of the right answer, and how much each counts; of a box only what tells whether it is there.

    None is "cannot tell": the slot behind the options (`slot`), or the end of the turn where a question has none.
    """
    letters = dict(zip(LETTERS, tokenizer.letters, strict=True))
    if isinstance(question, Choice | Noul | Score):
        labels: list[object] = [True, False]
        if isinstance(question, Choice):
            labels = [option.label for option in question.options]
        elif isinstance(question, Score):
            labels = list(range(len(question.levels)))
        index = len(labels) if answer is None else labels.index(answer)
        ids = [letters[letter] for letter in option_codes(len(labels) + slot)[index]]
        return ids, [1.0] * len(ids)
    if answer is None:
        return [tokenizer.end], [1.0]
    if isinstance(question, Box):
        return [tokenizer.single(MARKS[0])], [0.5]
    ids = [token for char in str(answer) for token in tokenizer.encode(char)]
    each = 0.5 if isinstance(question, Text) else 1.0
    return [*ids, tokenizer.end], [*([each] * len(ids)), 0.5]


def edge_ids(tokenizer: ChatTokenizer, answer: Answer) -> list[list[int]]:
    """A box's edges as the engine reads them: a letter and the two digits of the hundredth in which the edge lies."""
    if not isinstance(answer, tuple):
        return []
    hundredths = [min(99, max(0, int(edge * 100))) for edge in answer]
    return [[tokenizer.single(c) for c in f"{mark}{at:02}"] for mark, at in zip(MARKS, hundredths, strict=True)]


class Packer:
    """Fills rows of one length."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self._tokenizer = tokenizer

    def fill(
        self, rows: PackedRows, row: int, request: Request, soft: Mapping[str, int], base: Mapping[str, int]
    ) -> list[tuple[Asked, int]]:
        """Pack a request into a row, as many of its questions as fit, each with the number of its answer places.

        `base` is each picture's first soft row.
        """
        length, room = rows.tokens.shape[1], rows.place.shape[1]
        prefix = prefix_run(self._tokenizer, request.state, soft)
        end = len(prefix.ids)
        if end >= length:
            raise ValueError(f"a prefix of {end} tokens does not fit a row of {length}")
        self._write(rows, row, 0, 0, 0, prefix, prefix.ids, base)
        at, used, taken = end, 0, []
        for asked in request.asked:
            run = branch_run(self._tokenizer, asked.question, soft, cannot_tell=asked.slot)
            ids, weights = answer_ids(self._tokenizer, asked.question, asked.answer, asked.slot)
            edges = edge_ids(self._tokenizer, asked.answer)
            whole = (*run.ids, *ids[:-1])
            if at + len(whole) + 2 * len(edges) > length or used + len(ids) + 2 * len(edges) > room:
                continue
            taken.append((asked, len(ids) + 2 * len(edges)))
            segment = SUB * len(taken)
            self._write(rows, row, at, end, segment, run, whole, base)
            self._expect(rows, row, used, at + len(run.ids) - 1, ids, weights)
            at, used = at + len(whole), used + len(ids)
            for number, (mark, first, second) in enumerate(edges, start=1):
                bare = TokenRun((mark, first), ())
                self._write(rows, row, at, end + len(run.ids), segment + number, bare, bare.ids, base)
                self._expect(rows, row, used, at, [first, second], [0.7, 0.5])
                at, used = at + 2, used + 2
        return taken

    @staticmethod
    def _expect(rows: PackedRows, row: int, used: int, first: int, ids: list[int], weights: list[float]) -> None:
        """From the token at `first` on, these follow one another."""
        span = slice(used, used + len(ids))
        rows.place[row, span] = range(first, first + len(ids))
        rows.target[row, span] = ids
        rows.weight[row, span] = weights

    @staticmethod
    def _write(
        rows: PackedRows,
        row: int,
        at: int,
        start: int,
        segment: int,
        run: TokenRun,
        ids: tuple[int, ...],
        base: Mapping[str, int],
    ) -> None:
        span = slice(at, at + len(ids))
        rows.tokens[row, span] = ids
        rows.pos[row, span] = np.arange(start, start + len(ids))
        rows.reach[row, span] = rows.pos[row, span] + 1
        rows.segment[row, span] = segment
        for image in run.spans:
            where = slice(at + image.start, at + image.end)
            rows.reach[row, where] = start + image.end
            rows.soft[row, where] = base[image.key] + np.arange(image.end - image.start)

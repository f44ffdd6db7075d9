"""One step: the rows of many sequences as a RowBatch, with what must happen before it and who is read after it.

A `Draft` collects parts while the scheduler decides; `build` turns them into arrays. Rows carry K/V to one slot each;
the rows of a parent's last page go to its children's private copies too, by extra slots where they are in this step and
by a page copy where they were written before. This file decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from photocall_engine.asked import Asked
from photocall_engine.rows import PAGE_SIZE, Ints, RowBatch, ints
from photocall_engine.runner import PatchImage
from photocall_engine.sequence import Branch, Request, Sequence


@dataclass(slots=True, eq=False)
class Part:
    """The next `rows` rows of one sequence; `branch` is None for a prefix. Never changed, but made by the hundred."""

    request: Request
    branch: Branch | None
    sequence: Sequence
    rows: int
    end: int  # position behind the last of them

    @property
    def prompt_rows(self) -> int:
        """How many of them are in front of an answer."""
        before = self.sequence.question_end - self.end + self.rows
        return min(before, self.rows) if before > 0 else 0

    @property
    def counts(self) -> bool:
        """Whether somebody still needs it."""
        return not self.request.left and (self.branch is None or not self.branch.done)

    @property
    def awaited(self) -> bool:
        """Whether what was read at its end is news: nobody has brought it before, and somebody waits for it."""
        sequence = self.sequence
        return sequence.read is not None and self.end == sequence.start + sequence.known


@dataclass(frozen=True, slots=True)
class Step:
    """What the runner is told, in this order: map changes, pictures, page copies, the batch; then the reads."""

    number: int  # ascending, in the order of planning
    parts: list[Part]
    map_changes: tuple[Ints, Ints]  # pages and their sliding pages; filled by the scheduler from the pools
    encode: list[tuple[str, PatchImage, int]]  # picture key, picture, first arena row
    pinned: list[str]  # keys of pictures whose arena rows this step reads
    copy_from: Ints
    copy_to: Ints
    batch: RowBatch
    readers: list[Part]  # who reads row batch.read[i]
    asked: Asked  # and what
    requests: list[Request]  # everyone who takes part


@dataclass(slots=True)
class Draft:
    """A step being planned, within `left` more rows."""

    left: int
    parts: dict[Sequence, Part] = field(default_factory=dict)
    pictures: dict[str, int] = field(default_factory=dict)  # arena row by key, each pinned once
    encode: list[tuple[str, PatchImage, int]] = field(default_factory=list)
    encoded: int = 0  # soft tokens of these

    def add(self, part: Part) -> None:
        """Its pages are there and its pictures are pinned."""
        self.parts[part.sequence] = part
        self.left -= part.rows

    def remove(self, sequence: Sequence) -> None:
        """It lost its pages while the step was being planned."""
        part = self.parts.pop(sequence, None)
        if part is not None:
            self.left += part.rows

    def unplanned(self, sequence: Sequence) -> int:
        """Rows that will be missing even after this step."""
        part = self.parts.get(sequence)
        return sequence.remaining - (part.rows if part else 0)

    def build(self, number: int, map_changes: tuple[Ints, Ints], bidirectional: bool) -> Step:
        """Fix the arrays. At least one part."""
        return _Builder(self, bidirectional).step(number, map_changes)


class _Builder:
    def __init__(self, draft: Draft, bidirectional: bool) -> None:
        self._draft = draft
        self._bidirectional = bidirectional
        self._first_row: dict[Sequence, int] = {}
        self._copies: list[tuple[int, int]] = []
        self._extra: list[tuple[int, int]] = []  # row, slot

    def step(self, number: int, map_changes: tuple[Ints, Ints]) -> Step:
        parts = list(self._draft.parts.values())
        first_row, num_rows = self._first_row, 0
        for part in parts:
            first_row[part.sequence] = num_rows
            num_rows += part.rows
        tokens, pos, slot, seen, soft = np.empty((5, num_rows), dtype=np.int32)
        soft.fill(-1)
        tables, lengths, readers, asked, read = [], [], [], [], []
        decodes: list[int] = []  # rows of parts of one row ...
        columns: tuple[list[int], list[int], list[int]] = ([], [], [])  # ... their tokens, positions and slots
        unknown: list[tuple[int, int]] = []  # row, pick
        row = 0
        for part in parts:
            sequence, end, rows = part.sequence, part.end, part.rows
            own, computed, pages = sequence.tokens, sequence.computed, sequence.table.pages
            needed = (end + PAGE_SIZE - 1) // PAGE_SIZE
            if len(pages) != needed:
                pages = pages[:needed]
            tables.append(pages)
            lengths.append(needed)
            if computed + rows == len(own):
                if sequence.read is not None:
                    readers.append(part)
                    asked.append(sequence.read)
                    read.append(row + rows - 1)
                if sequence.known < len(own):
                    unknown.append((row + rows - 1, sequence.pick))
            if not computed or sequence.tail_source is not None:
                self._fill_tail(sequence)
            if rows == 1 and not sequence.spans:
                decodes.append(row)
                columns[0].append(own[computed])
                columns[1].append(end - 1)
                columns[2].append(pages[-1] * PAGE_SIZE + (end - 1) % PAGE_SIZE)
            else:
                at = slice(row, row + rows)
                self._fill(part, pages, tokens[at], pos[at], slot[at], seen[at], soft[at])
            row += rows
        if decodes:
            tokens[decodes], pos[decodes], slot[decodes] = columns
            seen[decodes] = pos[decodes] + 1
        offsets = np.cumsum(lengths, dtype=np.int32) - ints(lengths)
        batch = RowBatch(
            tokens=tokens,
            pos=pos,
            slot=slot,
            bt_off=offsets if num_rows == len(parts) else np.repeat(offsets, [part.rows for part in parts]),
            kv_hi=pos + 1,
            kv_hi_sliding=seen,
            block_tables=np.fromiter(chain.from_iterable(tables), np.int32, sum(lengths)),
            extra_row=ints([row for row, _ in self._extra]),
            extra_slot=ints([slot for _, slot in self._extra]),
            soft_idx=soft,
            read=ints(read),
            decode=num_rows == len(parts) == len(readers),
            from_row=ints([row for row, _ in unknown]),
            from_pick=ints([pick for _, pick in unknown]),
        )
        return Step(
            number=number,
            parts=parts,
            map_changes=map_changes,
            encode=self._draft.encode,
            pinned=list(self._draft.pictures),
            copy_from=ints([source for source, _ in self._copies]),
            copy_to=ints([target for _, target in self._copies]),
            batch=batch,
            readers=readers,
            asked=Asked(asked),
            requests=list(dict.fromkeys(part.request for part in parts)),
        )

    def _fill(self, part: Part, pages: list[int], tokens: Ints, pos: Ints, slot: Ints, seen: Ints, soft: Ints) -> None:
        """Write one part's rows into its places of the columns."""
        sequence = part.sequence
        start, end = sequence.position, sequence.position + part.rows
        tokens[:] = sequence.tokens[sequence.computed : sequence.computed + part.rows]
        pos[:] = np.arange(start, end)
        first = start // PAGE_SIZE  # index of the first page that it writes
        slot[:] = ints(pages[first:])[pos // PAGE_SIZE - first] * PAGE_SIZE + pos % PAGE_SIZE
        seen[:] = pos + 1
        for span in sequence.spans:
            low, high = max(start, span.start), min(end, span.end)
            if low < high:
                arena = self._draft.pictures[span.key] + low - span.start
                soft[low - start : high - start] = np.arange(arena, arena + high - low)
                if self._bidirectional:
                    seen[low - start : high - start] = span.end

    def _fill_tail(self, sequence: Sequence) -> None:
        """Bring what stands in front of the sequence's first row on the same page into its own page."""
        if sequence.tail_source is not None:
            self._copies.append((sequence.tail_source, sequence.table.pages[sequence.position // PAGE_SIZE]))
        page, fill = divmod(sequence.start, PAGE_SIZE)
        if sequence.computed or not fill:
            return
        own = sequence.table.pages[page]
        written = sequence.start - fill
        ancestor = sequence.parent
        while ancestor is not None and not _has_written(ancestor, page):
            ancestor = ancestor.parent
        if ancestor is not None:
            self._copies.append((_written_page(ancestor, page), own))
            written = min(ancestor.position, sequence.start)
        for position in range(written, sequence.start):
            self._extra.append((self._row_of(sequence, position), own * PAGE_SIZE + position % PAGE_SIZE))

    def _row_of(self, sequence: Sequence, position: int) -> int:
        """The row of this step that an ancestor has at this position."""
        ancestor = sequence.parent
        while ancestor is not None and position < ancestor.start:
            ancestor = ancestor.parent
        assert ancestor is not None, "the prefix starts at 0"
        return self._first_row[ancestor] + position - ancestor.position


def _has_written(sequence: Sequence, page: int) -> bool:
    """Whether its page of this index carries everything up to its position already, before this step."""
    if sequence.position <= page * PAGE_SIZE or not sequence.live:
        return False
    return sequence.start <= page * PAGE_SIZE or sequence.computed > 0


def _written_page(sequence: Sequence, page: int) -> int:
    """That page; the cached one where the sequence's own copy is only made in this step."""
    if sequence.tail_source is not None and page == sequence.position // PAGE_SIZE:
        return sequence.tail_source
    return sequence.table.pages[page]

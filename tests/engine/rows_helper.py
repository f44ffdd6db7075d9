"""Plain sequences as RowBatches, without the scheduler: pages are handed out in order and never freed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from photocall_engine.rows import PAGE_SIZE, Ints, RowBatch, ints
from photocall_engine.runner import ModelRunner, PatchImage


@dataclass
class Prompt:
    """Token ids, and where pictures stand: (start, soft tokens, arena row of the first)."""

    tokens: list[int]
    spans: list[tuple[int, int, int]] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)  # filled by Pager


class Pager:
    """Gives every prompt its own pages in both pools of a runner."""

    def __init__(self, runner: ModelRunner, first_page: int = 1) -> None:
        self.runner = runner
        self._next = first_page

    def take(self, count: int) -> list[int]:
        """Fresh pages; the sliding page of each has the same number."""
        pages = list(range(self._next, self._next + count))
        self._next += count
        assert self._next <= self.runner.num_pages
        if self.runner.sliding_pages:
            self.runner.set_sliding_map(ints(pages), ints(pages))
        return pages

    def place(self, prompt: Prompt) -> Prompt:
        """Pages for the whole prompt."""
        prompt.pages = self.take(-(-len(prompt.tokens) // PAGE_SIZE))
        return prompt

    def branch(self, prefix: Prompt, tail: list[int]) -> Prompt:
        """A prompt that shares the prefix's full pages and owns the rest; see `extra_writes`."""
        full = len(prefix.tokens) // PAGE_SIZE
        tokens = prefix.tokens + tail
        return Prompt(tokens, prefix.spans, prefix.pages[:full] + self.take(-(-len(tokens) // PAGE_SIZE) - full))


def put_images(runner: ModelRunner, images: Sequence[PatchImage]) -> list[int]:
    """Encode images one after another into the arena; their first rows."""
    bases = list(itertools.accumulate([0] + [image.num_soft for image in images]))[:-1]
    runner.encode_images(images, bases)
    return bases


def rows(
    runner: ModelRunner,
    parts: Sequence[tuple[Prompt, int, int]],
    read: Sequence[int] | None = None,
    extra: Sequence[tuple[int, int]] = (),
) -> RowBatch:
    """One batch of positions [start, end) of several prompts. `read` defaults to every row; `extra` is (row, slot)."""
    tokens, pos, slot, bt_off, hi, soft, tables = ([] for _ in range(7))
    offset = 0
    for prompt, start, end in parts:
        tables.append(prompt.pages)
        positions = range(start, end)
        tokens.append(prompt.tokens[start:end])
        pos.append(list(positions))
        slot.append([prompt.pages[p // PAGE_SIZE] * PAGE_SIZE + p % PAGE_SIZE for p in positions])
        bt_off.append([offset] * len(positions))
        spans = [_span(prompt, p) for p in positions]
        ends = [p + 1 if span is None else span[0] + span[1] for p, span in zip(positions, spans, strict=True)]
        hi.append(ends if runner.bidirectional_images else [p + 1 for p in positions])
        soft.append([-1 if s is None else s[2] + p - s[0] for p, s in zip(positions, spans, strict=True)])
        offset += len(prompt.pages)
    total = sum(len(part) for part in pos)
    return RowBatch(
        tokens=concat_ints(tokens),
        pos=concat_ints(pos),
        slot=concat_ints(slot),
        bt_off=concat_ints(bt_off),
        kv_hi=concat_ints(pos) + np.int32(1),
        kv_hi_sliding=concat_ints(hi),
        block_tables=concat_ints(tables),
        extra_row=np.asarray([row for row, _ in extra], dtype=np.int32),
        extra_slot=np.asarray([to for _, to in extra], dtype=np.int32),
        soft_idx=concat_ints(soft),
        read=np.asarray(range(total) if read is None else read, dtype=np.int32),
        decode=all(end - start == 1 for _, start, end in parts),
    )


def logits(runner: ModelRunner, batch: RowBatch) -> NDArray[np.float32]:
    """Full logits of every read row after one forward."""
    runner.forward(batch)
    return runner.logits_rows(np.arange(len(batch.read), dtype=np.int32))


def prefill(runner: ModelRunner, prompt: Prompt, cuts: Sequence[int] = ()) -> NDArray[np.float32]:
    """Full logits of every position, the prompt arriving in pieces that end at `cuts`."""
    edges = [0, *cuts, len(prompt.tokens)]
    pieces = [logits(runner, rows(runner, [(prompt, a, b)])) for a, b in itertools.pairwise(edges)]
    return np.concatenate(pieces)


def _span(prompt: Prompt, position: int) -> tuple[int, int, int] | None:
    return next((span for span in prompt.spans if span[0] <= position < span[0] + span[1]), None)


def concat_ints(parts: list[list[int]]) -> Ints:
    """Many lists of ints as one int32 array."""
    return np.asarray([value for part in parts for value in part], dtype=np.int32)

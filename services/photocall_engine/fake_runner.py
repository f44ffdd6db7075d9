"""FakeRunner: a model without tensors that knows whose history every row sees.

Each slot of the full pool and of the sliding pool remembers what was written there: the position, and a hash chained
over every token (or soft token) up to it. A forward checks that what each row sees, on both kinds of layers, is one
unbroken chain from position 0; a wrong page, an unfilled tail or a lost window breaks it and raises `WrongHistory`.
Logits are drawn from the hash, so an answer depends on the whole visible history and on nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from photocall_engine.greedy import pick_rows
from photocall_engine.reads import Reads, Values
from photocall_engine.rows import PAGE_SIZE, Ints, RowBatch
from photocall_engine.runner import Arithmetic, DeviceLost, PatchImage

SEED = np.uint64(0x9E3779B97F4A7C15)
Entries = NDArray[np.uint64]  # [slots, 4]: position, hash up to here, hash before it, token id


class WrongHistory(DeviceLost):
    """A row would have seen something other than its own sequence: no later answer could be trusted."""


def chain(before: int, identity: int) -> int:
    """The hash of a history that goes on with one more token or soft token."""
    return int.from_bytes(hashlib.blake2b(b"%d,%d" % (before, identity), digest_size=8).digest(), "little")


def soft_identities(image: PatchImage) -> list[int]:
    """What each soft token of a picture adds to the chain."""
    salt = bytes([image.grid_height, image.grid_width])
    digest = hashlib.blake2b(image.patches.tobytes(), digest_size=6, salt=salt).digest()
    first = (1 << 32) + int.from_bytes(digest, "little") * 4096
    return list(range(first, first + image.num_soft))


class FakeRunner:
    """A ModelRunner. `logits(history hash, token ids up to the row)` may replace the drawn logits by a script."""

    _PAGE_BYTES = PAGE_SIZE * 32  # a slot is four 64-bit words

    def __init__(
        self,
        *,
        vocab_size: int,
        num_pages: int = 256,
        sliding_pages: int = 128,
        sliding_window: int = 64,
        bidirectional_images: bool = True,
        max_rows: int = 2048,
        soft_capacity: int = 1024,
        context: int = 4096,
        overlaps: bool = True,
        logits: Callable[[int, list[int]], NDArray[np.float32]] | None = None,
    ) -> None:
        self.num_pages = num_pages
        self.sliding_pages = sliding_pages
        self.sliding_window = sliding_window
        self.bidirectional_images = bidirectional_images
        self.max_rows = max_rows
        self.soft_capacity = soft_capacity
        self.context = context
        self.page_bytes = self.sliding_page_bytes = self._PAGE_BYTES
        self.backend = "fake (no model)"
        table = hashlib.sha256(f"{SEED:x}".encode()).hexdigest()
        self.arithmetic = Arithmetic("invariant", "fake (drawn from a hash)", table, "none", None, "none", None)
        self.overlaps = overlaps  # as a GPU does, though nothing takes time here
        self.vocab_size = vocab_size
        self._allowed = np.ones(vocab_size, dtype=np.bool_)
        self.batches: list[RowBatch] = []  # every forward, for tests to look at
        self.encoded = 0  # pictures that went through the tower
        self._logits = logits
        self._map = np.zeros(num_pages, dtype=np.int32)
        self._full: Entries = np.zeros((num_pages * PAGE_SIZE, 4), dtype=np.uint64)
        self._sliding: Entries = np.zeros(((sliding_pages + 1) * PAGE_SIZE, 4), dtype=np.uint64)
        self._arena = np.zeros(soft_capacity, dtype=np.uint64)
        self._read: list[tuple[int, list[int]]] = []
        self._picked: Ints = np.zeros(0, dtype=np.int32)  # of the last `read`

    def encode_images(self, images: Sequence[PatchImage], bases: Sequence[int]) -> None:
        for image, base in zip(images, bases, strict=True):
            if image.patches.shape != (image.grid_height * image.grid_width, 768):
                raise ValueError(
                    f"patches of shape {image.patches.shape} for a {image.grid_height} x {image.grid_width}"
                )
            self.encoded += 1
            self._arena[base : base + image.num_soft] = soft_identities(image)

    def set_sliding_map(self, pages: Ints, sliding: Ints) -> None:
        if sliding[pages == 0].any():
            raise WrongHistory("the scratch page is mapped to a sliding page")
        self._map[pages] = sliding

    def copy_pages(self, src: Ints, dst: Ints) -> None:
        if set(src.tolist()) & set(dst.tolist()):
            raise WrongHistory("a page is copied from and to in one call")
        for pool, sources, targets in ((self._full, src, dst), (self._sliding, self._map[src], self._map[dst])):
            for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
                if pool is self._sliding and not self.sliding_pages:
                    continue
                if source == 0 or target == 0:
                    raise WrongHistory("a page without a sliding page, or the scratch page, is copied")
                pool[target * PAGE_SIZE : (target + 1) * PAGE_SIZE] = pool[
                    source * PAGE_SIZE : (source + 1) * PAGE_SIZE
                ]

    def forward(self, batch: RowBatch) -> None:
        if batch.num_rows > self.max_rows:
            raise ValueError(f"{batch.num_rows} rows, at most {self.max_rows}")
        mapped = self._map[self._map > 0]
        if len(np.unique(mapped)) != len(mapped):
            raise WrongHistory("two pages share one sliding page")
        if len(batch.from_row):
            if batch.from_pick.min() < 0 or batch.from_pick.max() >= len(self._picked):
                raise WrongHistory("a row's token is none of those picked last")
            batch = replace(batch, tokens=batch.tokens.copy())
            batch.tokens[batch.from_row] = self._picked[batch.from_pick]
        self.batches.append(batch)
        extra: dict[int, list[int]] = {}
        for row, slot in zip(batch.extra_row.tolist(), batch.extra_slot.tolist(), strict=True):
            extra.setdefault(row, []).append(slot)
        written: set[int] = set()
        for row in np.argsort(batch.pos, kind="stable").tolist():
            entry = self._entry(batch, row)
            for slot in [int(batch.slot[row]), *extra.get(row, ())]:
                if slot < PAGE_SIZE or slot in written:
                    raise WrongHistory(f"slot {slot} is scratch or written twice")
                written.add(slot)
                self._full[slot] = entry
                if self.sliding_pages:
                    self._sliding[self._map[slot // PAGE_SIZE] * PAGE_SIZE + slot % PAGE_SIZE] = entry
        self._check_what_rows_see(batch)
        if not np.all(np.diff(batch.read) > 0):
            raise ValueError("read rows are not ascending")
        self._read = [self._history(batch, row) for row in batch.read.tolist()]

    def letter_logits(self, rows: Ints, label_ids: Ints) -> NDArray[np.float32]:
        return self.logits_rows(rows)[:, label_ids]

    def logits_rows(self, rows: Ints) -> NDArray[np.float32]:
        found = [self._row_logits(*self._read[row]) for row in rows.tolist()]
        return np.stack(found) if found else np.zeros((0, self.vocab_size), np.float32)

    def argmax_rows(self, rows: Ints, exclude: Sequence[Sequence[int]]) -> Ints:
        logits = self.logits_rows(rows)
        for row, ids in zip(logits, exclude, strict=True):
            row[list(ids)] = -np.inf
        return np.asarray(logits.argmax(axis=1), dtype=np.int32)

    def may_say(self, allowed: NDArray[np.bool_]) -> None:
        self._allowed = allowed

    def read(self, reads: Reads) -> Values:
        self._picked, logprobs = pick_rows(self.logits_rows(reads.greedy), self._allowed)
        letters = self.letter_logits(reads.letters, reads.label_ids)
        return Values(letters, self._picked, logprobs, self.logits_rows(reads.whole))

    def collect(self, reading: object) -> Values:
        assert isinstance(reading, Values), "what `read` gave"
        return reading

    def enable_graphs(self) -> bool:
        return False

    def sync(self) -> None:
        pass

    def _row_logits(self, history: int, tokens: list[int]) -> NDArray[np.float32]:
        if self._logits is not None:
            return self._logits(history, tokens)
        return drawn_logits(history, self.vocab_size)

    def _slots(self, batch: RowBatch, row: int, low: int, high: int) -> NDArray[np.int64]:
        positions = np.arange(low, high)
        pages = batch.block_tables[batch.bt_off[row] + positions // PAGE_SIZE]
        return np.asarray(pages.astype(np.int64) * PAGE_SIZE + positions % PAGE_SIZE)

    def _entry(self, batch: RowBatch, row: int) -> tuple[int, int, int, int]:
        position, token, soft = int(batch.pos[row]), int(batch.tokens[row]), int(batch.soft_idx[row])
        if int(self._slots(batch, row, position, position + 1)[0]) != int(batch.slot[row]):
            raise WrongHistory(f"row {row} is not written where its block table reads position {position}")
        before = int(SEED)
        if position:
            last = self._full[self._slots(batch, row, position - 1, position)[0]]
            if int(last[0]) != position - 1:
                raise WrongHistory(f"position {position} follows one that holds position {int(last[0])}")
            before = int(last[1])
        identity = token if soft < 0 else int(self._arena[soft])
        return position, chain(before, identity), before, token

    def _check_what_rows_see(self, batch: RowBatch) -> None:
        """Once per sequence: rows of one sequence see nested ranges, so the union of them is checked."""
        first = {int(offset): row for row, offset in reversed(list(enumerate(batch.bt_off.tolist())))}
        for offset, row in first.items():
            rows = batch.bt_off == offset
            high = int(batch.kv_hi[rows].max())
            if not np.array_equal(batch.kv_hi[rows], batch.pos[rows] + 1):
                raise WrongHistory("full layers are causal")
            entries = self._full[self._slots(batch, row, 0, high)]
            self._check_chain(entries, 0, "full")
            if self.sliding_pages:
                low = max(0, int(batch.pos[rows].min()) - self.sliding_window + 1)
                high = int(batch.kv_hi_sliding[rows].max())
                slots = self._slots(batch, row, low, high)
                pages = self._map[slots // PAGE_SIZE]
                if not pages.all():
                    raise WrongHistory(f"position {low + int(pages.argmin())} has no sliding page in a row's window")
                seen = self._sliding[pages.astype(np.int64) * PAGE_SIZE + slots % PAGE_SIZE]
                self._check_chain(seen, low, "sliding")
                if not np.array_equal(seen[: len(entries) - low], entries[low:]):
                    raise WrongHistory("the two pools disagree about a sequence")

    def _check_chain(self, entries: Entries, low: int, pool: str) -> None:
        wrong = entries[:, 0] != np.arange(low, low + len(entries), dtype=np.uint64)
        if wrong.any():
            raise WrongHistory(f"{pool} pool: position {low + int(wrong.argmax())} is another position's or stale")
        broken = entries[1:, 2] != entries[:-1, 1]
        if broken.any() or (low == 0 and entries[0, 2] != SEED):
            raise WrongHistory(f"{pool} pool: position {low + 1 + int(broken.argmax())} is of another sequence")

    def _history(self, batch: RowBatch, row: int) -> tuple[int, list[int]]:
        entries = self._full[self._slots(batch, row, 0, int(batch.kv_hi[row]))]
        return int(entries[-1, 1]), [int(token) for token in entries[:, 3]]


def drawn_logits(history: int, vocab_size: int) -> NDArray[np.float32]:
    """Logits that depend on a history's hash only."""
    return np.random.default_rng(history).normal(0.0, 2.0, vocab_size).astype(np.float32)

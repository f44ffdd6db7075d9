"""Graphs: forwards of fixed sizes over tensors that never move, captured once and replayed.

A batch goes to the smallest bucket that holds it and is padded with null rows. Each bucket of rows has a graph up to
the cut behind which only read rows run, each bucket of reads one for the rest; what the first leaves for the second
lies in buffers of the largest size. All graphs share one memory pool (`graph_space.py`). Where nothing is captured
(the CPU), the same work runs over the same buffers, operation by operation, with the same bits.
"""

from __future__ import annotations

import logging
from collections import Counter

import numpy as np
import torch

from photocall_engine.graph_space import GraphSpace, play
from photocall_engine.kv_pools import KvPools
from photocall_engine.model.gemma4 import Carried, DeviceRows, TextDecoder
from photocall_engine.row_buffers import RowBuffers, RowShape
from photocall_engine.rows import Ints, RowBatch
from photocall_engine.words import Words, WordsFull

log = logging.getLogger(__name__)

READ_BUCKETS = (1, 2, 4, 8, 16, 64, 128, 256, 512)
ROW_BUCKETS = (
    *(1, 2, 4, 8, 16, 64, 128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048),
    *(2560, 3072, 4096, 6144, 8192),
)
WORDS = 1 << 20
_FEW = 64  # smaller buckets have no room for extra writes: those of a batch that has any go to a larger one


class Graphs:
    """See above. Use `forward`; `capture` once before serving, on CUDA."""

    def __init__(
        self,
        decoder: TextDecoder,
        pools: KvPools,
        arena: torch.Tensor,
        picked: torch.Tensor,
        max_rows: int,
        words: int = WORDS,
    ) -> None:
        config, device, dtype = decoder.config, pools.device, decoder.weights.embedding.dtype
        tile = decoder.kernels.row_tile
        self._decoder = decoder
        self._pools = pools
        self._arena = arena
        self.row_buckets = _buckets(ROW_BUCKETS, max_rows, tile)
        self.read_buckets = _buckets(READ_BUCKETS, max_rows, tile)
        most, most_reads = self.row_buckets[-1], self.read_buckets[-1]
        self._words = Words(device, words, fixed=True)
        self._buffers = RowBuffers(config, pools, decoder.kernels, self._words, picked, most, config.window)
        self._carried = Carried(
            torch.zeros(most, config.hidden_size, dtype=dtype, device=device),
            None
            if not config.per_layer_size
            else torch.zeros(
                most, len(config.layers) - config.last_writer, config.per_layer_size, dtype=dtype, device=device
            ),
        )
        self._read = torch.zeros(most_reads, config.hidden_size, dtype=dtype, device=device)
        self._lower: dict[int, torch.cuda.CUDAGraph] = {}
        self._upper: dict[int, torch.cuda.CUDAGraph] = {}
        self.replays = 0  # batches that found a bucket, and those that did not
        self.misses = 0
        self.by_bucket: Counter[str] = Counter()  # batches by the rows of the bucket that ran them; `none`

    def shape_of(self, batch: RowBatch) -> RowShape | None:
        """The smallest bucket that holds a batch; None: none does."""
        extra, reads = len(batch.extra_row), len(batch.read)
        rows = next((r for r in self.row_buckets if r >= batch.num_rows and _spare_writes(r) >= extra), None)
        read = next((q for q in (0, *self.read_buckets) if q >= reads), None)
        return None if rows is None or read is None else self._shape(rows, read)

    def forward(self, batch: RowBatch) -> torch.Tensor | None:
        """Hidden states of the read rows, then those of padding: good until the next forward. None: no bucket holds
        the batch, and nothing happened."""
        shape = self.shape_of(batch)
        try:
            rows = None if shape is None else self._buffers.fill(batch, shape)
        except WordsFull as error:
            log.warning("graphs: a batch of %d rows runs without: %s", batch.num_rows, error)
            rows = None
        if shape is None or rows is None:
            self.misses += 1
            self.by_bucket["none"] += 1
            return None
        self.replays += 1
        self.by_bucket[str(shape.rows)] += 1
        play(self._lower.get(shape.rows), self._run_lower, rows)
        if shape.reads:
            play(self._upper.get(shape.reads), self._run_upper, rows)
        return self._read[: shape.reads]

    def capture(self, space: GraphSpace) -> None:
        """Capture every bucket, largest first, so that the smaller ones fit into the memory of the larger."""
        for buckets, graphs, run in (
            (self.row_buckets, self._lower, self._run_lower),
            (self.read_buckets, self._upper, self._run_upper),
        ):
            for size in reversed(buckets):
                read = min(size, self.read_buckets[-1])
                graphs[size] = space.capture(run, self._buffers.fill(null_batch(), self._shape(size, read)))

    def _shape(self, rows: int, reads: int) -> RowShape:
        return RowShape(rows, rows, rows + _spare_writes(rows), reads, self.read_buckets[-1])

    def _run_lower(self, rows: DeviceRows) -> None:
        found = self._decoder.lower(rows, self._arena, self._pools)
        self._carried.hidden[: len(found.hidden)].copy_(found.hidden)
        if found.per_layer is not None and self._carried.per_layer is not None:
            self._carried.per_layer[: len(found.hidden)].copy_(found.per_layer)

    def _run_upper(self, rows: DeviceRows) -> None:
        self._read[: len(rows.read)].copy_(self._decoder.upper(rows, self._carried, self._pools))


def null_batch() -> RowBatch:
    """One null row, which is read."""
    zero, one, nothing = np.zeros(1, np.int32), np.ones(1, np.int32), np.zeros(0, np.int32)
    return RowBatch(
        tokens=zero, pos=zero, slot=zero, bt_off=zero, kv_hi=one, kv_hi_sliding=one, block_tables=zero,
        extra_row=nothing, extra_slot=nothing, soft_idx=_negative(), read=zero, decode=True,
    )  # fmt: skip


def _negative() -> Ints:
    return np.full(1, -1, np.int32)


def _buckets(sizes: tuple[int, ...], max_rows: int, tile: int) -> tuple[int, ...]:
    """Those up to `max_rows`, itself among them, in multiples of the linears' tile."""
    top = min(max_rows, sizes[-1])
    return tuple(sorted({-(-size // tile) * tile for size in (*(s for s in sizes if s < top), top)}))


def _spare_writes(rows: int) -> int:
    return rows // 2 if rows >= _FEW else 0

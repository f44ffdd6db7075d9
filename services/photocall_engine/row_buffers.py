"""RowBuffers: a RowBatch as the decoder wants it on the device, in one transfer.

Where an array lies depends only on the `RowShape`, and what the upper part reads does not even on its `rows`, so a
graph captured over the tensors of a shape serves every batch that is laid out in it. What has no fixed size (block
tables, attention items) comes last and is found through headers. Places that a batch leaves over are null rows:
position 0, one visible position, K/V and block table on page 0 of both pools.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from photocall_engine.kernels import HEADER, HeadShape, Kernels
from photocall_engine.kernels.tiles import VisibleRows
from photocall_engine.kv_pools import KvPools
from photocall_engine.model.config import LayerKind, TextConfig
from photocall_engine.model.gemma4 import DeviceRows, KindRows
from photocall_engine.rows import Ints, RowBatch
from photocall_engine.words import Words

SPARE_SLOT = 1  # on page 0, where no null row looks: what extra writes that nobody needs go to


@dataclass(frozen=True, slots=True)
class RowShape:
    """Sizes of one forward. `planned` rows attend, the others are padding that only fills up the linears."""

    rows: int
    planned: int
    writes: int  # the first `rows` of them (at least those planned) are the rows themselves
    reads: int
    read_room: int  # reads that any shape may have whose upper part is to find its arrays in the same place

    @classmethod
    def exact(cls, batch: RowBatch, tile: int) -> RowShape:
        """No larger than the linears want it."""
        reads = _up(len(batch.read), tile)
        return cls(_up(batch.num_rows, tile), batch.num_rows, batch.num_rows + len(batch.extra_row), reads, reads)


class RowBuffers:
    """Fills words with batches. `window` is the sliding window, the row itself included; 0: no sliding layers. `picked`
    holds the tokens that the last `read` picked, for rows whose token the host does not know."""

    def __init__(
        self,
        config: TextConfig,
        pools: KvPools,
        kernels: Kernels,
        words: Words,
        picked: torch.Tensor,
        max_rows: int,
        window: int,
    ) -> None:
        self._pools = pools
        self._picked = picked
        self._kernels = kernels
        self._words = words
        self.window = window
        self.pad_token_id = config.pad_token_id
        self._shapes = {
            layer.kind: HeadShape(config.num_heads, layer.num_kv_heads, layer.head_dim) for layer in config.layers
        }
        self._above = {layer.kind for layer in config.layers if layer.index >= config.last_writer}
        self._count = torch.arange(max_rows + kernels.row_tile, dtype=torch.int32, device=pools.device)

    def fill(self, batch: RowBatch, shape: RowShape) -> DeviceRows:
        """Lay out a batch that fits the shape and send it on its way. Raises WordsFull."""
        words = self._words
        words.begin()
        headers = [words.reserve(HEADER) for _ in range(2 * len(self._shapes))]
        padded = _Padded(batch, shape, self.pad_token_id)
        read, read_pos = words.put(padded.read, shape.read_room), words.put(padded.read_pos, shape.read_room)
        columns = [words.put(column) for column in (padded.tokens, padded.pos, padded.soft_idx, padded.write_row)]
        slots = {kind: words.put(self._pools.slots(kind, padded.slot)) for kind in self._shapes}
        plans: dict[LayerKind, Any] = {}
        read_plans: dict[LayerKind, Any] = {}
        for (kind, heads), header in zip(self._shapes.items(), headers[::2], strict=True):
            visible = padded.visible(kind, self._pools.pages(kind, padded.pages), self.window)
            plan_of = self._kernels.plan_attention
            plans[kind] = plan_of(visible, heads, self._pools.zero_slot(kind), words, header)
            if shape.reads and kind in self._above and padded.all_read:
                read_plans[kind] = self._kernels.plan_again(plans[kind], words, header + HEADER)
            elif shape.reads and kind in self._above:
                of_read = padded.read_visible(visible)
                read_plans[kind] = plan_of(of_read, heads, self._pools.zero_slot(kind), words, header + HEADER)
        unknown = len(batch.from_row)
        from_row, from_pick = words.put(batch.from_row), words.put(batch.from_pick)
        words.send()
        tokens, pos, soft_idx = (words.view(at, shape.rows) for at in columns[:3])
        if unknown:
            tokens[words.view(from_row, unknown).long()] = self._picked[words.view(from_pick, unknown).long()]
        return DeviceRows(
            tokens=tokens,
            pos=pos,
            soft_idx=soft_idx,
            write_row=words.view(columns[3], shape.writes),
            kinds={kind: KindRows(plans[kind], words.view(slots[kind], shape.writes)) for kind in self._shapes},
            read=words.view(read, shape.reads),
            read_pos=words.view(read_pos, shape.reads),
            read_place=self._count[: shape.reads],
            read_plans=read_plans,
        )


class _Padded:
    """The arrays of a batch with null rows behind them."""

    def __init__(self, batch: RowBatch, shape: RowShape, pad_token_id: int) -> None:
        rows, extra, reads = batch.num_rows, len(batch.extra_row), len(batch.read)
        missing, null_reads = shape.planned - rows, shape.reads - reads
        spare = shape.writes - shape.planned - extra
        if min(missing, null_reads, spare) < 0:
            raise ValueError(f"{rows} rows, {extra} extra writes and {reads} reads do not fit {shape}")
        tokens = np.where(batch.soft_idx >= 0, pad_token_id, batch.tokens)
        self.tokens = _pad(tokens, shape.rows, 0)
        self.pos = _pad(batch.pos, shape.rows, 0)
        self.soft_idx = _pad(batch.soft_idx, shape.rows, -1)
        own = np.arange(shape.planned, dtype=np.int32)
        self.write_row = np.concatenate((own, batch.extra_row, np.full(spare, shape.planned - 1, np.int32)))
        self.slot = np.concatenate(
            (batch.slot, np.zeros(missing, np.int32), batch.extra_slot, np.full(spare, SPARE_SLOT, np.int32))
        )
        self.pages = np.append(batch.block_tables, np.int32(0))
        self._off = _pad(batch.bt_off, shape.planned, len(batch.block_tables))
        self._hi = {
            "full": _pad(batch.kv_hi, shape.planned, 1),
            "sliding": _pad(batch.kv_hi_sliding, shape.planned, 1),
        }
        self._reads = reads
        self._planned_reads = shape.reads if shape.planned == shape.rows else reads
        # a read to spare repeats the last one
        self.read = np.pad(batch.read, (0, null_reads), mode="edge") if reads else np.zeros(0, np.int32)
        self.read_pos = batch.pos[self.read]
        self.all_read = reads == rows and self._planned_reads == shape.planned  # as in every decode

    def visible(self, kind: LayerKind, pages: Ints, window: int) -> VisibleRows:
        """What each planned row sees on layers of a kind."""
        hi = self._hi[kind]
        lo = np.zeros_like(hi)
        if kind == "sliding":
            lo = np.maximum(0, self.pos[: len(hi)] - window + 1).astype(np.int32)
        return VisibleRows(lo, hi, self._off, pages)

    def read_visible(self, rows: VisibleRows) -> VisibleRows:
        """The same for the rows that are read, each once; places to spare see what a null row sees."""
        read, size = self.read[: self._reads], self._planned_reads
        null = len(rows.pages) - 1
        return VisibleRows(
            _pad(rows.lo[read], size, 0), _pad(rows.hi[read], size, 1), _pad(rows.bt_off[read], size, null), rows.pages
        )


def _up(count: int, tile: int) -> int:
    return -(-count // tile) * tile


def _pad(values: Ints, size: int, value: int) -> Ints:
    return np.pad(values, (0, size - len(values)), constant_values=value)

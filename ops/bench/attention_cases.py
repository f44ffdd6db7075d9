"""Row attention for `kernel_cases.py`: decode rows and prompts, alone and among others."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from ops.bench.kernel_case import REFERENCE, Case, Inputs, Shapes, draw
from photocall_engine.kernels import HEADER, HeadShape
from photocall_engine.kernels.split_plan import plan_splits
from photocall_engine.kernels.tiles import VisibleRows
from photocall_engine.kernels.triton_attention import (
    AttentionParts,
    AttentionPlan,
    AttentionTile,
    attend,
    lay,
    plan_rows,
    rows_of_tile,
    tile_for,
)
from photocall_engine.kv_pools import LayerKv
from photocall_engine.rows import PAGE_SIZE
from photocall_engine.sizing import PART_ROOM
from photocall_engine.words import Words


def attention(model: Shapes, device: torch.device) -> Iterator[Case]:
    """Decode of 1 and 64 sequences of 400 and 4,000 positions."""
    for dim, kv_heads, window in _kinds(model):
        for sequences, length in ((1, 400), (64, 400), (1, 4000), (64, 4000)):
            yield _Rows(model, device, dim, kv_heads, window, sequences, length, 1).case()


def served(model: Shapes, device: torch.device) -> Iterator[Case]:
    """What the measured workloads ask for: a decode step at 256 positions, and a step of prompts of 346."""
    for dim, kv_heads, window in _kinds(model):
        for sequences, length, new in ((1, 256, 1), (16, 256, 1), (64, 256, 1), (256, 256, 1), (6, 346, 346)):
            yield _Rows(model, device, dim, kv_heads, window, sequences, length, new).case()


def tiles(model: Shapes, device: torch.device) -> Iterator[Case]:
    """Other tiles than the chosen ones, at the shapes where it matters: run by name alone, to choose by."""
    for dim, kv_heads, window in _kinds(model):
        for tile in OTHER_TILES[dim]:
            for sequences, length, new in ((1, 256, 1), (256, 256, 1), (6, 346, 346)):
                yield _Rows(model, device, dim, kv_heads, window, sequences, length, new, tile).case()


OTHER_TILES: dict[int, tuple[AttentionTile, ...]] = {
    256: (AttentionTile(64, 32, 256, warps=8, stages=4), AttentionTile(64, 64, 128, warps=4, stages=3)),
    512: (AttentionTile(64, 32, 256, warps=8, stages=3), AttentionTile(64, 32, 128, warps=4, stages=3)),
}


def _kinds(model: Shapes) -> tuple[tuple[int, int, int], ...]:
    """head_dim, K/V heads and window of a model's sliding and full layers."""
    return (256, model.sliding_kv_heads, model.window), (512, model.full_kv_heads, 1 << 30)


PROGRAMS = 264  # two for each of an H200's processors


class _Rows:
    """Sequences of one length whose last `new` positions are rows."""

    def __init__(
        self, model: Shapes, device: torch.device, dim: int, kv_heads: int, window: int, sequences: int, length: int,
        new: int, tile: AttentionTile | None = None,
    ) -> None:  # fmt: skip
        pages_each = -(-length // PAGE_SIZE)
        table = np.random.default_rng(0).permutation(np.arange(1, sequences * pages_each + 1)).astype(np.int32)
        hi = np.tile(np.arange(length - new + 1, length + 1, dtype=np.int32), sequences)
        offset = np.repeat(np.arange(sequences, dtype=np.int32) * pages_each, new)
        kind = f"decode {sequences}x{length}" if new == 1 else f"prompt {sequences}x{length}"
        self.name = f"{model.name} {kind} d{dim}" + (f" {tile}" if tile else "")
        self.device = device
        self.shape = HeadShape(model.heads, kv_heads, dim)
        self.tile = tile or tile_for(dim)
        self.rows = VisibleRows(np.maximum(0, hi - window).astype(np.int32), hi, offset, table)
        self.slots = (len(table) + 1) * PAGE_SIZE + 1
        self.seen = sequences * min(length, window + new - 1)

    def case(self) -> Case:
        """Bytes are those of q, of the output and of the K/V that anybody sees."""
        heads, dim, rows = self.shape.heads, self.shape.head_dim, self.rows
        moved = 2.0 * (2 * len(rows.lo) * heads * dim + 2 * self.seen * self.shape.kv_heads * dim)
        pairs = float((rows.hi - rows.lo).sum())
        return Case(
            "attention", self.name, self.make, self.run, self.expected, moved, 4.0 * pairs * heads * dim, moved,
            2 * len(rows.lo) * heads * dim, same_bits=self.same_bits,
        )  # fmt: skip

    def make(self, seed: int) -> Inputs:
        heads, kv_heads, dim = self.shape.heads, self.shape.kv_heads, self.shape.head_dim
        k = draw(self.device, seed, kv_heads, self.slots, dim) / dim**0.5
        kv = LayerKv(k, draw(self.device, seed + 1, kv_heads, self.slots, dim))
        q = draw(self.device, seed + 2, len(self.rows.lo), heads, dim)
        return {"q": q, "kv": kv, "plan": self._laid(self.rows), "out": torch.full_like(q, torch.nan)}

    def run(self, i: Inputs) -> torch.Tensor:
        attend(i["q"], i["kv"], i["plan"], i["out"], PROGRAMS)
        out: torch.Tensor = i["out"]
        return out

    def expected(self, i: Inputs) -> torch.Tensor:
        kv = LayerKv(i["kv"].k.float().cpu(), i["kv"].v.float().cpu())
        kv.k[:, -1], kv.v[:, -1] = 0, 0
        return REFERENCE.attend(
            i["q"].float().cpu(), kv, REFERENCE.plan_attention(self.rows, self.shape, self.slots - 1)
        )

    def same_bits(self, i: Inputs) -> bool:
        """One row, 16 and 64 of all, at other places, walked through and split."""
        every, count = self.run(i).clone(), len(self.rows.lo)
        for few in (1, 16, 64):
            chosen = np.unique(np.linspace(count - 1, count // 3, few).astype(np.int64))
            at = torch.from_numpy(chosen).to(self.device)
            rows = VisibleRows(self.rows.lo[chosen], self.rows.hi[chosen], self.rows.bt_off[chosen], self.rows.pages)
            q = i["q"][at].contiguous()
            for whole in (False, True):
                out = torch.full_like(q, torch.nan)
                found = self.run({"q": q, "kv": i["kv"], "plan": self._laid(rows, whole=whole), "out": out})
                if not torch.equal(found, every[at]):
                    return False
        return True

    def _laid(self, rows: VisibleRows, *, whole: bool | None = None) -> AttentionPlan:
        """As the runner plans it, or in the way that is asked for."""
        words = Words(self.device, 1 << 16)
        words.begin()
        header = words.reserve(HEADER)
        parts = AttentionParts.allocate(self.device, PART_ROOM, self.shape.heads, self.shape.head_dim)
        if whole is None:
            plan = plan_rows(rows, self.shape, self.tile, words, header, parts)
        else:
            tile_rows = rows_of_tile(self.tile, self.shape.heads, self.shape.kv_heads)
            made = plan_splits(rows, tile_rows, self.tile.block_n, whole=whole)
            plan = lay(rows, made, words, header, parts, self.tile)
        words.send()
        return plan

"""Plain torch kernels for the CPU in float32: the truth, and what serves without a GPU.

A row's bits never depend on its neighbours. Linears get a multiple of `row_tile` rows, for which the BLAS gives every
row the same bits at every place and for every count; that is checked with the model's own weight shapes when it is
loaded, and where it does not hold linears run tile by tile. Attention works in blocks of fixed shape (two widths of
query tiles, where the check finds that they give the same bits); sums run in a
fixed order; gelu is spelled out, because the library's gelu (and sigmoid) differ in the last bit between the body and
the end of a vector, which its exp does not.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np
import torch

from photocall_engine.greedy import pick_rows
from photocall_engine.kernels import MAX_EXCLUDED, HeadShape, Numerics
from photocall_engine.kernels.fp8 import Fp8Weight
from photocall_engine.kernels.tiles import BLOCK, VisibleRows, count_tiles, plan_tiles
from photocall_engine.kernels.vision import GateClips, clipped
from photocall_engine.kv_pools import LayerKv
from photocall_engine.rows import PAGE_SIZE
from photocall_engine.words import Words

ROW_TILE = 16  # rows of one linear call, or a multiple of it
WIDE, NARROW = 64, 16  # rows x query heads of one K/V head in an attention tile: prompts, decode steps
_LARGE = 1 << 23  # values of a matrix whose check would take long for many rows
_GELU_LINEAR = 2.0 * math.sqrt(2.0 / math.pi)
_GELU_CUBIC = _GELU_LINEAR * 0.044715


@dataclass(frozen=True, slots=True)
class _Chunk:
    num_tiles: int
    counts: tuple[int, ...]
    pair_tile: torch.Tensor  # [W]
    slots: torch.Tensor  # [W * BLOCK]
    hidden: torch.Tensor  # [1, W, tile_rows, 1, BLOCK]


@dataclass(frozen=True, slots=True)
class _Plan:
    tile_rows: int
    query_rows: torch.Tensor
    place_of_row: torch.Tensor
    chunks: tuple[_Chunk, ...]


class ReferenceKernels:
    """See `Kernels`. `merged` linears take all rows in one call, else one call per tile; without `narrow`, attention
    has wide query tiles only."""

    row_tile = head_tile = ROW_TILE

    def __init__(self, *, merged: bool = True, narrow: bool = True, numerics: Numerics = "invariant") -> None:
        self.merged = merged
        self.narrow = narrow
        self.numerics: Numerics = numerics
        shape = (ROW_TILE, BLOCK, WIDE, NARROW, merged, narrow)
        self.table_sha256 = hashlib.sha256(repr(shape).encode()).hexdigest()
        self.name = f"reference (cpu, float32{'' if merged else ', linears tile by tile'})"

    @classmethod
    def for_model(cls, weights: list[torch.Tensor], head_dims: set[int]) -> ReferenceKernels:
        """The faster forms where this machine's BLAS keeps the bits of rows for all these shapes."""
        shapes = {tuple(weight.shape): weight for weight in weights}
        return cls(
            merged=all(keeps_row_bits(weight) for weight in shapes.values()),
            narrow=all(keeps_query_bits(head_dim) for head_dim in head_dims),
        )

    def linear(
        self, x: torch.Tensor, weight: torch.Tensor | Fp8Weight, out_dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        assert out_dtype in (None, x.dtype), "the reference computes in float32 alone"
        if isinstance(weight, Fp8Weight):
            return self.linear(x, weight.values.to(x.dtype)).mul_(weight.scale)
        if self.merged or x.shape[0] <= ROW_TILE:
            return torch.mm(x, weight.T)
        out = x.new_empty(x.shape[0], weight.shape[0])
        for start in range(0, x.shape[0], ROW_TILE):
            torch.mm(x[start : start + ROW_TILE], weight.T, out=out[start : start + ROW_TILE])
        return out

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
        scale = x.square().mean(-1, keepdim=True).add_(eps).rsqrt_()
        out = x * scale
        return out if weight is None else out.mul_(weight)

    def norm_add(
        self,
        residual: torch.Tensor,
        x: torch.Tensor,
        weight: torch.Tensor,
        eps: float,
        *,
        scalar: torch.Tensor | None = None,
        next_weight: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        out = self.rms_norm(x, weight, eps).add_(residual)
        if scalar is not None:
            out.mul_(scalar)
        return out, out if next_weight is None else self.rms_norm(out, next_weight, eps)

    def embed(
        self, tokens: torch.Tensor, table: torch.Tensor, scale: float, soft_idx: torch.Tensor, arena: torch.Tensor
    ) -> torch.Tensor:
        out = table.index_select(0, tokens).mul_(scale)
        soft = (soft_idx >= 0).nonzero().flatten()
        return out.index_copy_(0, soft, arena.index_select(0, soft_idx[soft])) if len(soft) else out

    def per_layer_inputs(
        self,
        projected: torch.Tensor,
        tokens: torch.Tensor,
        table: torch.Tensor,
        weight: torch.Tensor,
        eps: float,
        *,
        projection_scale: float,
        table_scale: float,
    ) -> torch.Tensor:
        normed = self.rms_norm((projected * projection_scale).view(len(tokens), -1, len(weight)), weight, eps)
        looked_up = table.index_select(0, tokens).mul_(table_scale)
        return normed.add_(looked_up.view_as(normed)).mul_(2.0**-0.5)

    def turn_and_write(
        self,
        stacked: torch.Tensor,
        q_norm: torch.Tensor | None,
        k_norm: torch.Tensor | None,
        turns: tuple[torch.Tensor, torch.Tensor],
        eps: float,
        kv: LayerKv | None,
        row: torch.Tensor,
        slot: torch.Tensor,
        shape: HeadShape,
    ) -> torch.Tensor:
        parts = stacked.view(len(stacked), -1, shape.head_dim)
        heads, kv_heads = shape.heads, shape.kv_heads
        if kv is not None:
            k_raw = parts[:, heads : heads + kv_heads]
            v_raw = parts[:, heads + kv_heads :] if parts.shape[1] > heads + kv_heads else k_raw
            k = self.rope(self.rms_norm(k_raw, k_norm, eps), *turns)
            self.write_kv(kv, k, self.rms_norm(v_raw, None, eps), row, slot.long())
        return self.rope(self.rms_norm(parts[:, :heads], q_norm, eps), *turns) if heads else parts[:, :0]

    def route(self, logits: torch.Tensor, expert_scale: torch.Tensor, top_k: int) -> tuple[torch.Tensor, torch.Tensor]:
        chosen = torch.softmax(logits, dim=-1).sort(dim=-1, descending=True, stable=True)
        expert, share = chosen.indices[:, :top_k], chosen.values[:, :top_k]
        return expert, share / share.sum(-1, keepdim=True) * expert_scale[expert]

    def unfinished(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return self.linear(x, weight)

    def gated(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        let_through: torch.Tensor | None = None,
        clips: GateClips | None = None,
    ) -> torch.Tensor:
        product = self.linear(x, weight)
        gate, up = product.chunk(2, dim=1) if let_through is None else (product, let_through)
        if clips is None:
            return self.geglu(gate, up)
        return clipped(self.geglu(clipped(gate, clips[0]), clipped(up, clips[1])), clips[2])

    def geglu(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        """gelu(gate) * up. Both may be slices of wider rows."""
        # gelu(x) = x / (1 + exp(-2 sqrt(2/pi) (x + 0.044715 x^3))): the tanh form, as one exp and one division
        turned = gate.square().mul_(-_GELU_CUBIC).add_(-_GELU_LINEAR).mul_(gate).exp_().add_(1.0)
        return (gate * up).div_(turned)

    def experts(
        self, x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor, expert: torch.Tensor, share: torch.Tensor
    ) -> torch.Tensor:
        out = torch.zeros_like(x)
        width = down.shape[2]
        for index in sorted(set(expert.flatten().tolist())):  # ascending, so that every row adds up in one order
            row, choice = (expert == index).nonzero(as_tuple=True)
            padded = torch.cat((row, row[-1:].expand(-len(row) % ROW_TILE)))
            wide = self.linear(x.index_select(0, padded), gate_up[index])
            given = self.linear(self.geglu(wide[:, :width], wide[:, width:]), down[index])[: len(row)]
            out.index_add_(0, row, given * share[row, choice].unsqueeze(-1))
        return out

    def rope(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """x [R, H, D] turned by halves: pairs (i, i + D/2)."""
        half = x.shape[-1] // 2
        low, high = x[..., :half], x[..., half:]
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)

    def write_kv(self, kv: LayerKv, k: torch.Tensor, v: torch.Tensor, row: torch.Tensor, slot: torch.Tensor) -> None:
        """K/V [R, G, D] of rows `row[i]` to `slot[i]` of the layer's pool."""
        kv.k.index_copy_(1, slot, k.index_select(0, row).transpose(0, 1))
        kv.v.index_copy_(1, slot, v.index_select(0, row).transpose(0, 1))

    def plan_attention(
        self, rows: VisibleRows, shape: HeadShape, zero_slot: int, words: Words | None = None, header: int = 0
    ) -> _Plan:
        group = shape.heads // shape.kv_heads
        wide, narrow = max(1, WIDE // group), max(1, NARROW // group)
        # a tile costs its queries, and reading its blocks, which weighs about as much as 48 more
        costs = count_tiles(rows, wide) * (WIDE + 48), count_tiles(rows, narrow) * (NARROW + 48)
        plan = plan_tiles(rows, narrow if self.narrow and costs[1] < costs[0] else wide, zero_slot)
        chunks = tuple(
            _Chunk(
                chunk.num_tiles,
                chunk.counts,
                torch.from_numpy(chunk.pair_tile),
                torch.from_numpy(chunk.slots),
                torch.from_numpy(chunk.hidden)[None, :, :, None, :],
            )
            for chunk in plan.chunks
        )
        places = torch.from_numpy(plan.place_of_row)
        return _Plan(plan.tile_rows, torch.from_numpy(plan.query_rows), places, chunks)

    def plan_again(self, plan: _Plan, words: Words, header: int) -> _Plan:
        return plan

    def attend(self, q: torch.Tensor, kv: LayerKv, plan: _Plan) -> torch.Tensor:
        num_rows, heads, dim = q.shape
        kv_heads = kv.k.shape[0]
        group = heads // kv_heads
        queries = plan.tile_rows * group
        tiles = q.index_select(0, plan.query_rows).view(-1, plan.tile_rows, kv_heads, group, dim)
        tiles = tiles.permute(2, 0, 1, 3, 4).reshape(kv_heads, -1, queries, dim)
        parts, start = [], 0
        for chunk in plan.chunks:
            parts.append(_attend_chunk(tiles[:, start : start + chunk.num_tiles], kv, chunk, plan.tile_rows))
            start += chunk.num_tiles
        out = torch.cat(parts, dim=1) if len(parts) > 1 else parts[0]
        out = out.view(kv_heads, -1, group * dim).transpose(0, 1)  # [T * tile_rows, kv_heads, group * dim]
        out = out.index_select(0, plan.place_of_row).reshape(-1, heads, dim)
        if out.shape[0] == num_rows:
            return out
        return torch.cat((out, out.new_zeros(num_rows - out.shape[0], heads, dim)))

    def copy_pages(self, pool: torch.Tensor, src: torch.Tensor, dst: torch.Tensor) -> None:
        offsets = torch.arange(PAGE_SIZE)
        source, target = ((page.long()[:, None] * PAGE_SIZE + offsets).flatten() for page in (src, dst))
        pool.index_copy_(1, target, pool.index_select(1, source))

    def letter_logits(
        self, hidden: torch.Tensor, head: torch.Tensor, ids: torch.Tensor, cap: float | None
    ) -> torch.Tensor:
        logits = self.pair_logits(hidden, head.index_select(0, ids))
        return logits if cap is None else torch.tanh(logits / cap) * cap

    def pick(
        self, hidden: torch.Tensor, head: torch.Tensor, allowed: torch.Tensor, cap: float | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        logits = self.linear(hidden, head, out_dtype=torch.float32)
        capped = logits if cap is None else torch.tanh(logits / cap) * cap
        tokens, logprobs = pick_rows(capped.numpy(), allowed.bool().numpy())
        return torch.from_numpy(tokens), torch.from_numpy(logprobs)

    def prepare_head(self, head: torch.Tensor) -> None:
        """All logits are computed."""

    def greedy(self, hidden: torch.Tensor, head: torch.Tensor, prepared: None, excluded: torch.Tensor) -> torch.Tensor:
        assert excluded.shape == (len(hidden), MAX_EXCLUDED), "ids that a row must not take, -1: none"
        padded = torch.cat((hidden, hidden[-1:].expand(-len(hidden) % ROW_TILE, -1)))
        logits = self.linear(padded, head)[: len(hidden)].numpy()
        for row, ids in zip(logits, excluded.tolist(), strict=True):
            row[[i for i in ids if i >= 0]] = -np.inf
        best = logits.argmax(axis=1).astype(np.int32)  # numpy takes the first of equals, and the first NaN
        best[np.isnan(logits).any(axis=1)] = np.iinfo(np.int32).max
        return torch.from_numpy(best)

    def pair_logits(self, hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """hidden [n, K] . labels [m, K] in float32."""
        products = hidden.float()[:, None, :] * labels.float()[None, :, :]
        while products.shape[-1] > 1:
            half = products.shape[-1] // 2
            odd = products[..., 2 * half :]
            products = products[..., :half] + products[..., half : 2 * half]
            if odd.shape[-1]:
                products[..., :1] += odd
        return products[..., 0]


def _attend_chunk(tiles: torch.Tensor, kv: LayerKv, chunk: _Chunk, tile_rows: int) -> torch.Tensor:
    """tiles [G, t, queries, D] against their blocks: [G, t, queries, D].

    The maximum of a row is taken over all its blocks first (no rounding, any order); then exp(score - maximum) and
    its products with V are summed block by block, ascending. A masked score adds exactly zero to both sums.
    """
    kv_heads, _, queries, dim = tiles.shape
    pairs = len(chunk.pair_tile)
    k = kv.k.index_select(1, chunk.slots).view(-1, BLOCK, dim)
    v = kv.v.index_select(1, chunk.slots).view(-1, BLOCK, dim)
    q = tiles.index_select(1, chunk.pair_tile).view(-1, queries, dim)
    scores = torch.bmm(q, k.transpose(1, 2))  # [G * W, queries, BLOCK]
    scores.view(kv_heads, pairs, tile_rows, -1, BLOCK).masked_fill_(chunk.hidden, -torch.inf)
    block_max = scores.amax(-1).view(kv_heads, pairs, queries)
    row_max = _fold(block_max, chunk.counts, torch.maximum)
    scores.sub_(row_max.index_select(1, chunk.pair_tile).view(-1, queries, 1)).exp_()
    weight = _fold(scores.sum(-1).view(kv_heads, pairs, queries), chunk.counts, torch.add)
    total = _fold(torch.bmm(scores, v).view(kv_heads, pairs, queries, dim), chunk.counts, torch.add)
    return total.div_(weight.unsqueeze(-1))


def _fold(pairs: torch.Tensor, counts: tuple[int, ...], combine: object) -> torch.Tensor:
    """[G, W, ...] to [G, t, ...]: each tile's blocks combined in ascending order."""
    out = pairs[:, : counts[0]].clone()
    start = counts[0]
    for count in counts[1:]:
        head = out[:, :count]
        combine(head, pairs[:, start : start + count], out=head)  # type: ignore[operator]
        start += count
    return out


def keeps_row_bits(weight: torch.Tensor) -> bool:
    """Whether rows keep their bits through this machine's matmul, whatever their place and the number of tiles."""
    counts = (2, 3, 7, 20) if weight.numel() <= _LARGE else (2, 3)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(counts[-1] * ROW_TILE, weight.shape[1], generator=generator)
    alone = torch.cat([torch.mm(rows[i : i + ROW_TILE], weight.T) for i in range(0, len(rows), ROW_TILE)])
    for tiles in counts:
        shifted = rows.roll(5, 0)[: tiles * ROW_TILE]
        if not torch.equal(torch.mm(shifted, weight.T), alone.roll(5, 0)[: tiles * ROW_TILE]):
            return False
    return True


def keeps_query_bits(head_dim: int) -> bool:
    """Whether narrow query tiles have the bits of wide ones, at every place and for any number of tiles."""
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(5, WIDE, head_dim, generator=generator)
    keys = torch.randn(5, BLOCK, head_dim, generator=generator)
    weights = torch.rand(5, WIDE, BLOCK, generator=generator)
    scores, totals = torch.bmm(queries, keys.transpose(1, 2)), torch.bmm(weights, keys)
    for tiles in (1, 2, 5):
        for start in (0, 5, WIDE - NARROW):
            part = slice(start, start + NARROW)
            few = torch.bmm(queries[:tiles, part].contiguous(), keys[:tiles].transpose(1, 2))
            some = torch.bmm(weights[:tiles, part].contiguous(), keys[:tiles])
            if not torch.equal(few, scores[:tiles, part]) or not torch.equal(some, totals[:tiles, part]):
                return False
    return True

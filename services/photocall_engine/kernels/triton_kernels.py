"""TritonKernels: the operations of a layer on a CUDA device, as captured graphs can hold them.

Only puts together what the `triton_*` files compute. Nothing here waits for the device, and no shape depends on what
is on it. `fast` numerics take the library's matrix products for the linears and keep everything else. Runs on the CPU
in Triton's interpreter, for tests.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from photocall_engine.kernels import (
    HEADER,
    HeadShape,
    Numerics,
    triton_experts,
    triton_fused,
    triton_lm_head,
    triton_pick,
)
from photocall_engine.kernels.fp8 import Fp8Weight
from photocall_engine.kernels.matmul_plan import MatmulPlan
from photocall_engine.kernels.matmul_table import fingerprint, plan_for
from photocall_engine.kernels.tiles import VisibleRows
from photocall_engine.kernels.triton_attention import (
    AttentionParts,
    AttentionPlan,
    AttentionTile,
    attend,
    plan_rows,
    tile_for,
)
from photocall_engine.kernels.triton_matmul import gated, matmul, unfinished
from photocall_engine.kernels.vision import GateClips, clipped
from photocall_engine.kv_pools import LayerKv
from photocall_engine.sizing import PART_ROOM
from photocall_engine.words import Words


class TritonKernels:
    """See `Kernels`."""

    row_tile: int
    head_tile: int

    def __init__(
        self,
        device: torch.device,
        dtype: torch.dtype,
        *,
        numerics: Numerics = "invariant",
        part_room: int = PART_ROOM,
        tile: AttentionTile | None = None,
    ) -> None:
        """`tile` replaces the attention tiles of all head sizes: for tests, whose sequences are short."""
        self._device = device
        self.numerics: Numerics = numerics
        self.table_sha256 = fingerprint()
        self._part_room = part_room
        self._tile = tile
        self._parts: dict[HeadShape, AttentionParts] = {}
        self._plans: dict[tuple[int, int, bool], MatmulPlan] = {}
        self._device_name, self._processors, place = "cpu", 4, "cpu, interpreted"
        # a tensor descriptor with fewer rows than a tile loads it a third slower: null rows are cheaper
        self.row_tile, self.head_tile = (16, 64) if device.type == "cuda" else (1, 1)
        if device.type == "cuda":
            properties = torch.cuda.get_device_properties(device)
            self._device_name, self._processors = properties.name, properties.multi_processor_count
            place = f"sm{properties.major}{properties.minor}"
        short = {torch.bfloat16: "bf16", torch.float32: "float32"}.get(dtype, str(dtype))
        self.name = f"triton ({place}, {short}, {numerics}, matmul table {self.table_sha256[:16]})"

    def linear(
        self, x: torch.Tensor, weight: torch.Tensor | Fp8Weight, out_dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        if self.numerics == "fast" and not isinstance(weight, Fp8Weight):
            return _library_linear(x, weight, out_dtype or x.dtype)
        return matmul(x, weight, self._plan(weight), programs=self._processors, out_dtype=out_dtype)

    def unfinished(self, x: torch.Tensor, weight: torch.Tensor | Fp8Weight) -> torch.Tensor:
        if self.numerics == "fast" or isinstance(weight, Fp8Weight):  # scales belong to finished sums
            return self.linear(x, weight)
        return unfinished(x, weight, self._plan(weight), programs=self._processors)

    def gated(
        self,
        x: torch.Tensor,
        weight: torch.Tensor | Fp8Weight,
        let_through: torch.Tensor | None = None,
        clips: GateClips | None = None,
    ) -> torch.Tensor:
        if self.numerics == "fast" and not isinstance(weight, Fp8Weight):
            product = self.linear(x, weight)
            gate, up = product.chunk(2, dim=1) if let_through is None else (product, let_through)
            if clips is None:
                return triton_fused.geglu(gate, up)
            gate, up = clipped(gate, clips[0]), clipped(up, clips[1])
            return clipped(triton_fused.geglu(gate, up), clips[2])
        return gated(x, weight, self._plan(weight, whole=True), let_through, clips=clips, programs=self._processors)

    def _plan(self, weight: torch.Tensor | Fp8Weight, *, whole: bool = False) -> MatmulPlan:
        n, k = weight.shape
        plan = self._plans.get((n, k, whole))
        if plan is None:
            plan = self._plans[n, k, whole] = plan_for(self._device_name, n, k, whole=whole)
        return plan

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
        return triton_fused.rms_norm(x, weight, eps)

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
        out, normed = triton_fused.norm_add(residual, x, weight, eps, scalar=scalar, next_weight=next_weight)
        return out, out if normed is None else normed

    def embed(
        self, tokens: torch.Tensor, table: torch.Tensor, scale: float, soft_idx: torch.Tensor, arena: torch.Tensor
    ) -> torch.Tensor:
        return triton_fused.embed(tokens, table, scale, soft_idx, arena)

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
        return triton_fused.per_layer_inputs(
            projected, tokens, table, weight, eps, projection_scale=projection_scale, table_scale=table_scale
        )

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
        return triton_fused.turn_and_write(
            stacked, q_norm, k_norm, *turns, eps, kv, row, slot, None,
            heads=shape.heads, kv_heads=shape.kv_heads, head_dim=shape.head_dim, num_rows=len(stacked),
        )  # fmt: skip

    def route(self, logits: torch.Tensor, expert_scale: torch.Tensor, top_k: int) -> tuple[torch.Tensor, torch.Tensor]:
        return triton_experts.route(logits, expert_scale, top_k)

    def experts(
        self, x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor, expert: torch.Tensor, share: torch.Tensor
    ) -> torch.Tensor:
        return triton_experts.experts(x, gate_up, down, expert, share)

    def plan_attention(
        self, rows: VisibleRows, shape: HeadShape, zero_slot: int, words: Words, header: int
    ) -> AttentionPlan:
        parts = self._parts.get(shape)
        if parts is None:
            parts = AttentionParts.allocate(self._device, self._part_room, shape.heads, shape.head_dim)
            self._parts[shape] = parts
        return plan_rows(rows, shape, self._tile or tile_for(shape.head_dim), words, header, parts)

    def plan_again(self, plan: AttentionPlan, words: Words, header: int) -> AttentionPlan:
        words.repeat(plan.header, header, HEADER)
        return replace(plan, header=header)

    def attend(self, q: torch.Tensor, kv: LayerKv, plan: AttentionPlan) -> torch.Tensor:
        out = torch.empty_like(q)
        attend(q, kv, plan, out, 2 * self._processors)
        return out

    def copy_pages(self, pool: torch.Tensor, src: torch.Tensor, dst: torch.Tensor) -> None:
        triton_fused.copy_pages(pool, src, dst)

    def letter_logits(
        self, hidden: torch.Tensor, head: torch.Tensor, ids: torch.Tensor, cap: float | None
    ) -> torch.Tensor:
        return triton_lm_head.letter_logits(hidden, head, ids, cap)

    def pick(
        self, hidden: torch.Tensor, head: torch.Tensor | Fp8Weight, allowed: torch.Tensor, cap: float | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        form = self._plan(head).form
        return triton_pick.pick(hidden, head, allowed, cap, form=form, processors=self._processors)

    def prepare_head(self, head: torch.Tensor) -> triton_lm_head.ScanHead:
        """A copy in 8 bits: a byte for each of the head's values."""
        return triton_lm_head.scan_head(head, torch.int8)

    def greedy(self, hidden: torch.Tensor, head: torch.Tensor, prepared: Any, excluded: torch.Tensor) -> torch.Tensor:
        return triton_lm_head.greedy(hidden, head, prepared, excluded)


def _library_linear(x: torch.Tensor, weight: torch.Tensor, out_dtype: torch.dtype) -> torch.Tensor:
    if out_dtype == x.dtype:
        return torch.mm(x, weight.T)
    if x.is_cuda:
        return torch.mm(x, weight.T, out_dtype=out_dtype)
    return torch.mm(x.to(out_dtype), weight.T.to(out_dtype))

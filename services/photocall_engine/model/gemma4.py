"""The text decoder of Gemma 4, over rows: K/V of all rows first, then every row attends through its block table.

Padding rows at the end of a batch only fill up the linears; they never touch a pool. From inside the last layer that
writes K/V on, only the rows that somebody reads are computed. What the layers do is written in the paper's terms; how
is the kernels' business.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from photocall_engine.kernels import Kernels
from photocall_engine.kv_pools import KvPools
from photocall_engine.model.config import LayerConfig, LayerKind, TextConfig
from photocall_engine.model.text_weights import ExpertWeights, LayerWeights, TextWeights


@dataclass(frozen=True, slots=True)
class KindRows:
    """What depends on the layer kind: the attention plan and where K/V go. Made by the runner."""

    plan: Any
    slot: torch.Tensor  # [W] slots of this kind's pool, for rows `write_row`


@dataclass(frozen=True, slots=True)
class DeviceRows:
    """A RowBatch on the device, padded to the kernels' row tile. Made by the runner."""

    tokens: torch.Tensor  # [R] the pad id at picture rows
    pos: torch.Tensor  # [R]
    soft_row: torch.Tensor  # [S] rows that take a soft token ...
    soft_idx: torch.Tensor  # [S] ... from this row of the arena
    write_row: torch.Tensor  # [W] rows whose K/V are written: all but padding, then the extra ones
    kinds: Mapping[LayerKind, KindRows]
    read: torch.Tensor  # [Q] rows that are read, padded like R; empty: nobody reads
    read_plans: Mapping[LayerKind, Any]  # attention plans of the read rows alone


class TextDecoder:
    """Weights, configuration and kernels put together. Holds no state of any request."""

    def __init__(self, config: TextConfig, weights: TextWeights, kernels: Kernels) -> None:
        self.config = config
        self.weights = weights
        self.kernels = kernels
        dtype = weights.embedding.dtype
        self._embed_scale = torch.tensor(math.sqrt(config.hidden_size)).to(dtype)
        self._per_layer_scale = torch.tensor(math.sqrt(config.per_layer_size)).to(dtype)
        self._frequencies = {kind: _frequencies(config, kind) for kind in config.rope}

    def forward(self, rows: DeviceRows, arena: torch.Tensor, pools: KvPools) -> torch.Tensor:
        """Write K/V of all rows; return the normed hidden states of the read rows [Q, hidden]."""
        state = self._embed(rows, arena)
        for layer, weights in zip(self.config.layers, self.weights.layers, strict=True):
            if not self._layer(layer, weights, state, pools):
                return state.hidden
        return self.kernels.rms_norm(state.hidden, self.weights.norm, self.config.eps)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[n, vocabulary], softcapped float32. Rows padded to the row tile."""
        return self.softcap(self.kernels.linear(hidden, self.weights.head).float())

    def label_logits(self, hidden: torch.Tensor, label_ids: torch.Tensor) -> torch.Tensor:
        """[n, m] of the labels alone; the bits of a pair depend on nothing else."""
        return self.softcap(self.kernels.pair_logits(hidden, self.weights.head.index_select(0, label_ids)))

    def softcap(self, logits: torch.Tensor) -> torch.Tensor:
        """cap * tanh(x / cap), where the model has a cap."""
        cap = self.config.softcap
        return logits if cap is None else torch.tanh(logits / cap) * cap

    def _embed(self, rows: DeviceRows, arena: torch.Tensor) -> _State:
        hidden = self.weights.embedding.index_select(0, rows.tokens) * self._embed_scale
        if len(rows.soft_row):
            hidden.index_copy_(0, rows.soft_row, arena.index_select(0, rows.soft_idx))
        angles = {kind: torch.outer(rows.pos.float(), inverse) for kind, inverse in self._frequencies.items()}
        turns = {kind: (angle.cos(), angle.sin()) for kind, angle in angles.items()}
        plans = {kind: kind_rows.plan for kind, kind_rows in rows.kinds.items()}
        return _State(rows, hidden, turns, plans, self._per_layer_inputs(rows.tokens, hidden))

    def _per_layer_inputs(self, tokens: torch.Tensor, embedded: torch.Tensor) -> torch.Tensor | None:
        """[R, layers, per_layer_size]: what each layer's gate lets through."""
        size, weights = self.config.per_layer_size, self.weights
        if not size:
            return None
        assert weights.per_layer_table is not None
        assert weights.per_layer_projection is not None
        projected = self.kernels.linear(embedded, weights.per_layer_projection) * self.config.hidden_size**-0.5
        projected = self.kernels.rms_norm(
            projected.view(len(tokens), -1, size), weights.per_layer_norm, self.config.eps
        )
        looked_up = weights.per_layer_table.index_select(0, tokens) * self._per_layer_scale
        return torch.mul(projected + looked_up.view_as(projected), 2.0**-0.5)

    def _layer(self, layer: LayerConfig, weights: LayerWeights, state: _State, pools: KvPools) -> bool:
        """One layer, in place on `state`. False: nobody reads, and all K/V are written."""
        kernels, eps = self.kernels, self.config.eps
        width = self.config.num_heads * layer.head_dim
        normed = kernels.rms_norm(state.hidden, weights.input_norm, eps)
        if layer.index == self.config.last_writer:
            self._write(layer, weights, kernels.linear(normed, weights.qkv[width:]), state, pools)
            if not len(state.rows.read):
                return False
            normed = normed.index_select(0, state.rows.read)
            state.keep_read()
            q = kernels.linear(normed, weights.qkv[:width])
        else:
            stacked = kernels.linear(normed, weights.qkv)
            q = stacked[:, :width]
            if layer.writes_kv:
                self._write(layer, weights, stacked[:, width:], state, pools)
        q = kernels.rms_norm(q.view(len(q), -1, layer.head_dim), weights.q_norm, eps)
        q = kernels.rope(q, *state.turns[layer.kind])
        attended = kernels.attend(q, pools.layer(layer.kv_layer), state.plans[layer.kind])
        out = kernels.linear(attended.view(-1, width), weights.o)
        state.hidden = kernels.norm_add(state.hidden, out, weights.post_attention_norm, eps)

        normed = kernels.rms_norm(state.hidden, weights.pre_feedforward_norm, eps)
        wide = kernels.geglu(kernels.linear(normed, weights.gate), kernels.linear(normed, weights.up))
        out = kernels.linear(wide, weights.down)
        if weights.experts is not None:
            out = self._with_experts(weights.experts, state.hidden, out)
        state.hidden = kernels.norm_add(state.hidden, out, weights.post_feedforward_norm, eps)

        if state.per_layer is not None:
            assert weights.per_layer_gate is not None
            assert weights.per_layer_projection is not None
            assert weights.per_layer_norm is not None
            gate = kernels.linear(state.hidden, weights.per_layer_gate)
            gated = kernels.geglu(gate, state.per_layer[:, layer.index])
            out = kernels.linear(gated, weights.per_layer_projection)
            state.hidden = kernels.norm_add(state.hidden, out, weights.per_layer_norm, eps)
        state.hidden = state.hidden.mul_(weights.scalar)
        return True

    def _with_experts(self, weights: ExpertWeights, residual: torch.Tensor, mlp_out: torch.Tensor) -> torch.Tensor:
        """The MLP's output and the experts', each normed, added. Router and experts read the residual."""
        kernels, config = self.kernels, self.config
        assert config.experts is not None
        seen = kernels.rms_norm(residual, None, config.eps).mul_(weights.router_scale).mul_(config.hidden_size**-0.5)
        shares = torch.softmax(kernels.linear(seen, weights.router).float(), dim=-1)
        chosen = shares.sort(dim=-1, descending=True, stable=True)  # equal shares: the lower expert first
        expert = chosen.indices[:, : config.experts.top_k]
        share = chosen.values[:, : config.experts.top_k]
        share = share / share.sum(-1, keepdim=True) * weights.expert_scale[expert]
        normed = kernels.rms_norm(residual, weights.pre_norm, config.eps)
        out = kernels.experts(normed, weights.gate_up, weights.down, expert, share)
        mlp_out = kernels.rms_norm(mlp_out, weights.mlp_norm, config.eps)
        return kernels.norm_add(mlp_out, out, weights.post_norm, config.eps)

    def _write(
        self, layer: LayerConfig, weights: LayerWeights, stacked: torch.Tensor, state: _State, pools: KvPools
    ) -> None:
        kernels, eps = self.kernels, self.config.eps
        heads = stacked.view(len(stacked), -1, layer.head_dim)
        k_raw = heads[:, : layer.num_kv_heads]
        v_raw = k_raw if layer.k_eq_v else heads[:, layer.num_kv_heads :]
        k = kernels.rope(kernels.rms_norm(k_raw, weights.k_norm, eps), *state.turns[layer.kind])
        v = kernels.rms_norm(v_raw, None, eps)
        kernels.write_kv(pools.layer(layer.index), k, v, state.rows.write_row, state.rows.kinds[layer.kind].slot)


@dataclass(slots=True)
class _State:
    """What changes on the way up."""

    rows: DeviceRows
    hidden: torch.Tensor
    turns: dict[LayerKind, tuple[torch.Tensor, torch.Tensor]]
    plans: Mapping[LayerKind, Any]
    per_layer: torch.Tensor | None

    def keep_read(self) -> None:
        """From here on only the read rows."""
        read = self.rows.read
        self.hidden = self.hidden.index_select(0, read)
        self.turns = {k: (cos.index_select(0, read), sin.index_select(0, read)) for k, (cos, sin) in self.turns.items()}
        self.per_layer = None if self.per_layer is None else self.per_layer.index_select(0, read)
        self.plans = self.rows.read_plans


def _frequencies(config: TextConfig, kind: LayerKind) -> torch.Tensor:
    """[head_dim / 2] inverse frequencies: exponents over the whole head, zero where the head does not turn."""
    rope = config.rope[kind]
    head_dim = next(layer.head_dim for layer in config.layers if layer.kind == kind)
    exponents = torch.arange(0, 2 * rope.num_angles, 2, dtype=torch.float) / head_dim
    turning = 1.0 / (rope.theta**exponents) / rope.factor
    return torch.cat((turning, torch.zeros(head_dim // 2 - rope.num_angles)))

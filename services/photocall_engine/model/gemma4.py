"""The text decoder of Gemma 4, over rows: K/V of all rows first, then every row attends through its block table.

`lower` runs every row up to the K/V of the last layer that writes any; from there on `upper` runs only the rows that
somebody reads. Padding is rows like others, on page 0. What the layers do is written in the paper's terms; how is the
kernels' business. No step asks the device anything, so both parts can be captured in graphs over `DeviceRows` that stay
where they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from photocall_engine.kernels import HeadShape, Kernels
from photocall_engine.kv_pools import KvPools
from photocall_engine.model.config import LayerConfig, LayerKind, TextConfig
from photocall_engine.model.text_weights import ExpertWeights, TextWeights


@dataclass(frozen=True, slots=True)
class KindRows:
    """What depends on the layer kind: the attention plan and where K/V go. Made by `RowBuffers`."""

    plan: Any
    slot: torch.Tensor  # [W] slots of this kind's pool, for rows `write_row`


@dataclass(frozen=True, slots=True)
class DeviceRows:
    """A RowBatch on the device, with null rows up to the wanted size. int32. Made by `RowBuffers`."""

    tokens: torch.Tensor  # [R] the pad id at picture rows
    pos: torch.Tensor  # [R]
    soft_idx: torch.Tensor  # [R] row of the arena that replaces the embedding, or -1
    write_row: torch.Tensor  # [W] rows whose K/V are written: 0, 1, ..., then the extra ones
    kinds: Mapping[LayerKind, KindRows]
    read: torch.Tensor  # [Q] rows that are read; empty: nobody reads
    read_pos: torch.Tensor  # [Q] their positions
    read_place: torch.Tensor  # [Q] 0, 1, ...
    read_plans: Mapping[LayerKind, Any]  # attention plans of the read rows alone


@dataclass(frozen=True, slots=True)
class Carried:
    """What `upper` needs from `lower`."""

    hidden: torch.Tensor  # [R, hidden] as the last K/V-writing layer finds it
    per_layer: torch.Tensor | None  # [R, layers from that one on, per_layer_size]


class TextDecoder:
    """Weights, configuration and kernels put together. Holds no state of any request."""

    def __init__(self, config: TextConfig, weights: TextWeights, kernels: Kernels) -> None:
        self.config = config
        self.weights = weights
        self.kernels = kernels
        dtype, device = weights.embedding.dtype, weights.embedding.device
        # rounded to the weights' type before multiplying
        self._embed_scale = float(torch.tensor(math.sqrt(config.hidden_size)).to(dtype))
        self._per_layer_scale = float(torch.tensor(math.sqrt(config.per_layer_size)).to(dtype))
        self._frequencies = {kind: _frequencies(config, kind).to(device) for kind in config.rope}
        self._prepared_head = kernels.prepare_head(weights.head)

    def forward(self, rows: DeviceRows, arena: torch.Tensor, pools: KvPools) -> torch.Tensor:
        """Write K/V of all rows; return the normed hidden states of the read rows [Q, hidden]."""
        carried = self.lower(rows, arena, pools)
        return self.upper(rows, carried, pools) if len(rows.read) else carried.hidden[:0]

    def lower(self, rows: DeviceRows, arena: torch.Tensor, pools: KvPools) -> Carried:
        """All rows, up to the K/V of the last layer that writes any."""
        config, kernels, last = self.config, self.kernels, self.config.last_writer
        hidden = self._embed(rows, arena)
        per_layer = self._per_layer_inputs(rows.tokens, hidden)
        turns = self._turns(rows.pos)
        normed = kernels.rms_norm(hidden, self.weights.layers[0].input_norm, config.eps)
        for layer, weights in zip(config.layers[:last], self.weights.layers, strict=False):
            of_kind = rows.kinds[layer.kind]
            q = kernels.turn_and_write(
                kernels.linear(normed, weights.qkv),
                weights.q_norm,
                weights.k_norm,
                turns[layer.kind],
                config.eps,
                pools.layer(layer.index),
                rows.write_row,
                of_kind.slot,
                HeadShape(config.num_heads, layer.num_kv_heads, layer.head_dim),
            )
            gate = None if per_layer is None else per_layer[:, layer.index]
            hidden, normed = self._behind_queries(layer, q, hidden, gate, of_kind.plan, pools)
        layer, weights = config.layers[last], self.weights.layers[last]
        kernels.turn_and_write(
            kernels.linear(normed, weights.qkv[config.num_heads * layer.head_dim :]),
            None,
            weights.k_norm,
            turns[layer.kind],
            config.eps,
            pools.layer(last),
            rows.write_row,
            rows.kinds[layer.kind].slot,
            HeadShape(0, layer.num_kv_heads, layer.head_dim),
        )
        return Carried(hidden, None if per_layer is None else per_layer[:, last:])

    def upper(self, rows: DeviceRows, carried: Carried, pools: KvPools) -> torch.Tensor:
        """The read rows, from the queries of the last K/V-writing layer on: [Q, hidden], normed."""
        config, kernels, last = self.config, self.kernels, self.config.last_writer
        hidden = carried.hidden.index_select(0, rows.read)
        per_layer = None if carried.per_layer is None else carried.per_layer.index_select(0, rows.read)
        turns = self._turns(rows.read_pos)
        normed = kernels.rms_norm(hidden, self.weights.layers[last].input_norm, config.eps)
        for layer, weights in zip(config.layers[last:], self.weights.layers[last:], strict=True):
            q = kernels.turn_and_write(
                kernels.linear(normed, weights.qkv[: config.num_heads * layer.head_dim]),
                weights.q_norm,
                None,
                turns[layer.kind],
                config.eps,
                None,
                rows.read_place,
                rows.read_place,
                HeadShape(config.num_heads, 0, layer.head_dim),
            )
            gate = None if per_layer is None else per_layer[:, layer.index - last]
            hidden, normed = self._behind_queries(layer, q, hidden, gate, rows.read_plans[layer.kind], pools)
        return normed

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[n, vocabulary], softcapped float32. Rows padded to the row tile."""
        logits = self.kernels.linear(hidden, self.weights.head, out_dtype=torch.float32)
        cap = self.config.softcap
        return logits if cap is None else torch.tanh(logits / cap) * cap

    def label_logits(self, hidden: torch.Tensor, label_ids: torch.Tensor) -> torch.Tensor:
        """[n, m] of the labels alone, softcapped float32; the bits of a pair depend on nothing else."""
        return self.kernels.letter_logits(hidden, self.weights.head, label_ids, self.config.softcap)

    def pick(self, hidden: torch.Tensor, allowed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(token int32[n], log probability float32[n]) among the ids with allowed uint8[V] != 0. Rows padded."""
        return self.kernels.pick(hidden, self.weights.head, allowed, self.config.softcap)

    def greedy(self, hidden: torch.Tensor, excluded: torch.Tensor) -> torch.Tensor:
        """int32[n]: the token of the largest logit, none of excluded int32[n, 3] (-1: none), ties to the lowest."""
        return self.kernels.greedy(hidden, self.weights.head, self._prepared_head, excluded)

    def _embed(self, rows: DeviceRows, arena: torch.Tensor) -> torch.Tensor:
        return self.kernels.embed(rows.tokens, self.weights.embedding, self._embed_scale, rows.soft_idx, arena)

    def _turns(self, pos: torch.Tensor) -> dict[LayerKind, tuple[torch.Tensor, torch.Tensor]]:
        angles = {kind: torch.outer(pos.float(), inverse) for kind, inverse in self._frequencies.items()}
        return {kind: (angle.cos(), angle.sin()) for kind, angle in angles.items()}

    def _per_layer_inputs(self, tokens: torch.Tensor, embedded: torch.Tensor) -> torch.Tensor | None:
        """[R, layers, per_layer_size]: what each layer's gate lets through."""
        weights = self.weights
        if not self.config.per_layer_size:
            return None
        assert weights.per_layer_table is not None
        assert weights.per_layer_projection is not None
        assert weights.per_layer_norm is not None
        return self.kernels.per_layer_inputs(
            self.kernels.linear(embedded, weights.per_layer_projection),
            tokens,
            weights.per_layer_table,
            weights.per_layer_norm,
            self.config.eps,
            projection_scale=self.config.hidden_size**-0.5,
            table_scale=self._per_layer_scale,
        )

    def _behind_queries(
        self,
        layer: LayerConfig,
        q: torch.Tensor,
        hidden: torch.Tensor,
        per_layer: torch.Tensor | None,
        plan: Any,
        pools: KvPools,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The rest of a layer: the stream behind it, and what the next layer's linears (or the head) read."""
        kernels, eps, weights = self.kernels, self.config.eps, self.weights.layers[layer.index]
        attended = kernels.attend(q, pools.layer(layer.kv_layer), plan)
        out = kernels.unfinished(attended.flatten(1), weights.o)
        hidden, normed = kernels.norm_add(
            hidden, out, weights.post_attention_norm, eps, next_weight=weights.pre_feedforward_norm
        )
        wide = kernels.gated(normed, weights.gate_up)
        if weights.experts is None:
            out = kernels.unfinished(wide, weights.down)
        else:
            out = self._with_experts(weights.experts, hidden, kernels.linear(wide, weights.down))
        norm = weights.post_feedforward_norm
        if per_layer is not None:
            assert weights.per_layer_gate is not None
            assert weights.per_layer_projection is not None
            assert weights.per_layer_norm is not None
            hidden, _ = kernels.norm_add(hidden, out, norm, eps)
            gated = kernels.gated(hidden, weights.per_layer_gate, per_layer)
            out, norm = kernels.unfinished(gated, weights.per_layer_projection), weights.per_layer_norm
        return kernels.norm_add(hidden, out, norm, eps, scalar=weights.scalar, next_weight=self._norm_behind(layer))

    def _norm_behind(self, layer: LayerConfig) -> torch.Tensor:
        """What the stream is normed with after a layer."""
        behind = self.weights.layers[layer.index + 1 : layer.index + 2]
        return behind[0].input_norm if behind else self.weights.norm

    def _with_experts(self, weights: ExpertWeights, residual: torch.Tensor, mlp_out: torch.Tensor) -> torch.Tensor:
        """The MLP's output and the experts', each normed, added. Router and experts read the residual."""
        kernels, config = self.kernels, self.config
        assert config.experts is not None
        seen = kernels.rms_norm(residual, None, config.eps).mul_(weights.router_scale).mul_(config.hidden_size**-0.5)
        logits = kernels.linear(seen, weights.router, out_dtype=torch.float32)
        expert, share = kernels.route(logits, weights.expert_scale, config.experts.top_k)
        normed = kernels.rms_norm(residual, weights.pre_norm, config.eps)
        out = kernels.experts(normed, weights.gate_up, weights.down, expert, share)
        mlp_out = kernels.rms_norm(mlp_out, weights.mlp_norm, config.eps)
        return kernels.norm_add(mlp_out, out, weights.post_norm, config.eps)[0]


def _frequencies(config: TextConfig, kind: LayerKind) -> torch.Tensor:
    """[head_dim / 2] inverse frequencies: exponents over the whole head, zero where the head does not turn."""
    rope = config.rope[kind]
    head_dim = next(layer.head_dim for layer in config.layers if layer.kind == kind)
    exponents = torch.arange(0, 2 * rope.num_angles, 2, dtype=torch.float) / head_dim
    turning = 1.0 / (rope.theta**exponents) / rope.factor
    return torch.cat((turning, torch.zeros(head_dim // 2 - rope.num_angles)))

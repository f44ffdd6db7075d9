"""The text decoder of Gemma 4, over rows: K/V of all rows first, then every row attends through its block table.

Padding rows at the end of a batch only fill up the linears; they never touch a pool. From inside the last layer that
writes K/V on, only the rows that somebody reads are computed. What the layers do is written in the paper's terms; how
is the kernels' business.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from photocall_engine.kernels import Kernels
from photocall_engine.kv_pools import KvPools
from photocall_engine.model.config import LayerConfig, LayerKind, ModelConfig, TextConfig


@dataclass(slots=True)
class LayerWeights:
    """Tensors of one decoder layer; linears that read the same input are stacked. None: the layer has none."""

    input_norm: torch.Tensor
    qkv: torch.Tensor  # [(heads + 2 * kv_heads) * head_dim, hidden]; q and k alone where k = v; q alone where shared
    q_norm: torch.Tensor
    k_norm: torch.Tensor | None
    o: torch.Tensor
    post_attention_norm: torch.Tensor
    pre_feedforward_norm: torch.Tensor
    gate: torch.Tensor
    up: torch.Tensor
    down: torch.Tensor
    post_feedforward_norm: torch.Tensor
    scalar: torch.Tensor  # [1]
    per_layer_gate: torch.Tensor | None
    per_layer_projection: torch.Tensor | None
    per_layer_norm: torch.Tensor | None


@dataclass(slots=True)
class TextWeights:
    """Tensors of the decoder. `head` is the embedding itself where tied."""

    embedding: torch.Tensor  # [vocabulary, hidden]
    layers: list[LayerWeights]
    norm: torch.Tensor
    head: torch.Tensor
    per_layer_table: torch.Tensor | None  # [per-layer vocabulary, layers * per_layer_size]
    per_layer_projection: torch.Tensor | None
    per_layer_norm: torch.Tensor | None
    places: dict[str, torch.Tensor] = field(repr=False)  # checkpoint name -> where it goes

    def linears(self) -> list[torch.Tensor]:
        """Every matrix that rows are multiplied with."""
        found = [self.head] if self.per_layer_projection is None else [self.head, self.per_layer_projection]
        for layer in self.layers:
            found += [layer.qkv, layer.o, layer.gate, layer.up, layer.down]
            if layer.per_layer_gate is not None and layer.per_layer_projection is not None:
                found += [layer.per_layer_gate, layer.per_layer_projection]
        return found


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


def allocate_text(config: ModelConfig, device: torch.device, dtype: torch.dtype, own_head: bool) -> TextWeights:
    """Empty tensors of the decoder and the checkpoint names that fill them. `own_head`: the head is not tied."""
    text = config.text
    maker = _Maker(device, dtype, "model.language_model." if config.multimodal else "model.")
    embedding = maker.make("embed_tokens.weight", text.vocab_size, text.hidden_size)
    layers = [_allocate_layer(maker, text, layer) for layer in text.layers]
    per_layer = len(text.layers) * text.per_layer_size
    table = projection = norm = None
    if per_layer:
        table = maker.make("embed_tokens_per_layer.weight", text.per_layer_vocab_size, per_layer)
        projection = maker.make("per_layer_model_projection.weight", per_layer, text.hidden_size)
        norm = maker.make("per_layer_projection_norm.weight", text.per_layer_size)
    final_norm = maker.make("norm.weight", text.hidden_size)
    head = embedding
    if own_head:
        head = maker.under("").make("lm_head.weight", text.vocab_size, text.hidden_size)
    return TextWeights(embedding, layers, final_norm, head, table, projection, norm, maker.places)


def unneeded(config: ModelConfig, name: str) -> bool:
    """Checkpoint tensors that this engine knows and does not use: audio, and k/v of layers that share them."""
    if name.startswith(("model.audio_tower.", "model.embed_audio.")):
        return True
    prefix = "model.language_model." if config.multimodal else "model."
    stems = [f"{prefix}layers.{layer.index}.self_attn." for layer in config.text.layers if not layer.writes_kv]
    parts = ("k_proj.", "v_proj.", "k_norm.", "v_norm.")
    return any(name.startswith(stem + part) for stem in stems for part in parts)


def _allocate_layer(maker: _Maker, text: TextConfig, layer: LayerConfig) -> LayerWeights:
    at = maker.under(f"{maker.prefix}layers.{layer.index}.")
    hidden, wide = text.hidden_size, layer.intermediate_size
    q_width, kv_width = text.num_heads * layer.head_dim, layer.num_kv_heads * layer.head_dim
    stacked = {"self_attn.q_proj.weight": q_width}
    if layer.writes_kv:
        stacked["self_attn.k_proj.weight"] = kv_width
        if not layer.k_eq_v:
            stacked["self_attn.v_proj.weight"] = kv_width
    size = text.per_layer_size
    return LayerWeights(
        input_norm=at.make("input_layernorm.weight", hidden),
        qkv=at.stack(stacked, hidden),
        q_norm=at.make("self_attn.q_norm.weight", layer.head_dim),
        k_norm=at.make("self_attn.k_norm.weight", layer.head_dim) if layer.writes_kv else None,
        o=at.make("self_attn.o_proj.weight", hidden, q_width),
        post_attention_norm=at.make("post_attention_layernorm.weight", hidden),
        pre_feedforward_norm=at.make("pre_feedforward_layernorm.weight", hidden),
        gate=at.make("mlp.gate_proj.weight", wide, hidden),
        up=at.make("mlp.up_proj.weight", wide, hidden),
        down=at.make("mlp.down_proj.weight", hidden, wide),
        post_feedforward_norm=at.make("post_feedforward_layernorm.weight", hidden),
        scalar=at.make("layer_scalar", 1),
        per_layer_gate=at.make("per_layer_input_gate.weight", size, hidden) if size else None,
        per_layer_projection=at.make("per_layer_projection.weight", hidden, size) if size else None,
        per_layer_norm=at.make("post_per_layer_input_norm.weight", hidden) if size else None,
    )


@dataclass(frozen=True, slots=True)
class _Maker:
    """Makes empty tensors and remembers under which checkpoint name they are filled."""

    device: torch.device
    dtype: torch.dtype
    prefix: str
    places: dict[str, torch.Tensor] = field(default_factory=dict)

    def make(self, name: str, *shape: int) -> torch.Tensor:
        tensor = torch.empty(shape, device=self.device, dtype=self.dtype)
        self.places[self.prefix + name] = tensor
        return tensor

    def stack(self, heights: Mapping[str, int], width: int) -> torch.Tensor:
        """One matrix whose consecutive rows are several of the checkpoint."""
        tensor = torch.empty((sum(heights.values()), width), device=self.device, dtype=self.dtype)
        start = 0
        for name, height in heights.items():
            self.places[self.prefix + name] = tensor[start : start + height]
            start += height
        return tensor

    def under(self, prefix: str) -> _Maker:
        """The same places under another prefix."""
        return replace(self, prefix=prefix)


def _frequencies(config: TextConfig, kind: LayerKind) -> torch.Tensor:
    """[head_dim / 2] inverse frequencies: exponents over the whole head, zero where the head does not turn."""
    rope = config.rope[kind]
    head_dim = next(layer.head_dim for layer in config.layers if layer.kind == kind)
    exponents = torch.arange(0, 2 * rope.num_angles, 2, dtype=torch.float) / head_dim
    turning = 1.0 / (rope.theta**exponents) / rope.factor
    return torch.cat((turning, torch.zeros(head_dim // 2 - rope.num_angles)))

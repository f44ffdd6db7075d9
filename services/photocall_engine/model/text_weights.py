"""The decoder's tensors: what there is, in which shape, and under which checkpoint name.

Linears that read the same input are stacked here, so that loading copies each part to its rows and nothing is
rearranged afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch

from photocall_engine.model.config import ExpertsConfig, LayerConfig, ModelConfig, TextConfig


@dataclass(slots=True)
class ExpertWeights:
    """Tensors of one layer's router and experts, which run beside its MLP."""

    router_scale: torch.Tensor  # [hidden]
    router: torch.Tensor  # [experts, hidden]
    expert_scale: torch.Tensor  # [experts]
    gate_up: torch.Tensor  # [experts, 2 * width, hidden], gate first
    down: torch.Tensor  # [experts, hidden, width]
    pre_norm: torch.Tensor
    mlp_norm: torch.Tensor  # over what the MLP gives
    post_norm: torch.Tensor  # over what the experts give


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
    gate_up: torch.Tensor  # [2 * width, hidden], gate first
    down: torch.Tensor
    post_feedforward_norm: torch.Tensor
    scalar: torch.Tensor  # [1]
    per_layer_gate: torch.Tensor | None
    per_layer_projection: torch.Tensor | None
    per_layer_norm: torch.Tensor | None
    experts: ExpertWeights | None


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
            found += [layer.qkv, layer.o, layer.gate_up, layer.down]
            if layer.per_layer_gate is not None and layer.per_layer_projection is not None:
                found += [layer.per_layer_gate, layer.per_layer_projection]
            if layer.experts is not None:
                found += [layer.experts.router, layer.experts.gate_up[0], layer.experts.down[0]]
        return found


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
        gate_up=at.stack({"mlp.gate_proj.weight": wide, "mlp.up_proj.weight": wide}, hidden),
        down=at.make("mlp.down_proj.weight", hidden, wide),
        post_feedforward_norm=at.make("post_feedforward_layernorm.weight", hidden),
        scalar=at.make("layer_scalar", 1),
        per_layer_gate=at.make("per_layer_input_gate.weight", size, hidden) if size else None,
        per_layer_projection=at.make("per_layer_projection.weight", hidden, size) if size else None,
        per_layer_norm=at.make("post_per_layer_input_norm.weight", hidden) if size else None,
        experts=_allocate_experts(at, text, text.experts) if text.experts else None,
    )


def _allocate_experts(at: _Maker, text: TextConfig, experts: ExpertsConfig) -> ExpertWeights:
    hidden, width = text.hidden_size, experts.width
    return ExpertWeights(
        router_scale=at.make("router.scale", hidden),
        router=at.make("router.proj.weight", experts.count, hidden),
        expert_scale=at.make("router.per_expert_scale", experts.count),
        gate_up=at.make("experts.gate_up_proj", experts.count, 2 * width, hidden),
        down=at.make("experts.down_proj", experts.count, hidden, width),
        pre_norm=at.make("pre_feedforward_layernorm_2.weight", hidden),
        mlp_norm=at.make("post_feedforward_layernorm_1.weight", hidden),
        post_norm=at.make("post_feedforward_layernorm_2.weight", hidden),
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

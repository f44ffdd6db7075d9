"""`config.json` of a Gemma 4 checkpoint as typed, resolved facts: every per-layer question is answered here, once.

A field that is missing takes the default of the reference implementation; a field this engine cannot honour is an
error that names it. Nothing here touches tensors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from photocall_engine.model.fields import ConfigError, Fields

LayerKind: TypeAlias = Literal["sliding", "full"]
_MODEL_TYPES = ("gemma4", "gemma4_text", "gemma4_unified", "gemma4_unified_text")
_KINDS: dict[str, LayerKind] = {"sliding_attention": "sliding", "full_attention": "full"}
_DEFAULT_ROPE: dict[str, dict[str, Any]] = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1_000_000.0},
}


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary angles of one layer kind: `num_angles` of head_dim / 2 turn, the rest stand still."""

    theta: float
    factor: float  # positions are divided by it
    num_angles: int


@dataclass(frozen=True, slots=True)
class LayerConfig:
    """One decoder layer. `kv_layer` is the layer whose K/V it reads: its own index where it writes them."""

    index: int
    kind: LayerKind
    head_dim: int
    num_kv_heads: int
    k_eq_v: bool
    kv_layer: int
    intermediate_size: int

    @property
    def writes_kv(self) -> bool:
        """False for the upper layers that share the K/V of a lower one."""
        return self.kv_layer == self.index


@dataclass(frozen=True, slots=True)
class ExpertsConfig:
    """Experts beside the MLP of every layer: each row takes `top_k` of `count`."""

    count: int
    top_k: int
    width: int


@dataclass(frozen=True, slots=True)
class TextConfig:
    """The text decoder. `window` counts the row itself; 0 where no layer slides."""

    vocab_size: int
    hidden_size: int
    num_heads: int
    layers: tuple[LayerConfig, ...]
    window: int
    bidirectional_images: bool
    rope: Mapping[LayerKind, Rope]
    eps: float
    softcap: float | None
    pad_token_id: int
    max_positions: int
    tied_head: bool
    per_layer_size: int  # width of the per-layer embeddings; 0: the model has none
    per_layer_vocab_size: int
    experts: ExpertsConfig | None

    @property
    def last_writer(self) -> int:
        """Index of the last layer that writes K/V: above it only read rows run."""
        return max(layer.index for layer in self.layers if layer.writes_kv)


@dataclass(frozen=True, slots=True)
class VisionConfig:
    """The vision tower."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    patch_size: int
    pool: int  # pool x pool patches make one soft token: 3, which the whole service counts with
    num_positions: int  # per axis
    theta: float
    eps: float
    clipped: bool
    standardize: bool


@dataclass(frozen=True, slots=True)
class MergerConfig:
    """What a unified checkpoint has instead of a tower: blocks of patches go straight into the text model's width."""

    width: int
    num_positions: int  # per axis, counted in soft tokens
    patch_size: int
    pool: int
    eps: float


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A checkpoint: text alone (`vision` None), or text with its way of seeing."""

    text: TextConfig
    vision: VisionConfig | MergerConfig | None
    multimodal: bool  # weights are named model.language_model.*, not model.*


def read_config(directory: Path) -> ModelConfig:
    """Parse `directory/config.json`. Raises ConfigError."""
    path = directory / "config.json"
    try:
        raw = json.loads(path.read_text())
    except OSError as error:
        raise ConfigError("(file)", f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError("(file)", f"{path} is not JSON: {error}") from error
    return parse_config(raw)


def parse_config(raw: Mapping[str, Any]) -> ModelConfig:
    """The same from the parsed JSON."""
    kind = raw.get("model_type")
    top = Fields(raw, "")
    if kind not in _MODEL_TYPES:
        raise ConfigError("model_type", f"{kind!r} is not supported; this engine runs {', '.join(_MODEL_TYPES)}")
    unified = kind.startswith("gemma4_unified")
    if kind.endswith("_text"):
        return ModelConfig(_text(top, top, unified), None, multimodal=False)
    vision = top.optional_section("vision_config")
    text = _text(top.section("text_config"), top, unified)
    see = _merger if unified else _vision
    return ModelConfig(text, None if vision is None else see(vision), multimodal=True)


def _text(fields: Fields, top: Fields, unified: bool) -> TextConfig:
    fields.only("hidden_activation", "gelu_pytorch_tanh")
    fields.only("attention_bias", False)
    bidirectional = fields.get("use_bidirectional_attention")
    if unified and not fields.written("use_bidirectional_attention"):
        bidirectional = "vision"
    if bidirectional not in (None, "vision"):
        raise fields.fail("use_bidirectional_attention", f"{bidirectional!r} is not supported, only null and 'vision'")
    layers = _layers(fields)
    kinds = {layer.kind for layer in layers}
    return TextConfig(
        vocab_size=fields.integer("vocab_size"),
        hidden_size=fields.integer("hidden_size"),
        num_heads=fields.integer("num_attention_heads"),
        layers=layers,
        window=fields.integer("sliding_window", 1024 if unified else 512) if "sliding" in kinds else 0,
        bidirectional_images=bidirectional == "vision",
        rope=_ropes(fields, layers),
        eps=fields.number("rms_norm_eps", 1e-6),
        softcap=fields.number("final_logit_softcapping") if fields.has("final_logit_softcapping") else None,
        pad_token_id=fields.integer("pad_token_id", 0, minimum=0),
        max_positions=fields.integer("max_position_embeddings", 262_144 if unified else 131_072),
        tied_head=top.flag("tie_word_embeddings", True),
        per_layer_size=0 if unified else fields.integer("hidden_size_per_layer_input", 256, minimum=0),
        per_layer_vocab_size=fields.integer("vocab_size_per_layer_input", 262_144),
        experts=_experts(fields) if not unified and fields.flag("enable_moe_block") else None,
    )


def _experts(fields: Fields) -> ExpertsConfig:
    count, top_k = fields.integer("num_experts"), fields.integer("top_k_experts")
    if top_k > count:
        raise fields.fail("top_k_experts", f"{top_k} of {count} experts")
    return ExpertsConfig(count, top_k, fields.integer("moe_intermediate_size"))


def _layers(fields: Fields) -> tuple[LayerConfig, ...]:
    count = fields.integer("num_hidden_layers")
    kinds = _layer_kinds(fields, count)
    num_shared = fields.integer("num_kv_shared_layers", 0, minimum=0)
    first_shared = count - num_shared
    if first_shared <= 0:
        raise fields.fail("num_kv_shared_layers", f"{num_shared} of {count} layers leave none that writes K/V")
    width = fields.integer("intermediate_size")
    wide = fields.flag("use_double_wide_mlp")
    k_eq_v = fields.flag("attention_k_eq_v")
    num_heads = fields.integer("num_attention_heads")
    overrides = _overrides(fields, kinds, k_eq_v)
    layers = []
    for index, kind in enumerate(kinds):
        shared = index >= first_shared
        source = index
        if shared:
            lower = [i for i in range(first_shared) if kinds[i] == kind]
            if not lower:
                raise fields.fail("num_kv_shared_layers", f"layer {index} has no lower {kind} layer to share K/V with")
            source = lower[-1]
        head_dim = overrides[index].get("head_dim", fields.integer("head_dim", 256))
        num_kv_heads = overrides[index].get("num_key_value_heads", fields.integer("num_key_value_heads", 4))
        if head_dim % 2 or num_heads % num_kv_heads:
            raise fields.fail(
                "per_layer_config",
                f"layer {index}: head_dim {head_dim} must be even and num_key_value_heads {num_kv_heads}"
                f" divide num_attention_heads {num_heads}",
            )
        layers.append(
            LayerConfig(
                index=index,
                kind=kind,
                head_dim=head_dim,
                num_kv_heads=num_kv_heads,
                k_eq_v=k_eq_v and kind == "full",
                kv_layer=source,
                intermediate_size=width * 2 if wide and shared else width,
            )
        )
    for layer in layers:
        source_layer = layers[layer.kv_layer]
        if (layer.head_dim, layer.num_kv_heads) != (source_layer.head_dim, source_layer.num_kv_heads):
            raise fields.fail("per_layer_config", f"layers {layer.index} and {layer.kv_layer} share K/V but not shapes")
    return tuple(layers)


def _layer_kinds(fields: Fields, count: int) -> list[LayerKind]:
    names = fields.get("layer_types")
    if names is None:
        names = ["full_attention" if (i + 1) % 6 == 0 else "sliding_attention" for i in range(count)]
    if not isinstance(names, list) or len(names) != count:
        raise fields.fail("layer_types", f"expected a list of {count} layer kinds")
    for name in names:
        if name not in _KINDS:
            raise fields.fail("layer_types", f"{name!r} is not one of {sorted(_KINDS)}")
    return [*(_KINDS[name] for name in names[:-1]), "full"]


def _overrides(fields: Fields, kinds: list[LayerKind], k_eq_v: bool) -> list[dict[str, int]]:
    """head_dim and num_key_value_heads that differ from the common ones, from either way of writing them."""
    section = fields.optional_section("per_layer_config")
    if section is not None:
        numbers = [str(index) for index in range(len(kinds))]
        section.known(numbers, f"there are {len(kinds)} layers")
        return [_override(section.section(number)) if section.has(number) else {} for number in numbers]
    override = {"head_dim": fields.integer("global_head_dim", 512)}
    if k_eq_v and fields.has("num_global_key_value_heads"):
        override["num_key_value_heads"] = fields.integer("num_global_key_value_heads")
    return [override if kind == "full" else {} for kind in kinds]


def _override(layer: Fields) -> dict[str, int]:
    names = ["head_dim", "num_key_value_heads"]
    layer.known(names, f"only {' and '.join(names)} can differ between layers")
    return {name: layer.integer(name) for name in names if layer.has(name)}


def _ropes(fields: Fields, layers: tuple[LayerConfig, ...]) -> dict[LayerKind, Rope]:
    section = fields.optional_section("rope_parameters")
    if section is None:
        section = Fields(_DEFAULT_ROPE, fields.dotted("rope_parameters"))
    ropes: dict[LayerKind, Rope] = {}
    for name, kind in _KINDS.items():
        head_dims = {layer.head_dim for layer in layers if layer.kind == kind}
        if not head_dims:
            continue
        if len(head_dims) > 1:
            raise fields.fail("per_layer_config", f"{kind} layers differ in head_dim: {sorted(head_dims)}")
        rope = section.section(name)
        head_dim = head_dims.pop()
        theta = rope.number("rope_theta")
        form = rope.get("rope_type", "default")
        if form == "default":
            ropes[kind] = Rope(theta, 1.0, head_dim // 2)
        elif form == "proportional":
            share = rope.number("partial_rotary_factor", 1.0)
            ropes[kind] = Rope(theta, rope.number("factor", 1.0), int(share * head_dim // 2))
        else:
            raise rope.fail("rope_type", f"{form!r} is not supported, only 'default' and 'proportional'")
    return ropes


def _vision(fields: Fields) -> VisionConfig:
    fields.only("model_type", "gemma4_vision")
    fields.only("hidden_activation", "gelu_pytorch_tanh")
    fields.only("attention_bias", False)
    fields.only("patch_size", 16)
    fields.only("pooling_kernel_size", 3)
    rope = fields.optional_section("rope_parameters") or Fields({}, fields.dotted("rope_parameters"))
    if rope.get("rope_type", "axial") not in ("axial", "default"):  # older checkpoints write 'default' and mean axial
        raise rope.fail("rope_type", f"{rope.get('rope_type')!r} is not supported, only 'axial'")
    head_dim = fields.integer("head_dim", 64)
    if head_dim % 4:
        raise fields.fail("head_dim", f"{head_dim} is not a multiple of 4")
    return VisionConfig(
        hidden_size=fields.integer("hidden_size", 768),
        intermediate_size=fields.integer("intermediate_size", 3072),
        num_layers=fields.integer("num_hidden_layers", 16),
        num_heads=fields.integer("num_attention_heads", 12),
        num_kv_heads=fields.integer("num_key_value_heads", 12),
        head_dim=head_dim,
        patch_size=16,
        pool=3,
        num_positions=fields.integer("position_embedding_size", 10_240),
        theta=rope.number("rope_theta", 100.0),
        eps=fields.number("rms_norm_eps", 1e-6),
        clipped=fields.flag("use_clipped_linears"),
        standardize=fields.flag("standardize"),
    )


def _merger(fields: Fields) -> MergerConfig:
    fields.only("model_type", "gemma4_unified_vision")
    fields.only("patch_size", 16)
    fields.only("pooling_kernel_size", 3)
    width = fields.integer("mm_embed_dim", 3840)
    fields.only("output_proj_dims", width)
    return MergerConfig(
        width=width,
        num_positions=fields.integer("mm_posemb_size", 1120),
        patch_size=16,
        pool=3,
        eps=fields.number("rms_norm_eps", 1e-6),
    )

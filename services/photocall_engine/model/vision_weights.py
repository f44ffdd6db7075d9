"""Tensors of the vision tower: what there is, in which shape, and under which checkpoint name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from photocall_engine.kernels.vision import Clip
from photocall_engine.model.config import TextConfig, VisionConfig

_TOWER = "model.vision_tower."
_EMBED = "model.embed_vision."
_BOUNDS = ("input_min", "input_max", "output_min", "output_max")


@dataclass(slots=True)
class Stacked:
    """Linears that read the same input, one above the other, and the bounds that a clipping checkpoint puts on each."""

    weight: torch.Tensor  # [sum of heights, width]
    heights: tuple[int, ...]
    bounds: torch.Tensor | None  # [linears, 4] input_min, input_max, output_min, output_max

    def inputs(self) -> list[Clip]:
        """What each linear's input is kept within."""
        return [Clip(*row[:2]) for row in self._rows()]

    def outputs(self) -> list[Clip]:
        """What each linear's output is kept within."""
        return [Clip(*row[2:]) for row in self._rows()]

    def _rows(self) -> list[list[float]]:
        if self.bounds is None:
            return [[-math.inf, math.inf] * 2 for _ in self.heights]
        rows: list[list[float]] = self.bounds.float().tolist()
        return rows


@dataclass(slots=True)
class VisionLayer:
    """One block of the tower."""

    input_norm: torch.Tensor
    qkv: Stacked
    q_norm: torch.Tensor
    k_norm: torch.Tensor
    o: Stacked
    post_attention_norm: torch.Tensor
    pre_feedforward_norm: torch.Tensor
    gate_up: Stacked
    down: Stacked
    post_feedforward_norm: torch.Tensor


@dataclass(slots=True)
class VisionWeights:
    """All tensors of the tower and its projection."""

    patch_projection: torch.Tensor
    positions: torch.Tensor  # [2, num_positions, hidden]: by x, by y
    layers: list[VisionLayer]
    std_bias: torch.Tensor | None
    std_scale: torch.Tensor | None
    projection: torch.Tensor
    places: dict[str, torch.Tensor] = field(repr=False)

    def linears(self) -> list[torch.Tensor]:
        """Every matrix that rows are multiplied with."""
        found = [self.patch_projection, self.projection]
        for layer in self.layers:
            found += [layer.qkv.weight, layer.o.weight, layer.gate_up.weight, layer.down.weight]
        return found


def allocate_vision(config: VisionConfig, text: TextConfig, device: torch.device, dtype: torch.dtype) -> VisionWeights:
    """Empty tensors of the tower and the checkpoint names that fill them."""
    places: dict[str, torch.Tensor] = {}

    def make(name: str, *shape: int) -> torch.Tensor:
        places[name] = torch.empty(shape, device=device, dtype=dtype)
        return places[name]

    def stack(heights: Mapping[str, int], width: int) -> Stacked:
        weight = torch.empty((sum(heights.values()), width), device=device, dtype=dtype)
        bounds = torch.empty((len(heights), 4), device=device, dtype=dtype) if config.clipped else None
        start = 0
        for index, (name, height) in enumerate(heights.items()):
            places[f"{name}.linear.weight"] = weight[start : start + height]
            start += height
            if bounds is not None:
                for column, bound in enumerate(_BOUNDS):
                    places[f"{name}.{bound}"] = bounds[index, column]
        return Stacked(weight, tuple(heights.values()), bounds)

    def block(at: str) -> VisionLayer:
        q_width, kv_width = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        qkv = {f"{at}self_attn.q_proj": q_width, f"{at}self_attn.k_proj": kv_width, f"{at}self_attn.v_proj": kv_width}
        return VisionLayer(
            input_norm=make(f"{at}input_layernorm.weight", hidden),
            qkv=stack(qkv, hidden),
            q_norm=make(f"{at}self_attn.q_norm.weight", config.head_dim),
            k_norm=make(f"{at}self_attn.k_norm.weight", config.head_dim),
            o=stack({f"{at}self_attn.o_proj": hidden}, q_width),
            post_attention_norm=make(f"{at}post_attention_layernorm.weight", hidden),
            pre_feedforward_norm=make(f"{at}pre_feedforward_layernorm.weight", hidden),
            gate_up=stack({f"{at}mlp.gate_proj": wide, f"{at}mlp.up_proj": wide}, hidden),
            down=stack({f"{at}mlp.down_proj": hidden}, wide),
            post_feedforward_norm=make(f"{at}post_feedforward_layernorm.weight", hidden),
        )

    hidden, wide = config.hidden_size, config.intermediate_size
    return VisionWeights(
        patch_projection=make(f"{_TOWER}patch_embedder.input_proj.weight", hidden, 3 * config.patch_size**2),
        positions=make(f"{_TOWER}patch_embedder.position_embedding_table", 2, config.num_positions, hidden),
        layers=[block(f"{_TOWER}encoder.layers.{i}.") for i in range(config.num_layers)],
        std_bias=make(f"{_TOWER}std_bias", hidden) if config.standardize else None,
        std_scale=make(f"{_TOWER}std_scale", hidden) if config.standardize else None,
        projection=make(f"{_EMBED}embedding_projection.weight", text.hidden_size, hidden),
        places=places,
    )

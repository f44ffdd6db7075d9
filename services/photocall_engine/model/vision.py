"""The vision tower: uint8 patches of one picture to its soft tokens in the text model's width.

Each picture runs alone, so its soft tokens have the same bits whatever else is being served.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from numpy import uint8
from numpy.typing import NDArray

from photocall_engine.model.config import TextConfig, VisionConfig

_TOWER = "model.vision_tower."
_EMBED = "model.embed_vision."


@dataclass(slots=True)
class Linear:
    """A matrix and, where the checkpoint clips, the bounds of its input and output."""

    weight: torch.Tensor
    bounds: torch.Tensor | None = None  # [4] input_min, input_max, output_min, output_max

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self.bounds is None:
            return F.linear(x, self.weight)
        in_min, in_max, out_min, out_max = self.bounds.tolist()
        return F.linear(x.clamp(in_min, in_max), self.weight).clamp_(out_min, out_max)


@dataclass(slots=True)
class VisionLayer:
    """One block of the tower."""

    input_norm: torch.Tensor
    q: Linear
    k: Linear
    v: Linear
    q_norm: torch.Tensor
    k_norm: torch.Tensor
    o: Linear
    post_attention_norm: torch.Tensor
    pre_feedforward_norm: torch.Tensor
    gate: Linear
    up: Linear
    down: Linear
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


class VisionTower:
    """Encodes one picture at a time."""

    def __init__(self, config: VisionConfig, weights: VisionWeights) -> None:
        self.config = config
        self.weights = weights
        half = config.head_dim // 2
        self._frequencies = 1.0 / (config.theta ** (torch.arange(0, half, 2, dtype=torch.float) / half))

    def encode(self, patches: NDArray[uint8], grid_height: int, grid_width: int) -> torch.Tensor:
        """Patches [grid_height * grid_width, 768], row-major, to [num_soft, text hidden]. Raises ValueError."""
        config, weights = self.config, self.weights
        if patches.shape != (grid_height * grid_width, 3 * config.patch_size**2):
            raise ValueError(f"patches {patches.shape} do not fit a grid of {grid_height} x {grid_width}")
        if grid_height % config.pool or grid_width % config.pool:
            raise ValueError(f"grid {grid_height} x {grid_width} is not a multiple of {config.pool}")
        if max(grid_height, grid_width) > config.num_positions:
            raise ValueError(f"grid {grid_height} x {grid_width} exceeds the tower's {config.num_positions} positions")
        pixels = torch.from_numpy(patches.astype("float32"))  # a copy: patches are read-only, of which torch warns
        pixels = pixels.div_(255.0).sub_(0.5).mul_(2.0).to(weights.patch_projection.dtype)
        y, x = (
            index.flatten() for index in torch.meshgrid(*map(torch.arange, (grid_height, grid_width)), indexing="ij")
        )
        hidden = F.linear(pixels, weights.patch_projection) + (weights.positions[0][x] + weights.positions[1][y])
        turns = [torch.outer(axis.float(), self._frequencies) for axis in (x, y)]
        cos, sin = (torch.stack([fn(turn) for turn in turns], dim=1)[:, None] for fn in (torch.cos, torch.sin))
        for layer in weights.layers:
            hidden = self._block(layer, hidden, cos, sin)
        return self._project(self._pool(hidden, grid_height, grid_width))

    def _block(self, layer: VisionLayer, hidden: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        eps = self.config.eps
        normed = norm(hidden, layer.input_norm, eps)
        q, k, v = (linear(normed).view(len(normed), -1, self.config.head_dim) for linear in (layer.q, layer.k, layer.v))
        q = axial_rope(norm(q, layer.q_norm, eps), cos, sin)
        k = axial_rope(norm(k, layer.k_norm, eps), cos, sin)
        v = norm(v, None, eps)
        q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))  # [1, heads, patches, head_dim]
        out = F.scaled_dot_product_attention(q, k, v, scale=1.0, enable_gqa=k.shape[1] != q.shape[1])
        out = layer.o(out[0].transpose(0, 1).flatten(1))
        hidden = norm(out, layer.post_attention_norm, eps).add_(hidden)
        normed = norm(hidden, layer.pre_feedforward_norm, eps)
        out = layer.down(F.gelu(layer.gate(normed), approximate="tanh").mul_(layer.up(normed)))
        return norm(out, layer.post_feedforward_norm, eps).add_(hidden)

    def _pool(self, hidden: torch.Tensor, grid_height: int, grid_width: int) -> torch.Tensor:
        """Mean of each pool x pool block, scaled and standardized in float32."""
        size = self.config.pool
        blocks = hidden.float().view(grid_height // size, size, grid_width // size, size, -1)
        pooled = blocks.mean(dim=(1, 3)).flatten(0, 1).to(hidden.dtype).float() * math.sqrt(self.config.hidden_size)
        if self.weights.std_bias is not None and self.weights.std_scale is not None:
            pooled = (pooled - self.weights.std_bias.float()) * self.weights.std_scale.float()
        return pooled.to(hidden.dtype)

    def _project(self, pooled: torch.Tensor) -> torch.Tensor:
        return F.linear(norm(pooled, None, self.config.eps), self.weights.projection)


def norm(x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
    """RMSNorm in float32 over the last dimension."""
    out = x.float() * x.float().square().mean(-1, keepdim=True).add_(eps).rsqrt_()
    return (out if weight is None else out.mul_(weight.float())).to(x.dtype)


def axial_rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x [n, heads, head_dim]: first half turned by x, second by y; cos, sin [n, 1, 2, head_dim / 4]."""
    parts = x.view(*x.shape[:-1], 2, 2, x.shape[-1] // 4)  # [n, heads, axis, half, head_dim / 4]
    low, high = parts[..., 0, :], parts[..., 1, :]
    return torch.stack((low * cos - high * sin, high * cos + low * sin), dim=-2).flatten(-3)


def allocate_vision(config: VisionConfig, text: TextConfig, device: torch.device, dtype: torch.dtype) -> VisionWeights:
    """Empty tensors of the tower and the checkpoint names that fill them."""
    places: dict[str, torch.Tensor] = {}

    def make(name: str, *shape: int) -> torch.Tensor:
        places[name] = torch.empty(shape, device=device, dtype=dtype)
        return places[name]

    def linear(name: str, rows: int, columns: int) -> Linear:
        weight = make(f"{name}.linear.weight", rows, columns)
        if not config.clipped:
            return Linear(weight)
        bounds = torch.empty(4, device=device, dtype=dtype)
        for i, bound in enumerate(("input_min", "input_max", "output_min", "output_max")):
            places[f"{name}.{bound}"] = bounds[i]
        return Linear(weight, bounds)

    def block(at: str) -> VisionLayer:
        q_width, kv_width = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        return VisionLayer(
            input_norm=make(f"{at}input_layernorm.weight", hidden),
            q=linear(f"{at}self_attn.q_proj", q_width, hidden),
            k=linear(f"{at}self_attn.k_proj", kv_width, hidden),
            v=linear(f"{at}self_attn.v_proj", kv_width, hidden),
            q_norm=make(f"{at}self_attn.q_norm.weight", config.head_dim),
            k_norm=make(f"{at}self_attn.k_norm.weight", config.head_dim),
            o=linear(f"{at}self_attn.o_proj", hidden, q_width),
            post_attention_norm=make(f"{at}post_attention_layernorm.weight", hidden),
            pre_feedforward_norm=make(f"{at}pre_feedforward_layernorm.weight", hidden),
            gate=linear(f"{at}mlp.gate_proj", wide, hidden),
            up=linear(f"{at}mlp.up_proj", wide, hidden),
            down=linear(f"{at}mlp.down_proj", hidden, wide),
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

"""How a unified checkpoint sees: each 3 x 3 block of patches is one vector, normed and projected; no tower.

Layer norms have PyTorch's own epsilon, as the reference implementation's have. Every soft token is computed from its
own block alone, so its bits do not depend on who else is in the pass.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F

from photocall_engine.kernels import Kernels
from photocall_engine.model.config import MergerConfig, TextConfig
from photocall_engine.model.pictures import POOL, SIDE, Pictures, check_grid
from photocall_engine.runner import PatchImage

_EMBEDDER = "model.vision_embedder."


@dataclass(slots=True)
class LayerNorm:
    """Weight and bias of one layer norm."""

    weight: torch.Tensor
    bias: torch.Tensor

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias)


@dataclass(slots=True)
class MergerWeights:
    """All tensors between a block of pixels and the text model's width."""

    patch_norm: LayerNorm
    dense: torch.Tensor  # [width, 6912]
    dense_bias: torch.Tensor
    dense_norm: LayerNorm
    positions: torch.Tensor  # [num_positions, 2, width]: by x, by y
    position_norm: LayerNorm
    projection: torch.Tensor
    places: dict[str, torch.Tensor] = field(repr=False)

    def linears(self) -> list[torch.Tensor]:
        """Every matrix that rows are multiplied with."""
        return [self.dense, self.projection]


class PatchMerger:
    """Encodes any number of pictures in one pass; see `VisionEncoder`."""

    def __init__(self, config: MergerConfig, weights: MergerWeights, kernels: Kernels) -> None:
        self.config = config
        self.weights = weights
        self.kernels = kernels
        self.tile = kernels.row_tile

    def check(self, image: PatchImage) -> None:
        check_grid(image)
        limit = self.config.num_positions * POOL
        if max(image.grid_height, image.grid_width) > limit:
            raise ValueError(f"grid {image.grid_height} x {image.grid_width} exceeds {limit} patches a side")

    def encode(self, pictures: Pictures) -> torch.Tensor:
        weights = self.weights
        pixels = self._blocks(pictures).float().div_(255.0).to(weights.dense.dtype)
        hidden = self.kernels.linear(weights.patch_norm(pixels), weights.dense) + weights.dense_bias
        hidden = weights.dense_norm(hidden)
        x, y = (axis.index_select(0, pictures.soft_row) // POOL for axis in (pictures.x, pictures.y))
        hidden = hidden + (weights.positions[:, 0].index_select(0, x) + weights.positions[:, 1].index_select(0, y))
        hidden = weights.position_norm(hidden)
        normed = self.kernels.rms_norm(hidden, None, self.config.eps)
        return self.kernels.linear(normed, weights.projection)

    def _blocks(self, pictures: Pictures) -> torch.Tensor:
        """[S, 6912] uint8: the pixels of each block, by line (y, x, rgb)."""
        step = torch.arange(POOL, device=pictures.soft_row.device, dtype=pictures.soft_row.dtype)
        rows = pictures.soft_row[:, None, None] + step[:, None] * pictures.soft_width[:, None, None] + step
        patches = pictures.patches.index_select(0, rows.flatten())
        blocks = patches.view(-1, POOL, POOL, SIDE, SIDE, 3)  # [S, line of patches, patch, py, px, rgb]
        return blocks.transpose(2, 3).flatten(1)


def allocate_merger(config: MergerConfig, text: TextConfig, device: torch.device, dtype: torch.dtype) -> MergerWeights:
    """Empty tensors and the checkpoint names that fill them."""
    places: dict[str, torch.Tensor] = {}

    def make(name: str, *shape: int) -> torch.Tensor:
        places[name] = torch.empty(shape, device=device, dtype=dtype)
        return places[name]

    def layer_norm(name: str, width: int) -> LayerNorm:
        return LayerNorm(make(f"{_EMBEDDER}{name}.weight", width), make(f"{_EMBEDDER}{name}.bias", width))

    block, width = 3 * (config.patch_size * config.pool) ** 2, config.width
    return MergerWeights(
        patch_norm=layer_norm("patch_ln1", block),
        dense=make(f"{_EMBEDDER}patch_dense.weight", width, block),
        dense_bias=make(f"{_EMBEDDER}patch_dense.bias", width),
        dense_norm=layer_norm("patch_ln2", width),
        positions=make(f"{_EMBEDDER}pos_embedding", config.num_positions, 2, width),
        position_norm=layer_norm("pos_norm", width),
        projection=make("model.embed_vision.embedding_projection.weight", text.hidden_size, width),
        places=places,
    )

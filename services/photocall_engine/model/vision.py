"""The vision tower: uint8 patches of any number of pictures, packed, to soft tokens in the text model's width.

Rows of different pictures never meet: matrix products keep a row's bits, and everything else is per row or per picture.
No step asks the device anything, so a pass over `Pictures` of one size can be captured in a graph.
"""

from __future__ import annotations

from typing import Protocol

import torch

from photocall_engine.kernels import Kernels
from photocall_engine.kernels.vision import Clip, VisionKernels
from photocall_engine.model.config import VisionConfig
from photocall_engine.model.pictures import Pictures, check_grid
from photocall_engine.model.vision_weights import Stacked, VisionWeights
from photocall_engine.runner import PatchImage


class VisionEncoder(Protocol):
    """What turns pictures into soft tokens: the tower, or a unified checkpoint's merger."""

    tile: int  # rows of a tile in `pack`

    def check(self, image: PatchImage) -> None:
        """Raises ValueError for a picture that this checkpoint cannot take."""

    def encode(self, pictures: Pictures) -> torch.Tensor:
        """[S, text hidden] for every soft token of the pass, null ones included."""


class VisionTower:
    """Encodes any number of pictures in one pass; see `VisionEncoder`. Bounds are read from the weights once, here."""

    def __init__(self, config: VisionConfig, weights: VisionWeights, kernels: Kernels, ops: VisionKernels) -> None:
        self.config = config
        self.weights = weights
        self.kernels = kernels
        self.ops = ops
        self.tile = ops.tile
        half = config.head_dim // 2
        frequencies = 1.0 / config.theta ** (torch.arange(0, half, 2, dtype=torch.float) / half)
        angles = torch.arange(config.num_positions)[:, None] * frequencies
        # float32[positions, head_dim / 4]
        self.turns = angles.cos().to(weights.projection.device), angles.sin().to(weights.projection.device)
        self._layers = [
            (
                layer,
                ops.head_norms(layer.q_norm, layer.k_norm),
                _Linear(layer.qkv),
                _Linear(layer.o),
                _Linear(layer.gate_up),
                _Linear(layer.down),
            )
            for layer in weights.layers
        ]

    def check(self, image: PatchImage) -> None:
        check_grid(image)
        if max(image.grid_height, image.grid_width) > self.config.num_positions:
            raise ValueError(
                f"grid {image.grid_height} x {image.grid_width} exceeds the tower's"
                f" {self.config.num_positions} positions"
            )

    def encode(self, pictures: Pictures) -> torch.Tensor:
        config, weights, ops, eps = self.config, self.weights, self.ops, self.config.eps
        pixels = ops.normalise(pictures.patches, weights.patch_projection.dtype)
        projected = self.kernels.linear(pixels, weights.patch_projection)
        hidden = ops.add_positions(projected, weights.positions, pictures.x, pictures.y)
        normed = ops.clipped_norm(hidden, weights.layers[0].input_norm, eps, self._layers[0][2].clip)
        for index, (layer, norms, qkv, o, gate_up, down) in enumerate(self._layers):
            q_clip, k_clip, v_clip = qkv.outputs
            q, k, v = ops.turn(
                qkv(normed, self.kernels),
                (q_clip, k_clip, v_clip),
                norms,
                self.turns,
                pictures,
                eps,
                config.num_heads,
                config.num_kv_heads,
            )
            out = o(ops.attend(q, k, v, pictures, o.clip, powers=norms.powers), self.kernels)
            hidden, normed = ops.norm_add(
                hidden, out, o.outputs[0], layer.post_attention_norm, layer.pre_feedforward_norm, gate_up.clip, eps
            )
            out = down(self._gated(normed, gate_up, down.clip), self.kernels)
            after = self._layers[index + 1] if index + 1 < len(self._layers) else None
            hidden, normed = ops.norm_add(
                hidden,
                out,
                down.outputs[0],
                layer.post_feedforward_norm,
                None if after is None else after[0].input_norm,
                Clip() if after is None else after[2].clip,
                eps,
            )
        pooled = ops.pool(hidden, pictures, weights.std_bias, weights.std_scale, eps)
        return self.kernels.linear(pooled, weights.projection)

    def _gated(self, normed: torch.Tensor, gate_up: _Linear, clip: Clip) -> torch.Tensor:
        """clip(gelu(gate) * up), in the product itself where gate and up read the same."""
        gate_clip, up_clip = gate_up.outputs
        clips = gate_clip, up_clip, clip
        if gate_up.apart is not None:
            return self.ops.gate(gate_up(normed, self.kernels), clips)
        return self.kernels.gated(normed, gate_up.weight, clips=None if set(clips) == {Clip()} else clips)


class _Linear:
    """A stack of linears with their bounds as numbers. One product where all have the same input bounds, which whoever
    makes the input then applies (`clip`); else one for each."""

    def __init__(self, stacked: Stacked) -> None:
        self.weight = stacked.weight
        self.heights = stacked.heights
        self.outputs = stacked.outputs()
        inputs = stacked.inputs()
        self.apart = inputs if len(set(inputs)) > 1 else None
        self.clip = Clip() if self.apart else inputs[0]

    def __call__(self, x: torch.Tensor, kernels: Kernels) -> torch.Tensor:
        if self.apart is None:
            return kernels.linear(x, self.weight)
        parts = zip(self.apart, torch.split(self.weight, list(self.heights)), strict=True)
        return torch.cat([kernels.linear(x.clamp(*clip), weight) for clip, weight in parts], dim=1)

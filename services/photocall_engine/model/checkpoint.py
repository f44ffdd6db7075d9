"""A checkpoint's tensors in their places on a device: the decoder's, and those of whatever sees pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import torch

from photocall_engine.kernels import Kernels
from photocall_engine.kernels.fp8 import Fp8Weight
from photocall_engine.kernels.vision import choose_vision
from photocall_engine.model.config import MergerConfig, ModelConfig, VisionConfig
from photocall_engine.model.merger import MergerWeights, PatchMerger, allocate_merger
from photocall_engine.model.quantised import settle
from photocall_engine.model.shards import WeightError, read_shards
from photocall_engine.model.text_weights import TextWeights, allocate_text, unneeded
from photocall_engine.model.vision import VisionEncoder, VisionTower
from photocall_engine.model.vision_weights import VisionWeights, allocate_vision
from photocall_engine.model.weights import Place, load_weights

SeeingWeights: TypeAlias = VisionWeights | MergerWeights
_HEAD = "lm_head.weight"


@torch.no_grad()
def read_weights(
    directory: Path, config: ModelConfig, device: torch.device, dtype: torch.dtype, *, fp8: bool = False
) -> tuple[TextWeights, SeeingWeights | None]:
    """The checkpoint's tensors in their places, with `fp8` the decoder's linears in 8 bits. Raises WeightError."""
    own_head = _HEAD in read_shards(directory)
    text, seeing, places = _allocated(config, device, dtype, own_head, fp8)
    load_weights(directory, places, lambda name: unneeded(config, name))
    if own_head and config.text.tied_head and not torch.equal(text.head, text.embedding):
        raise WeightError(f"{directory}: tensor {_HEAD} differs from the embedding, but tie_word_embeddings is true")
    return text, seeing


def allocate(
    config: ModelConfig, device: torch.device, dtype: torch.dtype, own_head: bool
) -> tuple[TextWeights, SeeingWeights | None]:
    """Empty tensors for all of a checkpoint. On the `meta` device they cost nothing and still have names and shapes."""
    return allocate_text(config, device, dtype, own_head=own_head), allocate_seeing(config, device, dtype)


def allocate_seeing(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> SeeingWeights | None:
    """Empty tensors of the tower or the merger; None for a model that sees nothing."""
    if isinstance(config.vision, VisionConfig):
        return allocate_vision(config.vision, config.text, device, dtype)
    if isinstance(config.vision, MergerConfig):
        return allocate_merger(config.vision, config.text, device, dtype)
    return None


def weight_bytes(config: ModelConfig, dtype: torch.dtype, own_head: bool = False, *, fp8: bool = False) -> int:
    """Bytes that all tensors will take on a device."""
    *_, places = _allocated(config, torch.device("meta"), dtype, own_head, fp8)
    kept = [[place.values, place.scale] if isinstance(place, Fp8Weight) else [place] for place in places.values()]
    tensors = [tensor for parts in kept for tensor in parts if isinstance(tensor, torch.Tensor)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _allocated(
    config: ModelConfig, device: torch.device, dtype: torch.dtype, own_head: bool, fp8: bool
) -> tuple[TextWeights, SeeingWeights | None, dict[str, Place]]:
    places: dict[str, Place] = {}
    if fp8:
        text = allocate_text(config, torch.device("meta"), dtype, own_head=own_head)
        places |= settle(text, device)
        seeing = allocate_seeing(config, device, dtype)
    else:
        text, seeing = allocate(config, device, dtype, own_head)
        places |= text.places
    return text, seeing, places | ({} if seeing is None else seeing.places)


def make_encoder(config: ModelConfig, weights: SeeingWeights | None, kernels: Kernels) -> VisionEncoder | None:
    """What turns this checkpoint's pictures into soft tokens; None: it sees none. The weights are filled by now."""
    if isinstance(weights, VisionWeights) and isinstance(config.vision, VisionConfig):
        ops = choose_vision(weights.projection.device, kernels.row_tile)
        return VisionTower(config.vision, weights, kernels, ops)
    if isinstance(weights, MergerWeights) and isinstance(config.vision, MergerConfig):
        return PatchMerger(config.vision, weights, kernels)
    return None

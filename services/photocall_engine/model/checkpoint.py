"""A checkpoint's tensors in their places on a device: the decoder's, and those of whatever sees pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import torch

from photocall_engine.kernels import Kernels
from photocall_engine.kernels.vision import choose_vision
from photocall_engine.model.config import MergerConfig, ModelConfig, VisionConfig
from photocall_engine.model.merger import MergerWeights, PatchMerger, allocate_merger
from photocall_engine.model.shards import WeightError, read_shards
from photocall_engine.model.text_weights import TextWeights, allocate_text, unneeded
from photocall_engine.model.vision import VisionEncoder, VisionTower
from photocall_engine.model.vision_weights import VisionWeights, allocate_vision
from photocall_engine.model.weights import load_weights

SeeingWeights: TypeAlias = VisionWeights | MergerWeights
_HEAD = "lm_head.weight"


@torch.no_grad()
def read_weights(
    directory: Path, config: ModelConfig, device: torch.device, dtype: torch.dtype
) -> tuple[TextWeights, SeeingWeights | None]:
    """The checkpoint's tensors in their places. Raises WeightError."""
    own_head = _HEAD in read_shards(directory)
    text, seeing = allocate(config, device, dtype, own_head)
    places = text.places | ({} if seeing is None else seeing.places)
    load_weights(directory, places, lambda name: unneeded(config, name))
    if own_head and config.text.tied_head and not torch.equal(text.head, text.embedding):
        raise WeightError(f"{directory}: tensor {_HEAD} differs from the embedding, but tie_word_embeddings is true")
    return text, seeing


def allocate(
    config: ModelConfig, device: torch.device, dtype: torch.dtype, own_head: bool
) -> tuple[TextWeights, SeeingWeights | None]:
    """Empty tensors for all of a checkpoint. On the `meta` device they cost nothing and still have names and shapes."""
    text = allocate_text(config, device, dtype, own_head=own_head)
    seeing: SeeingWeights | None = None
    if isinstance(config.vision, VisionConfig):
        seeing = allocate_vision(config.vision, config.text, device, dtype)
    elif isinstance(config.vision, MergerConfig):
        seeing = allocate_merger(config.vision, config.text, device, dtype)
    return text, seeing


def weight_bytes(config: ModelConfig, dtype: torch.dtype, own_head: bool = False) -> int:
    """Bytes that all tensors will take on a device."""
    text, seeing = allocate(config, torch.device("meta"), dtype, own_head)
    places = text.places | ({} if seeing is None else seeing.places)
    return sum(place.numel() * place.element_size() for place in places.values())


def make_encoder(config: ModelConfig, weights: SeeingWeights | None, kernels: Kernels) -> VisionEncoder | None:
    """What turns this checkpoint's pictures into soft tokens; None: it sees none. The weights are filled by now."""
    if isinstance(weights, VisionWeights) and isinstance(config.vision, VisionConfig):
        ops = choose_vision(weights.projection.device, kernels.row_tile)
        return VisionTower(config.vision, weights, kernels, ops)
    if isinstance(weights, MergerWeights) and isinstance(config.vision, MergerConfig):
        return PatchMerger(config.vision, weights, kernels)
    return None

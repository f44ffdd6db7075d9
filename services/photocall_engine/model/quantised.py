"""Which of the decoder's matrices are kept in 8-bit floats, and how they take the places of ordinary ones.

Weights are laid out on the `meta` device first, where they cost nothing; then every tensor gets memory, the linears of
the layers as `Fp8Weight`. So the full matrices never exist: loading quantises each row as it arrives. Embeddings, head,
norms, the small per-layer linears, experts and the vision tower stay as they are.
"""

from __future__ import annotations

from dataclasses import fields

import torch

from photocall_engine.kernels.fp8 import Fp8Weight
from photocall_engine.model.text_weights import ExpertWeights, LayerWeights, TextWeights
from photocall_engine.model.weights import Place

LINEARS = frozenset({"qkv", "o", "gate", "up", "gate_up", "down"})


def settle(text: TextWeights, device: torch.device) -> dict[str, Place]:
    """Give the tensors of a decoder on `meta` memory on `device`, in place; the places that loading fills."""
    settled: dict[int, torch.Tensor | Fp8Weight] = {}
    for layer in text.layers:
        for name in LINEARS & {field.name for field in fields(layer)}:
            matrix = getattr(layer, name)
            settled[_storage(matrix)] = Fp8Weight.empty(matrix.shape, device)
    experts = [layer.experts for layer in text.layers if layer.experts is not None]
    owners: list[TextWeights | LayerWeights | ExpertWeights] = [text, *text.layers, *experts]
    for owner in owners:
        for field in fields(owner):
            value = getattr(owner, field.name)
            if isinstance(value, torch.Tensor):
                fresh = settled.get(_storage(value))
                if fresh is None:
                    fresh = torch.empty(value.shape, dtype=value.dtype, device=device)
                    settled[_storage(value)] = fresh
                setattr(owner, field.name, fresh)
    return {name: _part(place, settled[_storage(place)]) for name, place in text.places.items()}


def _part(place: torch.Tensor, whole: torch.Tensor | Fp8Weight) -> Place:
    """The rows of `whole` that `place` has of its matrix: all of it, or a part of a stack."""
    if place.shape == whole.shape:
        return whole
    start = place.storage_offset() // place.shape[-1]
    return whole[start : start + len(place)]


def _storage(tensor: torch.Tensor) -> int:
    """Names the memory that a tensor is a view of, also where there is none."""
    handle: int = tensor.untyped_storage()._cdata
    return handle

"""What a comparison of one kernel at one shape consists of, and the sizes of the two models it is made for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from photocall_engine.kernels.matmul_h200 import H200
from photocall_engine.kernels.reference import ReferenceKernels

Inputs: TypeAlias = dict[str, Any]
REFERENCE = ReferenceKernels(narrow=False)
BF16_ERROR = 6e-3  # one rounding to 8 bits is 1.1e-3 of the norm; a wrong index is 1
EPS = 1e-6
L2_FREE = 1e9  # input bytes where the head alone exceeds the cache


@dataclass(frozen=True, slots=True)
class Shapes:
    """Sizes of one model that its kernels meet."""

    name: str
    hidden: int
    intermediate: int
    heads: int
    sliding_kv_heads: int
    full_kv_heads: int
    window: int
    per_layer: int


MODELS = {
    "e4b": Shapes("E4B", 2560, 10240, 8, 2, 2, 512, 256),
    "31b": Shapes("31B", 5376, 21504, 32, 16, 4, 1024, 0),
}


@dataclass(frozen=True, slots=True)
class Case:
    """One kernel at one shape."""

    workload: str
    shape: str
    make: Callable[[int], Inputs]
    run: Callable[[Inputs], torch.Tensor]
    expected: Callable[[Inputs], torch.Tensor]
    moved_bytes: float
    operations: float
    input_bytes: float
    out_bytes: int
    error_limit: float = BF16_ERROR
    same_bits: Callable[[Inputs], bool] | None = None


def draw(device: torch.device, seed: int, *shape: int) -> torch.Tensor:
    """bfloat16 of a normal distribution."""
    generator = torch.Generator(device=device).manual_seed(seed)
    return torch.randn(shape, generator=generator, device=device, dtype=torch.bfloat16)


def device_name(device: torch.device) -> str:
    """Without CUDA, the device that `compiled.py` compiles for."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else H200

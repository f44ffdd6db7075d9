"""What a camera does, on the device: light, tint, blur and grain, different for each picture and each use of it.

Drawing is the limit of training, so that this is not done by the workers; `backgrounds.photograph` does the same for
pictures that are drawn one by one. JPEG stays with the workers.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def _each(count: int, device: torch.device, low: float, high: float, share: float, rest: float) -> Tensor:
    """[count, 1, 1, 1] uniform in [low, high] for a share of the pictures, `rest` for the others."""
    value = torch.empty(count, device=device).uniform_(low, high)
    chosen = torch.rand(count, device=device) < share
    return torch.where(chosen, value, torch.full_like(value, rest))[:, None, None, None]


def worn(patches: Tensor, blocks: tuple[int, int]) -> Tensor:
    """uint8 patches [P, 9 n, 768], block by block, of a grid of (rows, columns) blocks; worn and in the same order."""
    count, (rows, columns), device = len(patches), blocks, patches.device
    kind = torch.float16 if patches.is_cuda else torch.float32
    shape = (count, rows, columns, 3, 3, 16, 16, 3)
    image = patches.view(shape).permute(0, 7, 1, 3, 5, 2, 4, 6).reshape(count, 3, rows * 48, columns * 48).to(kind)
    soft = F.avg_pool2d(F.pad(image, (1, 1, 1, 1), mode="replicate"), 3, 1)
    image = torch.lerp(image, soft, _each(count, device, 0.2, 1.0, 0.3, 0.0).to(kind))
    tint = torch.empty(count, 3, 1, 1, device=device).uniform_(0.96, 1.04)
    gain = _each(count, device, 0.82, 1.12, 0.6, 1.0) * tint
    image = image * gain.to(kind) + _each(count, device, -14, 14, 0.6, 0.0).to(kind)
    image = image + torch.randn_like(image) * _each(count, device, 1.0, 15.0, 0.4, 0.0).to(kind)
    image = image.round().clamp_(0, 255).to(torch.uint8)
    split = image.view(count, 3, rows, 3, 16, columns, 3, 16)
    return split.permute(0, 2, 5, 3, 6, 4, 7, 1).reshape(patches.shape)

"""Pictures of one tower pass, packed: patches of all pictures one after another, each picture from a full tile on.

A tile of rows belongs to one picture, so what a picture computes never depends on who else is in the pass. Rows between
a picture's last patch and the next tile are null rows: they are computed and nothing of them is kept. Packing is numpy;
`Pictures` holds the same on a device, in tensors of a fixed size where a graph is captured over them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from photocall_engine.rows import Ints
from photocall_engine.runner import PatchImage

SIDE = 16  # pixels of a patch
PATCH_VALUES = 3 * SIDE * SIDE
POOL = 3  # POOL x POOL patches make one soft token


def check_grid(image: PatchImage) -> None:
    """Raises ValueError where patches and grid do not belong together."""
    height, width = image.grid_height, image.grid_width
    if image.patches.shape != (height * width, PATCH_VALUES):
        raise ValueError(f"patches {image.patches.shape} do not fit a grid of {height} x {width}")
    if height % POOL or width % POOL:
        raise ValueError(f"grid {height} x {width} is not a multiple of {POOL}")


@dataclass(frozen=True, slots=True)
class PackedPictures:
    """P rows in tiles, S soft tokens; made by `pack`."""

    patches: NDArray[np.uint8]  # [P, 768]
    x: Ints  # [P] column of the patch in its picture; 0 in null rows
    y: Ints  # [P]
    tile_start: Ints  # [P / tile] first row of the tile's picture
    tile_end: Ints  # [P / tile] one past its last patch; equal to tile_start where nobody uses the tile
    soft_row: Ints  # [S] row of the top left patch of the soft token's block
    soft_width: Ints  # [S] patches in one line of its picture
    target: NDArray[np.int64]  # [S] row of the soft-token arena
    num_soft: int  # soft tokens that somebody wants; those after them are null rows


def pack(
    images: Sequence[PatchImage], bases: Sequence[int], tile: int, *, rows: int = 0, soft: int = 0, spare: int = 0
) -> PackedPictures:
    """Pack pictures; soft token i of picture j goes to arena row bases[j] + i.

    `rows` and `soft` are what a captured graph has room for (0: as many as are needed, rounded up to the tile); null
    soft tokens go to arena row `spare`. Raises ValueError where the pictures do not fit.
    """
    starts = np.cumsum([0, *(_tiles(len(image.patches), tile) * tile for image in images)])
    counts = [image.num_soft for image in images]
    needed, wanted = int(starts[-1]), sum(counts)
    rows, soft = rows or needed, soft or _tiles(wanted, tile) * tile
    if needed > rows or wanted > soft:
        raise ValueError(f"{needed} patch rows and {wanted} soft tokens in a pass of {rows} and {soft}")
    packed = PackedPictures(
        patches=np.zeros((rows, PATCH_VALUES), dtype=np.uint8),
        x=np.zeros(rows, dtype=np.int32),
        y=np.zeros(rows, dtype=np.int32),
        tile_start=np.zeros(rows // tile, dtype=np.int32),
        tile_end=np.zeros(rows // tile, dtype=np.int32),
        soft_row=np.zeros(soft, dtype=np.int32),
        soft_width=np.zeros(soft, dtype=np.int32),
        target=np.full(soft, spare, dtype=np.int64),
        num_soft=wanted,
    )
    done = 0
    for image, base, count, start in zip(images, bases, counts, starts[:-1].tolist(), strict=True):
        end = start + len(image.patches)
        packed.patches[start:end] = image.patches
        index = np.arange(end - start, dtype=np.int32)
        packed.x[start:end], packed.y[start:end] = index % image.grid_width, index // image.grid_width
        tiles = slice(start // tile, start // tile + _tiles(end - start, tile))
        packed.tile_start[tiles], packed.tile_end[tiles] = start, end
        block = np.arange(count, dtype=np.int32)
        across = image.grid_width // POOL
        part = slice(done, done + count)
        packed.soft_row[part] = start + (block // across * image.grid_width + block % across) * POOL
        packed.soft_width[part] = image.grid_width
        packed.target[part] = base + block
        done += count
    return packed


@dataclass(slots=True)
class Pictures:
    """PackedPictures on a device. `spans` is for encoders that run on the host: first and end row of each picture."""

    patches: torch.Tensor
    x: torch.Tensor
    y: torch.Tensor
    tile_start: torch.Tensor
    tile_end: torch.Tensor
    soft_row: torch.Tensor
    soft_width: torch.Tensor
    target: torch.Tensor
    spans: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, packed: PackedPictures, device: torch.device) -> Pictures:
        """A copy on the device."""
        tensors = {name: _up(getattr(packed, name), device) for name in _TENSORS}
        pairs = zip(packed.tile_start.tolist(), packed.tile_end.tolist(), strict=True)
        return cls(**tensors, spans=tuple(dict.fromkeys(pair for pair in pairs if pair[0] < pair[1])))

    @classmethod
    def allocate(cls, rows: int, soft: int, tile: int, device: torch.device) -> Pictures:
        """Room for passes of up to `rows` patch rows and `soft` soft tokens, to capture a graph over; see `fill`."""
        return cls.of(pack([], [], tile, rows=rows, soft=soft), device)

    def fill(self, packed: PackedPictures) -> None:
        """Take over a pass that was packed for this room."""
        for name in _TENSORS:
            target: torch.Tensor = getattr(self, name)
            target.copy_(_pinned(getattr(packed, name), target.device), non_blocking=True)


_TENSORS = ("patches", "x", "y", "tile_start", "tile_end", "soft_row", "soft_width", "target")


def _tiles(count: int, tile: int) -> int:
    return -(-count // tile)


def _up(values: NDArray[Any], device: torch.device) -> torch.Tensor:
    return _pinned(values, device).to(device, non_blocking=True)


def _pinned(values: NDArray[Any], device: torch.device) -> torch.Tensor:
    tensor = torch.from_numpy(values)
    return tensor.pin_memory() if device.type == "cuda" else tensor

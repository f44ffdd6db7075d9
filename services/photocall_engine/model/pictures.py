"""Pictures of one tower pass, packed: patches of all pictures one after another, each picture from a full tile on.

A tile of rows belongs to one picture, so what a picture computes never depends on who else is in the pass. Rows between
a picture's last patch and the next tile are null rows: they are computed and nothing of them is kept. Everything goes
to the device in one transfer, and where an array lies depends only on the `PassShape`, so a graph captured over the
tensors of a shape serves every pass that is laid out in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from photocall_engine.rows import Ints
from photocall_engine.runner import PatchImage
from photocall_engine.words import ALIGN, Words

SIDE = 16  # pixels of a patch
PATCH_VALUES = 3 * SIDE * SIDE
POOL = 3  # POOL x POOL patches make one soft token
_PATCH_WORDS = PATCH_VALUES // 4
_GRIDS = 64  # grids whose layout is remembered


def check_grid(image: PatchImage) -> None:
    """Raises ValueError where patches and grid do not belong together."""
    height, width = image.grid_height, image.grid_width
    if image.patches.shape != (height * width, PATCH_VALUES):
        raise ValueError(f"patches {image.patches.shape} do not fit a grid of {height} x {width}")
    if height % POOL or width % POOL:
        raise ValueError(f"grid {height} x {width} is not a multiple of {POOL}")


@dataclass(frozen=True, slots=True)
class PassShape:
    """Sizes of one pass: patch rows, in tiles, and soft tokens."""

    rows: int
    soft: int

    @classmethod
    def exact(cls, images: Sequence[PatchImage], tile: int) -> PassShape:
        """No larger than the tiles want it."""
        return cls(rows_of(images, tile), _up(sum(image.num_soft for image in images), tile))

    @classmethod
    def of_rows(cls, rows: int, tile: int) -> PassShape:
        """With all the soft tokens that so many rows can make."""
        return cls(rows, _up(-(-rows // POOL**2), tile))

    @property
    def words(self) -> int:
        """Words of `PictureBuffers` that a pass takes, at most."""
        return self.rows * (_PATCH_WORDS + 4) + 4 * self.soft + 8 * ALIGN


@dataclass(slots=True)
class Pictures:
    """A pass on the device: P rows in tiles, S soft tokens. `spans` is for encoders that run on the host: first and end
    row of each picture."""

    patches: torch.Tensor  # uint8[P, 768]; null rows hold whatever was there
    x: torch.Tensor  # int32[P] column of the patch in its picture; 0 in null rows
    y: torch.Tensor  # int32[P]
    tile_start: torch.Tensor  # int32[P / tile] first row of the tile's picture
    tile_end: torch.Tensor  # int32[P / tile] one past its last patch; equal to tile_start where nobody uses the tile
    soft_row: torch.Tensor  # int32[S] row of the top left patch of the soft token's block
    soft_width: torch.Tensor  # int32[S] patches in one line of its picture
    target: torch.Tensor  # int64[S] row of the soft-token arena
    num_soft: int  # soft tokens that somebody wants; those after them are null
    spans: tuple[tuple[int, int], ...]


class PictureBuffers:
    """Fills words with passes. Null soft tokens go to arena row `spare`."""

    def __init__(self, words: Words, tile: int, spare: int) -> None:
        self._words = words
        self._tile = tile
        self._spare = spare

    def fill(self, images: Sequence[PatchImage], bases: Sequence[int], shape: PassShape) -> Pictures:
        """Lay out pictures that fit the shape and send them on their way; soft token i of picture j goes to arena row
        bases[j] + i. Raises ValueError where they do not fit, WordsFull."""
        tile, words = self._tile, self._words
        needed, wanted = rows_of(images, tile), sum(image.num_soft for image in images)
        if needed > shape.rows or wanted > shape.soft:
            raise ValueError(f"{needed} patch rows and {wanted} soft tokens in a pass of {shape.rows} and {shape.soft}")
        x, y = (np.zeros(shape.rows, dtype=np.int32) for _ in range(2))
        tile_start, tile_end = (np.zeros(shape.rows // tile, dtype=np.int32) for _ in range(2))
        soft_row, soft_width = (np.zeros(shape.soft, dtype=np.int32) for _ in range(2))
        target = np.full(shape.soft, self._spare, dtype=np.int64)
        words.begin()
        arrays = [x, y, tile_start, tile_end, soft_row, soft_width, target.view(np.int32)]
        places = [words.reserve(array.size) for array in arrays]
        patches = words.reserve(shape.rows * _PATCH_WORDS)
        start, done, spans = 0, 0, []
        for image, base in zip(images, bases, strict=True):
            grid = _grid(image.grid_height, image.grid_width)
            end, after = start + len(image.patches), done + image.num_soft
            words.write(patches + start * _PATCH_WORDS, np.ascontiguousarray(image.patches).view(np.int32))
            x[start:end], y[start:end] = grid.column, grid.line
            tiles = slice(start // tile, -(-end // tile))
            tile_start[tiles], tile_end[tiles] = start, end
            soft_row[done:after] = start + grid.corner
            soft_width[done:after] = image.grid_width
            target[done:after] = np.arange(base, base + image.num_soft)
            spans.append((start, end))
            start, done = _up(end, tile), after
        for at, array in zip(places, arrays, strict=True):
            words.write(at, array)
        words.send(patches + needed * _PATCH_WORDS)  # pixels of the rows behind are nobody's
        sent = [words.view(at, array.size) for at, array in zip(places, arrays, strict=True)]
        pixels = words.view(patches, shape.rows * _PATCH_WORDS)
        return Pictures(
            patches=pixels.view(torch.uint8).view(-1, PATCH_VALUES),
            x=sent[0],
            y=sent[1],
            tile_start=sent[2],
            tile_end=sent[3],
            soft_row=sent[4],
            soft_width=sent[5],
            target=sent[6].view(torch.int64),
            num_soft=wanted,
            spans=tuple(spans),
        )


def rows_of(images: Sequence[PatchImage], tile: int) -> int:
    """Rows that pictures take, each in tiles of its own."""
    return sum(_up(len(image.patches), tile) for image in images)


@dataclass(frozen=True, slots=True)
class _Grid:
    column: Ints  # of each patch
    line: Ints
    corner: Ints  # of each soft token: the first patch of its block


@lru_cache(_GRIDS)
def _grid(height: int, width: int) -> _Grid:
    line, column = np.indices((height, width), dtype=np.int32)
    corner = np.arange(height * width, dtype=np.int32).reshape(height, width)[::POOL, ::POOL]
    return _Grid(column.reshape(-1), line.reshape(-1), corner.reshape(-1))


def _up(count: int, tile: int) -> int:
    return -(-count // tile) * tile

"""TowerPasses: pictures to soft tokens in the arena, from graphs of fixed sizes where one is large enough.

Pictures go to the smallest bucket of patch rows that holds them; the rows to spare are null rows, of no picture. What
exceeds the largest runs without a graph. Where nothing is captured (the CPU), the same work runs over the same buffers,
operation by operation. All of it gives the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from photocall_engine.graph_space import GraphSpace, play
from photocall_engine.model.pictures import POOL, PassShape, PictureBuffers, Pictures, rows_of
from photocall_engine.model.vision import VisionEncoder
from photocall_engine.runner import PatchImage
from photocall_engine.words import Words

USUAL_ROWS = 2560  # a picture of 280 soft tokens: 2,520 patches, in tiles
_SMALL = 256  # below that, buckets are multiples of this
_FINE = 8  # buckets between a number of rows and its double: about an eighth of a pass is padding, at most
_WORDS = 1 << 16


class TowerPasses:
    """See above. The last row of `arena` is scratch. Use `encode`; before serving, on CUDA, `prepare` and `capture`."""

    def __init__(self, encoder: VisionEncoder, arena: torch.Tensor) -> None:
        self._encoder = encoder
        self.arena = arena
        self._spare = len(arena) - 1
        self._any = PictureBuffers(Words(arena.device, _WORDS), encoder.tile, self._spare)
        self._fixed = self._any
        self._shapes: list[PassShape] = []
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self.replays = 0  # passes that found a bucket, and those that did not
        self.misses = 0

    def shape_of(self, images: Sequence[PatchImage]) -> PassShape | None:
        """The smallest bucket that holds pictures; None: none does."""
        needed = rows_of(images, self._encoder.tile)
        return next((shape for shape in self._shapes if shape.rows >= needed), None)

    def encode(self, images: Sequence[PatchImage], bases: Sequence[int]) -> None:
        """Soft token i of picture j goes to arena row bases[j] + i."""
        shape = self.shape_of(images)
        if shape is None:
            self.misses += 1
            self._run(self._any.fill(images, bases, PassShape.exact(images, self._encoder.tile)))
        else:
            self.replays += 1
            play(self._graphs.get(shape.rows), self._run, self._fixed.fill(images, bases, shape))

    def prepare(self, max_soft: int) -> None:
        """Lay out buckets, in memory that never moves, for passes that make up to `max_soft` soft tokens."""
        tile = self._encoder.tile
        self._shapes = [PassShape.of_rows(rows, tile) for rows in row_buckets(max_soft * POOL**2, tile)]
        words = Words(self.arena.device, self._shapes[-1].words, fixed=True)
        self._fixed = PictureBuffers(words, tile, self._spare)

    def capture(self, space: GraphSpace) -> None:
        """Capture every bucket, largest first, so that the smaller ones fit into the memory of the larger."""
        for shape in reversed(self._shapes):
            self._graphs[shape.rows] = space.capture(self._run, self._fixed.fill([], [], shape))

    def _run(self, pictures: Pictures) -> None:
        self.arena.index_copy_(0, pictures.target, self._encoder.encode(pictures))


def row_buckets(most: int, tile: int) -> tuple[int, ...]:
    """Numbers of rows, multiples of `tile`, up to the first that is at least `most`."""
    sizes, unit = set(range(_SMALL, USUAL_ROWS, _SMALL)), USUAL_ROWS
    while unit // 2 < most:
        sizes |= {unit * part // _FINE for part in range(_FINE, 2 * _FINE)}
        unit *= 2
    rounded = sorted({-(-size // tile) * tile for size in sizes})
    top = next(index for index, size in enumerate(rounded) if size >= most)
    return tuple(rounded[: top + 1])

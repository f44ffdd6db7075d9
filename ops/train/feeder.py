"""Batches on the device: fresh ones copied in by a thread, and the last ones kept for another use.

The device trains faster than the workers draw, so most steps use a batch again, with its other set of questions and its
pictures worn anew.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ops.train.loader import PACKS, Chunk, Loader, Stage
from ops.train.model import Packed, blocks_first
from ops.train.wear import worn

POOL, MOST_USES = 160, 3  # batches kept on the device, and how often each is used


@dataclass
class Held:
    """A batch on the device with all its sets of questions."""

    patches: Tensor
    marks: Tensor
    xy: Tensor
    packs: list[dict[str, Tensor]]
    blocks: tuple[int, int]
    uses: int = 0


class Feeder:
    """Copies fresh batches to the device in a thread of its own, and keeps the last ones for another use."""

    def __init__(self, loader: Loader, device: torch.device) -> None:
        self._loader, self._device = loader, device
        self._fresh: queue.Queue[Held] = queue.Queue(maxsize=4)
        self._pool: deque[Held] = deque(maxlen=POOL)
        self.issued = 0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        for stage, blocks, chunks in self._loader.batches():
            self.issued += 1
            self._fresh.put(self._upload(stage, blocks, chunks))

    def _upload(self, stage: Stage, blocks: tuple[int, int], chunks: list[Chunk]) -> Held:
        soft = blocks[0] * blocks[1]
        _, xy = blocks_first(blocks[0] * 3, blocks[1] * 3)

        def move(array: np.ndarray[Any, Any]) -> Tensor:
            return torch.from_numpy(array).to(self._device)

        packs = []
        for number in range(PACKS):
            names = ("tokens", "pos", "segment", "reach", "place", "target", "weight")
            pack = {n: move(np.concatenate([getattr(c.packs[number], n) for c in chunks])) for n in names}
            shift = [np.where(c.packs[number].soft >= 0, i * stage.pictures * soft, 0) for i, c in enumerate(chunks)]
            moved = [c.packs[number].soft + s for c, s in zip(chunks, shift, strict=True)]
            packs.append(pack | {"soft": move(np.concatenate(moved).astype(np.int32))})
        p = stage.pictures
        patches = torch.empty(len(chunks) * p, 9 * soft, 768, dtype=torch.uint8, device=self._device)
        for i, chunk in enumerate(chunks):  # chunk by chunk, because this copy lets the other thread run
            patches[i * p : (i + 1) * p].copy_(torch.from_numpy(chunk.patches))
        return Held(patches, move(np.concatenate([c.marks for c in chunks])), xy.to(self._device), packs, blocks)

    def next(self) -> tuple[Held, bool]:
        """A fresh batch if there is one, else the pool's least used; True for fresh."""
        usable = [held for held in self._pool if held.uses < MOST_USES]
        try:
            held = self._fresh.get(block=not usable, timeout=120)
            self._pool.append(held)
            return held, True
        except queue.Empty:
            if not usable:
                raise RuntimeError("no picture came for 120 s") from None
            return min(usable, key=lambda h: h.uses), False


def packed(held: Held, number: int) -> Packed:
    """One set of questions of a batch, its pictures worn anew."""
    pack = {
        name: tensor.long() if tensor.dtype == torch.int32 else tensor for name, tensor in held.packs[number].items()
    }
    return Packed(patches=worn(held.patches, held.blocks), xy=held.xy, **pack)

"""Words: all integers that one step needs on the device, in one transfer.

Numpy arrays are laid one after another into a pinned buffer; `send` copies what was laid in one asynchronous call, in
stream order, so what runs before it still reads the old words and what runs after it the new ones. Two pinned buffers
take turns: one is never written before the copy that read it is done. On the CPU a copy is a copy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

ALIGN = 4  # words: 16 bytes, as wide loads want


class WordsFull(ValueError):
    """More words than a buffer of fixed size holds."""

    def __init__(self, needed: int, capacity: int) -> None:
        super().__init__(f"{needed} words in a buffer of {capacity}")
        self.needed = needed
        self.capacity = capacity


class Words:
    """`begin`, then `put` and `reserve`, then `send`, then `view`. `fixed` ones never move: graphs hold their address;
    others grow."""

    def __init__(self, device: torch.device, capacity: int, *, fixed: bool = False) -> None:
        self._device = device
        self._fixed = fixed
        self._turn = 0
        self._used = 0
        self._known: dict[int, tuple[int, NDArray[Any]]] = {}  # offset of arrays laid since `begin`, which keeps them
        on_gpu = device.type == "cuda"
        self._events = [torch.cuda.Event() for _ in range(2)] if on_gpu else None  # type: ignore[no-untyped-call]
        self._allocate(capacity)

    @property
    def tensor(self) -> torch.Tensor:
        """int32[capacity] on the device."""
        return self._tensor

    def begin(self) -> None:
        """Start over; waits until the copy before the last one is done, which it nearly always is."""
        self._turn ^= 1
        self._used = 0
        self._known.clear()
        if self._events is not None:
            self._events[self._turn].synchronize()

    def reserve(self, count: int) -> int:
        """Room for `count` words, unwritten; its offset. Raises WordsFull."""
        offset, end = self._used, self._used + count
        if end > len(self._tensor):
            if self._fixed:
                raise WordsFull(end, len(self._tensor))
            kept = self._hosts[self._turn][:offset]
            self._allocate(2 * end)
            self._hosts[self._turn][:offset] = kept
        self._used = -(-end // ALIGN) * ALIGN
        return offset

    def put(self, values: NDArray[Any], room: int = 0) -> int:
        """Lay down an array of integers, with at least `room` words kept for it; its offset. The same array twice is
        laid once."""
        known = self._known.get(id(values))
        if known is not None:
            return known[0]
        offset = self.reserve(max(values.size, room))
        self.write(offset, values)
        self._known[id(values)] = offset, values
        return offset

    def write(self, offset: int, values: NDArray[Any]) -> None:
        """Fill what was reserved."""
        self._hosts[self._turn][offset : offset + values.size] = values.reshape(-1)

    def repeat(self, source: int, target: int, count: int) -> None:
        """Fill what was reserved with words that were laid since `begin`."""
        host = self._hosts[self._turn]
        host[target : target + count] = host[source : source + count]

    def send(self, end: int | None = None) -> None:
        """Copy everything laid since `begin` to the device, or what of it lies before `end`."""
        count = min(self._used if end is None else end, len(self._tensor))
        self._tensor[:count].copy_(self._pinned[self._turn][:count], non_blocking=True)
        if self._events is not None:
            self._events[self._turn].record()

    def view(self, offset: int, count: int) -> torch.Tensor:
        """int32[count] on the device; after `send`, when nothing moves any more."""
        return self._tensor[offset : offset + count]

    def _allocate(self, capacity: int) -> None:
        capacity = -(-capacity // ALIGN) * ALIGN
        self._tensor = torch.zeros(capacity, dtype=torch.int32, device=self._device)
        pin = self._device.type == "cuda"
        self._pinned = [torch.zeros(capacity, dtype=torch.int32, pin_memory=pin) for _ in range(2)]
        self._hosts: list[NDArray[np.int32]] = [buffer.numpy() for buffer in self._pinned]

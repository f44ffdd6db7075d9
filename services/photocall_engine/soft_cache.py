"""Soft tokens of pictures: a bounded arena, filled by the tower, kept by picture, least recently used given up first.

A picture in use by the step being planned is pinned. The arena holds neither pixels nor tensors here, only intervals.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass


@dataclass(slots=True)
class _Held:
    base: int
    count: int
    pins: int = 0


class SoftCache:
    """Which arena rows hold which picture's soft tokens."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._held: OrderedDict[str, _Held] = OrderedDict()  # least recently used first

    def __contains__(self, key: str) -> bool:
        """Whether the picture's soft tokens are there."""
        return key in self._held

    def pin(self, key: str, count: int) -> tuple[int, bool] | None:
        """(first arena row, whether the tower must fill it) of a picture with `count` soft tokens, pinned once more.

        None: everything that could make room is pinned; try again next step.
        """
        held = self._held.get(key)
        fresh = held is None
        if held is None:
            base = self._make_room(count)
            if base is None:
                return None
            held = self._held[key] = _Held(base, count)
        held.pins += 1
        self._held.move_to_end(key)
        return held.base, fresh

    def unpin(self, key: str) -> None:
        """The step that pinned it has been issued, or never will be."""
        held = self._held[key]
        assert held.pins > 0, f"picture {key} is not pinned"
        held.pins -= 1

    def forget(self, key: str) -> None:
        """The tower may never have filled it: drop it, if it is still there, so that it is encoded again. Nobody else
        may have it pinned."""
        held = self._held.get(key)
        if held is not None:
            assert held.pins == 0, f"picture {key} is pinned"
            del self._held[key]

    def check(self) -> None:
        """Raise AssertionError unless intervals are disjoint, inside the arena and, when idle, unpinned."""
        end = 0
        for held in sorted(self._held.values(), key=lambda held: held.base):
            assert held.base >= end, "two pictures share arena rows"
            assert held.pins >= 0, "a picture is unpinned more often than pinned"
            end = held.base + held.count
        assert end <= self.capacity, "a picture lies outside the arena"

    @property
    def pinned(self) -> int:
        """Pictures in use by the step being planned."""
        return sum(held.pins > 0 for held in self._held.values())

    def _make_room(self, count: int) -> int | None:
        while (base := self._hole(count)) is None:
            victim = next((key for key, held in self._held.items() if not held.pins), None)
            if victim is None:
                return None
            del self._held[victim]
        return base

    def _hole(self, count: int) -> int | None:
        end = 0
        for held in sorted(self._held.values(), key=lambda held: held.base):
            if held.base - end >= count:
                return end
            end = held.base + held.count
        return end if self.capacity - end >= count else None

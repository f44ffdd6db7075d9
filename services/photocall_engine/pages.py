"""The two page pools as counts: who may write where, and when a page is free again.

A full page carries K/V of the full-attention layers; while somebody's window still covers it, a sliding page is mapped
beside it for the sliding layers. Both are counted: a *hold* keeps the full page, a *window hold* keeps its sliding
page, and nobody has a window hold on a page that is not held. Holds of the prefix cache are marked as kept, so that
what only the cache holds can be counted as room. Page 0 of both pools is scratch and never handed out. This file knows
neither sequences nor tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from photocall_engine.rows import Ints


class PageError(AssertionError):
    """A broken invariant of the pools: a defect of the program, never of a request."""


class Holds:
    """Holds by page. `idle` counts the pages that are kept and have no other hold; `num_kept` all that are kept.

    Called for lists of pages, several times a step each: the loops are written out.
    """

    def __init__(self, num_pages: int) -> None:
        self.of = [0] * num_pages
        self._kept = [0] * num_pages
        self.idle = 0
        self.num_kept = 0

    def is_idle(self, page: int) -> bool:
        """Whether it is kept and nobody else holds it."""
        return 0 < self._kept[page] == self.of[page]

    def first(self, pages: Iterable[int]) -> None:
        """The only hold on pages that nobody holds."""
        of = self.of
        for page in pages:
            of[page] = 1

    def add(self, pages: Iterable[int], kept: bool) -> None:
        """One hold more on each."""
        of, keeps = self.of, self._kept
        for page in pages:
            count, kept_by = of[page], keeps[page]
            of[page] = count + 1
            if kept:
                keeps[page] = kept_by + 1
                self.num_kept += not kept_by
                self.idle += not count
            elif kept_by and kept_by == count:
                self.idle -= 1

    def remove(self, pages: Iterable[int], kept: bool) -> list[int]:
        """One hold less on each; returns those whose last it was."""
        of, keeps, last = self.of, self._kept, []
        for page in pages:
            count, kept_by = of[page] - 1, keeps[page]
            if count < 0 or (kept and not kept_by):
                raise PageError(f"page {page} is released more often than it is held")
            of[page] = count
            if kept:
                keeps[page] = kept_by - 1
                self.num_kept -= kept_by == 1
                self.idle -= not count
            elif kept_by and kept_by == count:
                self.idle += 1
            if not count:
                last.append(page)
        return last


class Pages:
    """Full pages 1..num_pages-1 and, where the model has sliding layers, sliding pages 1..sliding_pages."""

    def __init__(self, num_pages: int, sliding_pages: int) -> None:
        if num_pages < 2:
            raise ValueError(f"a pool of {num_pages} pages holds nothing beside its scratch page")
        self.num_pages = num_pages
        self.sliding_pages = sliding_pages
        self.holds = Holds(num_pages)
        self.window_holds = Holds(num_pages)
        self._sliding_map = [0] * num_pages
        self._free = list(range(num_pages - 1, 0, -1))
        self._free_sliding = list(range(sliding_pages, 0, -1))
        self._changed: set[int] = set()

    @property
    def free(self) -> int:
        """Full pages that nobody holds."""
        return len(self._free)

    @property
    def free_sliding(self) -> int:
        """Sliding pages that nobody holds."""
        return len(self._free_sliding)

    def reserve(self, count: int) -> list[int] | None:
        """New pages with their sliding pages, one hold and one window hold each; None takes nothing: not now."""
        if count > len(self._free) or (self.sliding_pages and count > len(self._free_sliding)):
            return None
        if not count:
            return []
        pages = self._free[: -count - 1 : -1]
        del self._free[-count:]
        self.holds.first(pages)
        if self.sliding_pages:
            self.window_holds.first(pages)
            for page, sliding in zip(pages, self._free_sliding[: -count - 1 : -1], strict=True):
                self._sliding_map[page] = sliding
            del self._free_sliding[-count:]
            self._changed.update(pages)
        return pages

    def reserve_bare(self, count: int) -> list[int] | None:
        """New pages with one hold each and no sliding pages yet: `cover` gives them those. None takes nothing."""
        if count > len(self._free):
            return None
        pages = [self._free.pop() for _ in range(count)]
        self.holds.first(pages)
        return pages

    def cover(self, pages: Sequence[int]) -> bool:
        """A sliding page and one window hold for each of these, which have none; False takes nothing: not now."""
        if not self.sliding_pages:
            return True
        if len(pages) > len(self._free_sliding):
            return False
        self.window_holds.first(pages)
        for page in pages:
            self._sliding_map[page] = self._free_sliding.pop()
        self._changed.update(pages)
        return True

    def hold(self, pages: Sequence[int], kept: bool = False) -> None:
        """One more hold on each page."""
        of = self.holds.of
        for page in pages:
            if not of[page]:
                raise PageError(f"page {page} is free and cannot be shared")
        self.holds.add(pages, kept)

    def release(self, pages: Sequence[int], kept: bool = False) -> None:
        """Give up one hold on each page; the last one frees it, by when no window hold may be left."""
        freed = self.holds.remove(pages, kept)
        windows = self.window_holds.of
        for page in freed:
            if windows[page]:
                raise PageError(f"page {page} is freed while {windows[page]} windows need it")
        self._free += freed

    def hold_window(self, pages: Sequence[int], kept: bool = False) -> None:
        """One more window hold on each page; its sliding page must still be there. Nothing without sliding layers."""
        if not self.sliding_pages:
            return
        for page in pages:
            if not self._sliding_map[page]:
                raise PageError(f"the sliding page of page {page} is gone and cannot be shared")
        self.window_holds.add(pages, kept)

    def release_window(self, pages: Sequence[int], kept: bool = False) -> None:
        """Give up one window hold on each page; the last one returns the sliding page to its pool."""
        if not self.sliding_pages:
            return
        freed = self.window_holds.remove(pages, kept)
        for page in freed:
            self._free_sliding.append(self._sliding_map[page])
            self._sliding_map[page] = 0
        self._changed.update(freed)

    def take_map_changes(self) -> tuple[Ints, Ints]:
        """What the sliding map must be told before the next forward: pages, and the sliding page of each."""
        pages = np.fromiter(self._changed, np.int32, len(self._changed))
        sliding = np.fromiter(map(self._sliding_map.__getitem__, self._changed), np.int32, len(pages))
        self._changed.clear()
        return pages, sliding

    def resend_map(self) -> None:
        """The runner may have missed the last changes: the next ones are the whole map."""
        self._changed.update(range(self.num_pages))

    def check(self, holders: Iterable[Sequence[int]], windows: Iterable[Sequence[int]]) -> None:
        """Raise PageError unless the counts are exactly these holders' and both pools add up."""
        expected, expected_window = [0] * self.num_pages, [0] * self.num_pages
        for pages in holders:
            for page in pages:
                expected[page] += 1
        for pages in windows if self.sliding_pages else ():
            for page in pages:
                expected_window[page] += 1
        for page in range(self.num_pages):
            held, wanted = self.holds.of[page], expected[page]
            if held != wanted:
                raise PageError(f"page {page}: {held} holds counted, {wanted} holders found")
            windowed, wanted = self.window_holds.of[page], expected_window[page]
            if windowed != wanted:
                raise PageError(f"page {page}: {windowed} window holds counted, {wanted} found")
            if windowed and not held:
                raise PageError(f"page {page}: a window needs it, but nobody holds it")
            if bool(self._sliding_map[page]) != bool(windowed):
                raise PageError(f"page {page} maps to {self._sliding_map[page]} with {windowed} window holds")
        self._check_pool("page", self._free, [p for p in range(1, self.num_pages) if expected[p]], self.num_pages)
        mapped = [sliding for sliding in self._sliding_map if sliding]
        self._check_pool("sliding page", self._free_sliding, mapped, self.sliding_pages + 1)
        for counts in (self.holds, self.window_holds):
            if counts.idle != sum(map(counts.is_idle, range(self.num_pages))):
                raise PageError(f"{counts.idle} idle pages counted")

    def _check_pool(self, what: str, free: list[int], used: list[int], size: int) -> None:
        if sorted(free + used) != list(range(1, size)):
            raise PageError(f"{what}s lost or handed out twice: {len(free)} free, {len(used)} used, {size - 1} in all")

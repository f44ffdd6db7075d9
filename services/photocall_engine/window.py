"""BlockTable: the pages of one sequence, and from which one on its sliding window still needs them.

The first pages may be shared with a parent or with the prefix cache; the table has a hold of its own on each. A page
that has left the window keeps its full page and gives up its sliding page.
"""

from __future__ import annotations

from collections.abc import Sequence

from photocall_engine.pages import Pages
from photocall_engine.rows import PAGE_SIZE


def pages_for(positions: int) -> int:
    """Pages that hold this many positions."""
    return -(-positions // PAGE_SIZE)


def first_in_window(position: int, window: int) -> int:
    """Index of the first page that a row at this position sees on sliding layers."""
    return max(0, position - window + 1) // PAGE_SIZE


def sliding_pages_during(window: int, chunk: int) -> int:
    """Sliding pages one sequence needs at most while a chunk of so many rows runs."""
    return pages_for(window - 1 + chunk) + 1


class BlockTable:
    """Pages for positions [0, len(pages) * PAGE_SIZE) of one sequence, in order."""

    def __init__(self, pool: Pages, window: int) -> None:
        self._pool = pool
        self._window = window
        self.pages: list[int] = []
        self.window_start = 0  # index of the first page with a window hold; the table's pages behind it all have one

    def sibling(self) -> BlockTable:
        """An empty table over the same pools."""
        return BlockTable(self._pool, self._window)

    def adopt(self, pages: Sequence[int], position: int) -> None:
        """Share these pages as the table's first; the next row stands at `position`."""
        assert not self.pages, "only an empty table can adopt pages"
        self.pages = list(pages)
        self.window_start = min(len(pages), self._first_needed(position))
        self._pool.hold(self.pages)
        self._pool.hold_window(self.windowed)

    def holds(self, end: int) -> bool:
        """Whether a row at position end - 1 has its page."""
        return end <= len(self.pages) * PAGE_SIZE

    def missing(self, end: int) -> int:
        """Pages to reserve before a row at position end - 1 can be written."""
        return max(0, pages_for(end) - len(self.pages))

    def append(self, pages: Sequence[int]) -> None:
        """Take over reserved pages, holds and window holds included."""
        self.pages += pages

    def advance(self, position: int) -> None:
        """The next row stands at `position`: sliding pages that it no longer sees go back to their pool."""
        start = self._first_needed(position)
        if start > self.window_start:
            start = min(len(self.pages), start)
            self._pool.release_window(self.pages[self.window_start : start])
            self.window_start = start

    def release(self) -> None:
        """Give up everything."""
        self._pool.release_window(self.windowed)
        self._pool.release(self.pages)
        self.pages = []
        self.window_start = 0

    def unhold(self, page: int) -> None:
        """Give up a hold and a window hold on a page that is not the table's."""
        self._pool.release_window([page])
        self._pool.release([page])

    @property
    def windowed(self) -> list[int]:
        """The pages whose sliding page this sequence holds."""
        return self.pages[self.window_start :]

    def _first_needed(self, position: int) -> int:
        return first_in_window(position, self._window) if self._window else 0

"""Room for one request more: what those admitted will still need of the pools, and where a prefix can start.

It counts and looks up; who is asked about, and who has to leave, is the scheduler's to decide.
"""

from __future__ import annotations

from collections.abc import Iterable

from photocall_engine.limits import Limits
from photocall_engine.pages import Pages
from photocall_engine.prefix_cache import PrefixCache
from photocall_engine.rows import PAGE_SIZE
from photocall_engine.sequence import Request
from photocall_engine.window import pages_for, sliding_pages_during


class Room:
    """The pools and the prefix cache, as admission sees them."""

    def __init__(self, limits: Limits, pages: Pages, cache: PrefixCache) -> None:
        self._limits = limits
        self._pages = pages
        self._cache = cache

    def has_room(self, num_running: int, full: int, sliding: int) -> bool:
        """Whether one more can run and the pools have so many pages, those that only the cache holds included."""
        if not num_running:
            return True
        if self._limits.window and sliding > self._pages.free_sliding + self._pages.window_holds.idle:
            return False
        slots = self._limits.max_requests - num_running
        return slots > 0 and full <= self._pages.free + self._pages.holds.idle

    def outstanding(self, requests: Iterable[Request]) -> tuple[int, int]:
        """(full, sliding) pages these will still reserve for prompts: a prefix, and the questions of one step.

        Decoded tokens are not counted: texts that outgrow the pools take pages from the youngest.
        """
        full = sliding = 0
        for request in requests:
            prefix = request.prefix
            if prefix.remaining:
                missing = prefix.table.missing(prefix.end)
                chunk = min(prefix.remaining, self._limits.max_chunk)
                full += missing
                sliding += min(missing, sliding_pages_during(self._limits.window, chunk))
            rows = 0
            for _, sequence in request.pending():
                if not sequence.live and rows < self._limits.token_budget:
                    rows += sequence.remaining
                    pages = pages_for(sequence.end) - sequence.start // PAGE_SIZE
                    full, sliding = full + pages, sliding + pages
        return full, sliding

    def find_prefix(self, request: Request) -> None:
        """Start the prefix where the cache ends."""
        prefix = request.prefix
        spans = [(span.start, span.end) for span in prefix.spans] if self._limits.bidirectional else []
        hit = self._cache.lookup(request.keys, spans)
        whole = hit.length == prefix.end
        prefix.table.adopt(hit.pages if whole else hit.pages[: hit.length // PAGE_SIZE], hit.length)
        prefix.computed = hit.length
        if hit.length % PAGE_SIZE and not whole:
            prefix.tail_source = hit.pages[-1]
            self._pages.hold([prefix.tail_source])
            self._pages.hold_window([prefix.tail_source])

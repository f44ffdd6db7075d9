"""Prefixes whose K/V are still in the pools, found by content.

A page is named by the hash of everything in front of it and in it, so equal prefixes meet whoever sent them. Full pages
are shared; the partly filled last page of a checkpoint is frozen at its fill and only ever copied. A prefix can be
taken up where both pools are complete: at a *checkpoint*, whose window of sliding pages is kept. Pages leave least
recently used first, leaves before what they stand on. A checkpoint can be *pinned* under a name (a session's): what is
pinned leaves last, the name least recently pinned first. This file decides nothing about who runs.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeVar

import numpy as np

from photocall_engine.pages import Pages
from photocall_engine.rows import PAGE_SIZE
from photocall_engine.window import first_in_window

CHECKPOINT_EVERY = 1024
_SPAN = struct.Struct("<3i")

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class PictureSpan:
    """Soft tokens of one picture at positions [start, end) of a sequence; `key` names its content and grid."""

    key: str
    start: int
    end: int


class PageKeys:
    """Names of the pages of one token list: a hash chain from `root`.

    `root` covers what is equal for all of them: model, prompt version, mask kind and numerics.
    """

    def __init__(self, root: bytes, tokens: Sequence[int], spans: Sequence[PictureSpan]) -> None:
        self.root = root
        self.num_tokens = len(tokens)
        self._tokens = np.asarray(tokens, dtype="<i4").tobytes()
        self._spans = [
            (span.start, span.end, hashlib.blake2b(span.key.encode(), digest_size=16).digest()) for span in spans
        ]
        self.pages: list[bytes] = []  # of the full pages, in order
        for end in range(PAGE_SIZE, len(tokens) + 1, PAGE_SIZE):
            self.pages.append(self._hash(end - PAGE_SIZE, end))

    def at(self, position: int) -> bytes:
        """The name of the prefix that ends at this position, which for a page's end is the page's name."""
        index, fill = divmod(position, PAGE_SIZE)
        return self._hash(position - fill, position) if fill else self.before(index)

    def before(self, index: int) -> bytes:
        """The name of everything in front of page `index`."""
        return self.pages[index - 1] if index else self.root

    def _hash(self, start: int, end: int) -> bytes:
        """Of what is in front, the tokens, and for each picture among them: which rows of it stand where."""
        name = hashlib.blake2b(self.before(start // PAGE_SIZE), digest_size=16)
        name.update(bytes([end - start]) + self._tokens[4 * start : 4 * end])
        for first, last, key in self._spans:
            low, high = max(start, first), min(end, last)
            if low < high:
                name.update(key + _SPAN.pack(low - start, high - start, low - first))
        return name.digest()


@dataclass(slots=True, eq=False)
class _Node:
    """One cached page: full, or frozen at a fill. `window`: sliding pages its checkpoint holds, None without one."""

    key: bytes
    parent: bytes
    page: int
    fill: int
    step: int  # that wrote the page
    window: list[int] | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """A prefix found: positions [0, length) stand in `pages`; the last page is to be copied if it is not full."""

    length: int = 0
    pages: list[int] = field(default_factory=list)


class PrefixCache:
    """Holds on pages in `pool`; `max_window` bounds the sliding pages that checkpoints keep."""

    def __init__(self, pool: Pages, window: int, max_window: int) -> None:
        self._pool = pool
        self._window = window if pool.sliding_pages else 0
        self._max_window = max_window
        self._nodes: OrderedDict[bytes, _Node] = OrderedDict()  # least recently used first, children before parents
        self._checkpoints: OrderedDict[bytes, None] = OrderedDict()  # keys of nodes with a window, least recent first
        self._fills: dict[bytes, Counter[int]] = {}  # by parent: fills of the frozen pages behind it
        self._children: Counter[bytes] = Counter()  # by parent: pages that stand on it
        self._pins: OrderedDict[str, bytes] = OrderedDict()  # checkpoint by name, least recently pinned first
        self._pinned: Counter[bytes] = Counter()  # names by checkpoint
        self._lost: list[str] = []  # names whose checkpoint went since `take_lost` was called

    def lookup(self, keys: PageKeys, bidirectional: Collection[tuple[int, int]] = ()) -> Hit:
        """The longest prefix complete in both pools that does not end inside one of the bidirectional spans."""
        found: list[_Node] = []
        for key in keys.pages:
            node = self._nodes.get(key)
            if node is None:
                break
            found.append(node)
        for index in range(len(found), -1, -1):
            for node in self._ends(keys, index, found):
                length = index * PAGE_SIZE + node.fill % PAGE_SIZE
                inside = any(start < length < end for start, end in bidirectional)
                if not inside and (node.window is not None or not self._window):
                    partial = [node.page] if node.fill < PAGE_SIZE else []
                    self._touch(node.key)
                    return Hit(length, [n.page for n in found[:index]] + partial)
        return Hit()

    def insert(
        self, keys: PageKeys, pages: Sequence[int], done: int, checkpoints: Iterable[int], step: int = 0
    ) -> None:
        """Take in a sequence whose first `done` positions are written, and keep its windows at these positions.

        `step` is the number of the one that wrote what is new of it, for `forget_since`. `pages` is its block table; it
        still has a window hold on every page that the checkpoints need. Rows behind `done` on the last page may still
        be written by their owner: a frozen page is never read past its fill.
        """
        for index, key in enumerate(keys.pages[: done // PAGE_SIZE]):
            if key not in self._nodes:
                self._add(_Node(key, keys.before(index), pages[index], PAGE_SIZE, step))
        self._touch(keys.before(done // PAGE_SIZE))
        for position in sorted(checkpoints):
            index, fill = divmod(position, PAGE_SIZE)
            key = keys.at(position)
            if fill and key not in self._nodes:
                self._add(_Node(key, keys.before(index), pages[index], fill, step))
            self._touch(key)
            if self._window:
                self._keep_window(keys, pages, position, step)

    def forget_since(self, step: int) -> list[int]:
        """What steps from this one on have written is not to be trusted, nor what stands on it: give it up. The pages
        that are not cached any more."""
        doubtful: set[bytes] = set()
        for key, node in reversed(self._nodes.items()):  # parents before their children
            if node.step >= step or node.parent in doubtful:
                doubtful.add(key)
        pages = [self._nodes[key].page for key in doubtful]
        for key in [key for key in self._nodes if key in doubtful]:
            self._drop(key)
        return pages

    def make_room(self, pages: int) -> bool:
        """Evict until the pool could hand out so many pages; True if anything was given up."""
        changed = False
        while self._pool.free < pages and (key := self._next_out()) is not None:
            self._drop(key)
            changed = True
        while self._window and self._pool.free_sliding < pages and (key := self._idle_checkpoint()) is not None:
            self._drop_window(key)
            changed = True
        return changed

    def pin(self, name: str, keys: PageKeys, position: int) -> tuple[int, int] | None:
        """Keep the checkpoint at `position` under a name, instead of what the name kept before.

        Gives the pages and sliding pages it keeps; None where there is no such checkpoint, and then nothing is kept.
        """
        self.unpin(name)
        key = keys.at(position)
        node = self._nodes.get(key)
        if node is None or (self._window and node.window is None):
            return None
        self._pins[name] = key
        self._pinned[key] += 1
        return -(-position // PAGE_SIZE), len(node.window or ())

    def unpin(self, name: str) -> None:
        """The name keeps nothing any more; its pages are ordinary cached ones."""
        key = self._pins.pop(name, None)
        if key is not None:
            self._unhold(self._pinned, key)

    def take_lost(self) -> list[str]:
        """Names whose checkpoint was given up since the last call, because its pages were needed."""
        lost, self._lost = self._lost, []
        return lost

    def holders(self) -> tuple[list[list[int]], list[list[int]]]:
        """(holds, window holds) of the cache, for `Pages.check`."""
        windows = [node.window for node in self._nodes.values() if node.window is not None]
        return [[node.page for node in self._nodes.values()]], windows

    def clear(self) -> None:
        """Give up everything."""
        while self._nodes:
            self._drop(next(iter(self._nodes)))

    def _ends(self, keys: PageKeys, index: int, full: list[_Node]) -> Iterable[_Node]:
        """Nodes that end behind full page `index`: frozen pages, longest fill first, then the full page itself."""
        for fill in sorted(self._fills.get(keys.before(index), ()), reverse=True):
            if index * PAGE_SIZE + fill <= keys.num_tokens:
                node = self._nodes.get(keys.at(index * PAGE_SIZE + fill))
                if node is not None:
                    yield node
        if index:
            yield full[index - 1]

    def _keep_window(self, keys: PageKeys, pages: Sequence[int], position: int, step: int) -> None:
        """Make `position` a checkpoint, the most recent one; the least recent ones go where that is over the bound."""
        target = keys.at(position)
        if self._nodes[target].window is not None:
            return
        first, last = first_in_window(position, self._window), (position - 1) // PAGE_SIZE
        window: list[int] = []
        for index in range(first, last + 1):
            key = target if index == last else keys.pages[index]
            node = self._nodes[key]
            if not self._pool.window_holds.of[node.page]:
                self._rebind(node, pages[index], step)  # the same content, and this copy still has its sliding page
            window.append(node.page)
        self._pool.hold_window(window, kept=True)
        self._nodes[target].window = window
        self._checkpoints[target] = None
        while self._pool.window_holds.num_kept > self._max_window:
            unpinned = (key for key in self._checkpoints if key not in self._pinned)
            self._drop_window(next(unpinned, next(iter(self._checkpoints))))

    def _rebind(self, node: _Node, page: int, step: int) -> None:
        self._pool.hold([page], kept=True)
        self._pool.release([node.page], kept=True)
        node.page, node.step = page, step

    def _add(self, node: _Node) -> None:
        self._pool.hold([node.page], kept=True)
        self._children[node.parent] += 1
        self._nodes[node.key] = node
        if node.fill < PAGE_SIZE:
            self._fills.setdefault(node.parent, Counter())[node.fill] += 1

    def _drop(self, key: bytes) -> None:
        if self._nodes[key].window is not None:
            self._drop_window(key)
        self._lose(key)
        node = self._nodes.pop(key)
        self._unhold(self._children, node.parent)
        self._pool.release([node.page], kept=True)
        if node.fill < PAGE_SIZE:
            fills = self._fills[node.parent]
            self._unhold(fills, node.fill)
            if not fills:
                del self._fills[node.parent]

    def _drop_window(self, key: bytes) -> None:
        del self._checkpoints[key]
        node = self._nodes[key]
        assert node.window is not None, "only checkpoints are listed"
        self._pool.release_window(node.window, kept=True)
        node.window = None
        self._lose(key)

    def _lose(self, key: bytes) -> None:
        """Nobody can take this checkpoint up any more."""
        if key in self._pinned:
            names = [name for name, pinned in self._pins.items() if pinned == key]
            for name in names:
                self.unpin(name)
            self._lost += names

    def _next_out(self) -> bytes | None:
        """The least recently used page that nothing cached stands on and only the cache holds; pinned ones last.

        Where such pages all have others in use standing on them, a page in use, so that those come free.
        """
        leaves = (key for key in self._nodes if not self._children[key])
        idle = (key for key in leaves if self._pool.holds.is_idle(self._nodes[key].page))
        pinned: list[bytes] = []
        for key in idle:
            if key not in self._pinned:
                return key
            pinned.append(key)
        if pinned:
            return next(key for key in self._pins.values() if key in pinned)
        return next(iter(self._nodes)) if self._pool.holds.idle else None

    def _idle_checkpoint(self) -> bytes | None:
        """The least recently used checkpoint that keeps a sliding page which no sequence needs; pinned ones last."""
        kept = (key for key in self._checkpoints if key not in self._pinned)
        for key in chain(kept, self._pins.values()):
            window = self._nodes[key].window or ()
            if any(map(self._pool.window_holds.is_idle, window)):
                return key
        return None

    def _touch(self, key: bytes) -> None:
        """Used now: this page, then each page in front of it, so that children are always older than their parents."""
        if key in self._checkpoints:
            self._checkpoints.move_to_end(key)
        while (node := self._nodes.get(key)) is not None:
            self._nodes.move_to_end(key)
            key = node.parent

    @staticmethod
    def _unhold(counts: Counter[K], item: K) -> None:
        counts[item] -= 1
        if not counts[item]:
            del counts[item]

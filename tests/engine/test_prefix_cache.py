from __future__ import annotations

import pytest

from photocall_engine.pages import Pages
from photocall_engine.prefix_cache import Hit, PageKeys, PictureSpan, PrefixCache
from photocall_engine.window import BlockTable, first_in_window

ROOT = b"model"
WINDOW = 33


class Shelf:
    """A pool with a cache on it, and sequences that come and go."""

    def __init__(
        self, num_pages: int = 100, window: int = WINDOW, max_window: int = 50, sliding: int | None = None
    ) -> None:
        self.window = window
        self.pool = Pages(num_pages, sliding or num_pages - 1 if window else 0)
        self.cache = PrefixCache(self.pool, window, max_window)
        self.tables: list[BlockTable] = []

    def write(self, keys: PageKeys, *checkpoints: int, chunk: int = 1000, keep: bool = False) -> list[int]:
        """A sequence computes everything in chunks, is taken in, and leaves (or stays, with `keep`)."""
        table = BlockTable(self.pool, self.window)
        for start in range(0, keys.num_tokens, chunk):
            end = min(start + chunk, keys.num_tokens)
            pages = self.pool.reserve(table.missing(end))
            assert pages is not None
            table.append(pages)
            self.cache.insert(keys, table.pages, end, [c for c in checkpoints if start < c <= end])
            table.advance(end)
            self.check(table)
        pages = list(table.pages)
        if keep:
            self.tables.append(table)
        else:
            table.release()
        return pages

    def check(self, *more: BlockTable) -> None:
        held, windows = self.cache.holders()
        tables = [*self.tables, *more]
        self.pool.check([*held, *(t.pages for t in tables)], [*windows, *(t.windowed for t in tables)])


def keys(tokens: range | list[int], *spans: PictureSpan, root: bytes = ROOT) -> PageKeys:
    return PageKeys(root, list(tokens), spans)


def test_a_hit_ends_at_the_longest_checkpoint() -> None:
    shelf = Shelf()
    pages = shelf.write(keys(range(100)), 40, 100)
    assert shelf.cache.lookup(keys(range(100))) == Hit(100, pages)
    assert shelf.cache.lookup(keys(range(200))) == Hit(100, pages)
    assert shelf.cache.lookup(keys([*range(99), 7])) == Hit(40, pages[:3])
    assert shelf.cache.lookup(keys([*range(39), 7])) == Hit()
    assert shelf.cache.lookup(keys(range(99))) == Hit(40, pages[:3])
    shelf.check()


def test_a_checkpoint_at_the_end_of_a_page() -> None:
    shelf = Shelf()
    pages = shelf.write(keys(range(100)), 64)
    assert shelf.cache.lookup(keys([*range(64), 1])) == Hit(64, pages[:4])
    assert shelf.cache.lookup(keys(range(63))) == Hit()


@pytest.mark.parametrize("chunk", [1, 5, 16, 23, 1000])
def test_windows_of_the_checkpoints_and_nothing_else_are_kept(chunk: int) -> None:
    shelf = Shelf()
    pages = shelf.write(keys(range(200)), 70, 200, chunk=chunk)
    windows = {p for c in (70, 200) for p in pages[first_in_window(c, WINDOW) : (c - 1) // 16 + 1]}
    assert {page for page in pages if shelf.pool.window_holds.of[page]} == windows
    assert shelf.cache.lookup(keys(range(70))).length == 70


@pytest.mark.parametrize(
    "other",
    [
        PageKeys(b"other model", list(range(100)), ()),
        PageKeys(ROOT, list(range(100)), [PictureSpan("b:3x3", 10, 40)]),
        PageKeys(ROOT, list(range(100)), [PictureSpan("a:3x3", 11, 41)]),
        PageKeys(ROOT, list(range(100)), [PictureSpan("a:3x6", 10, 40)]),
        PageKeys(ROOT, list(range(100)), ()),
    ],
)
def test_a_page_is_named_by_root_tokens_and_pictures_at_their_offsets(other: PageKeys) -> None:
    shelf = Shelf()
    mine = PageKeys(ROOT, list(range(100)), [PictureSpan("a:3x3", 10, 40)])
    shelf.write(mine, 60, 100)
    assert shelf.cache.lookup(mine).length == 100
    assert shelf.cache.lookup(other) == Hit()


def test_a_hit_inside_a_bidirectional_picture_is_cut_to_its_start() -> None:
    shelf = Shelf()
    shelf.write(keys(range(120)), 20, 50, 64, 80)
    cases = {(20, 90): 20, (50, 90): 50, (60, 81): 50, (80, 90): 80, (70, 80): 80, (20, 70): 80, (10, 100): 0}
    for span, length in cases.items():
        assert shelf.cache.lookup(keys(range(120)), [span]).length == length


def test_sequences_with_the_same_beginning_share_its_pages() -> None:
    shelf = Shelf()
    first = shelf.write(keys(range(100)), 64, 100)
    second = shelf.write(keys([*range(64), *range(500, 540)]), 104)
    assert shelf.cache.lookup(keys([*range(64), *range(500, 540)])).pages[:2] == first[:2]
    held, _ = shelf.cache.holders()
    assert len(held[0]) == len(first) + len(second) - 4
    shelf.check()


def test_a_second_copy_lends_the_window_that_the_first_has_lost() -> None:
    """The longer prefix makes a checkpoint where the shorter's pages have no sliding pages any more."""
    shelf = Shelf()
    shelf.write(keys(range(160)), 160)
    assert shelf.cache.lookup(keys(range(80))) == Hit()
    again = shelf.write(keys(range(160)), 80)
    hit = shelf.cache.lookup(keys(range(80)))
    assert hit.length == 80
    assert hit.pages[3:] == again[3:5]  # the window of 80 begins on page 3; its pages are the second copy's
    assert shelf.cache.lookup(keys(range(160))).length == 160
    shelf.check()


def test_room_is_made_least_recently_used_first() -> None:
    shelf = Shelf(num_pages=31)
    for i in range(3):
        shelf.write(keys(range(i * 1000, i * 1000 + 160)), 160)
    assert shelf.pool.free == 0
    shelf.cache.lookup(keys(range(160)))
    assert shelf.cache.make_room(10)
    assert shelf.pool.free == 10
    assert [shelf.cache.lookup(keys(range(i * 1000, i * 1000 + 160))).length for i in range(3)] == [160, 0, 160]
    shelf.check()


def test_the_end_of_a_prefix_goes_before_its_beginning() -> None:
    shelf = Shelf(num_pages=11)
    shelf.write(keys(range(160)), 48, 160)
    assert shelf.cache.make_room(3)
    assert shelf.pool.free == 3
    assert shelf.cache.lookup(keys(range(160))).length == 48
    shelf.check()


def test_pages_in_use_are_not_given_up() -> None:
    shelf = Shelf(num_pages=11)
    shelf.write(keys(range(160)), 160, keep=True)
    assert not shelf.cache.make_room(1)
    assert shelf.cache.lookup(keys(range(160))).length == 160


def test_idle_pages_below_pages_in_use_can_be_had() -> None:
    """The beginning is held by the cache alone, its continuation by a sequence with a copy of the beginning."""
    shelf = Shelf(num_pages=31)
    shelf.write(keys(range(64)), 64)
    shelf.write(keys(range(160)), 160, keep=True)
    assert (shelf.pool.free, shelf.pool.holds.idle) == (16, 4)
    assert shelf.cache.make_room(20)
    assert shelf.pool.free == 20
    shelf.check()


def test_sliding_pages_are_made_free_by_voiding_hits_only() -> None:
    shelf = Shelf(sliding=14)
    for first in (0, 1000):
        shelf.write(keys(range(first, first + 160)), 160)
    full = shelf.pool.free
    assert shelf.pool.free_sliding == 10  # each checkpoint keeps two
    assert shelf.cache.make_room(12)
    assert (shelf.pool.free, shelf.pool.free_sliding) == (full, 12)
    assert shelf.cache.lookup(keys(range(160))) == Hit()
    assert shelf.cache.lookup(keys(range(1000, 1160))).length == 160
    shelf.check()


def test_checkpoints_keep_to_their_bound() -> None:
    shelf = Shelf(max_window=5)
    for i in range(4):
        shelf.write(keys(range(i * 1000, i * 1000 + 160)), 160)
        assert shelf.pool.window_holds.num_kept <= 5
    lengths = [shelf.cache.lookup(keys(range(i * 1000, i * 1000 + 160))).length for i in range(4)]
    assert lengths == [0, 0, 160, 160]
    tiny = Shelf(max_window=1)
    tiny.write(keys(range(160)), 160)
    assert tiny.cache.lookup(keys(range(160))) == Hit()
    tiny.check()


def test_without_sliding_layers_every_cached_page_is_a_place_to_go_on() -> None:
    shelf = Shelf(window=0)
    pages = shelf.write(keys(range(100)), 100)
    assert shelf.cache.lookup(keys([*range(50), 7])) == Hit(48, pages[:3])
    assert shelf.cache.lookup(keys(range(100))) == Hit(100, pages)


def test_clear_gives_everything_back() -> None:
    shelf = Shelf()
    shelf.write(keys(range(160)), 48, 100, 160)
    shelf.write(keys([*range(90), 5, 6]), 48, 92)
    shelf.cache.clear()
    assert (shelf.pool.free, shelf.pool.free_sliding) == (99, 99)

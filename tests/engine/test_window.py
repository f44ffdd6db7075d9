from __future__ import annotations

import pytest

from photocall_engine.pages import Pages
from photocall_engine.window import BlockTable, first_in_window, pages_for, sliding_pages_during


def table(num_pages: int = 40, sliding: int = 39, window: int = 33) -> tuple[Pages, BlockTable]:
    pool = Pages(num_pages, sliding)
    return pool, BlockTable(pool, window)


def grow(pool: Pages, made: BlockTable, end: int) -> None:
    pages = pool.reserve(made.missing(end))
    assert pages is not None
    made.append(pages)


@pytest.mark.parametrize(("position", "page"), [(0, 0), (32, 0), (47, 0), (48, 1), (63, 1), (64, 2)])
def test_first_page_in_a_window_of_33(position: int, page: int) -> None:
    assert first_in_window(position, 33) == page  # the row sees position - 32 and up


def test_pages_behind_the_window_go_back() -> None:
    pool, made = table()
    for position in range(1, 400, 7):
        grow(pool, made, position)
        made.advance(position)
        pool.check([made.pages], [made.windowed])
        assert made.pages.index(made.windowed[0]) == first_in_window(position, 33)
        assert len(made.windowed) <= pages_for(33) + 1
    assert len(made.pages) == pages_for(400 - 7)
    made.release()
    assert (pool.free, pool.free_sliding) == (39, 39)


def test_a_chunk_takes_no_more_than_its_bound() -> None:
    for window in (1, 16, 33, 256):
        for chunk in (1, 15, 16, 17, 100):
            most = max(pages_for(p + chunk) - first_in_window(p, window) for p in range(600))
            assert most <= sliding_pages_during(window, chunk)
            assert most >= sliding_pages_during(window, chunk) - 1


def test_a_child_keeps_what_its_parent_gives_up() -> None:
    pool, parent = table()
    grow(pool, parent, 100)
    child = parent.sibling()
    child.adopt(parent.pages[:6], 96)
    parent.release()
    assert child.windowed == child.pages[first_in_window(96, 33) :]
    pool.check([child.pages], [child.windowed])
    child.advance(200)
    assert child.windowed == []
    pool.check([child.pages], [])


def test_pages_are_missing_only_behind_the_last() -> None:
    pool, made = table()
    assert [made.missing(end) for end in (0, 1, 16, 17)] == [0, 1, 1, 2]
    grow(pool, made, 17)
    assert [made.missing(end) for end in (1, 32, 33)] == [0, 0, 1]


def test_without_a_window_nothing_is_given_up() -> None:
    pool, made = table(sliding=0, window=0)
    grow(pool, made, 500)
    made.advance(500)
    assert made.windowed == made.pages
    made.release()
    assert pool.free == 39

from __future__ import annotations

import pytest

from photocall_engine.pages import PageError, Pages


def test_scratch_page_is_never_handed_out() -> None:
    pool = Pages(8, 7)
    assert sorted(pool.reserve(7) or []) == [1, 2, 3, 4, 5, 6, 7]
    assert pool.free == pool.free_sliding == 0


@pytest.mark.parametrize(("full", "sliding"), [(3, 9), (9, 3)])
def test_too_many_pages_take_nothing(full: int, sliding: int) -> None:
    pool = Pages(full + 1, sliding)
    assert pool.reserve(4) is None
    assert (pool.free, pool.free_sliding) == (full, sliding)
    pool.check([], [])


def test_a_shared_page_is_free_after_its_last_hold() -> None:
    pool = Pages(4, 3)
    pages = pool.reserve(2)
    assert pages is not None
    pool.hold(pages)
    pool.hold_window(pages)
    for _ in range(2):
        assert pool.free == 1
        pool.release_window(pages)
        pool.release(pages)
    assert pool.free == 3
    pool.check([], [])


def test_a_sliding_page_returns_while_its_full_page_stays() -> None:
    pool = Pages(4, 1)
    pages = pool.reserve(1)
    assert pages is not None
    pool.release_window(pages)
    assert pool.free_sliding == 1
    again = pool.reserve(1)
    assert again is not None
    assert again != pages
    pool.check([pages, again], [again])


def test_without_sliding_layers_there_is_one_pool() -> None:
    pool = Pages(4, 0)
    pages = pool.reserve(3)
    assert pages is not None
    pool.hold_window(pages)
    pool.release_window(pages)
    assert told(pool) == {}
    pool.check([pages], [pages])


def told(pool: Pages) -> dict[int, int]:
    pages, sliding = pool.take_map_changes()
    return dict(zip(pages.tolist(), sliding.tolist(), strict=True))


def test_map_changes_are_told_once() -> None:
    pool = Pages(8, 7)
    assert pool.reserve(2) == [1, 2]
    assert told(pool) == {1: 1, 2: 2}
    assert told(pool) == {}
    assert pool.reserve(3) == [3, 4, 5]
    pool.release_window([1])
    assert told(pool) == {1: 0, 3: 3, 4: 4, 5: 5}
    pool.resend_map()
    assert told(pool) == {0: 0, 1: 0, 2: 2, 3: 3, 4: 4, 5: 5, 6: 0, 7: 0}


def test_what_only_the_cache_holds_is_counted() -> None:
    pool = Pages(6, 5)
    pages = pool.reserve(3)
    assert pages is not None
    pool.hold(pages, kept=True)
    pool.hold_window(pages[:2], kept=True)
    assert (pool.holds.idle, pool.window_holds.idle) == (0, 0)
    pool.release_window(pages)
    pool.release(pages[:1])
    assert (pool.holds.idle, pool.window_holds.idle) == (1, 2)
    assert (pool.holds.num_kept, pool.window_holds.num_kept) == (3, 2)
    pool.hold(pages[:1])
    assert pool.holds.idle == 0
    pool.check([pages, pages], [pages[:2]])


def test_misuse_is_an_error() -> None:
    pool = Pages(4, 3)
    pages = pool.reserve(1)
    assert pages is not None
    with pytest.raises(PageError, match="freed while 1 windows"):
        pool.release(pages)
    pool = Pages(4, 3)
    with pytest.raises(PageError, match="is free"):
        pool.hold([1])
    with pytest.raises(PageError, match="more often"):
        pool.release([1])
    with pytest.raises(PageError, match="is gone"):
        pool.hold_window([1])
    with pytest.raises(ValueError, match="1 pages"):
        Pages(1, 0)


def test_check_names_what_is_broken() -> None:
    pool = Pages(6, 5)
    pages = pool.reserve(2)
    assert pages is not None
    pool.check([pages], [pages])
    with pytest.raises(PageError, match=f"page {pages[0]}: 1 holds counted, 0 holders"):
        pool.check([pages[1:]], [pages[1:]])
    with pytest.raises(PageError, match=f"page {pages[1]}: 1 window holds counted, 0 found"):
        pool.check([pages], [pages[:1]])
    pool._free.append(pages[0])
    with pytest.raises(PageError, match="lost or handed out twice"):
        pool.check([pages], [pages])
    pool._free.pop()
    pool._sliding_map[pages[0]] = 0
    with pytest.raises(PageError, match="maps to 0"):
        pool.check([pages], [pages])

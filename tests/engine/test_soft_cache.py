from __future__ import annotations

import random

import pytest

from photocall_engine.soft_cache import SoftCache


def test_a_picture_is_encoded_once_while_it_stays() -> None:
    cache = SoftCache(10)
    assert cache.pin("a", 4) == (0, True)
    assert cache.pin("a", 4) == (0, False)
    assert cache.pin("b", 4) == (4, True)
    for key in ("a", "a", "b"):
        cache.unpin(key)
    assert cache.pin("a", 4) == (0, False)


def test_least_recently_used_goes_first_and_pinned_ones_stay() -> None:
    cache = SoftCache(10)
    for key in ("a", "b"):
        cache.pin(key, 5)
    cache.unpin("a")
    assert cache.pin("c", 5) == (0, True)
    assert cache.pin("a", 5) is None
    cache.unpin("b")
    cache.unpin("c")
    assert cache.pin("b", 5) == (5, False)
    assert cache.pin("a", 5) == (0, True)  # c, unpinned after b but used before it, went


def test_what_was_never_filled_is_encoded_again() -> None:
    cache = SoftCache(10)
    cache.pin("a", 4)
    with pytest.raises(AssertionError, match="is pinned"):
        cache.forget("a")
    cache.unpin("a")
    cache.forget("a")
    cache.forget("a")  # gone already: it may have been given up meanwhile
    assert cache.pin("a", 4) == (0, True)


def test_unpinning_twice_is_an_error() -> None:
    cache = SoftCache(10)
    cache.pin("a", 4)
    cache.unpin("a")
    with pytest.raises(AssertionError, match="not pinned"):
        cache.unpin("a")


def test_a_picture_as_large_as_the_arena_always_fits_an_unpinned_one() -> None:
    chance = random.Random(1)
    cache = SoftCache(50)
    for i in range(500):
        count = chance.randint(1, 50)
        place = cache.pin(f"p{i % 17}-{count}", count)
        assert place is not None
        assert 0 <= place[0] <= 50 - count
        cache.check()
        cache.unpin(f"p{i % 17}-{count}")
    assert cache.pinned == 0

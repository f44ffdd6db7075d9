"""Patch blobs in a directory and on a Redis: whole or not there, bounded, the longest unused first to go."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import redis

from photocall import keys
from photocall.blob_store import BlobsAway, BlobsFull, BlobStore
from photocall.blobs import DirBlobs, open_blobs
from photocall.connections import connect
from photocall.redis_blobs import RedisBlobs
from photocall.redis_server import RedisServer
from tests.small_disk import mounted


@pytest.fixture(params=["dir", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path, redis_server: RedisServer) -> BlobStore:
    return open_blobs(f"dir:{tmp_path / 'blobs'}" if request.param == "dir" else redis_server.url)


def names(directory: Path) -> list[str]:
    """Of the blobs, and of what is being written."""
    return sorted(path.name for path in directory.iterdir() if path.name != ".unswept")


def test_put_and_get(store: BlobStore) -> None:
    assert store.get("a-140-x") is None
    store.put("a-140-x", b"\x00\x01")
    assert store.get("a-140-x") == b"\x00\x01"
    store.put("a-140-x", b"\x02")
    assert store.get("a-140-x") == b"\x02"
    assert store.sweep() == 0


def test_all_of_a_prefix_go_and_no_others(store: BlobStore) -> None:
    for key in ("ab-140fast-x", "ab-140fast-x-grid", "ab-280fast_f2-x", "abc-140fast-x", "b-140fast-x"):
        store.put(key, b"1")
    store.remove_all("ab-")
    assert [store.get(key) for key in ("ab-140fast-x", "ab-140fast-x-grid", "ab-280fast_f2-x")] == [None] * 3
    assert store.get("abc-140fast-x") == store.get("b-140fast-x") == b"1"
    store.remove_all("ab-")


def test_urls(tmp_path: Path, redis_server: RedisServer) -> None:
    assert isinstance(open_blobs(f"dir:{tmp_path}"), DirBlobs)
    assert isinstance(open_blobs(redis_server.url), RedisBlobs)


def test_the_directory_is_private(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir(mode=0o777)
    DirBlobs(tmp_path / "blobs")
    assert stat.S_IMODE((tmp_path / "blobs").stat().st_mode) == 0o700


@pytest.mark.parametrize("key", ["", ".hidden", "../x", "a/b", "a\x00b", "x" * 300])
def test_a_key_is_a_plain_name(tmp_path: Path, key: str) -> None:
    store = DirBlobs(tmp_path / "blobs")
    with pytest.raises(ValueError, match="cannot name a blob"):
        store.put(key, b"x")
    with pytest.raises(ValueError, match="cannot name a blob"):
        store.get(key)
    assert list(tmp_path.rglob("*")) == [tmp_path / "blobs"]


def test_a_real_key_is_a_name(tmp_path: Path) -> None:
    store, key = DirBlobs(tmp_path), keys.blob_key("0" * 64, "1120exact", "f" * 16)
    store.put(key, b"x")
    assert store.get(key) == b"x"


def test_the_longest_unused_goes_first(tmp_path: Path) -> None:
    store = DirBlobs(tmp_path, max_bytes=800)
    for number in range(7):
        store.put(f"b{number}", bytes(100))
        os.utime(tmp_path / f"b{number}", times=(time.time() - 100 + number,) * 2)
    assert store.get("b0") is not None  # used now
    store.put("b7", bytes(100))
    assert store.get("b1") is None
    assert store.get("b0") is not None
    assert store.get("b7") is not None


def test_what_nobody_uses_goes_after_its_time(tmp_path: Path) -> None:
    store = DirBlobs(tmp_path, ttl_s=100)
    for name, age_s in (("old", 101), ("read", 101), ("young", 50)):
        store.put(name, b"x")
        os.utime(tmp_path / name, times=(time.time() - age_s,) * 2)
    assert store.get("read") == b"x"
    assert store.sweep() == 1
    assert names(tmp_path) == ["read", "young"]


def test_it_stays_within_its_bound(tmp_path: Path) -> None:
    """For all writers together: each used to count for itself, and more than two went over it."""
    stores = [DirBlobs(tmp_path, max_bytes=200_000) for _ in range(8)]
    for number in range(400):
        stores[number % 8].put(f"b{number}", bytes(1000))
        assert sum((tmp_path / name).stat().st_size for name in names(tmp_path)) <= 200_000
    assert stores[0].get("b0") is None
    assert stores[0].get("b399") is not None


def test_a_redis_of_blobs_stays_within_our_bound(redis_client: redis.Redis, redis_server: RedisServer) -> None:
    """Its own may be missing, or its policy may forbid to evict anything."""
    stores = [RedisBlobs(redis_server.url, max_bytes=200_000) for _ in range(4)]
    for number in range(400):
        stores[number % 4].put(f"b{number}", bytes(1000))
        if number % 10 == 0:
            held = len(list(redis_client.scan_iter(match=keys.blob("*"), count=1000)))
            assert held * 1000 <= 200_000
    assert stores[0].get("b0") is None
    assert stores[0].get("b399") is not None


def test_a_redis_of_blobs_forgets_the_longest_unused(redis_client: redis.Redis, redis_server: RedisServer) -> None:
    store = RedisBlobs(redis_server.url, max_bytes=8000)
    for number in range(8):
        redis_client.set(keys.blob(f"b{number}"), bytes(1000), px=3_000_000 + number)
    assert store.get("b0") is not None  # used now
    assert store.size("b1") == 1000  # and so is this
    assert store.sweep() == 1
    assert [name for name in (f"b{number}" for number in range(8)) if not redis_client.exists(keys.blob(name))] == [
        "b2"
    ]


def test_a_full_redis_costs_the_older_half() -> None:
    with RedisServer.start_temporary() as server, connect(server.url) as client:
        store = RedisBlobs(server.url)
        for number in range(10):
            client.set(keys.blob(f"b{number}"), bytes(100_000), px=3_000_000 + number)
        client.config_set("maxmemory", cast(Any, client.info("memory"))["used_memory"])
        store.put("new", bytes(100_000))
        assert store.get("new") == bytes(100_000)
        assert [store.size(f"b{number}") for number in (0, 4, 9)] == [None, None, 100_000]
        client.config_set("maxmemory", 1)
        with pytest.raises(BlobsFull, match="no room for 100000 bytes"):
            store.put("none", bytes(100_000))


def test_a_redis_that_is_away_has_lost_its_blobs() -> None:
    with RedisServer.start_temporary() as server:
        store = RedisBlobs(server.url)
        store.put("a", b"x")
    assert store.get("a") is None
    assert store.size("a") is None
    assert store.sweep() == 0
    with pytest.raises(BlobsAway, match="is away"):
        store.put("a", b"x")


def test_looking_at_the_size_is_using(tmp_path: Path) -> None:
    store = DirBlobs(tmp_path, ttl_s=100)
    store.put("a", memoryview(b"four"))
    os.utime(tmp_path / "a", times=(time.time() - 101,) * 2)
    assert store.size("a") == 4
    assert store.size("b") is None
    assert store.sweep() == 0


def test_a_full_disk_costs_the_older_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DirBlobs(tmp_path)
    for number in range(10):
        store.put(f"b{number}", bytes(100))
        os.utime(tmp_path / f"b{number}", times=(time.time() - 100 + number,) * 2)
    write, failures = Path.write_bytes, iter([True])

    def full_once(path: Path, data: bytes) -> int:
        if next(failures, False):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", full_once)
    store.put("new", bytes(100))
    assert names(tmp_path) == ["b5", "b6", "b7", "b8", "b9", "new"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    with mounted(tmp_path / "disk", "1m") as disk:
        yield disk


def test_a_disk_that_is_really_full(small_disk: Path) -> None:
    """Blobs make room for one another whatever the bound says, and what others have taken is told as such."""
    store = DirBlobs(small_disk / "blobs", max_bytes=1 << 30)
    for number in range(50):
        store.put(f"b{number}", bytes(100_000))
    assert store.get("b49") == bytes(100_000)
    taken = small_disk / "taken by others"
    with contextlib.suppress(OSError):
        taken.write_bytes(bytes(2 << 20))
    store.put("more", bytes(100_000))  # in the place of its own
    for name in names(small_disk / "blobs"):
        (small_disk / "blobs" / name).unlink()
    with contextlib.suppress(OSError), taken.open("ab") as rest:
        rest.write(bytes(2 << 20))
    with pytest.raises(BlobsFull, match="no room for 100000 bytes"):
        store.put("none", bytes(100_000))
    assert names(small_disk / "blobs") == []
    taken.unlink()
    store.put("again", bytes(100_000))
    assert store.get("again") == bytes(100_000)


def test_another_failure_to_write_is_raised_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, data: bytes) -> int:
        raise OSError(errno.EACCES, "Permission denied")

    store = DirBlobs(tmp_path)
    monkeypatch.setattr(Path, "write_bytes", refuse)
    with pytest.raises(OSError, match="Permission denied"):
        store.put("a", b"x")
    assert names(tmp_path) == []


def test_half_written_files_of_dead_processes_are_swept(tmp_path: Path) -> None:
    store = DirBlobs(tmp_path)
    (tmp_path / ".old").write_bytes(b"x")
    (tmp_path / ".new").write_bytes(b"x")
    os.utime(tmp_path / ".old", (time.time() - 3600, time.time() - 3600))
    assert store.sweep() == 1
    assert names(tmp_path) == [".new"]


def test_redis_blobs_have_a_time_to_live(redis_server: RedisServer) -> None:
    store = RedisBlobs(redis_server.url)
    store.put("a", b"x")
    assert 3590 < store._redis.ttl(keys.blob("a")) <= 3600


def test_a_directory_that_vanished_comes_back(tmp_path: Path) -> None:
    """Somebody clears /dev/shm: what was there is prepared anew, and not every picture from then on refused."""
    blobs = DirBlobs(tmp_path / "blobs")
    blobs.put("one", b"1")
    shutil.rmtree(tmp_path / "blobs")
    assert blobs.get("one") is None
    blobs.put("two", b"2")
    assert blobs.get("two") == b"2"
    assert (tmp_path / "blobs").stat().st_mode & 0o777 == 0o700

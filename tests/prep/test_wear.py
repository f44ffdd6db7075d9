"""A worker that is worn begins anew between two entries: the same process id, nothing lost, and it can be stopped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import redis

from photocall.redis_server import RedisServer
from photocall_prep.wear import Wear, resident_bytes
from tests.prep.pictures import encoded, scene
from tests.prep.test_worker import Process, wait_for
from tests.prep.workshop import Workshop

PHOTO = encoded(scene(), "PNG")


def test_pictures_wear() -> None:
    wear = Wear(max_pictures=2)
    for expected in (None, "2 pictures"):
        wear.add()
        wear.look()
        assert wear.reason == expected


def test_memory_wears(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 << 20 < resident_bytes(os.getpid()) < 1 << 40
    wear = Wear(max_bytes=100 << 20, helpers=lambda: [7])  # that of its decoder counts
    for held, expected in ((100 << 20, None), (101 << 20, "101 MiB resident")):
        held_by = {os.getpid(): 40 << 20, 7: held - (40 << 20)}
        monkeypatch.setattr("photocall_prep.wear.resident_bytes", held_by.__getitem__)
        wear.look()
        assert wear.reason == expected


def test_without_bounds_nothing_wears() -> None:
    wear = Wear()
    wear.add()
    wear.look()
    assert wear.reason is None


def test_a_worn_process_begins_anew_and_loses_nothing(
    redis_client: redis.Redis, redis_server: RedisServer, tmp_path: Path
) -> None:
    shop = Workshop(redis_client, tmp_path / "other")
    names = [f"j{number}" for number in range(7)]
    pictures = [encoded(scene(40 + number, 30), "PNG") for number in range(7)]
    for name, picture in zip(names, pictures, strict=True):
        shop.accept(name, {"a": picture}, "batch")
    shop.queues.enqueue("j0", 1, "batch", "j1", "j2", "j3")  # worn in the middle of one: it is finished first
    for name in names[4:]:
        shop.enqueue(name, "batch")
    with Process(redis_server.url, tmp_path, PHOTOCALL_PREP_RENEW_PICTURES="3") as process:
        wait_for(lambda: all(shop.records.get(name).stage == "running" for name in names), timeout_s=60)
        shop.enqueue(shop.accept("after", {"a": PHOTO}))
        wait_for(lambda: shop.records.get("after").stage == "running")
        log = (tmp_path / "prep.log").read_text()
        assert log.count("beginning anew") == 2, "after four pictures and after three more"
        assert process.stop() == 0
    assert all(shop.records.get(name).attempts == 1 for name in names)
    assert len(shop.engine_messages("batch")) == 7
    assert shop.redis.keys("rq:job:*") == []
    assert shop.redis.smembers("rq:workers") == set(), "it signed off each time"


def test_its_own_memory_is_a_reason_too(redis_client: redis.Redis, redis_server: RedisServer, tmp_path: Path) -> None:
    shop = Workshop(redis_client, tmp_path / "other")
    shop.enqueue(shop.accept("j1", {"a": PHOTO}))
    with Process(redis_server.url, tmp_path, PHOTOCALL_PREP_RENEW_BYTES=str(1 << 20)) as process:
        wait_for(lambda: "beginning anew" in (tmp_path / "prep.log").read_text())
        pid = process.child.pid
        wait_for(lambda: (tmp_path / "prep.log").read_text().count("serving prep") == 2, timeout_s=60)
        os.kill(pid, 0)
        assert process.stop() == 0
    assert shop.records.get("j1").stage == "running"

"""The worker: lanes, refusals, what a dead worker leaves, Redis away, and the whole process."""

import logging
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import redis
from rq import Queue

from photocall import keys
from photocall.connections import connect
from photocall.jobs import JobStatus
from photocall.messages import DecideRequest
from photocall.redis_server import RedisServer, find_binary
from photocall_prep import entries as entries_module
from photocall_prep import worker as worker_module
from photocall_prep.jobs import PREPARER, Preparer, prepare
from photocall_prep.worker import PrepWorker
from tests.prep.pictures import encoded, scene
from tests.prep.workshop import KEY, CountingPrep, Workshop, checkpoint

PHOTO = encoded(scene(), "PNG")
INTERMEDIATE = [f"rq:queue:{name}:intermediate" for name in keys.PREP_QUEUE.values()]


@pytest.fixture
def shop(redis_client: redis.Redis, tmp_path: Path) -> Iterator[Workshop]:
    shop = Workshop(redis_client, tmp_path / "blobs")
    token = PREPARER.set(shop.preparer())
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield shop
    PREPARER.reset(token)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def a_worker(shop: Workshop) -> PrepWorker:
    return PrepWorker(shop.redis, shop.queues)


def left_behind(shop: Workshop) -> int:
    """Entries on any list of the queues."""
    return sum(shop.redis.llen(key) for key in (*INTERMEDIATE, *(f"rq:queue:{q}" for q in keys.PREP_QUEUE.values())))


def test_interactive_jobs_go_before_batch_jobs(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    class Noting(Preparer):
        def prepare(self, job_id: str) -> None:
            order.append(job_id)
            super().prepare(job_id)

    monkeypatch.setattr("tests.prep.workshop.Preparer", Noting)
    PREPARER.set(shop.preparer())
    for job_id, lane in (("b1", "batch"), ("b2", "batch"), ("i1", "interactive"), ("i2", "interactive")):
        shop.enqueue(shop.accept(job_id, {"a": PHOTO}, lane), lane)  # type: ignore[arg-type]
    assert a_worker(shop).serve(burst=True) == 4
    assert order == ["i1", "i2", "b1", "b2"]
    assert left_behind(shop) == 0
    assert len(shop.engine_messages("batch")) == len(shop.engine_messages("interactive")) == 2
    assert shop.redis.keys("rq:job:*") == [], "an entry goes with its success"


def plant(shop: Workshop, entry_id: str, data: bytes) -> None:
    """An entry as somebody with access to Redis would write it."""
    shop.redis.hset(f"rq:job:{entry_id}", mapping={"data": data, "origin": "prep", "status": "queued"})
    shop.redis.rpush("rq:queue:prep", entry_id)


def test_a_planted_function_is_refused_and_counted(shop: Workshop, tmp_path: Path) -> None:
    proof = tmp_path / "ran"
    signed = shop.wire.encode(DecideRequest("os.system", [f"touch {proof}"]))
    plant(shop, "prep-evil-1", signed)
    plant(shop, "prep-unsigned-1", pickle.dumps(("os.system", None, (f"touch {proof}",), {})))
    plant(shop, "rubbish", b"\0")
    shop.enqueue(shop.accept("good", {"a": PHOTO}))
    assert a_worker(shop).serve(burst=True) == 1, "only the good one runs"
    assert not proof.exists()
    counters = shop.redis.hgetall(keys.COUNTERS)
    assert isinstance(counters, dict)
    assert (counters[b"refused_function"], counters[b"bad_signature"]) == (b"1", b"2")
    assert shop.records.get("good").stage == "running"
    assert left_behind(shop) == 0


def test_an_entry_whose_hash_is_gone_is_enqueued_again(shop: Workshop) -> None:
    entry = shop.enqueue(shop.accept("j1", {"a": PHOTO}))
    shop.redis.delete(f"rq:job:{entry}")
    assert a_worker(shop).serve(burst=True) == 0
    assert shop.sweep_outbox() == ["prep-j1-1"]
    assert a_worker(shop).serve(burst=True) == 1
    assert shop.records.get("j1").stage == "running"


def test_what_a_dead_worker_took_is_given_back(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries_module, "RECOVER_S", 0.2)
    for lane in keys.LANES:
        shop.enqueue(shop.accept(lane, {"a": PHOTO}, lane), lane)
        queue = f"rq:queue:{keys.PREP_QUEUE[lane]}"
        shop.redis.lmove(queue, f"{queue}:intermediate", "LEFT", "RIGHT")  # and then it died
    worker = a_worker(shop)
    assert worker.serve(burst=True) == 0
    assert shop.redis.zcard(keys.OUTBOX) == 0, "not before its time: another worker may be about to lease it"
    time.sleep(0.25)
    worker.serve(burst=True)
    assert all(shop.redis.ttl(key) > 0 for key in shop.redis.keys("rq:job:*")), "RQ forgets it, too"
    assert sorted(shop.sweep_outbox()) == ["prep-batch-1", "prep-interactive-1"]
    assert worker.serve(burst=True) == 2
    assert all(shop.records.get(lane).stage == "running" for lane in keys.LANES)
    assert left_behind(shop) == 0


def test_a_leased_job_is_not_enqueued_twice(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries_module, "RECOVER_S", 0.05)
    shop.enqueue(shop.accept("j1", {"a": PHOTO}))
    shop.redis.lmove("rq:queue:prep", "rq:queue:prep:intermediate", "LEFT", "RIGHT")
    assert shop.records.lease("j1", "preparing") is not None, "a slow but living worker"
    worker = a_worker(shop)
    for _ in range(3):
        worker.serve(burst=True)
        time.sleep(0.06)
    assert shop.sweep_outbox() == []


def test_a_run_that_raises_gives_its_entry_back(shop: Workshop, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def prepare(self, job_id: str) -> None:
            raise redis.ResponseError("a script that is broken")

    PREPARER.set(Broken())  # type: ignore[arg-type]
    shop.enqueue(shop.accept("j1", {"a": PHOTO}))
    with caplog.at_level(logging.CRITICAL, "rq.worker"):
        assert a_worker(shop).serve(burst=True) == 1
    PREPARER.set(shop.preparer())
    assert [key for pattern in ("rq:wip:*", "rq:failed:*") for key in shop.redis.keys(pattern)] == []
    assert shop.sweep_outbox() == ["prep-j1-1"]
    assert a_worker(shop).serve(burst=True) == 1
    assert shop.records.get("j1").stage == "running"


def test_an_entry_that_another_ends_first_is_no_failure(shop: Workshop, caplog: pytest.LogCaptureFixture) -> None:
    """It was enqueued twice; the hash went with the first end."""

    class Overtaken(Preparer):
        def prepare(self, job_id: str) -> None:
            super().prepare(job_id)
            shop.redis.delete(*cast(Any, shop.redis.keys("rq:job:*")), *cast(Any, shop.redis.keys("rq:execution:*")))

    PREPARER.set(Overtaken(shop.records, shop.images, shop.shelf, CountingPrep()))
    shop.enqueue(shop.accept("j1", {"a": PHOTO}))
    assert a_worker(shop).serve(burst=True) == 1
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert shop.redis.keys("rq:wip:*") == shop.redis.keys("rq:failed:*") == []
    assert left_behind(shop) == 0


def test_what_waits_behind_a_picture_that_kills_does_not_wait_long(shop: Workshop) -> None:
    """A batch's jobs share an entry; those behind one whose worker died were due half a minute later."""
    names = ["first", "second", "third"]
    for name in names:
        shop.accept(name, {"a": PHOTO}, "batch")
    shop.records.postpone(names[1:], time.time() + 3600)
    due: dict[str, float] = {}

    class Dying(Preparer):
        def prepare(self, job_id: str) -> None:
            if job_id == "second":
                found = cast(Any, shop.redis.zrange(keys.OUTBOX, 0, -1, withscores=True))
                due.update((raw.decode(), at) for raw, at in found)
                raise KeyboardInterrupt
            super().prepare(job_id)

    PREPARER.set(Dying(shop.records, shop.images, shop.shelf, CountingPrep()))
    with pytest.raises(KeyboardInterrupt):
        prepare(*("first", 1, "second", "third"))
    assert "first" not in due
    assert due["third"] < time.time() + 10


def test_it_tidies_up_now_and_then(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    tidied: list[int] = []
    worker = PrepWorker(shop.redis, shop.queues, tidy=lambda: tidied.append(1))
    worker.serve(burst=True)
    assert tidied == []
    monkeypatch.setattr(worker_module, "MAINTENANCE_S", 0)
    worker.serve(burst=True)
    assert tidied


def test_heartbeats_are_few(shop: Workshop) -> None:
    for number in range(10):
        shop.enqueue(shop.accept(f"j{number}", {"a": PHOTO}))
    worker = a_worker(shop)
    beats: list[float] = []
    with shop.redis.monitor() as monitor:  # type: ignore[no-untyped-call]
        ran = worker.serve(burst=True)
        shop.redis.ping()
        for command in monitor.listen():
            if command["command"].startswith("PING"):
                break
            if "last_heartbeat" in command["command"] and "rq:worker:" in command["command"]:
                beats.append(command["time"])
    assert ran == 10
    assert len(beats) == 2, "its birth, and one beat of all that RQ asks for"


def test_an_entry_costs_few_round_trips(shop: Workshop) -> None:
    """Of the queue alone; RQ's own way to run one made nineteen commands."""
    PREPARER.set(cast(Any, Idle()))
    for number in range(10):
        shop.queues.enqueue(f"j{number}", 1, "interactive")
    worker = a_worker(shop)
    assert worker.serve(burst=True) == 10  # the scripts are known from here on
    for number in range(10):
        shop.queues.enqueue(f"j{number}", 1, "interactive")
    seen: list[str] = []
    with shop.redis.monitor() as monitor:  # type: ignore[no-untyped-call]
        assert worker.serve(burst=True) == 10
        shop.redis.ping()
        for command in monitor.listen():
            if command["command"].startswith("PING"):
                break
            if command["client_type"] != "lua":
                seen.append(command["command"])
    takes = [command for command in seen if command.startswith("EVALSHA")]
    assert len(takes) == 11, "one for each, and the one that found nothing"
    # its connection's greeting and its heartbeats come once in a while; an entry costs no second trip
    assert len(seen) - len(takes) < 20


class Idle:
    """Prepares nothing."""

    def prepare(self, job_id: str) -> None:
        """Nothing at all."""


def test_a_second_worker_of_the_same_lanes_shares_the_work(shop: Workshop) -> None:
    prep = CountingPrep()
    PREPARER.set(shop.preparer(prep))
    for number in range(4):
        shop.enqueue(shop.accept(f"j{number}", {"a": PHOTO}))
    first, second = a_worker(shop), a_worker(shop)
    assert first.serve(burst=True) + second.serve(burst=True) == 4
    assert len(shop.engine_messages()) == 4
    assert prep.calls == 1


def wait_for(condition: Callable[[], bool], timeout_s: float = 20) -> None:
    until = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until, "it did not come about in time"
        time.sleep(0.05)


class Process:
    """A real prep process."""

    def __init__(self, url: str, folder: Path, **settings: str) -> None:
        environment = os.environ | {
            "PHOTOCALL_REDIS_URL": url,
            "PHOTOCALL_SIGNING_KEY": KEY.decode(),
            "PHOTOCALL_MODEL": str(checkpoint(folder / "model")),
            "PHOTOCALL_BLOBS": f"dir:{folder / 'blobs'}",
            "PHOTOCALL_DATA": str(folder / "data"),
            **settings,
        }
        self.log = (folder / "prep.log").open("wb")
        command = [sys.executable, "-m", "photocall_prep"]
        self.child = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log
        )

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.child.send_signal(number)
        return self.child.wait(20)

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait(10)
        self.log.close()


def test_the_process_works_and_stops_on_sigterm(shop: Workshop, redis_server: RedisServer, tmp_path: Path) -> None:
    with Process(redis_server.url, tmp_path) as process:
        shop.enqueue(shop.accept("j1", {"a": PHOTO}))
        shop.enqueue(shop.accept("j2", {"a": PHOTO[:60]}, "batch"), "batch")
        wait_for(lambda: shop.records.get("j1").stage == "running")
        wait_for(lambda: shop.records.get("j2").status == JobStatus.FAILED)
        [image] = shop.records.get("j1").prepared
        assert (tmp_path / "blobs" / image["blob_key"]).stat().st_size == 768 * 9 * image["num_soft"]
        assert process.stop() == 0
    assert shop.redis.smembers("rq:workers") == set(), "it signed off"


def test_a_killed_process_loses_no_job(shop: Workshop, redis_server: RedisServer, tmp_path: Path) -> None:
    """Stopped between taking the entry and the lease, where only the intermediate list knows of the job."""
    shop.enqueue(shop.accept("j1", {"a": PHOTO}))
    shop.redis.lmove("rq:queue:prep", "rq:queue:prep:intermediate", "LEFT", "RIGHT")
    with Process(redis_server.url, tmp_path) as process:
        wait_for(lambda: shop.redis.zcard(keys.OUTBOX) == 1)
        shop.sweep_outbox()
        wait_for(lambda: shop.records.get("j1").stage == "running")
        assert process.stop(signal.SIGKILL) == -signal.SIGKILL


def test_redis_may_come_late_and_go(tmp_path: Path) -> None:
    server = RedisServer(find_binary(), tmp_path / "r", tmp_path / "state")

    def start() -> subprocess.Popen[bytes]:
        child = subprocess.Popen(server.command(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        server.wait_ready()
        return child

    running: subprocess.Popen[bytes] | None = None
    try:
        with Process(server.url, tmp_path) as process:
            time.sleep(1.5)
            assert process.child.poll() is None, "it waits for a Redis that is not there yet"
            running = start()
            with connect(server.url) as client:
                shop = Workshop(client, tmp_path / "other")
                shop.enqueue(shop.accept("j1", {"a": PHOTO}))
                wait_for(lambda: shop.records.get("j1").stage == "running")
            running.terminate()
            running.wait(10)
            time.sleep(1)
            running = start()
            with connect(server.url) as client:
                shop = Workshop(client, tmp_path / "other")
                shop.enqueue(shop.accept("j2", {"a": PHOTO}))
                wait_for(lambda: shop.records.get("j2").stage == "running")
            assert process.stop() == 0
    finally:
        if running is not None:
            running.terminate()
            running.wait(10)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("PHOTOCALL_MAX_PIXELS", "many", "PHOTOCALL_MAX_PIXELS='many': expected an integer >= 1"),
        ("PHOTOCALL_BUDGET", "560", "PHOTOCALL_BUDGET='560': expected auto, or one of 70, 140, 280"),
        ("PHOTOCALL_MODEL", "/nowhere", "/nowhere: no image settings"),
    ],
)
def test_bad_settings_stop_the_start(tmp_path: Path, variable: str, value: str, message: str) -> None:
    environment = os.environ | {
        "PHOTOCALL_MODEL": str(checkpoint(tmp_path / "model")),
        "PHOTOCALL_SIGNING_KEY": "k",
        "PHOTOCALL_BLOBS": f"dir:{tmp_path}",
        variable: value,
    }
    command = [sys.executable, "-m", "photocall_prep"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert message in done.stderr


def test_the_queues_are_the_ones_the_gateway_fills(shop: Workshop) -> None:
    assert [queue.name for queue in a_worker(shop).queues] == ["prep", "prep-batch"]
    assert all(isinstance(queue, Queue) for queue in a_worker(shop).queues)

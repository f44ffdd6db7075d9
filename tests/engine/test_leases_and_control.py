"""The engine's other threads on a real Redis: leases renewed, cancellations heard, heartbeats shown."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import redis

from photocall import keys
from photocall.jobs import Lease
from photocall.messages import EngineInfo, InterruptRequest, ShutdownRequest
from photocall.wire import Wire
from photocall_engine.control import Control
from photocall_engine.lease_book import LeaseBook
from photocall_engine.pulse import HEARTBEAT_TTL_S, Pulse
from tests.engine.queue_bench import WIRE, QueueBench, until


@pytest.fixture
def bench(redis_client: redis.Redis, tmp_path: Path) -> QueueBench:
    return QueueBench(redis_client, tmp_path / "blobs")


def held(bench: QueueBench, job_id: str) -> Lease:
    bench.accept_text(job_id)
    lease = bench.records.lease(job_id, "running")
    assert lease is not None
    bench.leases.add(lease)
    return lease


# --- leases ------------------------------------------------------------------------------------------------------


def test_renewing_keeps_what_is_wanted(bench: QueueBench) -> None:
    leases = [held(bench, job_id) for job_id in ("kept", "cancelled", "deleted")]
    bench.redis.hset(keys.job("kept"), "lease_until", str(time.time() + 1))
    bench.records.cancel("cancelled")
    bench.records.delete("deleted")
    bench.leases.renew_all()
    assert bench.records.get("kept").lease_until > time.time() + 5
    assert bench.leases.unwanted(["kept", "cancelled", "deleted"]) == {"cancelled", "deleted"}
    assert [bench.leases.holds(lease) for lease in leases] == [True, False, False]


def test_a_removed_lease_is_renewed_no_more(bench: QueueBench) -> None:
    lease = held(bench, "j1")
    bench.leases.interrupt(["j1", "a stranger"])
    assert bench.leases.unwanted(["j1", "a stranger"]) == {"j1"}
    bench.leases.remove(lease)
    assert bench.leases.unwanted(["j1"]) == set()
    assert len(bench.leases) == 0
    before = bench.records.get("j1").lease_until
    bench.leases.renew_all()
    assert bench.records.get("j1").lease_until == before


def test_a_lease_taken_anew_outlives_the_end_of_the_lost_one(bench: QueueBench) -> None:
    """The old run's end once took the renewals of the new lease with it, so that the job failed again and again."""
    lost = held(bench, "j1")
    bench.leases.interrupt(["j1"])
    anew = replace(lost, fence=lost.fence + 1)
    bench.leases.add(anew)
    assert bench.leases.unwanted(["j1"]) == set()
    bench.leases.remove(lost)
    assert bench.leases.holds(anew)
    assert not bench.leases.holds(lost)


def test_nothing_is_given_up_while_redis_is_away(bench: QueueBench) -> None:
    class Away:
        def renew(self, lease: object) -> bool:
            raise redis.ConnectionError("away")

    lease = held(bench, "j1")
    book = LeaseBook(cast(Any, Away()))
    book.add(lease)
    book.renew_all()
    assert book.holds(lease)


# --- control -----------------------------------------------------------------------------------------------------


@pytest.fixture
def reasons(bench: QueueBench) -> Iterator[list[str]]:
    """What the control thread was asked to shut down for."""
    found: list[str] = []
    control = Control(bench.redis, WIRE, "engine-1", bench.leases, found.append)
    bench.redis.xadd(keys.CONTROL, {"m": WIRE.encode(ShutdownRequest("before it was started"))})
    control.start()
    until(lambda: len(control._after) == 2, "it to read")
    yield found
    control.stop()


def test_a_cancelled_job_is_heard_of(bench: QueueBench, reasons: list[str]) -> None:
    held(bench, "j1")
    held(bench, "j2")
    bench.records.cancel("j1")
    until(lambda: bench.leases.unwanted(["j1", "j2"]) == {"j1"}, "the cancellation")
    bench.records.delete("j2")
    until(lambda: bench.leases.unwanted(["j1", "j2"]) == {"j1", "j2"}, "the deletion")


def test_one_engine_or_all_are_asked_to_shut_down(bench: QueueBench, reasons: list[str]) -> None:
    bench.redis.xadd(keys.control("another"), {"m": WIRE.encode(ShutdownRequest("not ours"))})
    bench.redis.xadd(keys.control("engine-1"), {"m": WIRE.encode(ShutdownRequest("ours"))})
    bench.redis.xadd(keys.CONTROL, {"m": WIRE.encode(ShutdownRequest("all"))})
    until(lambda: sorted(reasons) == ["all", "ours"], "both")


def test_a_forged_control_message_is_ignored_and_counted(bench: QueueBench, reasons: list[str]) -> None:
    held(bench, "j1")
    forged = Wire(b"another key", "x")
    bench.redis.xadd(keys.CONTROL, {"m": forged.encode(InterruptRequest(["j1"]))})
    bench.redis.xadd(keys.CONTROL, {"m": forged.encode(ShutdownRequest("forged"))})
    until(lambda: bench.counters() == {b"bad_signature": b"2"}, "both to be counted")
    assert reasons == []
    assert "j1" in bench.leases


# --- heartbeat ---------------------------------------------------------------------------------------------------


def test_heartbeat(bench: QueueBench) -> None:
    info = EngineInfo("engine-1", "m", "cpu", True, 1, 64, 10, 20, 5.0)
    beats = threading.Event()

    def now() -> EngineInfo:
        beats.set()
        return info

    bench.redis.zadd(keys.ENGINES, {"long-gone": time.time() - 7200})
    pulse = Pulse(bench.redis, WIRE, bench.leases, now)
    held(bench, "j1")
    bench.redis.hset(keys.job("j1"), "lease_until", str(time.time() + 1))
    pulse.start()
    assert beats.wait(5)
    until(lambda: bench.records.get("j1").lease_until > time.time() + 4, "the leases to be renewed with it")
    beat = cast(bytes, bench.redis.get(keys.heartbeat("engine-1")))
    assert WIRE.decode(beat).message == info
    assert 0 < bench.redis.ttl(keys.heartbeat("engine-1")) <= HEARTBEAT_TTL_S
    assert cast(Any, bench.redis.zrange(keys.ENGINES, 0, -1)) == [b"engine-1"]
    pulse.stop()
    assert bench.redis.exists(keys.heartbeat("engine-1")) == 0


def test_an_engine_that_leaves_takes_its_heartbeat_back_and_keeps_its_leases(bench: QueueBench) -> None:
    """So nothing more is offered to it, and the others take over what lies in its stream."""
    info = EngineInfo("engine-1", "m", "cpu", True, 1, 64, 10, 20, 5.0)
    pulse = Pulse(bench.redis, WIRE, bench.leases, lambda: info)
    held(bench, "j1")
    pulse.start()
    until(lambda: bench.redis.exists(keys.heartbeat("engine-1")), "the first beat")
    pulse.leave()
    until(lambda: not bench.redis.exists(keys.heartbeat("engine-1")), "it to be taken back")
    bench.redis.hset(keys.job("j1"), "lease_until", str(time.time() + 1))
    until(lambda: bench.records.get("j1").lease_until > time.time() + 4, "the lease to be renewed")
    assert bench.redis.exists(keys.heartbeat("engine-1")) == 0
    pulse.stop()

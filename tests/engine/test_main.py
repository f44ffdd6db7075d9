"""The engine as a process of its own, with the fake model: ready, answering, draining, and refusing to start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import redis

from photocall import keys
from photocall.jobs import JobStatus
from photocall.messages import EngineInfo, ShutdownRequest
from photocall.redis_server import RedisServer
from photocall.settings import EngineSettings
from photocall_engine import __main__ as engine_main
from photocall_engine.model.config import read_config
from photocall_engine.sizing import GPU_MAX_PAGES, MAX_PLANNED_PAGES, page_bytes, plan_pools
from tests.engine.queue_bench import WIRE, QueueBench, until

MODEL = Path(__file__).parents[2] / "models" / "mini"
KEY = "a key for tests"


@pytest.fixture
def bench(redis_client: redis.Redis, tmp_path: Path) -> QueueBench:
    return QueueBench(redis_client, tmp_path / "blobs")


@contextmanager
def engine(server: RedisServer, tmp_path: Path, **changes: str) -> Iterator[subprocess.Popen[str]]:
    """`python -m photocall_engine`; killed at the end if it is still there."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PHOTOCALL_")}
    environ |= {
        "PHOTOCALL_REDIS_URL": server.url,
        "PHOTOCALL_SIGNING_KEY": KEY,
        "PHOTOCALL_DATA": str(tmp_path),
        "PHOTOCALL_BLOBS": f"dir:{tmp_path / 'blobs'}",
        "PHOTOCALL_MODEL": str(MODEL),
        "PHOTOCALL_RUNNER": "fake",
        "PHOTOCALL_ENGINE_ID": "engine-under-test",
        **changes,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "photocall_engine"], env=environ, stderr=subprocess.PIPE, text=True
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def beat(client: redis.Redis) -> EngineInfo | None:
    """Its last heartbeat, if there is one."""
    found = cast("bytes | None", client.get(keys.heartbeat("engine-under-test")))
    if found is None:
        return None
    info = WIRE.decode(found).message
    assert isinstance(info, EngineInfo)
    return info


def ready(client: redis.Redis) -> bool:
    found = beat(client)
    return found is not None and found.ready


@pytest.mark.parametrize("how", ["signal", "request"])
def test_ready_answering_and_stopped(bench: QueueBench, redis_server: RedisServer, tmp_path: Path, how: str) -> None:
    with engine(redis_server, tmp_path) as process:
        until(lambda: ready(bench.redis), "it to be ready", 60)
        bench.accept_text("j1")
        until(lambda: bench.records.get("j1").status.terminal, "an answer")
        record = bench.records.get("j1")
        assert record.status is JobStatus.SUCCEEDED
        assert record.result is not None
        assert record.result["model"] == "photocall-mini"
        assert 0 <= record.result["answers"]["q"]["noul"] <= 1
        until(
            lambda: (found := beat(bench.redis)) is not None and found.answered == 1,
            "its heartbeat to count the answer",
        )
        if how == "signal":
            process.send_signal(signal.SIGTERM)
        else:
            message = WIRE.encode(ShutdownRequest("a test"))
            bench.redis.xadd(keys.control("engine-under-test"), {"m": message})
        assert process.wait(30) == 0
        assert bench.redis.exists(keys.heartbeat("engine-under-test")) == 0


def begun(status: JobStatus) -> bool:
    """A quick engine may have answered them all before anybody looks."""
    return status is JobStatus.RUNNING or status.terminal


def test_requests_under_load_end_once_across_a_stop(
    bench: QueueBench, redis_server: RedisServer, tmp_path: Path
) -> None:
    """What an engine cannot finish it hands back, and the next one answers it as the same attempt."""
    names = [f"j{number}" for number in range(40)]
    with engine(redis_server, tmp_path, PHOTOCALL_DRAIN_S="0", PHOTOCALL_MAX_REQUESTS="2") as process:
        until(lambda: ready(bench.redis), "it to be ready", 60)
        for name in names:
            bench.accept_text(name)
        until(lambda: any(begun(bench.records.get(name).status) for name in names), "work")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    left = [name for name in names if not bench.records.get(name).status.terminal]
    assert all(bench.records.get(name).lease_until == 0 for name in left)
    with engine(redis_server, tmp_path):
        until(lambda: all(bench.records.get(name).status.terminal for name in names), "all answers", 60)
    for name in names:
        record = bench.records.get(name)
        assert (record.status, record.attempts) == (JobStatus.SUCCEEDED, 1)
        assert [event.msg_type for event in bench.events(name)].count("result") == 1


def test_an_engine_that_leaves_is_counted_on_no_more_while_it_finishes(
    bench: QueueBench, redis_server: RedisServer, tmp_path: Path
) -> None:
    """A turn or a picture that is offered to its own stream meanwhile would wait until the process has ended."""
    with engine(redis_server, tmp_path) as process:
        until(lambda: ready(bench.redis), "it to be ready", 60)
        until(lambda: bench.redis.exists(keys.engine_stream("batch")), "it to have made its groups")
        process.send_signal(signal.SIGSTOP)
        bench.accept_text("j1")
        bench.redis.config_set("maxmemory", 1)  # so that its answer cannot be written yet
        process.send_signal(signal.SIGCONT)
        until(lambda: bench.records.get("j1").status is JobStatus.RUNNING, "it to be taken")
        process.send_signal(signal.SIGTERM)
        until(lambda: beat(bench.redis) is None, "the heartbeat to be taken back")
        bench.redis.config_set("maxmemory", 0)
        assert process.wait(30) == 0
    record = bench.records.get("j1")
    assert (record.status, record.attempts) == (JobStatus.SUCCEEDED, 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"PHOTOCALL_MAX_ROWS": "1"}, "PHOTOCALL_MAX_ROWS='1': expected an integer >= "),
        ({"PHOTOCALL_MODEL": "/nowhere"}, "/nowhere"),
        ({"PHOTOCALL_FAILPOINT": "nowhere"}, "PHOTOCALL_FAILPOINT='nowhere'"),
    ],
)
def test_what_cannot_be_used_ends_with_status_2(
    redis_server: RedisServer, tmp_path: Path, changes: dict[str, str], message: str
) -> None:
    with engine(redis_server, tmp_path, **changes) as process:
        assert process.wait(60) == engine_main.UNUSABLE
        assert process.stderr is not None
        assert message in process.stderr.read()


def test_it_waits_for_a_redis_that_is_not_there_yet(tmp_path: Path) -> None:
    with RedisServer.start_temporary() as server:
        pass  # gone again, but its address is known
    with engine(server, tmp_path) as process:
        assert process.stderr is not None
        tries = (line for line in process.stderr if "retry_s" in line)
        assert next(tries, None) is not None, "it ended"
        assert next(tries, None) is not None, "it tried once"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_pools_are_planned_from_memory_or_given() -> None:
    config = read_config(MODEL).text
    per_page = page_bytes(config)
    assert per_page == 6 * 2 * 64 * 16 * 4  # six layers, K and V, one head of 64, 16 positions, float32
    assert plan_pools(config, 100).num_pages == 100
    assert plan_pools(config, kv_bytes=50 * per_page).num_pages == 50
    assert plan_pools(config, kv_bytes=10**15).num_pages == MAX_PLANNED_PAGES
    assert plan_pools(config, 100).sliding_pages == 99


def test_a_gpu_is_asked_what_is_free_and_what_does_not_fit_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others already have half of the memory; ours may fill it to three quarters."""
    config = read_config(MODEL)
    free = 40 * 10**9
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (free, 80 * 10**9))
    settings = EngineSettings(device="cuda", model=MODEL, gpu_memory=0.75)
    assert engine_main._pool_sizes(settings, config).num_pages == GPU_MAX_PAGES
    free = 21 * 10**9  # of which 20 are not ours to fill
    with pytest.raises(engine_main.UnusableModelError, match=r"^1\.00 GB of memory do not hold weights of 0\.02"):
        engine_main._torch_runner(settings, config)
    assert engine_main._pool_sizes(replace(settings, device="cpu", kv_bytes=10**8), config).num_pages == 2034


def test_the_fake_needs_no_torch() -> None:
    code = "import sys, photocall_engine.__main__; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

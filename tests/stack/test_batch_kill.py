"""Two gateway processes on one directory, one of them killed at a named point: no row lost, none written twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from photocall import failpoints
from photocall.local import free_port
from photocall.redis_server import RedisServer
from tests.gateway.batch_helper import Caller, jsonl, line
from tests.gateway.conftest import KEY
from tests.gateway.fake_backend import FakeBackend

ROWS = 2200  # more than one chunk of the validation
DISTINCT = 100  # the others equal one of these


@contextmanager
def gateway(server: RedisServer, data: Path, failpoint: str = "") -> Iterator[tuple[subprocess.Popen[bytes], Caller]]:
    """A real process; gives it with a caller of it."""
    port = free_port("127.0.0.1")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PHOTOCALL_")}
    environ |= {
        "PHOTOCALL_REDIS_URL": server.url,
        "PHOTOCALL_SIGNING_KEY": KEY,
        "PHOTOCALL_DATA": str(data),
        "PHOTOCALL_PORT": str(port),
    }
    if failpoint:
        environ["PHOTOCALL_FAILPOINT"] = failpoint
    process = subprocess.Popen([sys.executable, "-m", "photocall_gateway"], env=environ)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=30) as http:
            until = time.monotonic() + 60
            while True:
                try:
                    http.get("/healthz")
                    break
                except httpx.TransportError:
                    assert time.monotonic() < until
                    time.sleep(0.1)
            yield process, Caller(http)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


@pytest.mark.parametrize("point", [name for name in failpoints.POINTS if name.startswith("batch.")])
def test_a_killed_gateways_batch_is_taken_over(redis_server: RedisServer, tmp_path: Path, point: str) -> None:
    rows = [line(f"row-{i}", line(f"{i % DISTINCT}")["body"]) for i in range(ROWS)]
    with (
        FakeBackend(redis_server.url, KEY.encode()) as backend,
        gateway(redis_server, tmp_path, point) as (doomed, first),
    ):
        batch_id = first.start(first.upload(jsonl(*rows)))["id"]
        with gateway(redis_server, tmp_path) as (_, second):
            assert doomed.wait(60) == -signal.SIGKILL
            assert failpoints.marker(tmp_path, point).exists()
            batch = second.ended(batch_id, within_s=120)
            assert batch["status"] == "completed", batch
            assert batch["request_counts"] == {"total": ROWS, "completed": ROWS, "failed": 0}
            done, failed = second.results(batch)
            assert done.keys() == {f"row-{i}" for i in range(ROWS)}
            assert not failed
            [written] = tmp_path.glob(f"batches/*/{batch_id}/output.jsonl")
            assert written.stat().st_size == second.get(f"/v1/files/{batch['output_file_id']}").json()["bytes"]
            for i in range(ROWS):
                assert done[f"row-{i}"]["response"]["status_code"] == 200
        assert len(backend.seen) == DISTINCT  # what had been asked before the death is not asked again

"""Many readers of one gateway process: pollers of job states, and event streams that stay open, over HTTP.

    python -m ops.bench.readers [--pollers 2000] [--streams 500] [--jobs 2000] [--changes 50] [--seconds 20]
                                [--alone] [--write]

A private Redis and one gateway. Each poller asks once a second, which is what `Retry-After` tells it, so the load is
open: `pollers` reads a second, however long they take; and each second `--changes` of the jobs change, with an event
(`readers_changes.py`). The client is a process of its own (`readers_client.py`) on the second core, with Redis and the
changes; the gateway has the first. `ms` is what a poller sees, from the moment it should have asked to the last byte;
what the client itself is late stands beside (`late_ms`), and so does what the gateway measured (`server`: its own
histogram, which starts when a request has been read). Each change is on Redis' disk before anybody reads on, so a busy
disk is seen too (`redis_stalls`). CPU shares are of one core.

`--alone` takes both cores from whatever else runs on a busy machine (real-time scheduling; needs to be root): the
figures are then those of a machine that has nothing else to do, but for what its neighbours do to the caches.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import httpx
import redis

from photocall.connections import connect
from photocall.local import free_port
from photocall.redis_server import RedisServer

RESULTS = Path(__file__).parent / "results"
PERIOD_S = 1.0
ROUTE = "/v1/jobs/{job_id}"
KEY = "bench"
GATEWAY_CORE, OTHER_CORE = 0, 1
REAL_TIME_PRIORITY = 10
STALL_MS = 10


def main() -> None:
    """Measure, print, and with --write keep it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pollers", type=int, default=2000)
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--changes", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8192)), hard))
    if args.alone:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(REAL_TIME_PRIORITY))
    os.sched_setaffinity(0, {OTHER_CORE % (os.cpu_count() or 1)})  # with all that this process starts
    port = free_port("127.0.0.1")
    with (
        RedisServer.start_temporary() as server,
        tempfile.TemporaryDirectory() as data,
        _gateway(server.url, port, data, args.jobs) as gateway,
    ):
        store = connect(server.url)
        jobs = _jobs(port, args.jobs)
        store.config_set("latency-monitor-threshold", STALL_MS)
        with _changes(server.url, jobs, args.changes):
            plan = {"port": port, "server": gateway.pid, "jobs": jobs, "pollers": args.pollers,
                    "streams": args.streams, "seconds": args.seconds, "period_s": PERIOD_S}  # fmt: skip
            before = os.getloadavg()[0]
            client = [sys.executable, "-m", "ops.bench.readers_client"]
            out = subprocess.run(client, input=json.dumps(plan), text=True, stdout=subprocess.PIPE, check=True)
            seen = _seen_by_the_server(port)
            stalls = _stalls(store)
    report = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load_before": round(before, 2),
        **{name: getattr(args, name) for name in ("alone", "pollers", "streams", "jobs", "changes", "seconds")},
        "period_s": PERIOD_S,
        **json.loads(out.stdout),
        "server": seen,
        "redis_stalls": stalls,
    }
    print(json.dumps(report, indent=1))
    if args.write:
        (RESULTS / f"readers-{report['at'][:10]}.json").write_text(json.dumps(report, indent=1) + "\n")


@contextmanager
def _gateway(url: str, port: int, data: str, jobs: int) -> Iterator[subprocess.Popen[bytes]]:
    """A gateway on a core of its own, as long as the block lasts."""
    environment = os.environ | {
        "PHOTOCALL_REDIS_URL": url,
        "PHOTOCALL_PORT": str(port),
        "PHOTOCALL_DATA": data,
        "PHOTOCALL_SIGNING_KEY": KEY,
        "PHOTOCALL_MAX_QUEUE_DEPTH": str(jobs + 1),
        "PHOTOCALL_MAX_QUEUE_DEPTH_PER_KEY": str(jobs + 1),
    }
    gateway = subprocess.Popen([sys.executable, "-m", "photocall_gateway"], env=environment)
    os.sched_setaffinity(gateway.pid, {GATEWAY_CORE})
    try:
        yield gateway
    finally:
        gateway.terminate()
        gateway.wait(30)


@contextmanager
def _changes(url: str, jobs: list[str], per_second: int) -> Iterator[None]:
    """Jobs that change as long as the block lasts."""
    if not per_second:
        yield
        return
    command = [sys.executable, "-m", "ops.bench.readers_changes", url, KEY, str(per_second), *jobs]
    changing = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert changing.stdout is not None
        assert int(changing.stdout.readline()) == len(jobs), "jobs could not be held"
        yield
        assert changing.poll() is None, "the changes ended"
    finally:
        changing.kill()
        changing.wait(30)


def _seen_by_the_server(port: int) -> dict[str, Any]:
    """The share of status reads that the gateway took so many milliseconds for, and the bucket of their p99."""
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False, timeout=30).raise_for_status().text
    buckets: dict[float, float] = {}
    for line in text.splitlines():
        if line.startswith("photocall_http_seconds_bucket{") and f'route="{ROUTE}"' in line:
            edge = line.partition('le="')[2].partition('"')[0]
            buckets[float(edge)] = float(line.rpartition(" ")[2])
    total = buckets[float("inf")]
    return {
        "reads": int(total),
        "share_within_ms": {f"{edge * 1000:g}": round(buckets[edge] / total, 4) for edge in (0.005, 0.01, 0.025, 0.05)},
        "p99_at_most_ms": next(edge * 1000 for edge in sorted(buckets) if buckets[edge] >= 0.99 * total),
    }


def _stalls(store: redis.Redis) -> dict[str, Any]:
    """What kept Redis from answering for STALL_MS and more: how often, and the longest in milliseconds."""
    found = {}
    for name, *_, longest in cast(Any, store.latency_latest()):
        history = cast(Any, store.latency_history(name.decode()))
        found[name.decode()] = {"times": len(history), "longest_ms": longest}
    return found


def _jobs(port: int, count: int) -> list[str]:
    """Accepted jobs that nobody answers."""
    question = {"q": {"type": "noul", "instructions": "Is it?"}}
    until = time.monotonic() + 30
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=10) as http:
        while True:
            try:
                http.get("/healthz").raise_for_status()
                break
            except httpx.TransportError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)

        def accepted(i: int) -> str:
            body = {"state": f"text {i}", "questions": question}
            return str(http.post("/v1/jobs", json=body).raise_for_status().json()["id"])

        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(accepted, range(count)))


if __name__ == "__main__":
    main()

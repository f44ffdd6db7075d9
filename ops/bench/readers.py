"""Many readers of one gateway process: pollers of job states, and event streams that stay open, over HTTP.

    python -m ops.bench.readers [--pollers 2000] [--streams 500] [--jobs 2000] [--seconds 20] [--write]

A private Redis and one gateway, jobs that nobody answers. Each poller asks once a second, as Retry-After tells it to,
so the load is open: `pollers` reads a second, however long they take. The client is a process of its own
(`readers_client.py`), which shares the machine's cores with the gateway and Redis; what it adds stands beside
(`late_ms`), and so does what the gateway measured itself (`server`: from its own histogram, which starts when a request
has been read and cannot see one that waits in the socket). `cpu_share` is of one core.
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
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from photocall.local import free_port
from photocall.redis_server import RedisServer

RESULTS = Path(__file__).parent / "results" / "readers.json"
PERIOD_S = 1.0
ROUTE = "/v1/jobs/{job_id}"


def main() -> None:
    """Measure, print, and with --write keep it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pollers", type=int, default=2000)
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8192)), hard))
    port = free_port("127.0.0.1")
    with RedisServer.start_temporary() as server, tempfile.TemporaryDirectory() as data:
        environment = os.environ | {
            "PHOTOCALL_REDIS_URL": server.url,
            "PHOTOCALL_PORT": str(port),
            "PHOTOCALL_DATA": data,
            "PHOTOCALL_SIGNING_KEY": "bench",
            "PHOTOCALL_MAX_QUEUE_DEPTH": str(args.jobs + 1),
            "PHOTOCALL_MAX_QUEUE_DEPTH_PER_KEY": str(args.jobs + 1),
        }
        gateway = subprocess.Popen([sys.executable, "-m", "photocall_gateway"], env=environment)
        try:
            plan = {"port": port, "jobs": _jobs(port, args.jobs), "pollers": args.pollers, "streams": args.streams,
                    "seconds": args.seconds, "period_s": PERIOD_S}  # fmt: skip
            before = os.getloadavg()[0]
            used, started = _cpu_s(gateway.pid), time.perf_counter()
            client = [sys.executable, "-m", "ops.bench.readers_client"]
            out = subprocess.run(client, input=json.dumps(plan), text=True, stdout=subprocess.PIPE, check=True).stdout
            used, took = _cpu_s(gateway.pid) - used, time.perf_counter() - started
            seen = _seen_by_the_server(port)
        finally:
            gateway.terminate()
            gateway.wait(30)
    where = {"cores": os.cpu_count(), "python": platform.python_version(), "load_before": round(before, 2)}
    asked = {"pollers": args.pollers, "streams": args.streams, "jobs": args.jobs, "seconds": args.seconds}
    server_side = {**seen, "cpu_share": round(used / took, 2), "cpu_us_per_read": round(used / seen["reads"] * 1e6)}
    report = {"at": datetime.now(UTC).isoformat(timespec="seconds"), **where, **asked, **json.loads(out)}
    report["server"] = server_side
    print(json.dumps(report, indent=1))
    if args.write:
        RESULTS.write_text(json.dumps(report, indent=1) + "\n")


def _cpu_s(pid: int) -> float:
    """Seconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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


def _jobs(port: int, count: int) -> list[str]:
    """Accepted jobs that stay queued."""
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

"""Many readers of one gateway process: pollers of job states, and event streams that stay open, over HTTP.

    python -m ops.bench.readers [--pollers 2000] [--streams 500] [--seconds 20] [--write]

A private Redis and one gateway, jobs that nobody answers. Each poller keeps a connection and asks once a second, as
Retry-After tells it to, at a moment of its own. This client and the gateway share the machine's cores: the milliseconds
are those that a poller sees here, the client's own delay included.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from photocall.local import free_port
from photocall.redis_server import RedisServer

RESULTS = Path(__file__).parent / "results" / "readers.json"
JOBS = 100
PERIOD_S = 1.0


class Connection:
    """One keep-alive connection that asks for one job."""

    def __init__(self, port: int, path: str) -> None:
        self._port = port
        self._request = f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def open(self) -> None:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def ask(self) -> bytes:
        """The head of the response. A body with a length is read, a stream's is left."""
        self.writer.write(self._request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                await self.reader.readexactly(int(line.partition(b":")[2]))
        return head


async def poll(connection: Connection, ends: float, took: list[float], failures: list[bytes]) -> None:
    """Ask once a second until the time is over."""
    loop = asyncio.get_running_loop()
    at = loop.time() + random.random() * PERIOD_S
    while at < ends:
        await asyncio.sleep(max(0.0, at - loop.time()))
        started = time.perf_counter()
        head = await connection.ask()
        took.append(time.perf_counter() - started)
        if b" 200 " not in head.split(b"\r\n", 1)[0]:
            failures.append(head[:60])
        at = max(at + PERIOD_S, loop.time())


async def measure(port: int, jobs: list[str], pollers: int, streams: int, seconds: float) -> dict[str, Any]:
    """Open everything, then poll."""
    listening = [Connection(port, f"/v1/jobs/{jobs[i % len(jobs)]}/events") for i in range(streams)]
    polling = [Connection(port, f"/v1/jobs/{jobs[i % len(jobs)]}") for i in range(pollers)]
    for connection in listening:
        await connection.open()
        assert b" 200 " in (await connection.ask()).split(b"\r\n", 1)[0], "a stream was refused"
    for connection in polling:
        await connection.open()
    took: list[float] = []
    failures: list[bytes] = []
    ends = asyncio.get_running_loop().time() + seconds
    await asyncio.gather(*(poll(connection, ends, took, failures) for connection in polling))
    closed = sum(connection.reader.at_eof() for connection in listening)
    for connection in (*listening, *polling):
        connection.writer.close()
    took.sort()
    return {
        "pollers": pollers,
        "streams": streams,
        "streams_open_at_the_end": streams - closed,
        "reads": len(took),
        "reads_per_s": round(len(took) / seconds),
        "failures": len(failures),
        "p50_ms": round(took[len(took) // 2] * 1000, 1),
        "p90_ms": round(took[int(len(took) * 0.9)] * 1000, 1),
        "p99_ms": round(took[int(len(took) * 0.99)] * 1000, 1),
        "max_ms": round(took[-1] * 1000, 1),
    }


def main() -> None:
    """Measure, print, and with --write keep it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pollers", type=int, default=2000)
    parser.add_argument("--streams", type=int, default=500)
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
        }
        gateway = subprocess.Popen([sys.executable, "-m", "photocall_gateway"], env=environment)
        try:
            jobs = _jobs(port)
            before = os.getloadavg()[0]
            found = asyncio.run(measure(port, jobs, args.pollers, args.streams, args.seconds))
        finally:
            gateway.terminate()
            gateway.wait(30)
    where = {"cores": os.cpu_count(), "python": platform.python_version(), "load_before": round(before, 2)}
    report = {"at": datetime.now(UTC).isoformat(timespec="seconds"), **where, **found}
    print(json.dumps(report, indent=1))
    if args.write:
        RESULTS.write_text(json.dumps(report, indent=1) + "\n")


def _jobs(port: int) -> list[str]:
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
        bodies = [{"state": f"text {i}", "questions": question} for i in range(JOBS)]
        return [str(http.post("/v1/jobs", json=body).raise_for_status().json()["id"]) for body in bodies]


if __name__ == "__main__":
    main()

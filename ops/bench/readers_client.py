"""The other side of `ops.bench.readers`, in a process of its own: polls at fixed moments, whatever the answers take.

A poller's moments are a period apart from a phase of its own. One whose answer is late asks at once when it has come,
and its milliseconds count from the moment at which it should have asked: a server that stalls is charged for all who
would have come meanwhile. `late_ms` says how far behind its plan this process was with sending: its own delay.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import sys
import time
from pathlib import Path
from typing import Any, cast

import uvloop


class Asker(asyncio.Protocol):
    """One keep-alive connection that asks for one path."""

    def __init__(self, path: str, took: list[float], answers: dict[str, int]) -> None:
        self._request = f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()
        self._took, self._answers = took, answers
        self._due: list[float] = []  # the moments of what is not answered yet, the one under way first
        self._data = b""
        self.transport: asyncio.Transport
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True

    def ask(self, due: float) -> None:
        """Ask, or once the answer under way has come."""
        self._due.append(due)
        if len(self._due) == 1:
            self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        if not found:
            return
        if b"content-length: " in head and len(body) < int(head.partition(b"content-length: ")[2].split(b"\r\n")[0]):
            return
        status = head[9:12].decode()
        if not self._due:  # more of a stream
            self._data = b""
            return
        self._answers[status] = self._answers.get(status, 0) + 1
        self._took.append(time.perf_counter() - self._due.pop(0))
        self._data = b""
        if self._due:
            self.transport.write(self._request)

    @property
    def unanswered(self) -> int:
        return len(self._due)


async def measure(
    port: int, server: int, jobs: list[str], pollers: int, streams: int, seconds: float, period_s: float
) -> Any:
    """Open everything, poll for a while, and say what was seen. `server` is the gateway's process."""
    loop = asyncio.get_running_loop()
    took: list[float] = []
    answers: dict[str, int] = {}

    async def connect(path: str, took: list[float], answers: dict[str, int]) -> Asker:
        return (await loop.create_connection(lambda: Asker(path, took, answers), "127.0.0.1", port))[1]

    opened: dict[str, int] = {}
    listening = [await connect(f"/v1/jobs/{jobs[i % len(jobs)]}/events", [], opened) for i in range(streams)]
    for asker in listening:
        asker.ask(time.perf_counter())
    polling = [await connect(f"/v1/jobs/{jobs[i % len(jobs)]}", took, answers) for i in range(pollers)]
    opening = time.perf_counter()
    while sum(opened.values()) < streams and time.perf_counter() - opening < 60:
        await asyncio.sleep(0.1)
    assert opened == ({"200": streams} if streams else {}), f"streams were refused: {opened}"
    phases = sorted((random.random() * period_s, asker) for asker in polling)
    late: list[float] = []
    for asker in polling:  # once each, at leisure: what is measured is a crowd that has been there for a while
        asker.ask(time.perf_counter())
        await asyncio.sleep(0.002)
    while any(asker.unanswered for asker in polling):
        await asyncio.sleep(0.05)
    took.clear()
    answers.clear()
    start, cpu, used = time.perf_counter(), time.process_time(), cpu_s(server)
    for n in range(int(seconds / period_s)):
        for phase, asker in phases:
            due = start + n * period_s + phase
            while (ahead := due - time.perf_counter()) > 0:
                await asyncio.sleep(ahead)
            late.append(time.perf_counter() - due)
            asker.ask(due)
            if len(late) % 20 == 0:  # those that answer come first where this loop is behind
                await asyncio.sleep(0)
    while any(asker.unanswered for asker in polling) and time.perf_counter() - start < seconds + 5:
        await asyncio.sleep(0.05)
    wall, used = time.perf_counter() - start, cpu_s(server) - used
    return {
        "asked": len(late),
        "asked_per_s": round(len(late) / seconds),
        "answers": answers,
        "answered_per_s": round(len(took) / wall),
        "unanswered_5_s_later": sum(asker.unanswered for asker in polling),
        "streams_open_at_the_end": streams - sum(asker.lost for asker in listening),
        "ms": shares(took),
        "late_ms": shares(late),
        "client_cpu_share": round((time.process_time() - cpu) / wall, 2),
        "server_cpu_share": round(used / wall, 2),
        "server_cpu_us_per_read": round(used / max(1, len(took)) * 1e6),
    }


def cpu_s(pid: int) -> float:
    """Seconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def shares(seconds: list[float]) -> dict[str, float]:
    """Percentiles in milliseconds; nothing of nothing."""
    found = sorted(seconds)
    if not found:
        return {}
    at = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    return {name: round(found[min(len(found) - 1, int(len(found) * at))] * 1000, 1) for name, at in at.items()}


def main() -> None:
    """Read the plan from stdin, write what was seen to stdout."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8192)), hard))
    print(json.dumps(uvloop.run(measure(**json.load(sys.stdin)))))


if __name__ == "__main__":
    main()

"""What becomes of a service that is asked for more than it can do: goodput and latency up to three times its capacity.

    python -m ops.bench.overload [--seconds 15] [--alone] [--write]

One gateway, a private Redis, and an engine of fixed speed that computes nothing (`quick_engine.py`): what is measured
is admission, refusal and the queue between. Capacity is measured first, by callers who wait for their answer before
they ask again. Then calls to /v1/systemone come at fixed moments, at shares of that capacity, every one another text;
whoever is refused does not come again. Goodput is answers in time (200); latency is theirs alone. The first WARM_S of
each load do not count: a crowd that comes all at once is let in (`admission.py`). `--alone` is that of `readers.py`.

Exits 0 when at the highest load goodput is within 10 % of capacity and p99 of the accepted within what is promised.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvloop

from ops.bench.callers import Callers
from ops.bench.curves import Curve, draw
from ops.bench.readers import GATEWAY_CORE, KEY, OTHER_CORE, REAL_TIME_PRIORITY
from ops.bench.readers_client import shares
from photocall.local import free_port
from photocall.redis_server import RedisServer
from photocall.settings import GatewaySettings

RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).resolve().parents[2] / "docs"
JOB_S = 0.0125
LOADS = (0.5, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0)
CLOSED_CALLERS = 64
WARM_S = 8.0
PROMISED_S = GatewaySettings().sync_queue_s + 1.0


@dataclass
class Load:
    """One load: what was offered, and what became of it after WARM_S."""

    share: float
    offered_per_s: float
    goodput_per_s: float = 0.0
    statuses: dict[str, int] = field(default_factory=dict)
    ms: dict[str, float] = field(default_factory=dict)
    refused_ms: dict[str, float] = field(default_factory=dict)
    retry_after_s: dict[str, float] = field(default_factory=dict)
    late_ms_p99: float = 0.0


def main() -> int:
    """Measure, print, with --write keep figures and pictures, and say by the exit code whether they are as promised."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each load, after WARM_S")
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    if args.alone:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(REAL_TIME_PRIORITY))
    os.sched_setaffinity(0, {OTHER_CORE % (os.cpu_count() or 1)})  # with all that this process starts
    before = os.getloadavg()[0]
    with _service() as port:
        capacity, loads = uvloop.run(_measure(port, args.seconds))
    report = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "alone": args.alone,
        "load_before": round(before, 2),
        "capacity_per_s": round(capacity, 1),
        "loads": [asdict(load) for load in loads],
    }
    print(json.dumps(report, indent=1))
    if args.write:
        (RESULTS / f"overload-{report['at']!s:.10}.json").write_text(json.dumps(report, indent=1) + "\n")
        _draw(capacity, loads)
    last = loads[-1]
    good = last.goodput_per_s >= 0.9 * capacity and last.ms["p99"] <= PROMISED_S * 1000
    print("as promised" if good else "NOT as promised")
    return 0 if good else 1


@contextmanager
def _service() -> Iterator[int]:
    """A gateway on a core of its own, and what it needs on the other; gives its port."""
    port = free_port("127.0.0.1")
    with RedisServer.start_temporary() as server, tempfile.TemporaryDirectory() as data:
        environment = os.environ | {
            "PHOTOCALL_REDIS_URL": server.url,
            "PHOTOCALL_PORT": str(port),
            "PHOTOCALL_DATA": data,
            "PHOTOCALL_SIGNING_KEY": KEY,
        }
        commands = (["photocall_gateway"], ["ops.bench.quick_engine", server.url, KEY, str(JOB_S)])
        started = [subprocess.Popen([sys.executable, "-m", *command], env=environment) for command in commands]
        os.sched_setaffinity(started[0].pid, {GATEWAY_CORE})
        try:
            yield port
        finally:
            started[1].kill()
            started[0].terminate()
            for process in started:
                process.wait(30)


async def _measure(port: int, seconds: float) -> tuple[float, list[Load]]:
    await _answers(port)
    capacity = await _capacity(Callers(port), seconds)
    print(f"capacity {capacity:.1f}/s", file=sys.stderr)
    loads = []
    for share in LOADS:
        loads.append(await _load(Callers(port), share, share * capacity, seconds))
        print(loads[-1], file=sys.stderr)
        await asyncio.sleep(PROMISED_S)  # what is left of it ends
    return capacity, loads


async def _answers(port: int) -> None:
    """Return once the gateway listens."""
    until = time.monotonic() + 30
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.1)


async def _capacity(callers: Callers, seconds: float) -> float:
    """Answers a second while CLOSED_CALLERS always wait for one."""
    ended: list[float] = []
    until = time.monotonic() + WARM_S + seconds

    async def caller(number: int) -> None:
        asked = 0
        while time.monotonic() < until:
            status, _ = await callers.ask(f"capacity {number} {asked}")
            asked += 1
            if status == 200:
                ended.append(time.monotonic())

    await asyncio.gather(*(caller(number) for number in range(CLOSED_CALLERS)))
    return sum(until - seconds <= at <= until for at in ended) / seconds


async def _load(callers: Callers, share: float, per_s: float, seconds: float) -> Load:
    """Calls at fixed moments, whatever becomes of those before."""
    load = Load(round(share, 2), round(per_s, 1))
    took: dict[bool, list[float]] = {True: [], False: []}
    told: list[float] = []
    late: list[float] = []
    start = time.monotonic()
    ends = start + WARM_S + seconds

    async def call(number: int, due: float) -> None:
        status, retry_after_s = await callers.ask(f"load {share} {number}")
        now = time.monotonic()
        if status == 200 and ends - seconds <= now <= ends:
            load.goodput_per_s += 1 / seconds
        if due < ends - seconds:
            return
        load.statuses[str(status)] = load.statuses.get(str(status), 0) + 1
        took[status == 200].append(now - due)
        if status != 200:
            told.append(retry_after_s)

    async with asyncio.TaskGroup() as calls:
        for number in range(int(per_s * (WARM_S + seconds))):
            due = start + number / per_s
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            late.append(time.monotonic() - due)
            calls.create_task(call(number, due))
    load.goodput_per_s = round(load.goodput_per_s, 1)
    load.ms, load.refused_ms = shares(took[True]), shares(took[False])
    load.retry_after_s = {name: round(value / 1000, 2) for name, value in shares(told).items()}
    load.late_ms_p99 = shares(late)["p99"]
    return load


def _draw(capacity: float, loads: list[Load]) -> None:
    """Percent of capacity, and milliseconds, by what was offered in percent of capacity."""

    def curve(name: str, value: Any) -> Curve:
        return Curve(name, [(100 * load.share, value(load)) for load in loads])

    rates = [
        curve("goodput", lambda load: 100 * load.goodput_per_s / capacity),
        curve("offered", lambda load: 100 * load.share),
    ]
    times = [curve(name, lambda load, name=name: load.ms[name]) for name in ("p50", "p99")]
    times.append(curve("refused p99", lambda load: load.refused_ms.get("p99", 0.0)))
    (DOCS / "overload-goodput.svg").write_text(draw("Goodput by load, both in percent of capacity", rates))
    (DOCS / "overload-latency.svg").write_text(draw("Milliseconds to an answer by load in percent of capacity", times))


if __name__ == "__main__":
    sys.exit(main())

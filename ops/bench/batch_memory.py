"""Memory of gateway, Redis and a prep worker while a large batch runs, drawn as a picture.

Every row is another text, so no two are answered together, and the engine answers at once (`quick_engine.py`): what is
shown is what a batch costs beside the model. `--write` keeps figures and picture. Exits 0 when all stayed within
LIMITS_MIB and every row was answered once.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import httpx
import redis

from ops.bench.curves import Curve, draw
from photocall.connections import connect
from photocall.local import free_port
from photocall.redis_server import RedisServer

RESULTS = Path(__file__).parent / "results"
PICTURE = Path(__file__).resolve().parents[2] / "docs" / "batch-memory.svg"
LIMITS_MIB = {"gateway": 192, "redis": 64, "prep": 96}
KEY = "bench-signing-key"
EVERY_S = 1.0
ENDED = ("completed", "failed", "expired", "cancelled")


@dataclass(frozen=True)
class Sample:
    """MiB at one moment; for Redis what it holds, for the others what is resident."""

    at_s: float
    rows: int
    gateway: float
    redis: float
    prep: float


def main() -> int:
    """Run, print, and say by the exit code whether memory and rows are as promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--write", action="store_true", help="keep figures and picture")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="photocall-bench-") as directory, ExitStack() as stack:
        server = stack.enter_context(RedisServer.start_temporary())
        samples, batch, ids = measure(stack, server, Path(directory), options.rows)
    peaks = {name: max(getattr(sample, name) for sample in samples) for name in LIMITS_MIB}
    seconds = samples[-1].at_s
    print(f"{options.rows} rows in {seconds:.0f} s ({options.rows / seconds:.0f}/s): {batch['request_counts']}")
    for name, limit in LIMITS_MIB.items():
        first = getattr(samples[0], name)
        print(f"{name:8} {first:6.1f} MiB at the start, {peaks[name]:6.1f} at most, limit {limit}")
    if options.write:
        write(options.rows, samples, peaks, seconds)
    good = batch["status"] == "completed" and ids == options.rows
    print("every row answered once" if good else f"NOT every row answered once: {ids} of {options.rows}")
    return 0 if good and all(peaks[name] <= limit for name, limit in LIMITS_MIB.items()) else 1


def measure(stack: ExitStack, server: RedisServer, data: Path, rows: int) -> tuple[list[Sample], dict[str, Any], int]:
    """Samples, the batch in the end, and how many different rows its results hold."""
    client = connect(server.url)
    port = free_port("127.0.0.1")
    environ = os.environ | {
        "PHOTOCALL_REDIS_URL": server.url,
        "PHOTOCALL_SIGNING_KEY": KEY,
        "PHOTOCALL_DATA": str(data),
        "PHOTOCALL_PORT": str(port),
        "PHOTOCALL_BLOBS": f"dir:{data / 'blobs'}",
        "PYTHONFAULTHANDLER": "1",
    }
    log = stack.enter_context((data / "gateway.log").open("wb"))
    commands = (["photocall_gateway"], ["photocall_prep"], ["ops.bench.quick_engine", server.url, KEY])
    started = [
        subprocess.Popen([sys.executable, "-m", *command], env=environ, stderr=subprocess.DEVNULL if at else log)
        for at, command in enumerate(commands)
    ]
    for process in started:
        stack.callback(_end, process)
    stack.enter_context(_explained(started[0], data / "gateway.log"))
    http = stack.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=120))
    _wait_ready(http)
    source = data / "rows.jsonl"
    with source.open("w") as out:
        for number in range(rows):
            out.write(json.dumps(_row(number)) + "\n")
    pids = {"gateway": started[0].pid, "prep": started[1].pid}
    time.sleep(2)
    with source.open("rb") as opened:
        found = http.post("/v1/files", files={"file": ("rows.jsonl", opened)}, data={"purpose": "batch"})
    body = {"input_file_id": found.json()["id"], "endpoint": "/v1/systemone", "completion_window": "24h"}
    batch = http.post("/v1/batches", json=body).json()
    samples: list[Sample] = []
    began = time.monotonic()
    while True:
        batch = http.get(f"/v1/batches/{batch['id']}").json()
        samples.append(_sample(time.monotonic() - began, batch["request_counts"]["completed"], pids, client))
        if len(samples) % 30 == 0:
            print(samples[-1], file=sys.stderr)
        if batch["status"] in ENDED:
            break
        time.sleep(EVERY_S)
    ids = set()
    with http.stream("GET", f"/v1/files/{batch['output_file_id']}/content") as answer:
        for line in answer.iter_lines():
            ids.add(json.loads(line)["custom_id"])
    client.close()
    return samples, batch, len(ids)


@contextmanager
def _explained(gateway: subprocess.Popen[bytes], log: Path) -> Iterator[None]:
    """A call that is not answered in time ends the run with the call, and where the gateway's threads stand."""
    try:
        yield
    except httpx.TimeoutException as error:
        gateway.send_signal(signal.SIGABRT)
        gateway.wait()
        print(f"{error.request.method} {error.request.url}: {error!r}", file=sys.stderr)
        print(log.read_text(errors="replace")[-8000:], file=sys.stderr)
        raise


def write(rows: int, samples: list[Sample], peaks: dict[str, float], seconds: float) -> None:
    record = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "rows": rows,
        "seconds": round(seconds, 1),
        "cores": os.cpu_count(),
        "peaks_mib": {name: round(value, 1) for name, value in peaks.items()},
        "limits_mib": LIMITS_MIB,
        "samples": [{name: round(value, 1) for name, value in asdict(sample).items()} for sample in samples[::10]],
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"batch-memory-{record['date'][:10]}.json"  # type: ignore[index]
    path.write_text(json.dumps(record) + "\n")
    curves = [
        Curve(name, [(sample.at_s, getattr(sample, name)) for sample in samples])
        for name in ("gateway", "prep", "redis")
    ]
    title = f"A batch of {rows:,} rows: memory in MiB by seconds"
    PICTURE.write_text(draw(title, curves))
    print(f"written: {path}, {PICTURE}")


def _row(number: int) -> dict[str, Any]:
    question = {"type": "noul", "instructions": "Is the order urgent?"}
    body = {"state": f"Order {number}: {number * 7919 % 10007} parts.", "questions": {"urgent": question}}
    return {"custom_id": f"order-{number}", "method": "POST", "url": "/v1/systemone", "body": body}


def _sample(at_s: float, rows: int, pids: dict[str, int], client: redis.Redis) -> Sample:
    held = int(cast(Any, client.info("memory"))["used_memory"]) / (1 << 20)
    return Sample(at_s, rows, _resident(pids["gateway"]), held, _resident(pids["prep"]))


def _resident(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def _wait_ready(http: httpx.Client) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            http.get("/healthz")
            return
        except httpx.TransportError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


if __name__ == "__main__":
    raise SystemExit(main())

"""What a picture's patch blob costs: stored by prep and read by the engine, in a directory in memory and on a Redis.

Blobs of 140 and 280 soft tokens, each with the small one that holds its grid, are put, found again by size (as for a
picture that was prepared before) and read, by this process. Milliseconds by the clock and of processor time, the
client's and, for the Redis, the server's. `--write` keeps the figures.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from ops.bench import record
from photocall.blob_store import BlobStore
from photocall.blobs import open_blobs
from photocall.connections import connect
from photocall.grid import PATCH_BYTES
from photocall.redis_server import RedisServer

MEMORY = Path("/dev/shm")
GRID = bytes(4)
WARM_UP = 10


@dataclass(frozen=True, slots=True)
class Cost:
    """Medians of one picture in milliseconds; `server_cpu` is the mean of the server's, put and get together."""

    place: str
    soft_tokens: int
    put: float
    put_cpu: float
    find: float
    get: float
    get_cpu: float
    server_cpu: float


def main() -> int:
    """Always 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=200, help="of each size and place")
    parser.add_argument("--write", action="store_true", help="keep the figures")
    options = parser.parse_args()
    load = record.busy()
    costs = [measure(place, tokens, options.pictures) for place in ("directory", "redis") for tokens in (140, 280)]
    print("place      tokens    MB     put   (CPU)    find     get   (CPU)  server CPU, ms a picture")
    for each in costs:
        print(
            f"{each.place:10} {each.soft_tokens:6} {each.soft_tokens * 9 * PATCH_BYTES / 1e6:5.2f} {each.put:7.2f} "
            f"{each.put_cpu:7.2f} {each.find:7.2f} {each.get:7.2f} {each.get_cpu:7.2f} {each.server_cpu:11.2f}"
        )
    print(f"load before: {load:.1f} on {record.cores()} cores")
    if options.write:
        record.write("blobs", load, costs=[asdict(each) for each in costs])
    return 0


def measure(place: str, soft_tokens: int, pictures: int) -> Cost:
    """One place and size."""
    if place == "redis":
        with RedisServer.start_temporary(persistent=False) as server, connect(server.url) as client:
            return _measure(place, open_blobs(server.url), soft_tokens, pictures, lambda: _server_s(client))
    with tempfile.TemporaryDirectory(prefix="photocall-bench-", dir=MEMORY if MEMORY.is_dir() else None) as directory:
        return _measure(place, open_blobs(f"dir:{directory}"), soft_tokens, pictures, lambda: 0.0)


def _measure(place: str, store: BlobStore, soft_tokens: int, pictures: int, server_s: Callable[[], float]) -> Cost:
    patches = os.urandom(soft_tokens * 9 * PATCH_BYTES)
    rows: list[tuple[float, ...]] = []
    server_began = 0.0
    for number in range(pictures + WARM_UP):
        if number == WARM_UP:
            server_began = server_s()
        key = f"{number:064x}-{soft_tokens}fast-bench"

        def put(key: str = key) -> None:
            store.put(key, patches)
            store.put(f"{key}-grid", GRID)

        def find(key: str = key) -> None:
            if store.get(f"{key}-grid") != GRID or store.size(key) != len(patches):
                raise SystemExit("a blob is gone at once")

        def get(key: str = key) -> None:
            if store.get(key) != patches:
                raise SystemExit("a blob is gone at once")

        rows.append((*_timed(put), *_timed(find), *_timed(get)))
    server_cpu = 1e3 * (server_s() - server_began) / pictures
    put_ms, put_cpu, find_ms, _, get_ms, get_cpu = (
        round(statistics.median(column), 3) for column in zip(*rows[WARM_UP:], strict=True)
    )
    return Cost(place, soft_tokens, put_ms, put_cpu, find_ms, get_ms, get_cpu, round(server_cpu, 3))


def _timed(call: Callable[[], None]) -> tuple[float, float]:
    began, cpu_began = time.perf_counter(), time.process_time()
    call()
    return 1e3 * (time.perf_counter() - began), 1e3 * (time.process_time() - cpu_began)


def _server_s(client: Any) -> float:
    used = cast("dict[str, float]", client.info("cpu"))
    return float(used["used_cpu_sys"]) + float(used["used_cpu_user"])


if __name__ == "__main__":
    raise SystemExit(main())

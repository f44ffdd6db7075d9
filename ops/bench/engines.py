"""One and two engines on one queue: pictures a second through the whole service, and whether the second doubles them.

The same pictures, callers, prep workers, gateway and Redis both times; only engines are added, each on a GPU of its own
(`--device cuda`), or each with its share of the cores, the share being the same when it is alone (`--device cpu`).

    python -m ops.bench.engines --shape e4b --device cuda        # a machine with two GPUs
    python -m ops.bench.engines --device cpu --requests 60     # models/mini, two idle cores or more
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx

from ops.bench import record
from ops.bench.service import MINI, START_TIMEOUT_S, ask, jpegs, multipart
from ops.bench.stand import SIZES
from ops.bench.startup import make_checkpoint
from ops.running import running
from photocall.redis_server import RedisServer

STOP_S = 60.0


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything was answered."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SIZES, help="random weights of this shape instead of models/mini")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--engines", type=int, default=2, help="most engines (default 2)")
    parser.add_argument("--requests", type=int, default=512, help="pictures of a measurement (default 512)")
    parser.add_argument("--callers", type=int, default=128, help="at once (default 128)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prep-workers", type=int, default=max(1, record.cores() - 4))
    options = parser.parse_args(arguments)
    load = record.busy()
    bodies = [multipart(jpeg) for jpeg in jpegs(options.requests * options.rounds + options.callers)]
    with tempfile.TemporaryDirectory() as directory:
        checkpoint = make_checkpoint(Path(directory), options.shape, options.device) if options.shape else MINI
        settings = {
            "PHOTOCALL_MODEL": str(checkpoint),
            "PHOTOCALL_DEVICE": options.device,
            "PHOTOCALL_PREP_WORKERS": str(options.prep_workers),
            "PHOTOCALL_THREADS": str(max(1, record.cores() // options.engines)) if options.device == "cpu" else "0",
        }
        rates = {}
        for count in range(1, options.engines + 1):
            with stack(settings, count, options.device) as address:
                rates[count] = asyncio.run(measure(address, bodies, options.requests, options.callers))
            print(f"{count} engines: {statistics.median(rates[count]):.1f} pictures/s ({rates[count]})")
    ratio = statistics.median(rates[options.engines]) / statistics.median(rates[1])
    print(f"{options.engines} engines answer {ratio:.2f} times what one does")
    record.write(
        "engines", load, device=options.device, shape=options.shape or "mini", callers=options.callers,
        requests=options.requests, settings={**settings, "PHOTOCALL_MODEL": options.shape or "mini"},
        pictures_per_s={str(count): found for count, found in rates.items()}, ratio=round(ratio, 3),
    )  # fmt: skip
    return 0


@contextmanager
def stack(settings: Mapping[str, str], engines: int, device: str) -> Iterator[str]:
    """A whole service with so many engines, all ready; its address."""
    with ExitStack() as held:
        blobs = held.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
        shared = {
            **settings,
            "PHOTOCALL_REDIS_URL": held.enter_context(RedisServer.start_temporary()).url,
            "PHOTOCALL_SIGNING_KEY": secrets.token_hex(32),
            "PHOTOCALL_BLOBS": f"dir:{blobs}",
        }
        address = held.enter_context(running({**shared, **card(0, device)}, START_TIMEOUT_S))
        for number in range(1, engines):
            held.enter_context(engine({**shared, **card(number, device)}))
        wait_for_engines(address, engines)
        yield address


def card(number: int, device: str) -> dict[str, str]:
    """What is an engine's own: its name, and its GPU."""
    named = {"PHOTOCALL_ENGINE_ID": f"bench-{number}"}
    return named | ({"CUDA_VISIBLE_DEVICES": str(number)} if device == "cuda" else {})


@contextmanager
def engine(settings: Mapping[str, str]) -> Iterator[None]:
    """One more engine on the same queue."""
    process = subprocess.Popen([sys.executable, "-m", "photocall_engine"], env=os.environ | settings)
    try:
        yield
    finally:
        process.terminate()
        process.wait(STOP_S)


def wait_for_engines(address: str, wanted: int) -> None:
    """Raises TimeoutError."""
    until = time.monotonic() + START_TIMEOUT_S
    with httpx.Client(trust_env=False) as client:
        while time.monotonic() < until:
            if sum(each["ready"] for each in client.get(f"{address}/readyz").json()["engines"]) >= wanted:
                return
            time.sleep(0.5)
    raise TimeoutError(f"not {wanted} engines after {START_TIMEOUT_S:.0f} s")


async def measure(address: str, bodies: list[bytes], requests: int, callers: int) -> list[float]:
    """Pictures a second of each round, after one picture for each caller that does not count."""
    limits = httpx.Limits(max_connections=callers, max_keepalive_connections=callers)
    left = iter(bodies)
    rates = []
    async with httpx.AsyncClient(base_url=address, trust_env=False, timeout=120, limits=limits) as client:

        async def caller(shared: Iterator[bytes]) -> None:
            for body in shared:
                await ask(client, body)

        async def all_of(count: int) -> None:
            shared = iter([next(left) for _ in range(count)])
            await asyncio.gather(*(caller(shared) for _ in range(callers)))

        await all_of(callers)
        for _ in range((len(bodies) - callers) // requests):
            began = time.perf_counter()
            await all_of(requests)
            rates.append(round(requests / (time.perf_counter() - began), 2))
    return rates


if __name__ == "__main__":
    sys.exit(main())

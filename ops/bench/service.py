"""W4: the whole service on this machine over HTTP: JPEGs of 208 KB, 64 callers at once, then one at a time.

Starts `photocall up` on a checkpoint (models/mini unless told otherwise; random weights with `--shape`), and asks one
yes-no question about every picture, no two alike. Prints requests per second, latencies and, by the service's own
account, where the time goes.

    python -m ops.bench.service --shape e4b --device cuda
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

import httpx
import numpy as np
from PIL import Image

from ops.bench import figures
from ops.bench.figures import Figure, figure
from ops.bench.pipeline import server_timing
from ops.bench.stand import SIZES
from ops.bench.startup import make_checkpoint
from ops.running import running

MINI = Path(__file__).parents[2] / "models" / "mini"
SIZE = (1280, 896)  # the shape of 960 x 672, larger, as pictures come
JPEG_BYTES = 208_000
START_TIMEOUT_S = 400.0
BOUNDARY = "photocall-bench"
WAITS = "refused for load"  # how often, beside the milliseconds of the stages
MAX_WAITS = 20
REQUEST = {
    "state": {"photo": "picture-1"},
    "assets": {"picture-1": {"type": "image", "part": "picture-1"}},
    "questions": {"q": {"type": "noul", "instructions": "Is there something red in the left half of the picture?"}},
}


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything was answered."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SIZES, help="random weights of this shape instead of models/mini")
    parser.add_argument("--checkpoint", type=Path, help="where these are, or are to be written")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--requests", type=int, default=768, help="of many callers (default 768)")
    parser.add_argument("--callers", type=int, default=64)
    parser.add_argument("--alone", type=int, default=30, help="requests one at a time (default 30)")
    parser.add_argument("--prep-workers", type=int, default=max(2, (os.cpu_count() or 4) - 4))
    parser.add_argument("--out", type=Path, help="the JSON file (default: a new one under ops/bench/results/)")
    options = parser.parse_args(arguments)
    shape = options.shape or "mini"
    out = options.out or figures.RESULTS / f"service-{shape}-{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
    total = options.requests + options.callers + options.alone + 3
    bodies = [multipart(jpeg) for jpeg in jpegs(total)]
    temporary = tempfile.TemporaryDirectory() if options.checkpoint is None else nullcontext(options.checkpoint)
    with temporary as directory:
        checkpoint = make_checkpoint(Path(directory), shape, options.device) if options.shape else MINI
        settings = {
            "PHOTOCALL_MODEL": str(checkpoint),
            "PHOTOCALL_DEVICE": options.device,
            "PHOTOCALL_PREP_WORKERS": str(options.prep_workers),
        }
        began = time.monotonic()
        with running(settings, START_TIMEOUT_S) as address:
            ready_s = time.monotonic() - began
            found = asyncio.run(measure(address, bodies, options.callers, options.alone))
    results = [figure("service ready", shape, "invariant", ready_s), *found_figures(shape, *found)]
    figures.write(out, results, cores=os.cpu_count(), prep_workers=options.prep_workers)
    print(figures.table(results))
    for each in results:
        if each.where:
            print(f"{each.workload}: {each.where}")
    print(f"written: {out}")
    return 0


async def measure(
    address: str, bodies: list[bytes], callers: int, alone: int
) -> tuple[float, list[tuple[float, dict[str, float]]], list[tuple[float, dict[str, float]]]]:
    """Seconds that the many took altogether, and by request: seconds and the service's stages; of many, and alone."""
    limits = httpx.Limits(max_connections=callers, max_keepalive_connections=callers)
    async with httpx.AsyncClient(base_url=address, trust_env=False, timeout=60, limits=limits) as client:
        left = iter(bodies)

        async def caller(answers: list[tuple[float, dict[str, float]]], bodies: Iterable[bytes]) -> None:
            for body in bodies:
                answers.append(await ask(client, body))

        async def many(count: int, callers: int) -> list[tuple[float, dict[str, float]]]:
            answers: list[tuple[float, dict[str, float]]] = []
            shared = iter([next(left) for _ in range(count)])
            await asyncio.gather(*(caller(answers, shared) for _ in range(callers)))
            return answers

        await many(3, 1)
        one_by_one = await many(alone, 1)
        await many(callers, callers)
        began = time.perf_counter()
        together = await many(len(bodies) - 3 - alone - callers, callers)
        return time.perf_counter() - began, together, one_by_one


async def ask(client: httpx.AsyncClient, body: bytes) -> tuple[float, dict[str, float]]:
    """One request: seconds, and the service's stages in milliseconds. Raises httpx.HTTPStatusError.

    Who is refused for load waits and asks again, as clients do; the wait counts.
    """
    began = time.perf_counter()
    headers = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
    waits = 0
    while (answer := await client.post("/v1/systemone", content=body, headers=headers)).status_code in (429, 529):
        waits += 1
        if waits > MAX_WAITS:
            break
        await asyncio.sleep(float(answer.headers.get("retry-after", 1)))
    seconds = time.perf_counter() - began
    answer.raise_for_status()
    return seconds, server_timing(answer.headers["server-timing"]) | {WAITS: float(waits)}


def found_figures(
    shape: str,
    seconds: float,
    together: list[tuple[float, dict[str, float]]],
    alone: list[tuple[float, dict[str, float]]],
) -> list[Figure]:
    """Figures of both kinds, with the median milliseconds of each stage."""
    latencies = sorted(1e3 * took for took, _ in together)
    p99 = latencies[min(len(latencies) - 1, int(0.99 * len(latencies)))]
    p50_alone = 1e3 * statistics.median(took for took, _ in alone)
    return [
        figure("W4 64 at once", shape, "invariant", len(together) / seconds, where=stages(together)),
        figure("W4 64 at once p50", shape, "invariant", statistics.median(latencies)),
        figure("W4 64 at once p99", shape, "invariant", p99),
        figure("W4 alone", shape, "invariant", p50_alone, where=stages(alone)),
    ]


def stages(answers: list[tuple[float, dict[str, float]]]) -> dict[str, float]:
    """Median milliseconds of each stage, and of what no stage accounts for."""
    names = {name for _, timing in answers for name in timing}
    names.discard(WAITS)
    found = {name: statistics.median(timing.get(name, 0.0) for _, timing in answers) for name in sorted(names)}
    rest = statistics.median(
        1e3 * took - sum(timing[name] for name in names & timing.keys()) for took, timing in answers
    )
    waits = sum(timing[WAITS] for _, timing in answers)
    return {name: round(ms, 2) for name, ms in (found | {"http and rest": rest, WAITS: waits}).items()}


def jpegs(count: int) -> list[bytes]:
    """Pictures of JPEG_BYTES each (within 5 %), no two alike: coloured blocks under noise."""
    low, high = 0.0, 128.0
    for _ in range(10):  # more noise, more bytes
        noise = (low + high) / 2
        low, high = (noise, high) if len(_jpeg(0, noise)) < JPEG_BYTES else (low, noise)
    return [_jpeg(seed, noise) for seed in range(count)]


def _jpeg(seed: int, noise: float) -> bytes:
    drawn = np.random.default_rng(seed)
    blocks = Image.fromarray(drawn.integers(0, 256, (14, 20, 3), dtype=np.uint8)).resize(SIZE, Image.Resampling.BICUBIC)
    grain = drawn.integers(-128, 128, (SIZE[1] // 2, SIZE[0] // 2, 1)).repeat(2, 0).repeat(2, 1)
    pixels = np.clip(np.asarray(blocks, dtype=np.float32) + grain * (noise / 128), 0, 255).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=85)
    return out.getvalue()


def multipart(jpeg: bytes) -> bytes:
    """The request's body: its JSON and the picture as it is."""
    parts = (("request", "application/json", json.dumps(REQUEST).encode()), ("picture-1", "image/jpeg", jpeg))
    return (
        b"".join(
            f'--{BOUNDARY}\r\ncontent-disposition: form-data; name="{name}"; filename="{name}"\r\n'
            f"content-type: {kind}\r\n\r\n".encode()
            + data
            + b"\r\n"
            for name, kind, data in parts
        )
        + f"--{BOUNDARY}--\r\n".encode()
    )


if __name__ == "__main__":
    sys.exit(main())

"""Time through the whole pipeline on this machine, over HTTP, every picture a new one.

Prints the median time of a picture with 1, 4 and 20 questions, the ratio of 20 to 1, and where the time goes by the
server's own account (`Server-Timing`). Exits 0 when both promises hold: four questions under a second, twenty under
three times one. `--write` keeps the figures under `ops/bench/results/`.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import os
import platform
import random
import statistics
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from PIL import Image

from ops.running import running

RESULTS = Path(__file__).parent / "results"
FOUR_QUESTIONS_LIMIT_S = 1.0
TWENTY_TO_ONE_LIMIT = 3.0
COLOURS = ("red", "green", "blue", "yellow", "black", "white", "orange", "purple", "pink", "brown")


def main() -> int:
    """Measure, print, and say by the exit code whether both promises hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15, help="timed requests of each kind (default 15)")
    parser.add_argument("--write", action="store_true", help="write the figures to ops/bench/results/")
    options = parser.parse_args()
    with running() as address, httpx.Client(base_url=address, trust_env=False, timeout=30) as client:
        for seed in range(4):
            ask(client, seed=-1 - seed, questions=4)
        figures = {count: measure(client, count, options.runs) for count in (1, 4, 20)}
    ratio = figures[20]["p50_s"] / figures[1]["p50_s"]
    print_table(figures)
    held = figures[4]["p50_s"] < FOUR_QUESTIONS_LIMIT_S and ratio < TWENTY_TO_ONE_LIMIT
    print(
        f"\n20 questions cost {ratio:.2f}x one; 4 questions {figures[4]['p50_s']:.3f} s: {'holds' if held else 'FAILS'}"
    )
    if options.write:
        write(figures, ratio)
    return 0 if held else 1


def measure(client: httpx.Client, questions: int, runs: int) -> dict[str, Any]:
    """Median and spread of `runs` requests, each with a picture never sent before."""
    samples = [ask(client, seed=questions * 1000 + run, questions=questions) for run in range(runs)]
    seconds = sorted(total for total, _ in samples)
    stages = {name: statistics.median(timing.get(name, 0.0) for _, timing in samples) for name in samples[0][1]}
    return {
        "p50_s": statistics.median(seconds),
        "min_s": seconds[0],
        "max_s": seconds[-1],
        "stages_ms": stages,
        "http_and_rest_ms": statistics.median(total * 1e3 - sum(timing.values()) for total, timing in samples),
        "runs": runs,
    }


def ask(client: httpx.Client, seed: int, questions: int) -> tuple[float, dict[str, float]]:
    """One request; seconds by the client's clock, and the server's stages in milliseconds."""
    body = {
        "state": {"photo": "picture-1"},
        "assets": {"picture-1": {"type": "image", "data_base64": base64.b64encode(picture(seed)).decode()}},
        "questions": {
            f"q{i}": {"type": "noul", "instructions": f"Is there something {COLOURS[i % 10]} in row {i // 10 + 1}?"}
            for i in range(questions)
        },
    }
    started = time.perf_counter()
    response = client.post("/v1/systemone", json=body)
    seconds = time.perf_counter() - started
    response.raise_for_status()
    return seconds, server_timing(response.headers["server-timing"])


def server_timing(header: str) -> dict[str, float]:
    """`name;dur=12.3, ...` as milliseconds by name."""
    stages = {}
    for entry in header.split(","):
        name, _, duration = entry.strip().partition(";dur=")
        stages[name] = float(duration)
    return stages


def picture(seed: int) -> bytes:
    """An 800 x 600 JPEG of coloured blocks under noise, different for every seed."""
    rng = random.Random(seed)
    small = Image.frombytes("RGB", (16, 12), rng.randbytes(16 * 12 * 3))
    out = io.BytesIO()
    small.resize((800, 600), Image.Resampling.BICUBIC).save(out, "JPEG", quality=90)
    return out.getvalue()


def print_table(figures: dict[int, dict[str, Any]]) -> None:
    stages = list(figures[1]["stages_ms"])
    print("questions  p50 ms   min   max  " + "  ".join(f"{name:>9}" for name in [*stages, "http+rest"]))
    for count, f in figures.items():
        cells = [*(f["stages_ms"][name] for name in stages), f["http_and_rest_ms"]]
        times = f"{f['p50_s'] * 1e3:6.0f} {f['min_s'] * 1e3:5.0f} {f['max_s'] * 1e3:5.0f}"
        print(f"{count:9}  {times}  " + "  ".join(f"{cell:9.1f}" for cell in cells))


def write(figures: dict[int, dict[str, Any]], ratio: float) -> None:
    import torch

    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout
    date = datetime.now(UTC).isoformat(timespec="seconds")
    record = {
        "date": date,
        "commit": commit.strip(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cores": os.cpu_count(),
        "twenty_to_one": ratio,
        "questions": figures,
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"pipeline-{date[:10]}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(f"written: {path}")


if __name__ == "__main__":
    raise SystemExit(main())

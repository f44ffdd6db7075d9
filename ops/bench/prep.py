"""Preparing pictures: CPU time per core beside plain Pillow's, scaling over processes, and memory.

Photographs that scikit-image and scikit-learn ship, cut, enlarged, grained and saved again as 12 MP JPEGs and as files
of 1920 x 1080 (`ops/photographs.py`), prepared for 280 soft tokens. Plain Pillow opens the same bytes, decodes all of
them and resizes with its bicubic, in the same process, by turns; what it does not do (checks, orientation, colours,
patches) is not counted against it. Counted is processor time, so other work on the machine disturbs both alike and only
through caches. The last line is the summary; exits 0 when every ratio held. `--write` keeps the figures.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from PIL import Image

from ops.bench import record
from ops.photographs import NAMES, Shot
from photocall.grid import grid_for
from photocall_prep.prepare import ImagePrep

BUDGET = 280
SCALING = 0.95  # of each core's speed alone
QUIET = 0.3  # load below which wall clock times of two processes say something
MEASURED_S, ROUNDS = 0.6, 20  # of the scaling, alone and together by turns: clocks and neighbours change by a tenth


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of file and how many times as fast as plain Pillow it is to be prepared."""

    name: str
    size: tuple[int, int]
    format: str
    quality: int
    wanted: float


KINDS = (
    Kind("12 MP JPEG", (4000, 3000), "JPEG", 88, 4.0),
    Kind("1080p JPEG", (1920, 1080), "JPEG", 88, 1.8),
    Kind("1080p PNG", (1920, 1080), "PNG", 0, 1.5),
    Kind("1080p WebP", (1920, 1080), "WEBP", 85, 1.0),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server allows."""

    max_image_bytes: int = 64 << 20
    max_pixels: int = 64_000_000
    max_frames: int = 1000


@dataclass(frozen=True, slots=True)
class Speed:
    """Medians over the photographs: CPU milliseconds of one, and how many times as long plain Pillow takes."""

    kind: str
    ms: float
    pillow_ms: float
    ratio: float
    wanted: float

    @property
    def held(self) -> bool:
        """It is as fast as it is to be."""
        return self.ratio >= self.wanted


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every ratio held, 1 otherwise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="of each photograph and way; the median counts")
    parser.add_argument("--write", action="store_true", help="keep the figures")
    parser.add_argument("--peak", metavar="KIND", help=argparse.SUPPRESS)  # a process of its own, for its memory
    options = parser.parse_args(arguments)
    if options.peak:
        return print_peak(options.peak)
    load = record.busy()
    speeds = [speed(kind, options.runs) for kind in KINDS]
    for each in speeds:
        times = f"{each.ms:6.1f} ms CPU, plain Pillow {each.pillow_ms:6.1f}"
        print(f"{each.kind:12} {times}: {each.ratio:.2f}x (wanted {each.wanted})", flush=True)
    scaled = scaling()
    print(f"{record.cores()} processes at once, each beside one alone: {scaled['cpu']:.2f} by CPU time", end=", ")
    print(f"{scaled['wall']:.2f} by the clock (load before: {load:.1f})", flush=True)
    peaks = {name: peak(name) for name in PEAKS}
    for name, mib in peaks.items():
        print(f"a worker's memory at its peak, {name}: {mib} MiB")
    held = all(each.held for each in speeds) and min(scaled["cpu"], scaled["wall"] if load < QUIET else 1.0) >= SCALING
    if options.write:
        figures = [asdict(each) for each in speeds]
        record.write("prep", load, budget=BUDGET, photographs=NAMES, speeds=figures, scaling=scaled, peak_mib=peaks)
    shown = ", ".join(f"{each.kind} {each.ratio:.1f}x (wanted {each.wanted})" for each in speeds)
    print(f"bench-prep {'held' if held else 'FAILED'}: {shown}; scaling {scaled['cpu']:.2f} (wanted {SCALING})")
    return 0 if held else 1


def speed(kind: Kind, runs: int) -> Speed:
    """Each photograph prepared both ways, by turns."""
    prep = ImagePrep(Limits())
    found = []
    for name in NAMES:
        data = Shot(name, kind.size, kind.format, kind.quality).data()
        ours, pillows = [], []
        for run in range(runs + 1):
            times = _cpu_ms(partial(plain, data)), _cpu_ms(partial(prep.prepare, data, BUDGET))
            if run:  # the first warms caches and the allocator
                pillows.append(times[0])
                ours.append(times[1])
        found.append((statistics.median(ours), statistics.median(pillows)))
    ratios = [pillow / our for our, pillow in found]
    ours_ms, pillow_ms = (statistics.median(column) for column in zip(*found, strict=True))
    return Speed(kind.name, ours_ms, pillow_ms, statistics.median(ratios), kind.wanted)


def plain(data: bytes) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """What one writes without thinking about it: decode all, convert, resize."""
    with Image.open(io.BytesIO(data)) as image:
        rgb = image.convert("RGB")
    height, width = grid_for(*rgb.size, BUDGET).pixels
    return np.asarray(rgb.resize((width, height), Image.Resampling.BICUBIC))


def _cpu_ms(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return 1e3 * (time.process_time() - began)


def scaling() -> dict[str, float]:
    """What each of as many processes as cores does, as a part of what one does alone: by CPU time and by the clock."""
    count, context = record.cores(), get_context("spawn")
    alone: list[tuple[float, float]] = []
    together: list[tuple[float, float]] = []
    with ProcessPoolExecutor(count, mp_context=context) as pool:
        list(pool.map(_prepare_for, [0.0] * count))  # imports, files, first pictures
        for _ in range(ROUNDS):
            alone += pool.map(_prepare_for, [MEASURED_S])
            together += pool.map(_prepare_for, [MEASURED_S] * count)
    cpu, wall = (statistics.median(t[i] for t in alone) / statistics.median(t[i] for t in together) for i in (0, 1))
    return {"cpu": round(cpu, 3), "wall": round(wall, 3)}


def _prepare_for(seconds: float) -> tuple[float, float]:
    """Seconds of a picture, by CPU time and by the clock."""
    prep, files = _ready()
    count, began, cpu_began = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - began < seconds or not count:
        for data in files:
            prep.prepare(data, BUDGET)
            count += 1
    return (time.process_time() - cpu_began) / count, (time.perf_counter() - began) / count


@cache
def _ready() -> tuple[ImagePrep, list[bytes]]:
    return ImagePrep(Limits()), [Shot(name, KINDS[1].size, "JPEG", KINDS[1].quality).data() for name in NAMES[:4]]


PEAKS = {
    "nothing yet": None,
    "12 MP JPEG": Kind("", (4000, 3000), "JPEG", 88, 0),
    "50 MP JPEG": Kind("", (8192, 6144), "JPEG", 88, 0),
    "50 MP progressive JPEG": Kind("progressive", (8192, 6144), "JPEG", 88, 0),
    "50 MP PNG": Kind("", (8192, 6144), "PNG", 0, 0),
    "12 MP WebP": Kind("", (4000, 3000), "WEBP", 85, 0),
}


def peak(name: str) -> int:
    """MiB of resident memory that a fresh process has had at most, once it has prepared three of a kind."""
    command = [sys.executable, "-m", "ops.bench.prep", "--peak", name]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    return int(json.loads(done.stdout))


def print_peak(name: str) -> int:
    """The file is made by another process, whose memory does not count."""
    kind = PEAKS[name]
    if kind is not None:
        shot = Shot("coffee.png", kind.size, kind.format, kind.quality, progressive=kind.name == "progressive")
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            data = pool.submit(shot.data).result()
        prep = ImagePrep(Limits())
        for _ in range(3):
            prep.prepare(data, BUDGET)
    [high] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    print(int(high.split()[1]) >> 10)  # getrusage would count the memory of the process that started this one, too
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

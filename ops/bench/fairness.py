"""How long a picture is in preparation while others are, with fairness (`photocall_prep/crowd.py`) and without it.

As many worker processes as cores prepare photographs of 1920 x 1080 for 280 soft tokens; 1, 4, 16 or 64 requests are
under way at any time, each about one picture, the next coming as one ends. Without fairness every picture has as many
threads as there are cores. Printed are milliseconds by the clock of each picture's preparation, and of its request with
the wait for a worker. Exits 0 when with fairness the slowest tenth takes at most 1.5 times the median under every load,
and the bytes are the same either way. Times of a busy machine say little: the load before is printed. `--write` keeps
the figures.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from multiprocessing.queues import Queue
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ops.bench import record
from ops.bench.prep import BUDGET, Limits
from ops.photographs import Shot
from photocall_prep.crowd import Crowd
from photocall_prep.prepare import ImagePrep

SHOTS = tuple(Shot(name, (1920, 1080)) for name in ("china.jpg", "coffee.png", "retina.jpg", "rocket.jpg"))
CONCURRENT = (1, 4, 16, 64)
WANTED = 1.5  # the 90th percentile as a multiple of the median


class Everybody(Crowd):
    """No fairness: each is treated as the first."""

    @contextmanager
    def joined(self) -> Iterator[int]:
        """All cores for everybody."""
        yield self._cores


@dataclass(frozen=True, slots=True)
class Spread:
    """Milliseconds by the clock."""

    p50: float
    p90: float
    most: float

    @classmethod
    def of(cls, seconds: list[float]) -> Spread:
        """Of times in seconds."""
        ordered = [1e3 * each for each in sorted(seconds)]
        return cls(*(round(ordered[min(len(ordered) - 1, int(part * len(ordered)))], 1) for part in (0.5, 0.9, 1.0)))

    def __str__(self) -> str:
        return f"{self.p50:7.1f} {self.p90:7.1f} {self.most:7.1f}"


@dataclass(frozen=True, slots=True)
class Found:
    """One load, one way."""

    concurrent: int
    fair: bool
    picture: Spread
    request: Spread

    @property
    def held(self) -> bool:
        """Nobody waits for others in the middle of their work."""
        return not self.fair or self.picture.p90 <= WANTED * self.picture.p50


def main() -> int:
    """0 when it held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=256, help="of each load and way")
    parser.add_argument("--write", action="store_true", help="keep the figures")
    options = parser.parse_args()
    load = record.busy()
    found, hashes = [], set()
    print(f"{'requests':14} a picture, ms{'':10} its request, ms\n{'':8}" + f"{'p50':>8}{'p90':>8}{'max':>8}" * 2)
    for concurrent in CONCURRENT:
        for fair in (True, False):
            each, prepared = measure(concurrent, fair, options.pictures)
            found.append(each)
            hashes.add(prepared)
            print(f"{concurrent:3} {'fair' if fair else 'not '}{each.picture} {each.request}", flush=True)
    same = len(hashes) == 1
    held = same and all(each.held for each in found)
    if options.write:
        record.write("fairness", load, same_bytes=same, figures=[asdict(each) for each in found])
    worst = max(each.picture.p90 / each.picture.p50 for each in found if each.fair)
    print(f"fairness {'held' if held else 'FAILED'}: p90 at most {worst:.2f} times p50 (wanted {WANTED}), bytes "
          f"{'the same' if same else 'DIFFERENT'}; {record.cores()} workers, load before {load:.1f}")  # fmt: skip
    return 0 if held else 1


def measure(concurrent: int, fair: bool, pictures: int) -> tuple[Found, str]:
    """So many pictures under one load, and a hash of what became of each photograph."""
    context = get_context("spawn")
    asked: Queue[Any] = context.Queue()
    done: Queue[Any] = context.Queue()
    with TemporaryDirectory(prefix="photocall-bench-") as directory:
        workers = [context.Process(target=_work, args=(directory, fair, asked, done)) for _ in range(record.cores())]
        for worker in workers:
            worker.start()
        for _ in workers:
            done.get()  # it is ready
        for number in range(min(concurrent, pictures)):
            asked.put((number, time.perf_counter()))
        answers = []
        for number in range(pictures):
            answers.append(done.get())
            if number + concurrent < pictures:
                asked.put((number + concurrent, time.perf_counter()))
        for _ in workers:
            asked.put(None)
        for worker in workers:
            worker.join()
    made = dict(sorted((number % len(SHOTS), sha256) for number, _, _, _, sha256 in answers))
    picture = Spread.of([ended - began for _, _, began, ended, _ in answers])
    request = Spread.of([ended - came for _, came, _, ended, _ in answers])
    return Found(concurrent, fair, picture, request), " ".join(made.values())


def _work(directory: str, fair: bool, asked: Queue[Any], done: Queue[Any]) -> None:
    crowd = (Crowd if fair else Everybody)(Path(directory), record.cores())
    prep = ImagePrep(Limits(), crowd=crowd)
    files = [shot.data() for shot in SHOTS]
    for data in files:
        prep.prepare(data, BUDGET)
    done.put(None)
    while (task := asked.get()) is not None:
        number, came = task
        began = time.perf_counter()
        prepared = prep.prepare(files[number % len(files)], BUDGET)
        ended = time.perf_counter()
        done.put((number, came, began, ended, hashlib.sha256(prepared.patches).hexdigest()))


if __name__ == "__main__":
    raise SystemExit(main())

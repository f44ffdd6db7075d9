"""The queue's share of a prep worker's CPU, with one job to a queue entry and with a batch's 16: what grouping buys.

A real worker on a Redis of its own prepares pictures that were never seen. Counted is the CPU time of the worker alone:
work beside it disturbs that through shared caches only, and the figures say how busy the machine was. The queue's share
is all that the worker spends outside `Preparer.prepare`: RQ, and the worker's own loop. An entry that comes alone is
timed by the clock twice: from before its enqueue until its work begins, which its caller waits for, and until it is
gone, which nobody does. Exits 0 when a worker spends at most a tenth on entries of one picture, and an entry's work
begins within 3 ms in the median. `--write` keeps the figures.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import logging
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, cast

from PIL import Image

from ops.bench import record
from ops.bench.pipeline import picture
from photocall import keys
from photocall.asks import Ask
from photocall.connections import connect
from photocall.images import ImageStore
from photocall.jobs import NewJob
from photocall.questions import Noul
from photocall.queueing import PrepareJob, PrepQueues
from photocall.records import Policy, Records
from photocall.redis_server import RedisServer
from photocall.settings import PrepSettings
from photocall.wire import Wire, pack
from photocall_gateway.batches.feeder import MICRO_BATCH
from photocall_prep.__main__ import compose
from photocall_prep.jobs import PREPARER
from photocall_prep.prepare import ImagePrep
from photocall_prep.worker import PrepWorker

KEY = "bench-signing-key"
MOST_MS, MOST_SHARE = 3.0, 0.10
LOOK_S = 0.0002  # one that asks without a pause takes the cores from the worker and the server that it times
BEGUN, GONE = "its work begins", "it is gone"
WARM_UP = 16  # jobs before the clock starts: imports, scripts, registration


@dataclass(frozen=True, slots=True)
class Share:
    """CPU milliseconds of the worker per picture, and the part of them outside `prepare`, from 0 to 1."""

    pictures: str
    jobs_per_entry: int
    ms_per_picture: float
    share: float


def main() -> int:
    """Measure each case several times, by turns, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=96, help="per run")
    parser.add_argument("--runs", type=int, default=3, help="per case; the median counts")
    parser.add_argument("--entries", type=int, default=300, help="one at a time, for the time by the clock")
    parser.add_argument("--write", action="store_true", help="keep the figures")
    options = parser.parse_args()
    logging.disable(logging.INFO)
    load_before = record.busy()
    cases = [(name, make, size) for name, make in PICTURES.items() for size in (1, MICRO_BATCH)]
    found: dict[tuple[str, int], list[Share]] = {(name, size): [] for name, _, size in cases}
    for run in range(options.runs):
        for name, make, size in cases:
            files = [make(run * options.pictures + number) for number in range(options.pictures + WARM_UP)]
            found[name, size].append(measure(name, files, size))
    results = [_median(shares) for shares in found.values()]
    for each in results:
        print(
            f"{each.pictures:13} {each.jobs_per_entry:3} per entry: "
            f"{each.ms_per_picture:6.2f} ms CPU a picture, {100 * each.share:4.1f} % of it the queue"
        )
    alone = overhead(options.entries)
    for name, ms in alone.items():
        shown = ", ".join(f"{which} {value:.1f}" for which, value in ms.items())
        print(f"an entry alone, from its enqueue until {name}: {shown} ms")
    single = [each.share for each in results if each.jobs_per_entry == 1]
    held = max(single) <= MOST_SHARE and alone[BEGUN]["p50"] <= MOST_MS
    if options.write:
        medians = [asdict(each) for each in results]
        record.write(
            "queue-share", load_before, pictures=options.pictures, runs=options.runs, medians=medians, alone_ms=alone
        )
    print(
        f"queue-share {'held' if held else 'FAILED'}: at most {100 * max(single):.1f} % of a worker's CPU (wanted "
        f"{100 * MOST_SHARE:.0f}), begun after {alone[BEGUN]['p50']:.1f} ms (wanted {MOST_MS}); "
        f"load before {load_before:.1f}"
    )
    return 0 if held else 1


def measure(name: str, files: list[bytes], jobs_per_entry: int) -> Share:
    """One run over `files`, of which the first WARM_UP are not counted. SystemExit when a picture was not prepared."""
    with RedisServer.start_temporary() as server, tempfile.TemporaryDirectory(prefix="photocall-bench-") as data:
        settings = PrepSettings.from_env(
            {
                "PHOTOCALL_REDIS_URL": server.url,
                "PHOTOCALL_SIGNING_KEY": KEY,
                "PHOTOCALL_DATA": data,
                "PHOTOCALL_BLOBS": f"dir:{data}/blobs",
            }
        )
        worker = compose(settings, ImagePrep(settings))  # in this process, whose CPU is measured
        client = connect(server.url)
        wire = Wire(settings.signing_key(), "bench")
        records, images, queues = Records(client, wire, Policy()), ImageStore(client), PrepQueues(client, wire)
        ids = [_accept(records, images, number, data) for number, data in enumerate(files)]
        inside = _timed_preparer()
        _enqueue(queues, ids[:WARM_UP], jobs_per_entry)
        worker.serve(burst=True)
        _enqueue(queues, ids[WARM_UP:], jobs_per_entry)
        inside.clear()
        began = time.process_time()
        worker.serve(burst=True)
        total = time.process_time() - began
        prepared = client.xlen(keys.engine_stream("batch"))
        client.close()
    if prepared != len(files):
        raise SystemExit(f"only {prepared} of {len(files)} pictures were prepared")
    return Share(name, jobs_per_entry, 1e3 * total / len(inside), 1 - sum(inside) / total)


def overhead(entries: int) -> dict[str, dict[str, float]]:
    """Milliseconds from an enqueue until the work begins, and until the entry is gone: p50, p90 and max of both.

    The entries prepare nothing, and come one at a time.
    """
    with RedisServer.start_temporary() as server, connect(server.url) as client:
        worker = PrepWorker(client, PrepQueues(client, Wire(KEY.encode(), "bench")))
        idle = _Idle()
        PREPARER.set(cast(Any, idle))
        receiving, sending = get_context("spawn").Pipe(duplex=False)
        feeder = get_context("spawn").Process(target=_feed, args=(server.url, entries, sending))
        feeder.start()
        threading.Thread(target=_stop_after, args=(feeder, worker)).start()
        worker.serve()
        enqueued, gone = receiving.recv()
    ends = {BEGUN: idle.begun_at, GONE: gone}  # the clock of all processes of a machine is one
    return {name: _spread([1e3 * (b - a) for a, b in zip(enqueued, at, strict=True)]) for name, at in ends.items()}


def _spread(times: list[float]) -> dict[str, float]:
    ordered = sorted(times[WARM_UP:])
    return {"p50": ordered[len(ordered) // 2], "p90": ordered[int(0.9 * len(ordered))], "max": ordered[-1]}


def _stop_after(feeder: BaseProcess, worker: PrepWorker) -> None:
    feeder.join()
    worker.request_stop(0, None)


class _Idle:
    def __init__(self) -> None:
        self.begun_at: list[float] = []

    def prepare(self, job_id: str) -> None:
        """Nothing: what is left is the queue."""
        self.begun_at.append(time.perf_counter())


def _feed(url: str, entries: int, times: Connection) -> None:
    enqueued: list[float] = []
    gone: list[float] = []
    with connect(url) as client:
        queues = PrepQueues(client, Wire(KEY.encode(), "bench"))
        for number in range(entries + WARM_UP):
            enqueued.append(time.perf_counter())
            entry = queues.enqueue(f"job_{number}", 1, "interactive")
            while client.exists(PrepareJob.key_for(entry)):
                time.sleep(LOOK_S)
            gone.append(time.perf_counter())
            time.sleep(0.01)  # the worker waits again, as for a caller who comes alone
    times.send((enqueued, gone))


def _small(seed: int) -> bytes:
    """The same picture as a 320 x 240 JPEG: as little work in `prepare` as pictures usually are."""
    out = io.BytesIO()
    Image.open(io.BytesIO(picture(seed))).resize((320, 240)).save(out, "JPEG", quality=90)
    return out.getvalue()


PICTURES: dict[str, Callable[[int], bytes]] = {"800x600 JPEG": picture, "320x240 JPEG": _small}


def _accept(records: Records, images: ImageStore, number: int, data: bytes) -> str:
    """A job of the batch lane about one stored picture; its id."""
    sha256 = hashlib.sha256(data).hexdigest()
    images.put(sha256, data, "bench")
    ask = Ask(None, "p", (Noul("q", "Is it red?"),), {"p": sha256})
    now = time.time()
    new = NewJob(
        job_id=f"job_{number}",
        owner="bench",
        shape="job",
        ask=pack(ask.to_content()),
        images=ask.images,
        priority="batch",
        created_at=now,
        deadline_at=now + 600,
        request_hash=str(number),
        to_prepare=True,
    )
    return records.accept(new).job_id


def _enqueue(queues: PrepQueues, ids: list[str], jobs_per_entry: int) -> None:
    for first in range(0, len(ids), jobs_per_entry):
        queues.enqueue(ids[first], 1, "batch", *ids[first + 1 : first + jobs_per_entry])


def _timed_preparer() -> list[float]:
    """Wraps the composed preparer; the list gets the CPU seconds of each call."""
    preparer = PREPARER.get()
    plain, inside = preparer.prepare, list[float]()

    def timed(job_id: str) -> None:
        began = time.process_time()
        plain(job_id)
        inside.append(time.process_time() - began)

    preparer.prepare = timed  # type: ignore[method-assign]
    return inside


def _median(shares: list[Share]) -> Share:
    first = shares[0]
    return Share(
        first.pictures,
        first.jobs_per_entry,
        statistics.median(each.ms_per_picture for each in shares),
        statistics.median(each.share for each in shares),
    )


if __name__ == "__main__":
    raise SystemExit(main())

"""What a step costs on the host, in processor time: all that the engine's thread does around a forward of no time.

A runner that computes nothing stands in for the device, so what is left is composing, planning, rows, readout and
outcomes. Prints the median milliseconds of a step by phase for decodes of 1 to 256 texts, for a picture with one
question, and for 32 pictures with eight questions, fresh and from the cache.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ops.bench.stand import Lists
from photocall.asks import Ask
from photocall.questions import Choice, Option, Question, Text
from photocall_engine import engine as engine_module
from photocall_engine.calibration import Calibration
from photocall_engine.edges import EngineRequest
from photocall_engine.engine import build_engine
from photocall_engine.reads import Reads, Values
from photocall_engine.rows import Ints, RowBatch
from photocall_engine.runner import Arithmetic, PatchImage
from photocall_engine.tokenizer import ChatTokenizer

MODEL = Path(__file__).parents[2] / "models" / "mini"
PHASES = ("take", "plan", "run", "publish")


class NullRunner:
    """The sizes of an E4B on one card, and no model: every forward takes no time and says the same."""

    num_pages = 20_000
    sliding_pages = 12_000
    sliding_window = 512
    bidirectional_images = False
    max_rows = 2_048
    soft_capacity = 32_768
    context = 32_768
    backend = "none"
    arithmetic = Arithmetic("invariant", "none", "", "none", None, "none", None)
    overlaps = True
    page_bytes = 1
    sliding_page_bytes = 1

    def __init__(self, vocab_size: int) -> None:
        logits = np.random.default_rng(0).normal(0.0, 1.0, vocab_size).astype(np.float32)
        self._logits = logits
        self._said = vocab_size // 2  # an ordinary token
        self.batch: RowBatch | None = None

    def encode_images(self, images: Sequence[PatchImage], bases: Sequence[int]) -> None:
        """Nothing."""

    def set_sliding_map(self, pages: Ints, sliding: Ints) -> None:
        """Nothing."""

    def copy_pages(self, src: Ints, dst: Ints) -> None:
        """Nothing."""

    def forward(self, batch: RowBatch) -> None:
        """Keep the batch for whoever looks."""
        self.batch = batch

    def read(self, reads: Reads) -> Reads:
        """Nothing."""
        return reads

    def collect(self, reading: object) -> Values:
        """The same for every row."""
        assert isinstance(reading, Reads), "what `read` gave"
        said = len(reading.greedy)
        return Values(
            np.tile(self._logits[reading.label_ids], (len(reading.letters), 1)),
            np.full(said, self._said, np.int32),
            np.full(said, -0.5, np.float32),
            self.logits_rows(reading.whole),
        )

    def logits_rows(self, rows: Ints) -> NDArray[np.float32]:
        """The same for every row, and not copied."""
        return np.broadcast_to(self._logits, (len(rows), len(self._logits)))

    def argmax_rows(self, rows: Ints, exclude: Sequence[Sequence[int]]) -> Ints:
        """The same for every row."""
        return np.full(len(rows), int(self._logits.argmax()), dtype=np.int32)

    def may_say(self, allowed: NDArray[np.bool_]) -> None:
        """Nothing."""

    def enable_graphs(self) -> bool:
        """None."""
        return False

    def sync(self) -> None:
        """Nothing to wait for."""


class Stopwatch:
    """Milliseconds by phase, a list entry per step."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, bool, dict[str, float]]] = []  # rows, decode, milliseconds by phase
        self._now: defaultdict[str, float] = defaultdict(float)

    def timed(self, phase: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call, with its time counted."""

        def run(*args: Any, **kwargs: Any) -> Any:
            start = time.thread_time()
            try:
                return call(*args, **kwargs)
            finally:
                self._now[phase] += 1000 * (time.thread_time() - start)

        return run

    def close(self, batch: RowBatch) -> None:
        """A step is over."""
        self.steps.append((batch.num_rows, batch.decode, dict(self._now)))
        self._now.clear()


def picture(seed: int) -> PatchImage:
    """280 soft tokens of noise: 960 x 672."""
    patches = np.random.default_rng(seed).integers(0, 256, (42 * 60, 768), dtype=np.uint8)
    return PatchImage(patches, 42, 60)


def choices(count: int) -> tuple[Question, ...]:
    """Questions of about 31 tokens."""
    options = tuple(Option(label) for label in ("red", "blue", "none"))
    return tuple(Choice(f"q{i}", f"Which colour is the object {i}?", options) for i in range(count))


def workload(name: str) -> list[list[EngineRequest]]:
    """Rounds of requests; each round is served to its end before the next, and the first ones warm up."""
    kind, _, size = name.partition(" ")
    if kind == "decode":
        count = int(size)
        question = Text("t", "Describe the state in full.", 64)
        return [[_request(f"{r}-{i}", f"State {r} {i} " * 10, (question,), {}) for i in range(count)] for r in range(3)]
    if kind == "W1":
        return [[_pictured(100 * r + i, 1) for i in range(32)] for r in range(6)]
    fresh = size == "fresh"
    return [[_pictured(100 * r * fresh + i, 8, f"{r}") for i in range(32)] for r in range(5)]


def _pictured(seed: int, questions: int, suffix: str = "") -> EngineRequest:
    return _request(f"p{seed}-{suffix}", "Look at @pic and answer.", choices(questions), {"@pic": picture(seed)})


def _request(job_id: str, state: str, questions: tuple[Question, ...], images: dict[str, PatchImage]) -> EngineRequest:
    hashes = {key: f"{image.patches[0, :8].tobytes().hex()}" for key, image in images.items()}
    return EngineRequest(job_id, Ask(None, state, questions, hashes), {hashes[k]: i for k, i in images.items()})


def measure(name: str) -> dict[str, Any]:
    """Median milliseconds of a step by phase, over the steps that the workload is about."""
    tokenizer = ChatTokenizer(MODEL)
    runner = NullRunner(tokenizer.vocab_size)
    lists = Lists()
    clock = time.monotonic
    engine = build_engine(
        lists, lists, runner, tokenizer, Calibration(), "host", clock, token_budget=2_048, max_requests=512
    )
    watch = Stopwatch()
    engine._take = watch.timed("take", engine._take)  # type: ignore[method-assign]
    engine.scheduler.plan = watch.timed("plan", engine.scheduler.plan)  # type: ignore[method-assign]
    engine._account = watch.timed("publish", engine._account)  # type: ignore[method-assign]
    engine.tell = watch.timed("publish", engine.tell)  # type: ignore[method-assign]
    parts = {name: getattr(engine_module, name) for name in ("issue", "collect")}
    for part, call in parts.items():
        setattr(engine_module, part, watch.timed("run", call))
    engine.scheduler.advance = watch.timed("plan", engine.scheduler.advance)  # type: ignore[method-assign]
    seconds = 0.0
    rounds = workload(name)
    try:
        for number, incoming in enumerate(rounds):
            if number == len(rounds) // 2:
                watch.steps.clear()
                lists.ended.clear()
                seconds = 0.0
            lists.incoming = incoming
            start = time.thread_time()
            while engine.step():
                assert runner.batch is not None
                watch.close(runner.batch)
            seconds += time.thread_time() - start
    finally:
        for part, call in parts.items():
            setattr(engine_module, part, call)
    kind, _, size = name.partition(" ")
    wanted = [
        (rows, phases) for rows, decode, phases in watch.steps if kind != "decode" or (decode and rows == int(size))
    ]
    medians = {phase: statistics.median(p.get(phase, 0.0) for _, p in wanted) for phase in PHASES}
    means = {phase: statistics.fmean(p.get(phase, 0.0) for _, p in wanted) for phase in PHASES}
    return {
        "workload": name,
        "steps": len(wanted),
        "rows": statistics.median(rows for rows, _ in wanted),
        "step_ms": statistics.median(sum(p.values()) for _, p in wanted),
        "phases_ms": medians,
        "mean_ms": means,
        "requests_per_s": len(lists.ended) / seconds,
    }


WORKLOADS = ("decode 1", "decode 16", "decode 64", "decode 256", "W1", "W2 fresh", "W2 warm")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=WORKLOADS, help="one workload")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    results = [measure(name) for name in ([options.only] if options.only else WORKLOADS)]
    print(f"{'workload':12}{'rows':>7}{'step ms':>9}" + "".join(f"{p:>9}" for p in PHASES) + f"{'requests/s':>12}")
    for r in results:
        phases = "".join(f"{r['mean_ms'][p]:9.2f}" for p in PHASES)
        print(f"{r['workload']:12}{r['rows']:7.0f}{r['step_ms']:9.2f}{phases}{r['requests_per_s']:12.0f}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

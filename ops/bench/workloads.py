"""The engine's workloads, as other engines were measured with them: same lengths, same numbers, noise for pictures.

W1   one picture (280 soft tokens) and 66 text tokens, one yes-no answer: many at once, and as many tokens of text alone
W1L  the same one at a time: latency; with ten questions too
W2   32 pictures with eight questions of 31 tokens each: fresh, then with the prefix cached
W3   decode: 128 tokens in, 128 out, for several texts at once; the time of one step
KV   what a sequence of 4,096 tokens holds of both pools, against one pool for all layers (needs no device)

Every workload is warmed up, measured in rounds of which the median counts, and run once more to see where a step's time
goes (`phases.py`). Requests are made before the clock starts; no two rounds share a text or a picture.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ops.bench.figures import Figure, figure
from ops.bench.phases import watching
from ops.bench.stand import Sizes, Stand, config_of
from photocall_engine.edges import EngineRequest
from photocall_engine.fake_runner import FakeRunner
from photocall_engine.model.config import LayerKind, parse_config
from photocall_engine.rows import PAGE_SIZE
from photocall_engine.runner import PatchImage
from photocall_engine.sequence import Request

LONG = 4096
LONG_OUT = 8


class NotMeasuredError(RuntimeError):
    """The engine never did what the workload is about."""


def fresh(stand: Stand, *, pictured: bool, questions: int = 1) -> EngineRequest:
    """One request with nothing in common with any before: by default of as many tokens with a picture as without."""
    prompts, sizes = stand.prompts, stand.sizes
    own = sizes.own
    prefix = prompts.num_soft + sizes.text - own
    image = prompts.picture() if pictured else None
    asked = tuple(prompts.yes_or_no(own) for _ in range(questions))
    return prompts.request(prompts.state(prefix, pictured=pictured), asked, image)


def _many(stand: Stand, count: int, *, pictured: bool, questions: int = 1) -> list[EngineRequest]:
    return [fresh(stand, pictured=pictured, questions=questions) for _ in range(count)]


def measured(
    stand: Stand, make: Callable[[], list[EngineRequest]], rounds: int, warm: int = 1
) -> tuple[list[list[float]], dict[str, Any]]:
    """Seconds to each answer, by round; and where the time of one more round went."""
    for _ in range(warm):
        stand.serve(make())
    found = []
    for _ in range(rounds):
        requests = make()
        found.append(stand.serve(requests))
    requests = make()
    with watching(stand.engine, stand.runner, stand.device) as phases:
        stand.serve(requests)
    return found, phases.report()


def w1(stand: Stand, rounds: int) -> Iterator[Figure]:
    """Throughput of single questions."""
    count = stand.sizes.offline
    for name, pictured in (("W1 picture", True), ("W1 text", False)):
        found, where = measured(stand, partial(_many, stand, count, pictured=pictured), rounds)
        yield _figure(stand, name, [count / max(seconds) for seconds in found], where)


def w1l(stand: Stand, rounds: int) -> Iterator[Figure]:
    """Latency of one request at a time."""
    for name, pictured, questions in (
        ("W1L picture", True, 1),
        ("W1L 10 questions", True, 10),
        ("W1L text", False, 1),
    ):
        found, where = measured(
            stand,
            partial(_many, stand, 1, pictured=pictured, questions=questions),
            rounds * stand.sizes.singles,
            warm=3,
        )
        yield _figure(stand, name, [1e3 * seconds for (seconds,) in found], where)


def w2(stand: Stand, rounds: int) -> Iterator[Figure]:
    """Many questions on each picture: all at once, then as many others on the same pictures."""
    prompts, sizes = stand.prompts, stand.sizes
    answers = sizes.pictures * sizes.questions
    seen: list[tuple[str, PatchImage]] = []

    def new() -> list[EngineRequest]:
        prefix = prompts.num_soft + sizes.text - sizes.own
        seen[:] = [(prompts.state(prefix, pictured=True), prompts.picture()) for _ in range(sizes.pictures)]
        return again()

    def again() -> list[EngineRequest]:
        def asked() -> tuple[Any, ...]:
            return tuple(prompts.yes_or_no(sizes.own) for _ in range(sizes.questions))

        return [prompts.request(state, asked(), image) for state, image in seen]

    for name, make in (("W2 fresh", new), ("W2 warm", again)):
        found, where = measured(stand, make, rounds)
        where["cached_rows"] = sum(body["usage"]["cached_rows"] for body in stand.lists.bodies.values())
        if bool(where["cached_rows"]) != (name == "W2 warm"):
            raise NotMeasuredError(f"{name}: {where['cached_rows']} rows came from the cache")
        yield _figure(stand, name, [answers / max(seconds) for seconds in found], where)


def w3(stand: Stand, rounds: int) -> Iterator[Figure]:
    """Decode: the time of a step in which each of so many texts grows by one token."""
    sizes, prompts = stand.sizes, stand.prompts
    for batch in sizes.batches:

        def make(batch: int = batch) -> list[EngineRequest]:
            prefix = sizes.prompt - sizes.own
            return [
                prompts.request(prompts.state(prefix, pictured=False), (prompts.words(sizes.own, sizes.out),))
                for _ in range(batch)
            ]

        stand.serve(make())
        medians = []
        for _ in range(rounds):
            stand.serve(make())
            steps = [seconds for seconds, rows in stand.steps if rows == batch]
            if not steps:
                raise NotMeasuredError(f"no step of {batch} rows in {len(stand.steps)} steps")
            medians.append(1e3 * statistics.median(steps))
        requests = make()
        with watching(stand.engine, stand.runner, stand.device) as phases:
            stand.serve(requests)
        yield _figure(stand, f"W3 batch {batch}", medians, phases.report())


def kv(shape: str, sizes: Sizes) -> Figure:
    """What a long sequence holds while it decodes; what the cache keeps for others is not its own."""
    config = parse_config(config_of(shape)).text
    page: dict[LayerKind, int] = {"full": 0, "sliding": 0}
    for layer in config.layers:
        if layer.writes_kv:
            page[layer.kind] += 2 * layer.num_kv_heads * layer.head_dim * PAGE_SIZE * 2
    runner = FakeRunner(
        vocab_size=512,
        num_pages=1024,
        sliding_pages=1023,
        sliding_window=config.window,
        max_rows=sizes.rows,
    )
    stand = Stand("tiny", "cpu", "invariant", sizes, runner)  # the vocabulary plays no part
    prefix = stand.prompts.state(LONG - sizes.own - LONG_OUT, pictured=False)
    stand.lists.incoming = [stand.prompts.request(prefix, (stand.prompts.words(sizes.own, LONG_OUT),))]
    most = 0.0
    while not stand.lists.ended:
        stand.engine.step()
        for request in stand.engine.scheduler.requests():
            if request.times.prefilled is not None:
                most = max(most, _held_bytes(request, page) / _one_pool_bytes(request, page))
    return figure("KV of 4k tokens", shape, "invariant", most)


def _held_bytes(request: Request, page: dict[LayerKind, int]) -> float:
    full = {p for sequence in request.sequences() for p in sequence.table.pages}
    sliding = {p for sequence in request.sequences() for p in sequence.table.windowed}
    return len(full) * page["full"] + len(sliding) * page["sliding"]


def _one_pool_bytes(request: Request, page: dict[LayerKind, int]) -> float:
    full = {p for sequence in request.sequences() for p in sequence.table.pages}
    return len(full) * (page["full"] + page["sliding"])


def _figure(stand: Stand, name: str, runs: list[float], where: dict[str, Any]) -> Figure:
    shown = [round(value, 4) for value in runs]
    return figure(name, stand.shape, stand.numerics, statistics.median(runs), runs=shown, where=where)


ALL: dict[str, Callable[[Stand, int], Iterator[Figure]]] = {"W1": w1, "W1L": w1l, "W2": w2, "W3": w3}

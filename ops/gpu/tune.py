"""Times the matrix products of each weight shape in every tile, and proposes entries for `kernels/matmul_table.py`.

A plan fixes what a row's bits depend on (K splits and K block) for every number of rows, and two tiles, one for few
rows and one for many. For each weight shape every candidate of splits and tile is timed at a few and at many rows, as
captured replays over weights that take turns so that they do not stay in the cache, with cuBLAS beside it. The proposal
is the fastest, averaged over the numbers of rows; whether both its tiles give a row the same bits, as tiles of one plan
must, stands beside it. Nothing is changed: the table is edited by hand from the JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Protocol

import torch

from ops.bench import figures
from ops.bench.stand import config_of
from photocall_engine.kernels.matmul_table import Form, MatmulPlan, Tile, default_plan
from photocall_engine.kernels.triton_matmul import matmul
from photocall_engine.model.config import parse_config

FEW = (1, 64, 256)
MANY = (512, 2048)
ROWS = (*FEW, *MANY)
FEW_TILES = tuple(
    Tile(64, n, warps=4, stages=stages) for n, stages in product((32, 64, 128), (3, 4, 5)) if n * stages <= 512
)
MANY_TILES = (
    Tile(128, 128, warps=8, stages=3),
    Tile(128, 128, warps=8, stages=4),
    Tile(128, 256, warps=8, stages=3),
    Tile(64, 256, warps=4, stages=4),
)
BLOCKS_K = (64, 128)
SPLITS = (1, 2, 4, 8)
SHORTEST_SPLIT = 512  # values of K
FORMS: tuple[Form, ...] = ("tma", "plain")
SETS_BYTES = 240e6  # of weights that take turns, several times the L2 cache


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when a plan could be proposed for every shape; 1 when not, for want of time too; 2 without CUDA."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="e4b,31b", help="shapes with commas between")
    parser.add_argument("--limit", type=float, default=280.0, help="seconds; shapes that are left then are named")
    parser.add_argument("--compilers", type=int, default=max(1, (os.cpu_count() or 2) - 2), help="processes")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("tune: this is measured on a CUDA device, and torch finds none here", file=sys.stderr)
        return 2
    until = time.monotonic() + options.limit
    found: dict[str, Any] = figures.provenance() | {"plans": [], "left": []}
    shapes = list(dict.fromkeys(shape for model in options.models.split(",") for shape in weight_shapes(model)))
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.compilers, mp_context=spawn) as pool:
        for n, k in shapes:
            if time.monotonic() > until:
                found["left"].append([n, k])
                continue
            found["plans"].append(propose(n, k, Timer(n, k), partial(compile_all, pool, n, k)))
            print(line(found["plans"][-1]), flush=True)
            if options.out:
                options.out.write_text(json.dumps(found, indent=1) + "\n")
    print(f"no time for {found['left']}" if found["left"] else "every shape was tried")
    return 0 if not found["left"] and all(each["plan"] for each in found["plans"]) else 1


def weight_shapes(model: str) -> Iterator[tuple[int, int]]:
    """(N, K) of the decoder's linears as they are multiplied: q, k, v stacked, gate and up too; the heaviest first."""
    text = parse_config(config_of(model)).text
    found: dict[tuple[int, int], None] = {}
    for layer in text.layers:
        kv = 0 if not layer.writes_kv else layer.num_kv_heads * (1 if layer.k_eq_v else 2)
        found[(text.num_heads + kv) * layer.head_dim, text.hidden_size] = None
        found[text.hidden_size, text.num_heads * layer.head_dim] = None
        found[2 * layer.intermediate_size, text.hidden_size] = None
        found[text.hidden_size, layer.intermediate_size] = None
    if text.per_layer_size:
        found[text.per_layer_size, text.hidden_size] = None
        found[text.hidden_size, text.per_layer_size] = None
        found[text.per_layer_size * len(text.layers), text.hidden_size] = None
    return iter(sorted(found, key=lambda shape: -shape[0] * shape[1]))


class Timer:
    """Microseconds of one product x [M, K] @ weight [N, K]^T. `plan` None: cuBLAS."""

    def __init__(self, n: int, k: int) -> None:
        count = max(2, min(16, int(SETS_BYTES / (2 * n * k)) + 1))
        self._weights = [_draw(seed, n, k) for seed in range(count)]
        self._rows = {m: _draw(m, m, k) for m in (*FEW, *MANY)}

    def seconds(self, m: int, plan: MatmulPlan | None) -> float:
        """Median over captured replays. Raises what compiling or launching raises."""
        x = self._rows[m]

        def run() -> None:
            for weight in self._weights:
                if plan is None:
                    torch.nn.functional.linear(x, weight)
                else:
                    matmul(x, weight, plan)

        run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        samples = []
        for _ in range(5):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            samples.append(start.elapsed_time(end) / 1e3 / len(self._weights))
        return float(statistics.median(samples[1:]))

    def same_bits(self, plan: MatmulPlan) -> bool:
        """Whether a row comes out the same alone, among few and among many."""
        x, weight = self._rows[MANY[0]], self._weights[0]
        whole = matmul(x, weight, plan)
        return all(torch.equal(matmul(x[:m], weight, plan), whole[:m]) for m in (1, 7, 64, plan.few_rows))


class Clock(Protocol):
    """What `propose` asks of a device: see Timer."""

    def seconds(self, m: int, plan: MatmulPlan | None) -> float: ...

    def same_bits(self, plan: MatmulPlan) -> bool: ...


def propose(n: int, k: int, clock: Clock, prepare: Callable[[list[MatmulPlan]], None]) -> dict[str, Any]:
    """The best plan of one weight shape: the fewest seconds relative to cuBLAS, averaged over the numbers of rows.

    First the sums (form, K block, splits) with the default tiles, then each tile on the best of these. `prepare` is
    told what will be timed next, to compile it.
    """
    library = {m: clock.seconds(m, None) for m in ROWS}
    search = _Search(clock, library)
    sums = sum_plans(n, k)
    prepare(sums)
    plan = search.best(sums, ROWS)
    if plan is not None:
        few, many = [replace(plan, few=tile) for tile in FEW_TILES], [replace(plan, many=tile) for tile in MANY_TILES]
        prepare([*few, *many])
        best_few, best_many = search.best([plan, *few], FEW), search.best([plan, *many], MANY)
        if best_few is not None and best_many is not None:
            plan = replace(plan, few=best_few.few, many=best_many.many)
    shown = {"n": n, "k": k, "tried": search.tried, "failed": search.failed[:8], "cublas_us": _micro(library)}
    if plan is None:
        return shown | {"plan": None}
    times = {m: clock.seconds(m, plan) for m in ROWS}
    score = statistics.fmean(times[m] / library[m] for m in ROWS)
    bits = clock.same_bits(plan)
    return shown | {"plan": asdict(plan), "same_bits": bits, "score": round(score, 4), "us": _micro(times)}


def sum_plans(n: int, k: int) -> list[MatmulPlan]:
    """Every way to add up a row's products that is worth timing, with the default tiles."""
    return [
        replace(default_plan(n, k, form=form), block_k=block_k, splits=splits)
        for form, block_k, splits in product(FORMS, BLOCKS_K, SPLITS)
        if splits == 1 or k // splits >= SHORTEST_SPLIT
    ]


class _Search:
    def __init__(self, clock: Clock, library: dict[int, float]) -> None:
        self._clock, self._library = clock, library
        self.tried = 0
        self.failed: list[str] = []

    def best(self, plans: Sequence[MatmulPlan], rows: Sequence[int]) -> MatmulPlan | None:
        """The fastest over these numbers of rows; None if none can run."""
        scores: list[tuple[float, int]] = []
        for place, plan in enumerate(plans):
            self.tried += 1
            try:
                times = {m: self._clock.seconds(m, plan) for m in rows}
            except Exception as error:  # too much shared memory, mostly
                self.failed.append(f"{plan}: {type(error).__name__}")
                continue
            scores.append((statistics.fmean(times[m] / self._library[m] for m in rows), place))
        return plans[min(scores)[1]] if scores else None


def compile_all(pool: Executor, n: int, k: int, plans: list[MatmulPlan]) -> None:
    """Fill Triton's cache on the disk from several processes; what cannot be compiled is found out again later."""
    list(pool.map(compile_one, [n] * len(plans), [k] * len(plans), plans))


def compile_one(n: int, k: int, plan: MatmulPlan) -> None:
    """Run a plan once with few rows and once with many, in a process of its own."""
    weight = torch.empty(n, k, device="cuda", dtype=torch.bfloat16)
    for m in (FEW[0], MANY[0]):
        with contextlib.suppress(Exception):
            matmul(torch.empty(m, k, device="cuda", dtype=torch.bfloat16), weight, plan)
            torch.cuda.synchronize()


def line(found: dict[str, Any]) -> str:
    """For people."""
    if found["plan"] is None:
        return f"[{found['n']}, {found['k']}]: no plan holds, of {found['tried']} tried: {found['failed'][:2]}"
    plan = found["plan"]
    return (
        f"[{found['n']}, {found['k']}]: {plan['form']} K {plan['block_k']} x{plan['splits']} few {plan['few']} many "
        f"{plan['many']}: {found['score']:.2f} of cuBLAS, bits {found['same_bits']} ({found['tried']} tried)"
    )


def _micro(seconds: dict[int, float]) -> dict[str, float]:
    return {str(m): round(1e6 * value, 2) for m, value in seconds.items()}


def _draw(seed: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator(device="cuda").manual_seed(seed)
    drawn = torch.randn(shape, generator=generator, device="cuda", dtype=torch.bfloat16)
    return drawn.mul_(shape[-1] ** -0.5)


if __name__ == "__main__":
    sys.exit(main())

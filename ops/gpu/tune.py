"""Times the matrix products of each weight shape in every tile, and chooses entries for `kernels/matmul_h200.py`.

A plan fixes into how many sums K is cut, for every number of rows, and tiles by number of rows. For each weight shape
every candidate of splits and tile is timed at few and many rows, as captured replays over weights that take turns so
that they do not stay in the cache, with cuBLAS beside it, and the bits of one row are noted. Everything goes into a
JSON file; `--choose FILE` reads one on any machine and prints the table: for each shape the number of splits that is
fastest relative to cuBLAS, and for each number of rows the fastest tile among those that give that row the same bits.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch

from ops.bench import figures
from ops.bench.stand import config_of
from photocall_engine.kernels.matmul_h200 import H200
from photocall_engine.kernels.matmul_plan import MatmulPlan, Tile, Walk
from photocall_engine.kernels.triton_matmul import gated, unfinished
from photocall_engine.model.config import VisionConfig, parse_config

Kind: TypeAlias = Literal["product", "pair", "gate"]
WALKS: tuple[Walk, ...] = ("no", "flat")

FEWEST_ROWS = 16  # fewer are padded to it
FEW_ROWS = (FEWEST_ROWS, 64, 128, 256, 384, 512)
MANY_ROWS = (1024, 2048)
TOWER_ROWS = (2560, 15360)  # patches of one picture and of six
FEW_TILES = tuple(
    Tile(m, n, k, warps=warps, stages=stages)
    for m, n, k, warps, stages in (
        (64, 16, 128, 4, 4), (64, 16, 128, 4, 6), (64, 32, 64, 4, 6), (64, 32, 128, 4, 3), (64, 32, 128, 4, 5),
        (64, 64, 64, 4, 4), (64, 64, 64, 4, 6), (64, 64, 128, 4, 3), (64, 64, 128, 4, 4), (64, 128, 64, 4, 4),
        (64, 128, 128, 4, 3), (128, 32, 128, 4, 3), (128, 64, 64, 4, 4), (128, 64, 128, 4, 3), (128, 128, 64, 4, 3),
        (128, 128, 64, 4, 4), (128, 128, 128, 8, 3), (256, 64, 64, 8, 4), (128, 256, 64, 8, 4),
    )
)  # fmt: skip
PADDED_TILES = (Tile(64, 64, 64, 4, 4), Tile(64, 32, 128, 4, 5))  # for so few rows, beside those that fit them
ACROSS_TILES = tuple(
    Tile(FEWEST_ROWS, n, k, warps=warps, stages=stages, across=True)
    for n, k, warps, stages in (
        (64, 64, 4, 6), (64, 64, 4, 8), (64, 128, 4, 3), (64, 128, 4, 5), (64, 128, 4, 8), (128, 64, 4, 4),
        (128, 64, 4, 6), (128, 64, 4, 9), (128, 128, 4, 3), (128, 128, 4, 5), (128, 64, 8, 6), (256, 64, 8, 4),
    )
)  # fmt: skip
WIDE_ACROSS_TILES = tuple(
    Tile(m, n, k, warps=warps, stages=stages, across=True)
    for m, n, k, warps, stages in (
        (64, 64, 128, 4, 4), (64, 128, 64, 4, 4), (64, 128, 128, 4, 3), (128, 64, 64, 4, 4), (128, 128, 64, 4, 3),
        (128, 128, 64, 4, 4), (128, 128, 64, 8, 4), (256, 128, 64, 8, 3), (256, 128, 64, 8, 4), (128, 256, 64, 8, 3),
    )
)  # fmt: skip
MANY_TILES = tuple(
    Tile(m, n, 64, warps=warps, stages=stages, walk=walk)
    for (m, n, warps, stages), walk in product(
        ((64, 64, 4, 4), (64, 128, 4, 4), (128, 128, 4, 3), (128, 128, 8, 4), (128, 256, 8, 3), (256, 128, 8, 3)), WALKS
    )
)
SPLITS = (1, 2, 4)
SHORTEST_SPLIT = 512  # values of K
SETS_BYTES = 240e6  # of weights that take turns, several times the L2 cache
MOST_SETS = 128
ADD_BYTES_S = 4e12  # parts that are left apart are read once more


@dataclass(frozen=True, slots=True)
class Use:
    """One weight shape [n, k] and what becomes of its product."""

    kind: Kind
    n: int
    k: int
    rows: tuple[int, ...]
    splits: tuple[int, ...] = (1,)


@dataclass
class Tried:
    """One candidate's microseconds and bits, by number of rows (as JSON writes them)."""

    splits: int
    tile: Tile
    us: dict[str, float] = field(default_factory=dict)
    bits: dict[str, str] = field(default_factory=dict)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every shape was tried; 1 when not, for want of time or of a plan; 2 without CUDA."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="e4b,31b", help="shapes with commas between")
    parser.add_argument("--rows", help="these numbers of rows only, with commas between")
    parser.add_argument("--limit", type=float, default=280.0, help="seconds; shapes that are left then are named")
    parser.add_argument("--compilers", type=int, default=max(1, (os.cpu_count() or 2) - 2), help="processes")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--choose", type=Path, help="choose from this file instead of measuring")
    options = parser.parse_args(arguments)
    if options.choose:
        print(table(json.loads(options.choose.read_text())["uses"]))
        return 0
    if not torch.cuda.is_available():
        print("tune: this is measured on a CUDA device, and torch finds none here", file=sys.stderr)
        return 2
    until = time.monotonic() + options.limit
    found: dict[str, Any] = figures.provenance() | {"uses": [], "left": []}
    wanted = list(dict.fromkeys(use for model in options.models.split(",") for use in uses(model)))
    if options.rows:
        rows = tuple(map(int, options.rows.split(",")))
        wanted = [replace(use, rows=kept) for use in wanted if (kept := tuple(m for m in use.rows if m in rows))]
    compile_all(wanted, options.compilers)
    for use in wanted:
        if time.monotonic() > until:
            found["left"].append(asdict(use))
            continue
        found["uses"].append(measure(use, Clock(use)))
        print(line(found["uses"][-1]), flush=True)
        if options.out:
            options.out.write_text(json.dumps(found) + "\n")
    print(f"no time for {found['left']}" if found["left"] else "every shape was tried")
    return 1 if found["left"] else 0


def uses(model: str) -> Iterator[Use]:
    """Every product of the decoder and the tower as it is made, the heaviest first."""
    config = parse_config(config_of(model))
    text, vision = config.text, config.vision
    every = (*FEW_ROWS, *MANY_ROWS)
    found: dict[tuple[Kind, int, int], Use] = {}

    def add(kind: Kind, n: int, k: int, rows: tuple[int, ...], splits: tuple[int, ...] = (1,)) -> None:
        fit = tuple(s for s in splits if s == 1 or k // s >= SHORTEST_SPLIT)
        found.setdefault((kind, n, k), Use(kind, n, k, rows, fit))

    for layer in text.layers:
        kv = 0 if not layer.writes_kv else layer.num_kv_heads * (1 if layer.k_eq_v else 2)
        add("product", (text.num_heads + kv) * layer.head_dim, text.hidden_size, every)
        add("product", text.hidden_size, text.num_heads * layer.head_dim, every, SPLITS)
        add("pair", 2 * layer.intermediate_size, text.hidden_size, every)
        add("product", text.hidden_size, layer.intermediate_size, every, SPLITS)
    if text.per_layer_size:
        add("gate", text.per_layer_size, text.hidden_size, every)
        add("product", text.hidden_size, text.per_layer_size, every)
        add("product", text.per_layer_size * len(text.layers), text.hidden_size, every)
    if isinstance(vision, VisionConfig):
        width, wide = vision.hidden_size, vision.intermediate_size
        add("product", 3 * width, width, TOWER_ROWS)
        add("product", width, width, TOWER_ROWS)
        add("product", 2 * wide, width, TOWER_ROWS)
        add("product", width, wide, TOWER_ROWS)
    return iter(sorted(found.values(), key=lambda use: -use.n * use.k))


class Clock:
    """Microseconds of one product x [M, K] @ weight [N, K]^T, and a row's bits."""

    def __init__(self, use: Use) -> None:
        self._use = use
        count = max(2, min(MOST_SETS, int(SETS_BYTES / (2 * use.n * use.k)) + 1))
        self._weights = [_draw(seed, use.n, use.k) for seed in range(count)]
        self._rows = _draw(99, max(use.rows), use.k)
        self._through = _draw(98, max(use.rows), use.n) if use.kind == "gate" else None

    def library(self, m: int) -> float:
        """cuBLAS, the product alone."""
        x = self._rows[:m]
        return self._micro(lambda weight: torch.nn.functional.linear(x, weight))

    def micro(self, m: int, splits: int, tile: Tile) -> float:
        """Median over captured replays. Raises what compiling or launching raises."""
        return self._micro(lambda weight: run(self._use, self._rows[:m], weight, splits, tile, self._through))

    def bits(self, m: int, splits: int, tile: Tile) -> str:
        """Names the bits of the first row."""
        out = run(self._use, self._rows[:m], self._weights[0], splits, tile, self._through)
        row = out[0] if out.ndim == 2 else _ascending(out)
        return hashlib.sha256(row.view(torch.uint8).cpu().numpy().tobytes()).hexdigest()[:12]

    def _micro(self, once: Any) -> float:
        for weight in self._weights[:2]:
            once(weight)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for weight in self._weights:
                once(weight)
        samples = []
        for _ in range(5):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            samples.append(1e3 * start.elapsed_time(end) / len(self._weights))
        return round(float(statistics.median(samples[1:])), 2)


def run(
    use: Use, x: torch.Tensor, weight: torch.Tensor, splits: int, tile: Tile, through: torch.Tensor | None
) -> torch.Tensor:
    """The product as the engine makes it."""
    plan = MatmulPlan("tma", splits, ((1 << 31, tile),))
    if use.kind == "product":
        return unfinished(x, weight, plan)
    return gated(x, weight, plan, None if through is None else through[: len(x)])


def measure(use: Use, clock: Any) -> dict[str, Any]:
    """Every candidate at every number of rows of a use."""
    tried: dict[tuple[int, Tile], Tried] = {}
    failed: dict[str, str] = {}
    library = {str(m): clock.library(m) for m in use.rows}
    for m in use.rows:
        for splits, tile in candidates(use, m):
            if str((splits, tile)) in failed:
                continue
            one = tried.setdefault((splits, tile), Tried(splits, tile))
            try:
                one.us[str(m)], one.bits[str(m)] = clock.micro(m, splits, tile), clock.bits(m, splits, tile)
            except Exception as error:  # too much shared memory, mostly
                failed[str((splits, tile))] = f"{type(error).__name__}: {error}"[:200]
    return asdict(use) | {"cublas_us": library, "tried": [asdict(one) for one in tried.values()], "failed": failed}


def candidates(use: Use, m: int) -> Iterator[tuple[int, Tile]]:
    """Splits and tiles that are worth timing at a number of rows."""
    tiles = (
        *(() if m > max(FEW_ROWS) else ACROSS_TILES if m <= FEWEST_ROWS else WIDE_ACROSS_TILES),
        *(() if m > max(FEW_ROWS) else FEW_TILES if m > FEWEST_ROWS else PADDED_TILES),
        *(MANY_TILES if m >= min(MANY_ROWS) // 4 else ()),
    )
    halves = 2 if use.kind == "pair" else 1  # columns, half of them of the gate: fewer take another instruction
    for splits, tile in product(use.splits, tiles):
        if tile.block_n >= (64 if tile.across else 16) * halves:
            yield splits, tile
            if splits > 1 and m <= max(FEW_ROWS) and tile.walk == "no":
                yield splits, replace(tile, apart=True)


def compile_all(wanted: Sequence[Use], processes: int) -> None:
    """Fill Triton's cache on the disk from several processes; what cannot be compiled is found out again later."""
    usual = (FEWEST_ROWS, FEW_ROWS[1], FEW_ROWS[-1], MANY_ROWS[0], TOWER_ROWS[0])  # these have every tile among them
    found = {
        (use.kind, splits, tile, m)
        for use in wanted
        for m in set(use.rows).intersection(usual)
        for splits, tile in candidates(use, m)
    }
    jobs = sorted(found, key=repr)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawn) as pool:
        list(pool.map(compile_one, jobs, chunksize=2))


def compile_one(job: tuple[Kind, int, Tile, int]) -> None:
    """Run one candidate once, in a process of its own."""
    kind, splits, tile, m = job
    use = Use(kind, 512, 2048, (m,))
    x, weight = (torch.zeros(rows, 2048, device="cuda", dtype=torch.bfloat16) for rows in (m, 512))
    with contextlib.suppress(Exception):
        run(use, x, weight, splits, tile, x if kind == "gate" else None)
        torch.cuda.synchronize()


def choose(found: dict[str, Any]) -> MatmulPlan | None:
    """The plan of one weight shape, from what was measured; None where nothing could run."""
    tried = [Tried(**one | {"tile": Tile(**one["tile"])}) for one in found["tried"]]
    plans = [plan for splits in found["splits"] if (plan := _best(found, [t for t in tried if t.splits == splits]))]
    return min(plans, default=(0.0, None), key=lambda scored: scored[0])[1]


def _best(found: dict[str, Any], tried: list[Tried]) -> tuple[float, MatmulPlan] | None:
    """The fastest tiles of one number of splits, and their time relative to cuBLAS, averaged over the rows."""
    every = Counter(bits for one in tried for bits in one.bits.values())
    chosen: list[tuple[int, Tile]] = []
    ratios = []
    for m in map(str, found["rows"]):
        fit = [one for one in tried if m in one.us and one.bits[m] == every.most_common(1)[0][0]]
        if not fit:
            return None
        costs = [one.us[m] + _adding_us(one, int(m), found["n"]) for one in fit]
        ratios.append(min(costs) / found["cublas_us"][m])
        chosen.append((int(m), fit[costs.index(min(costs))].tile))
    merged = [chosen[i] for i in range(len(chosen)) if i + 1 == len(chosen) or chosen[i][1] != chosen[i + 1][1]]
    return statistics.fmean(ratios), MatmulPlan("tma", tried[0].splits, tuple(merged))


def _adding_us(one: Tried, m: int, n: int) -> float:
    return 1e6 * 4 * one.splits * m * n / ADD_BYTES_S if one.tile.apart else 0.0


def table(found: Sequence[dict[str, Any]]) -> str:
    """The table's entries as Python, with what each costs beside cuBLAS."""
    lines = []
    for use in found:
        plan = choose(use)
        if plan is None:
            lines.append(f"# {use['kind']} [{use['n']}, {use['k']}]: nothing could run")
            continue
        times = {m: _time(use, plan, m) for m in use["cublas_us"]}
        shown = "  ".join(f"{m}: {us:.1f}/{use['cublas_us'][m]:.1f}" for m, us in times.items())
        tiles = ", ".join(f"({most}, Tile{_tuple(tile)})" for most, tile in plan.tiles)
        lines.append(f"# {use['kind']}, us / cuBLAS: {shown}")
        lines.append(f'("{H200}", {use["n"]}, {use["k"]}): MatmulPlan("tma", {plan.splits}, ({tiles},)),')
    return "\n".join(lines)


def _tuple(tile: Tile) -> tuple[Any, ...]:
    return tuple(asdict(tile).values())


def _time(use: dict[str, Any], plan: MatmulPlan, m: str) -> float:
    wanted = asdict(plan.tile(int(m)))
    return next(
        float(one["us"][m])
        for one in use["tried"]
        if one["splits"] == plan.splits and one["tile"] == wanted and m in one["us"]
    )


def line(found: dict[str, Any]) -> str:
    """For people."""
    best = {m: min((one["us"][m] for one in found["tried"] if m in one["us"]), default=0.0) for m in found["cublas_us"]}
    times = "  ".join(f"{m}: {us:.1f}/{found['cublas_us'][m]:.1f}" for m, us in best.items())
    kinds = {m: len({one["bits"][m] for one in found["tried"] if m in one["bits"]}) for m in found["cublas_us"]}
    return f"{found['kind']} [{found['n']}, {found['k']}] {times} bits {kinds} failed {len(found['failed'])}"


def _ascending(parts: torch.Tensor) -> torch.Tensor:
    total = torch.zeros_like(parts[0, 0])
    for part in parts:
        total = total + part[0]
    return total.to(torch.bfloat16)


def _draw(seed: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator(device="cuda").manual_seed(seed)
    drawn = torch.randn(shape, generator=generator, device="cuda", dtype=torch.bfloat16)
    return drawn.mul_(shape[-1] ** -0.5)


if __name__ == "__main__":
    sys.exit(main())

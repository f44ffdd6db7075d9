"""The engine at the shapes of the public checkpoints, with random weights: workloads W1, W1L, W2, W3 and KV.

Prints each figure beside its floor and goal and writes all of them as JSON after every workload, so that what stops in
the middle has not run for nothing. A workload that fails is reported and the next one runs. With both numerics the cost
of invariance is printed too. `--shape tiny` runs everything on any CPU in seconds, to see that it runs.

    python -m ops.bench.engine --shape e4b --device cuda --numerics invariant,fast
"""

from __future__ import annotations

import argparse
import gc
import logging
import sys
import time
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import torch

from ops.bench import figures, workloads
from ops.bench.figures import Figure, figure
from ops.bench.stand import SIZES, Numerics, Stand, make_runner


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every workload was measured; a goal that is missed is no failure. 1 otherwise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SIZES, default="e4b")
    parser.add_argument("--device", default="cuda", help="cuda or cpu (default cuda)")
    parser.add_argument("--numerics", default="invariant", help="invariant, fast or both with a comma between")
    parser.add_argument("--only", default="W1L,W3,W2,W1,KV", help="workloads, in this order")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-graphs", action="store_true", help="launch every kernel by itself")
    parser.add_argument("--out", type=Path, help="the JSON file (default: a new one under ops/bench/results/)")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    out = options.out or figures.RESULTS / f"engine-{options.shape}-{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
    names = options.only.split(",")
    unknown = set(names) - set(workloads.ALL) - {"KV"}
    wanted: list[Numerics] = [n for n in get_args(Numerics) if n in options.numerics.split(",")]
    if unknown or not wanted:
        parser.error(f"no workload or numerics of this name: {', '.join(unknown) or options.numerics}")
    run = Run(options.shape, out)
    if "KV" in names:
        run.attempt("KV", lambda: [workloads.kv(options.shape, SIZES[options.shape])])
    on_stand = [name for name in names if name != "KV"]
    for numerics in wanted if on_stand else []:
        stand = run.stand(options.device, numerics, graphs=not options.no_graphs)
        for name in on_stand:
            if stand is not None:
                run.attempt(name, lambda s=stand, n=name: workloads.ALL[n](s, options.rounds))
        del stand
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    run.attempt("invariance", lambda: cost_of_invariance(run.results))
    print("\n" + figures.table(run.results))
    print(f"written: {out}" + "".join(f"\nFAILED: {name}" for name in run.failed))
    return 1 if run.failed else 0


class Run:
    """Figures so far, in a file that is whole after each of them."""

    def __init__(self, shape: str, out: Path) -> None:
        self.shape, self.out = shape, out
        self.results: list[Figure] = []
        self.failed: list[str] = []
        self.setup: list[dict[str, Any]] = []

    def stand(self, device: str, numerics: Numerics, *, graphs: bool) -> Stand | None:
        """An engine with its graphs captured, and what that took; None if it failed."""
        sizes, began = SIZES[self.shape], time.monotonic()
        try:
            runner = make_runner(self.shape, device, numerics, sizes)
            runner.sync()
            made, memory = time.monotonic(), _memory()
            captured = graphs and runner.enable_graphs()
            stand = Stand(self.shape, device, numerics, sizes, runner)
        except Exception:
            self._fail(f"engine with {numerics} numerics")
            return None
        took = {
            "numerics": numerics,
            "kernels": runner.kernels.name,
            "weights_s": round(made - began, 2),
            "graphs": captured,
            "graphs_s": round(time.monotonic() - made, 2),
            "weights_and_pools_mb": memory >> 20,
            "graphs_mb": (_memory() - memory) >> 20,
        }
        self.setup.append(took)
        print(" ".join(f"{name}={value}" for name, value in took.items()), flush=True)
        return stand

    def attempt(self, name: str, make: Any) -> None:
        """Print and write figures as they come; what raises is a failure, and no more than that."""
        try:
            for each in make():
                self.results.append(each)
                print(figures.line(each), flush=True)
                if each.where:
                    print(f"    {each.where}", flush=True)
                figures.write(self.out, self.results, setup=self.setup, failed=self.failed)
        except Exception:
            self._fail(name)

    def _fail(self, name: str) -> None:
        traceback.print_exc()
        self.failed.append(name)
        figures.write(self.out, self.results, setup=self.setup, failed=self.failed)


def cost_of_invariance(results: Sequence[Figure]) -> list[Figure]:
    """By how much the invariant numerics are slower, the worst of a workload's figures; nothing without both."""
    by_numerics = {n: {each.workload: each for each in results if each.numerics == n} for n in get_args(Numerics)}
    costs = []
    for prefix in ("W1 ", "W3 "):
        slower = [
            100 * (each.value / fast.value - 1 if each.better == "lower" else 1 - each.value / fast.value)
            for name, each in by_numerics["invariant"].items()
            if name.startswith(prefix) and (fast := by_numerics["fast"].get(name)) is not None
        ]
        if slower:
            costs.append(figure(f"invariance {prefix.strip()}", results[0].shape, "both", max(slower), runs=slower))
    return costs


def _memory() -> int:
    """Bytes of the device in use by anybody."""
    if not torch.cuda.is_available():
        return 0
    free, total = torch.cuda.mem_get_info()
    return total - free


if __name__ == "__main__":
    sys.exit(main())

"""Every Triton kernel on a GPU: compared with the reference, its bits compared among batches, then timed.

Shapes are those of Gemma 4 E4B and 31B, inputs random and rotated so that they exceed the L2 cache, outputs poisoned.
Times are medians of captured replays between CUDA events; the floor is bytes / 4.24 TB/s or operations / 770 TFLOP/s,
whichever is longer (both measured on an H200 before). Prints a table and writes JSON under $OUT or ops/bench/results/.
Exits 1 where a comparison fails, 2 where there is no CUDA.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

import torch

from ops.bench import kernel_cases
from ops.bench.figures import keep
from ops.bench.kernel_case import MODELS, Case, Inputs

BYTES_PER_S = 4.24e12
OPERATIONS_PER_S = 770e12
L2_BYTES = 60e6
MAX_SETS = 12


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the table. `error` is |out - reference| / |reference|."""

    workload: str
    shape: str
    value: float
    floor: float
    error: float
    error_limit: float
    same_bits: bool | None
    unit: str = "us"
    better: str = "lower"

    @property
    def holds(self) -> bool:
        return self.error <= self.error_limit and self.same_bits is not False


def main() -> int:
    """Compare, time, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", default="", help="comma-separated names, see kernel_cases.ALL (default: all but tiles)"
    )
    parser.add_argument("--models", default="e4b,31b", help="comma-separated: e4b, 31b (default both)")
    parser.add_argument("--no-times", action="store_true", help="compare only")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("kernels: these are measured on a CUDA device, and torch finds none here", file=sys.stderr)
        return 2
    results: list[Result] = []
    for case in cases(options.models.split(","), options.only):
        result = examine(case, timed=not options.no_times)
        results.append(result)
        print(line(result), flush=True)
        torch.cuda.empty_cache()
    keep(f"kernels-{datetime.now(UTC):%Y%m%d-%H%M%S}", [asdict(result) for result in results])
    failed = [result for result in results if not result.holds]
    print(f"\n{len(results)} cases, {len(failed)} failed" + "".join(f"\n  {r.workload} {r.shape}" for r in failed))
    return 1 if failed or not results else 0


def cases(models: list[str], only: str) -> Iterator[Case]:
    """Cases of the named models and names, made one at a time."""
    chosen = [kernel_cases.BY_NAME[name] for name in only.split(",")] if only else kernel_cases.ALL
    for model in models:
        for make in chosen:
            yield from make(MODELS[model], torch.device("cuda"))


@torch.inference_mode()
def examine(case: Case, *, timed: bool) -> Result:
    """One case, compared and (where that held) timed."""
    inputs = case.make(0)
    _poison(case.out_bytes)
    found = case.run(inputs)
    torch.cuda.synchronize()
    error = _error(found, case.expected(inputs)) if bool(torch.isfinite(found.float()).all()) else float("inf")
    same_bits = None if case.same_bits is None else case.same_bits(inputs)
    taken = float("nan")
    if timed and error <= case.error_limit:
        taken = seconds(case.make, case.run, case.input_bytes)
    floor = max(case.moved_bytes / BYTES_PER_S, case.operations / OPERATIONS_PER_S)
    return Result(case.workload, case.shape, taken * 1e6, floor * 1e6, error, case.error_limit, same_bits)


def _error(found: torch.Tensor, expected: torch.Tensor) -> float:
    wanted = expected.double().cpu()
    return float((found.double().cpu() - wanted).norm() / wanted.norm().clamp(min=1e-30))


def _poison(out_bytes: int) -> None:
    """Leave NaN in the memory that the allocator hands out next."""
    torch.full((max(1, out_bytes // 4),), torch.nan, device="cuda")


def seconds(
    make: Callable[[int], Inputs], run: Callable[[Inputs], object], input_bytes: float, rounds: int = 7
) -> float:
    """Median over rounds of the mean time of one captured call, on inputs that take turns."""
    count = max(2, min(MAX_SETS, int(4 * L2_BYTES / max(input_bytes, 1)) + 1))
    sets = [make(seed) for seed in range(count)]
    for inputs in sets[:2]:
        run(inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for inputs in sets:
            run(inputs)
    samples: list[float] = []
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        graph.replay()
        start.record()
        for _ in range(5):
            graph.replay()
        end.record()
        end.synchronize()
        samples.append(start.elapsed_time(end) / 1e3 / 5 / count)
    return statistics.median(samples)


def line(result: Result) -> str:
    """A line of the table."""
    bits = {None: "", True: "bits same", False: "BITS DIFFER"}[result.same_bits]
    wrong = "" if result.error <= result.error_limit else " WRONG"
    return (
        f"{result.workload:18} {result.shape:34} {result.value:9.1f} us  floor {result.floor:8.1f}  "
        f"x{result.value / max(result.floor, 1e-9):5.2f}  error {result.error:.1e}{wrong}  {bits}"
    )


if __name__ == "__main__":
    sys.exit(main())

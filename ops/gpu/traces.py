"""Which kernels take the time, and where the device waits: workloads under torch's profiler, as small JSON.

Each workload runs once unwatched, so that everything is compiled, and once watched. From the trace come the kernels by
time, the device's busy share between the first kernel and the last, and its gaps by length. Where there is no CUDA the
same is told of torch's operators, to see that it runs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile

from ops.bench import figures, workloads
from ops.bench.stand import SIZES, Stand, make_runner
from photocall_engine.edges import EngineRequest

TOP = 25
NAME_LENGTH = 80
GAPS_US = (5, 20, 100, 1000)  # a gap is counted under the largest of these that it reaches


def main(arguments: Sequence[str] | None = None) -> int:
    """Print and write one summary a workload."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SIZES, default="e4b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--no-graphs", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    sizes = replace(SIZES[options.shape], out=min(16, SIZES[options.shape].out))
    runner = make_runner(options.shape, options.device, "invariant", sizes)
    graphs = not options.no_graphs and runner.enable_graphs()
    stand = Stand(options.shape, options.device, "invariant", sizes, runner)
    found: dict[str, Any] = figures.provenance() | {"shape": options.shape, "graphs": graphs, "traces": {}}
    for name, make in cases(stand):
        found["traces"][name] = traced(stand, make)
        print(text(name, found["traces"][name]), flush=True)
        if options.out:
            options.out.write_text(json.dumps(found, indent=1) + "\n")
    return 0


def cases(stand: Stand) -> list[tuple[str, Callable[[], list[EngineRequest]]]]:
    """What is traced: less of each workload than is measured, since a trace of seconds is millions of lines."""
    sizes, prompts = stand.sizes, stand.prompts

    def decode(batch: int) -> list[EngineRequest]:
        state = prompts.state(sizes.prompt - sizes.own, pictured=False)
        return [prompts.request(state, (prompts.words(sizes.own, sizes.out),)) for _ in range(batch)]

    def many(count: int, questions: int, *, pictured: bool) -> list[EngineRequest]:
        return [workloads.fresh(stand, pictured=pictured, questions=questions) for _ in range(count)]

    offline = min(32, sizes.offline)
    return [
        ("W1L picture", lambda: many(1, 1, pictured=True)),
        ("W1 picture", lambda: many(offline, 1, pictured=True)),
        ("W1 text", lambda: many(offline, 1, pictured=False)),
        ("W2 fresh", lambda: many(min(8, sizes.pictures), sizes.questions, pictured=True)),
        *((f"W3 batch {batch}", lambda b=batch: decode(b)) for batch in (sizes.batches[0], sizes.batches[-1])),
    ]


def traced(stand: Stand, make: Callable[[], list[EngineRequest]]) -> dict[str, Any]:
    """One run under the profiler, summed up."""
    stand.serve(make())
    requests = make()
    on_cuda = stand.device.type == "cuda"
    activities = [ProfilerActivity.CUDA] if on_cuda else [ProfilerActivity.CPU]
    with profile(activities=activities) as profiler:
        seconds = max(stand.serve(requests))
        stand.runner.sync()
    wanted = "CUDA" if on_cuda else "CPU"
    events = [event for event in profiler.events() or () if event.device_type.name == wanted]
    return {"wall_ms": round(1e3 * seconds, 3), "steps": len(stand.steps)} | summed(events)


def summed(events: Iterable[FunctionEvent]) -> dict[str, Any]:
    """Kernels by time, busy share and gaps. Kernels that overlap count once as busy."""
    by_name: defaultdict[str, list[float]] = defaultdict(list)
    spans = []
    for event in events:
        by_name[event.name].append(event.time_range.end - event.time_range.start)
        spans.append((event.time_range.start, event.time_range.end))
    busy, gaps, reached = 0.0, [], None
    for start, end in sorted(spans):
        if reached is not None and start > reached:
            gaps.append(start - reached)
        busy += max(0.0, end - max(start, reached if reached is not None else start))
        reached = end if reached is None else max(reached, end)
    span = busy + sum(gaps)
    kernels = sorted(by_name.items(), key=lambda item: -sum(item[1]))
    return {
        "kernels": sum(map(len, by_name.values())),
        "busy_ms": round(busy / 1e3, 3),
        "busy_share": round(busy / span, 4) if span else 0.0,
        "gaps": {
            f">={low}us": {"count": len(part), "ms": round(sum(part) / 1e3, 3)}
            for low, high in zip(GAPS_US, (*GAPS_US[1:], float("inf")), strict=True)
            if (part := [gap for gap in gaps if low <= gap < high])
        },
        "top": [
            {"name": name[:NAME_LENGTH], "count": len(times), "ms": round(sum(times) / 1e3, 3),
             "mean_us": round(sum(times) / len(times), 2)}
            for name, times in kernels[:TOP]
        ],
    }  # fmt: skip


def text(name: str, found: dict[str, Any]) -> str:
    """For people: the first lines of it."""
    head = f"{name}: {found['wall_ms']:.2f} ms, {found['steps']} steps, busy {found['busy_share']:.0%}, {found['gaps']}"
    lines = [
        f"  {top['ms']:9.3f} ms {top['count']:6} x {top['mean_us']:8.1f} us  {top['name']}" for top in found["top"][:8]
    ]
    return "\n".join([head, *lines])


if __name__ == "__main__":
    sys.exit(main())

"""What it costs to count: microseconds of processor time for a step of the engine, an answer, a call of the gateway.

`python -m ops.bench.observations`. Nothing waits here, so wall time would say the same on a machine that is idle.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from photocall.tracing import Spans
from photocall_engine.tally import Tally
from photocall_gateway.metrics import Metrics

TIMES = 50_000
BODY = {
    "answers": {f"q{n}": {"type": "choice", "choice": "a"} for n in range(4)},
    "usage": {"prompt_rows": 190, "decode_rows": 0, "cached_rows": 0, "image_tokens": 140},
}
TIMINGS = {"queue": 0.1, "prepare": 0.02, "prefill": 0.2, "readout": 0.0}


def main() -> None:
    """Print a line for each."""
    for name, microseconds in measured():
        print(f"| {name} | {microseconds:.2f} |")


def measured(times: int = TIMES) -> list[tuple[str, float]]:
    """What is counted, and microseconds of processor time for each."""
    tally, gateway = Tally(), Metrics()
    step = cast(Any, SimpleNamespace(batch=SimpleNamespace(num_rows=190), encode=[1]))
    requests = gateway.requests.labels("/v1/jobs", "POST", "202")
    seconds = gateway.seconds.labels("/v1/jobs")
    spans: Spans | None = None

    def of_step() -> None:
        tally.began(step)
        tally.ended(0.012)

    def of_call() -> None:
        requests.inc()
        seconds.observe(0.012)

    def of_traces() -> None:
        if spans is not None:
            raise AssertionError

    cases: list[tuple[str, Callable[[], object]]] = [
        ("a step of the engine", of_step),
        ("an answer with four questions, on the thread that publishes", lambda: tally.answered(BODY, TIMINGS, 1)),
        ("a call of the gateway", of_call),
        ("traces that are off", of_traces),
    ]
    empty = _each(lambda: None, times)
    return [(name, max(0.0, _each(call, times) - empty)) for name, call in cases]


def _each(call: Callable[[], object], times: int) -> float:
    began = time.process_time()
    for _ in range(times):
        call()
    return 1e6 * (time.process_time() - began) / times


if __name__ == "__main__":
    main()

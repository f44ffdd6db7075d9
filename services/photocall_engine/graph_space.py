"""GraphSpace: where graphs are captured: one stream and one memory pool for all of a process, since only one graph runs
at a time and none leaves anything in the pool that another needs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch

Work = TypeVar("Work")  # what a graph is captured over: tensors that never move


@dataclass(frozen=True, slots=True)
class Capture:
    """What capturing took."""

    graphs: int
    seconds: float
    bytes: int

    def __str__(self) -> str:
        return f"{self.graphs} captured in {self.seconds:.1f} s, {self.bytes >> 20} MB"


class GraphSpace:
    """On CUDA. Whoever needs the largest pieces of memory captures first, so that the others find room in them."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._start()

    def capture(self, run: Callable[[Work], None], work: Work) -> torch.cuda.CUDAGraph:
        """Run once, so that everything is compiled and allocated that cannot be while capturing, then capture."""
        stream = self._stream
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            run(work)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # other threads may use the device while this one captures: only this thread's calls are watched
        with torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"):
            run(work)
        self._graphs += 1
        return graph

    def taken(self) -> Capture:
        """What was captured since the last time anybody asked. Waits for the device."""
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()  # what the first runs took beside the graphs' pool
        free = torch.cuda.mem_get_info(self._device)[0]
        found = Capture(self._graphs, time.monotonic() - self._began, self._free - free)
        self._start()
        return found

    def _start(self) -> None:
        self._graphs = 0
        self._free, self._began = torch.cuda.mem_get_info(self._device)[0], time.monotonic()


def play(graph: torch.cuda.CUDAGraph | None, run: Callable[[Work], None], work: Work) -> None:
    """Replay what was captured over `work`, or run it."""
    if graph is None:
        run(work)
    else:
        graph.replay()

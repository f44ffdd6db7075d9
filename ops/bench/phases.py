"""Where a step's time goes: on the host by part of the engine, on the device by call of the runner.

Looks at an engine from outside while it runs: the calls that make up a step are replaced by ones that keep time, and
put back afterwards. On CUDA each call of the runner stands between two events, so its device time begins when the
device is free for it and ends with its last kernel: gaps in which the device waits for launches count. `collect` waits
for a step, so its host time holds what was left of it; the next step's calls may have been made before.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from photocall_engine.engine import Engine
from photocall_engine.runner import ModelRunner

STEPS_OF = "forward"  # the runner's call that every step makes once


class Phases:
    """Seconds by call, and how many steps there were. Filled while `watching`."""

    def __init__(self, device: torch.device) -> None:
        self.calls: Counter[str] = Counter()
        self.rows = 0
        self.wall = 0.0
        self._host: defaultdict[str, float] = defaultdict(float)
        self._events: defaultdict[str, list[tuple[Any, Any]]] = defaultdict(list)
        self._on_cuda = device.type == "cuda"
        self._inside = False

    def around(self, name: str, call: Callable[..., Any], *, on_device: bool) -> Callable[..., Any]:
        """The call, keeping time; calls inside calls count for the outer one."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._inside:
                return call(*args, **kwargs)
            self._inside = True
            events = (_event(), _event()) if on_device and self._on_cuda else None
            started = time.perf_counter()
            if events is not None:
                events[0].record()
            try:
                return call(*args, **kwargs)
            finally:
                if events is not None:
                    events[1].record()
                    self._events[name].append(events)
                self._host[name] += time.perf_counter() - started
                self.calls[name] += 1
                self._inside = False
                if name == STEPS_OF:
                    self.rows += args[0].num_rows

        return timed

    def report(self) -> dict[str, Any]:
        """Milliseconds of an average step: wall clock, by call on the host and on the device, and the rest."""
        steps = max(1, self.calls[STEPS_OF])
        host = {name: 1e3 * seconds / steps for name, seconds in sorted(self._host.items())}
        wall = 1e3 * self.wall / steps
        found: dict[str, Any] = {
            "steps": steps,
            "rows": round(self.rows / steps, 1),
            "wall_ms": round(wall, 3),
            "host_ms": {name: round(ms, 3) for name, ms in host.items()},
            "rest_ms": round(wall - sum(host.values()), 3),
        }
        if self._on_cuda:
            torch.cuda.synchronize()
            spans = {name: sum(a.elapsed_time(b) for a, b in pairs) / steps for name, pairs in self._events.items()}
            found["device_ms"] = {name: round(ms, 3) for name, ms in sorted(spans.items())}
            found["device_share"] = round(sum(spans.values()) / wall, 3) if wall else None
        return found


@contextmanager
def watching(engine: Engine, runner: ModelRunner, device: torch.device) -> Iterator[Phases]:
    """Keep time while the block runs. Between steps only."""
    phases = Phases(device)
    parts: list[tuple[Any, str, bool]] = [(engine.composer, "compose", False), (engine, "tell", False)]
    parts += [(engine.scheduler, name, False) for name in ("plan", "advance", "account")]
    names = [name for name in dir(type(runner)) if not name.startswith("_") and callable(getattr(runner, name))]
    parts += [(runner, name, True) for name in names if name != "load"]
    for owner, name, on_device in parts:
        setattr(owner, name, phases.around(name, getattr(owner, name), on_device=on_device))
    started = time.perf_counter()
    try:
        yield phases
    finally:
        phases.wall = time.perf_counter() - started
        for owner, name, _ in parts:
            delattr(owner, name)


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

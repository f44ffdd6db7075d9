"""The supervisor: starts processes, restarts the ones that die, prefixes their lines, and ends them in order.

It ends what it started, the process groups of its children, and nothing else. A child of a killed supervisor is killed
by the kernel. What the processes are is the caller's business.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Protocol

from photocall.logs import fields

log = logging.getLogger(__name__)

LAUNCHER = Path(__file__).with_name("launch.py")
POLL_S = 0.05
FIRST_BACKOFF_S = 0.2
MAX_BACKOFF_S = 5.0
STEADY_S = 30.0  # a child that lived so long starts again without delay
EXIT_UNUSABLE = 2  # a child's word for settings that cannot be used: starting it again helps nobody


class Lines(Protocol):
    """Where lines go."""

    def write(self, line: str, /) -> int:
        """One whole line."""

    def flush(self) -> None: ...


@dataclass(frozen=True)
class ProcessSpec:
    """One process to keep. `stage` orders the start, reversed the end; `ready` is waited for before the next stage."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    stage: int = 0
    stop_s: float = 15.0  # from SIGTERM to SIGKILL
    ready: Callable[[], bool] | None = None
    ready_s: float = 30.0
    fatal: tuple[int, ...] = (EXIT_UNUSABLE,)  # exit statuses that end the whole


@dataclass
class _Child:
    """A process of a spec, now or soon."""

    spec: ProcessSpec
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    restarts: int = 0  # in a row, for the backoff
    start_at: float = field(default=0.0)  # when it may be started again


class SupervisorError(Exception):
    """The processes could not be started, or one of them cannot be used as it is set."""


class Supervisor:
    """Keeps processes. All methods are called from one thread, which must live as long as the processes do."""

    def __init__(
        self,
        specs: Sequence[ProcessSpec],
        out: Lines | None = None,
        on_end: Callable[[str, int], None] = lambda name, status: None,
    ) -> None:
        """`out` gets the processes' lines, `on_end` the name and exit status of each that ended, whatever ended it."""
        self._children = [_Child(spec) for spec in sorted(specs, key=lambda spec: spec.stage)]
        self._width = max((len(spec.name) for spec in specs), default=0)
        self._out = out or sys.stderr
        self._out_lock = threading.Lock()
        self._on_end = on_end
        self._stop_asked = 0

    def start(self) -> None:
        """Start every stage, each ready before the next. Raises SupervisorError, with everything ended again."""
        try:
            for stage in sorted({child.spec.stage for child in self._children}):
                for child in self._of_stage(stage):
                    self._spawn(child)
                for child in self._of_stage(stage):
                    self._wait_ready(child)
        except SupervisorError:
            self.stop()
            raise

    def run(self) -> int:
        """Keep the processes until SIGTERM or SIGINT, then end them; a second signal ends them at once.

        Gives the exit status: 0, or that of the child whose exit ended the whole.
        """
        with _Signals(self._on_signal):
            status = 0
            while not self._stop_asked and not status:
                status = self.poll()
                time.sleep(POLL_S)
            self.stop()
        return status

    def poll(self) -> int:
        """One look at every child: note the dead, start again what may. Gives the exit status of a fatal end, or 0."""
        now = time.monotonic()
        for child in self._children:
            if child.process is None:
                if now >= child.start_at:
                    self._spawn(child)
                continue
            if not _ended(child.process):
                continue
            status = _bury(child)
            self._on_end(child.spec.name, status)
            if status in child.spec.fatal:
                log.error("a process cannot be used as it is set", extra=fields(process=child.spec.name, status=status))
                return status
            child.restarts = 0 if now - child.started_at >= STEADY_S else child.restarts + 1
            delay = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2 ** (child.restarts - 1)) if child.restarts else 0.0
            child.start_at = now + delay
            log.warning("a process ended", extra=fields(process=child.spec.name, status=status, again_in_s=delay))
        return 0

    def stop(self) -> None:
        """End every process, the last stage first: SIGTERM, and SIGKILL for what outstays its time."""
        for stage in sorted({child.spec.stage for child in self._children}, reverse=True):
            children = [child for child in self._of_stage(stage) if child.process is not None]
            for child in children:
                self._signal(child, signal.SIGTERM)
            for child in children:
                self._wait_ended(child)

    def pid(self, name: str) -> int | None:
        """The process id of a child while it runs."""
        for child in self._children:
            if child.spec.name == name and child.process is not None and not _ended(child.process):
                return child.process.pid
        return None

    def _of_stage(self, stage: int) -> list[_Child]:
        return [child for child in self._children if child.spec.stage == stage]

    def _spawn(self, child: _Child) -> None:
        child.process = subprocess.Popen(
            [*ends_with(os.getpid()), *child.spec.command],
            env=dict(child.spec.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,  # a Ctrl-C at the terminal reaches the supervisor alone
        )
        child.started_at = time.monotonic()
        threading.Thread(target=self._copy, args=(child.spec.name, child.process.stdout), daemon=True).start()

    def _copy(self, name: str, lines: IO[bytes]) -> None:
        with lines:
            for line in lines:
                text = line.decode(errors="replace").rstrip("\n")
                with self._out_lock, suppress(ValueError, BrokenPipeError):  # nobody reads any more
                    self._out.write(f"{name:<{self._width}} | {text}\n")
                    self._out.flush()

    def _wait_ready(self, child: _Child) -> None:
        if child.spec.ready is None:
            return
        until = time.monotonic() + child.spec.ready_s
        while not child.spec.ready():
            if child.process is None or _ended(child.process):
                raise SupervisorError(f"{child.spec.name} ended before it was ready")
            if time.monotonic() > until:
                raise SupervisorError(f"{child.spec.name} was not ready within {child.spec.ready_s:.0f} s")
            time.sleep(POLL_S)

    def _signal(self, child: _Child, number: int) -> None:
        if child.process is not None and not _ended(child.process):
            os.kill(child.process.pid, number)

    def _wait_ended(self, child: _Child) -> None:
        assert child.process is not None
        until = time.monotonic() + child.spec.stop_s
        killed = False
        while not _ended(child.process):
            if not killed and (self._stop_asked > 1 or time.monotonic() > until):
                log.warning("killing a process that did not end", extra=fields(process=child.spec.name))
                self._signal(child, signal.SIGKILL)
                killed = True
            time.sleep(POLL_S)
        self._on_end(child.spec.name, _bury(child))

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stop_asked += 1


def ends_with(parent: int) -> list[str]:
    """What to put before a command so that the kernel ends it when its parent (a thread of it that starts it) dies."""
    return [sys.executable, "-I", "-S", str(LAUNCHER), str(parent)]


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """It has ended. It is not reaped yet, so that its id and its group's stay its own."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _bury(child: _Child) -> int:
    """End what is left of an ended child's process group, then reap the child; its exit status."""
    assert child.process is not None
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.process.pid, signal.SIGKILL)
    status = child.process.wait()
    child.process = None
    return status


class _Signals:
    """SIGTERM and SIGINT go to a handler while it is entered."""

    def __init__(self, handler: Callable[[int, FrameType | None], None]) -> None:
        self._handler = handler
        self._before: dict[int, object] = {}

    def __enter__(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._handler)

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

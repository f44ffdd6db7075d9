"""How much slower than alone this machine is: bounds of time are stretched by it where a test cannot do without one."""

from __future__ import annotations

import threading
import time
from types import TracebackType

SPIN_S, EVERY_S = 0.01, 0.25


class Slowness:
    """While entered, looks four times a second how long a little work takes, beside the processor time it needs."""

    def __init__(self) -> None:
        self.worst = 1.0  # wall time by processor time, since `begin`
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def begin(self) -> None:
        """Forget what was."""
        self.worst = 1.0

    def __enter__(self) -> Slowness:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._done.wait(EVERY_S):
            wall, own = time.monotonic(), time.thread_time()
            while time.thread_time() - own < SPIN_S:
                pass
            self.worst = max(self.worst, (time.monotonic() - wall) / SPIN_S)

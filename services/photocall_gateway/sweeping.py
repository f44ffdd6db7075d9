"""The sweeper's thread in this gateway: blocking Redis calls stay off the event loop."""

from __future__ import annotations

import logging
import threading

from photocall.sweeper import Sweeper, run_sweeper

log = logging.getLogger(__name__)

EVERY_S = 1.0


class SweeperThread:
    """Sweeps each second from `start` to `stop`; a defect in one sweep is logged and the next one happens."""

    def __init__(self, sweeper: Sweeper, every_s: float = EVERY_S) -> None:
        self._sweeper = sweeper
        self._every_s = every_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sweeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Ask it to end and wait a while; a call that hangs in Redis does not hold the process."""
        self._stopped.set()
        self._thread.join(timeout_s)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                run_sweeper(self._sweeper, self._stopped, self._every_s)
            except Exception:
                log.exception("the sweeper failed and goes on")

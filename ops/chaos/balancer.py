"""Balancer: which gateway a request goes to, as a load balancer would choose that looks at /readyz."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence

import httpx

LOOK_S, TIMEOUT_S = 0.2, 5.0


class Balancer:
    """Looks at each address from `start` to `stop`; `pick` takes the ready ones in turn, or any when none is."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = tuple(addresses)
        self._ready = dict.fromkeys(addresses, True)
        self._turn = itertools.count()
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._look, args=(each,), daemon=True) for each in addresses]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    @property
    def all_ready(self) -> bool:
        """Every address takes requests, as far as is known here."""
        return all(self._ready.values())

    def pick(self) -> str:
        """An address."""
        among = [address for address in self.addresses if self._ready[address]] or self.addresses
        return among[next(self._turn) % len(among)]

    def _look(self, address: str) -> None:
        with httpx.Client(trust_env=False, timeout=TIMEOUT_S) as http:
            while not self._stopped.wait(LOOK_S):
                try:
                    self._ready[address] = http.get(f"{address}/readyz").status_code == 200
                except httpx.TimeoutException:
                    continue  # slow is not gone
                except httpx.TransportError:
                    self._ready[address] = False

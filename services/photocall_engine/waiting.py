"""The requests that wait, and whose turn it is: by class, fair between owners, by deadline.

It knows who waits and how many rows each owner has been served, and nothing of pages or steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from photocall_engine.sequence import Request


class WaitingLine:
    """A line in which places are worked out when somebody may enter."""

    def __init__(self) -> None:
        self._requests: list[Request] = []
        self._served: Counter[str] = Counter()  # rows, by owner

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)

    def __len__(self) -> int:
        return len(self._requests)

    def join(self, request: Request, running: Iterable[Request]) -> None:
        """A new request. An owner who was away is not paid for that time."""
        owner = request.origin.owner
        here = {other.origin.owner for other in (*self._requests, *running)}
        if owner not in here:
            self._served[owner] = max(self._served[owner], min((self._served[o] for o in here), default=0))
        self._requests.append(request)

    def rejoin(self, request: Request) -> None:
        """A request that lost its pages."""
        self._requests.append(request)

    def leave(self, request: Request) -> None:
        """It runs, or is gone. Nothing happens if it does not wait."""
        if request in self._requests:
            self._requests.remove(request)

    def serve(self, rows: Mapping[str, int]) -> None:
        """Rows that each owner's requests have in a step."""
        self._served.update(rows)

    def next(self, computing: Collection[bytes]) -> Request | None:
        """Whose turn it is; None if nobody can enter.

        Interactive before batch; who was admitted before and lost its pages; the owner served least; the earliest
        deadline. Who has the same prefix as one of `computing` waits for it, to find it in the cache.
        """
        ready = (request for request in self._requests if request.prefix_key not in computing)
        return min(ready, key=self._turn, default=None)

    def _turn(self, request: Request) -> tuple[bool, int | float, int, float]:
        origin = request.origin
        seniority = request.order if request.order >= 0 else float("inf")
        return origin.priority != "interactive", seniority, self._served[origin.owner], origin.deadline_at

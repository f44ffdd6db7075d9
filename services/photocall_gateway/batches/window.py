"""Window: how many rows of a batch are worth having in flight."""

from __future__ import annotations

from collections import deque

LEAST = 16
AHEAD_S = 2.0  # rows that wait longer than this in the queue only take room and attention from others
_MEASURED_S = 5.0


class Window:
    """Grows while rows come back within AHEAD_S, up to `most`, and shrinks with the pace. Times in seconds."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._ended: deque[tuple[float, int]] = deque()
        self._began: float | None = None

    def ended(self, rows: int, now: float) -> None:
        """So many rows came back."""
        if self._began is None:
            self._began = now
        self._ended.append((now, rows))
        while self._ended and self._ended[0][0] < now - _MEASURED_S:
            self._ended.popleft()

    def rate(self, now: float) -> float:
        """Rows per second of late."""
        if self._began is None:
            return 0.0
        rows = sum(count for at, count in self._ended if at >= now - _MEASURED_S)
        return rows / max(0.5, min(_MEASURED_S, now - self._began))

    def size(self, now: float) -> int:
        """Rows in flight at most."""
        return max(1, min(self._most, max(LEAST, LEAST // 2 + int(self.rate(now) * AHEAD_S))))

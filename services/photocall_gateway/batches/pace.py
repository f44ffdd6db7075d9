"""Pace: what rows of batches cost of late, kept in Redis for the estimates of all gateways."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, cast

import redis.asyncio

from photocall import keys
from photocall.settings import DAY_S

_KEPT_S = 30 * DAY_S
_OLD_SHARE = 0.8  # of a former figure, in the new one
GUESS_TOKENS_PER_CHAR, GUESS_TOKENS_PER_PICTURE = 0.3, 140.0


@dataclass(frozen=True, slots=True)
class Measured:
    """`rows_per_s` while a batch had rows in flight all the time. Tokens are those of the prompt."""

    rows_per_s: float
    tokens_per_char: float
    tokens_per_picture: float
    output_tokens_per_row: float


class Pace:
    """Reads and keeps the figures. Gateways that write at once lose one figure, not the figures."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._redis = client

    async def read(self) -> Measured | None:
        """None when no batch has run."""
        raw = await cast(Any, self._redis.get(keys.BATCH_PACE))
        return None if raw is None else Measured(**json.loads(raw))

    async def add(
        self, rows: int, seconds: float, chars: int, pictures: int, tokens: int, picture_tokens: int, written: int
    ) -> None:
        """What a stretch of a batch took. `tokens` include those of pictures."""
        before = await self.read()
        now = {
            "rows_per_s": rows / seconds,
            "tokens_per_char": (tokens - picture_tokens) / chars if chars else None,
            "tokens_per_picture": picture_tokens / pictures if pictures else None,
            "output_tokens_per_row": written / rows,
        }
        known = asdict(before) if before is not None else {}
        guess = {"tokens_per_char": GUESS_TOKENS_PER_CHAR, "tokens_per_picture": GUESS_TOKENS_PER_PICTURE}
        mixed = {}
        for name, value in now.items():
            old = known.get(name)
            if value is None:
                mixed[name] = old if old is not None else guess[name]
            else:
                mixed[name] = value if old is None else _OLD_SHARE * old + (1 - _OLD_SHARE) * value
        await self._redis.set(keys.BATCH_PACE, json.dumps(mixed), ex=_KEPT_S)

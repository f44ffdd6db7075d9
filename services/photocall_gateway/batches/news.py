"""BatchNews: what followers and webhooks hear of batches. Redis keeps it, for a while; the ledger is what is true."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any, cast

import redis.asyncio
from redis.exceptions import RedisError

from photocall import keys
from photocall.messages import BatchProgress
from photocall.scripts import Argument, Call, run_async
from photocall.webhooks import KEPT_S, Delivery
from photocall.wire import Wire
from photocall_gateway.batches.batch import Batch
from photocall_gateway.delivery import event_body


class BatchNews:
    """Raises redis' errors where not said otherwise.

    `event_limit` is the cap of a batch's stream, `kept_s` its time behind the batch's end.
    """

    def __init__(self, client: redis.asyncio.Redis, wire: Wire, event_limit: int, kept_s: int) -> None:
        self._redis = client
        self._wire = wire
        self._event_limit = event_limit
        self._kept_s = kept_s

    async def tell(self, batch: Batch, fence: int) -> bool:
        """An event: the batch as it stands; nothing behind its end. False: another gateway has it, or it is deleted."""
        return await self._tell(batch, fence, (), ())

    async def tell_end(self, batch: Batch, fence: int) -> bool:
        """The last event, and what is owed to the webhook, in one. Both once, however often a gateway dies around it.

        False: another gateway has it, or it was deleted; then nothing was written.
        """
        now, head = time.time(), batch.head
        event = f"batch.{batch.status.value}"
        if head.webhook is None or (head.hook.events and event not in head.hook.events):
            return await self.tell(batch, fence)
        at = float(max(batch.times.values(), default=int(now)))
        body = event_body(event, at, batch.shown())
        owing = (repr(now), KEPT_S, head.owner, head.hook.url, event, body)
        return await self._tell(batch, fence, (keys.webhook(head.id), keys.WEBHOOKS), owing)

    async def _tell(self, batch: Batch, fence: int, owed: tuple[str, ...], owing: tuple[Argument, ...]) -> bool:
        batch_id, status = batch.head.id, batch.shown_status
        counts = batch.total, batch.completed, batch.failed
        event = self._wire.encode(BatchProgress(batch_id, status.value, *counts, batch.paused or ""))
        ended = int(batch.status.terminal)
        left_s = 0 if ended else max(0, batch.head.expires_at - int(time.time()))
        kept_s = left_s + self._kept_s
        args = (fence, event, self._event_limit, kept_s, batch.paused or "", ended, keys.WAKE, batch_id, *owing)
        own_keys = (keys.batch(batch_id), keys.batch_events(batch_id), *owed)
        return await run_async(self._redis, Call("batch_event", own_keys, args, bool, job=False))

    async def wake(self, batch_id: str) -> None:
        """Whoever follows the batch looks again."""
        await self._redis.publish(keys.WAKE, batch_id)

    async def shown(self, batch: Batch) -> dict[str, Any]:
        """The batch object, with what only Redis knows: how its webhook fares, and a pause that a full disk hides."""
        body = batch.shown()
        with suppress(RedisError, OSError):  # what the ledger has is worth showing alone
            if batch.head.webhook is not None and batch.status.terminal:
                raw = await cast(Any, self._redis.hgetall(keys.webhook(batch.head.id)))
                body["webhook"] |= _fared(raw, batch.head.id)
            if not batch.status.terminal and batch.paused is None:
                paused = await cast(Any, self._redis.hget(keys.batch(batch.head.id), "paused"))
                body["paused"] = paused.decode() if paused else None
        return body

    async def forget(self, batch_id: str) -> None:
        """Of a batch that is deleted nothing stays: no event, and nothing that is owed."""
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.delete(keys.batch(batch_id), keys.batch_events(batch_id), keys.webhook(batch_id))
            pipe.zrem(keys.WEBHOOKS, batch_id)
            pipe.publish(keys.WAKE, batch_id)
            await pipe.execute()


def _fared(raw: Mapping[bytes, bytes], batch_id: str) -> dict[str, Any]:
    if not raw:
        return {}
    found = Delivery.from_hash(batch_id, raw)
    return {"state": found.state, "attempts": [asdict(attempt) for attempt in found.log]}

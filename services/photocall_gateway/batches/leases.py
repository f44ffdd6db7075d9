"""BatchLeases: which gateway runs a batch."""

from __future__ import annotations

import redis.asyncio

from photocall import keys
from photocall.scripts import Call, run_async

LEASE_S = 4.0
RENEW_S = 1.0


class BatchLeases:
    """Each lease has a fence higher than all before it; the ledger refuses writes under an older one."""

    def __init__(self, client: redis.asyncio.Redis, lease_s: float = LEASE_S) -> None:
        self._redis = client
        self._lease_s = lease_s

    async def take(self, batch_id: str, fence_before: int) -> int | None:
        """The fence, above `fence_before`; None while somebody holds the batch."""
        return await self._run(batch_id, "", self._lease_s, fence_before)

    async def renew(self, batch_id: str, fence: int) -> bool:
        """False: somebody else has it."""
        return await self._run(batch_id, fence, self._lease_s, 0) is not None

    async def give_up(self, batch_id: str, fence: int) -> None:
        """Anybody may have it now."""
        await self._run(batch_id, fence, 0, 0)

    async def forget(self, batch_id: str) -> None:
        """The batch has ended."""
        await self._redis.delete(keys.batch(batch_id))

    async def _run(self, batch_id: str, fence: int | str, lease_s: float, least: int) -> int | None:
        def parse(found: int | None) -> int | None:
            return None if found is None else int(found)

        call = Call("batch_lease", (keys.batch(batch_id),), (fence, lease_s, least), parse, job=False)
        return await run_async(self._redis, call)

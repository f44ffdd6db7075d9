"""What the model sees of a picture: asked of the prep room, which alone can read pictures, and waited for."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import redis.asyncio

from photocall import keys
from photocall.errors import CodedError, PhotocallError, UnknownImage
from photocall.queueing import PrepQueues
from photocall.views import PLAIN, View
from photocall.wire import unpack
from photocall_gateway.waiting import WakeReader

WAIT_S = 10.0
REREAD_S = 2.0


class Shows:
    """Asks for pictures to be shown. Who may see one is not decided here."""

    def __init__(
        self, client: redis.asyncio.Redis, queues: PrepQueues, wakes: WakeReader, wait_s: float = WAIT_S
    ) -> None:
        self._redis = client
        self._queues = queues
        self._wakes = wakes
        self._wait_s = wait_s

    async def png(self, sha256: str, view: View = PLAIN) -> bytes:
        """The pixels the model sees. Raises UnknownImage, or CodedError `image_*`, `budget_*` and `unavailable`."""
        return await self._shown(sha256, str(view), "png")

    async def report(self, sha256: str, view: View = PLAIN) -> dict[str, Any]:
        """What was done to the picture. Raises as `png`."""
        return cast("dict[str, Any]", unpack(await self._shown(sha256, str(view), "report")))

    async def _shown(self, sha256: str, view: str, kind: str) -> bytes:
        fields = [keys.shown_field(kind, view), keys.shown_field("error", view)]
        name, until = keys.shown(sha256), time.monotonic() + self._wait_s
        with self._wakes.listen(name) as woken:
            asked = False
            while True:
                woken.clear()
                found, error = await cast(Any, self._redis.hmget(name, fields))
                if error is not None:
                    raise _refusal(unpack(error), sha256)
                if found is not None:
                    return cast(bytes, found)
                if not asked:
                    await asyncio.to_thread(self._queues.enqueue_aside, keys.SHOW_JOB, sha256, view)
                    asked = True
                left_s = until - time.monotonic()
                if left_s <= 0:
                    raise CodedError("unavailable", "No prep worker has shown the picture in time")
                try:
                    async with asyncio.timeout(min(REREAD_S, left_s)):
                        await woken.wait()
                except TimeoutError:
                    continue


def _refusal(error: dict[str, Any], sha256: str) -> PhotocallError:
    if error["code"] == "image_expired":
        return UnknownImage(sha256)
    return CodedError(error["code"], f"cannot decode the picture: {error['message']}", sha256=sha256)

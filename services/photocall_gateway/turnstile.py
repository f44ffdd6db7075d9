"""Turnstile: what a call of a limited key takes from its bucket, which all gateways share, and what its caller is told.

The header fields are those of draft-ietf-httpapi-ratelimit-headers-11 (23 May 2026): `RateLimit-Policy` says what a key
may do, `RateLimit` what is left of it. A key without limits is told nothing, and costs nothing here.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import redis.asyncio
from redis.exceptions import RedisError
from starlette.types import Scope

from photocall import keys
from photocall.api_keys import NO_LIMITS
from photocall.errors import CodedError
from photocall.key_limits import KeyLimits, Rate
from photocall.key_uses import KeyUses
from photocall.scripts import Call, run_async
from photocall.together import Together
from photocall_gateway.caller import QUOTA, Caller
from photocall_gateway.problems import RETRY_AFTER_S

log = logging.getLogger(__name__)

REQUESTS, JOBS = "requests", "jobs"  # the policies' names
Field = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Taken:
    """A try to take a token: whether there was one, how many are left, and when the next one comes."""

    done: bool
    left: int
    next_s: float


class Turnstile:
    """Counts calls. `limits_of` gives what an id may do; its use is noted in `uses`."""

    def __init__(self, client: redis.asyncio.Redis, limits_of: Callable[[str], KeyLimits], uses: KeyUses) -> None:
        self._redis = client
        self._reads = Together(client)
        self._limits_of = limits_of
        self._uses = uses

    async def enter(self, caller: Caller, scope: Scope) -> None:
        """Count a call, and leave its Quota in the scope. Raises CodedError `rate_limited`."""
        self._uses.note(caller.id)
        limits = self._limits_of(caller.id)
        if limits == NO_LIMITS:
            return
        taken = None if limits.rate is None else await self._take(caller.id, limits.rate)
        scope[QUOTA] = Quota(caller.id, limits, taken, self._reads)
        _check(limits.rate, taken)

    async def count(self, caller: Caller) -> None:
        """Count a message of a WebSocket. Raises CodedError `rate_limited`."""
        rate = self._limits_of(caller.id).rate
        if rate is not None:
            _check(rate, await self._take(caller.id, rate))

    async def _take(self, owner: str, rate: Rate) -> Taken | None:
        """None: the store does not say. It will refuse what matters by itself; who reads is not kept from it."""

        def parse(found: list[Any]) -> Taken:
            return Taken(bool(found[0]), int(found[1]), float(found[2]))

        call = Call("take_token", (keys.bucket(owner),), (repr(rate.every_s), rate.burst), parse, job=False)
        try:
            return await run_async(self._redis, call)
        except (RedisError, OSError) as error:
            log.warning("a call is not counted: %s", error)
            return None


class Quota:
    """What the key of one call may do, and what is left of it."""

    def __init__(self, owner: str, limits: KeyLimits, taken: Taken | None, reads: Together) -> None:
        self._owner = owner
        self._limits = limits
        self._taken = taken
        self._reads = reads

    @property
    def wait_s(self) -> float:
        """Until the next call is taken, as far as the rate is concerned."""
        return self._taken.next_s if self._taken is not None and not self._taken.left else 0.0

    async def fields(self, status: int) -> list[Field]:
        """Header fields of a response. One of status 429 names what there is nothing left of, and nothing else."""
        policies, left = [], []
        rate, taken, most = self._limits.rate, self._taken, self._limits.concurrency
        if rate is not None:
            burst = f";photocall-burst={rate.burst}" if rate.burst != rate.count else ""
            policies.append(f'"{REQUESTS}";q={rate.count};w={rate.window_s}{burst}')
            if taken is not None and not (status == 429 and taken.left):
                # As long as so many take to come anew: whoever goes by r / t keeps to the rate.
                t = taken.left * rate.every_s if taken.left else taken.next_s
                left.append(f'"{REQUESTS}";r={taken.left};t={max(1, math.ceil(t))}')
        if most is not None:
            policies.append(f'"{JOBS}";q={most};qu="concurrent-requests"')
            held = await self._held()
            if held is not None and not (status == 429 and held < most):
                left.append(f'"{JOBS}";r={max(0, most - held)}')
        found = [(b"ratelimit-policy", ", ".join(policies).encode())]
        return [*found, (b"ratelimit", ", ".join(left).encode())] if left else found

    async def _held(self) -> int | None:
        """Unfinished jobs of the key, now; None where the store does not say."""
        try:
            return int(await self._reads.ask("HGET", keys.DEPTH, f"jobs:{self._owner}") or 0)
        except (RedisError, OSError):
            return None


def _check(rate: Rate | None, taken: Taken | None) -> None:
    if rate is None or taken is None or taken.done:
        return
    message = f"This API key may make {rate.shown} calls, {rate.burst} at once"
    raise CodedError("rate_limited", message, **{"violated-policies": [REQUESTS], RETRY_AFTER_S: taken.next_s})

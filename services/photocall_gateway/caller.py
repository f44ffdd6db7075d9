"""Caller: who made a call, as the gatekeeper notes it in the scope."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from starlette.requests import HTTPConnection

from photocall.api_keys import USUAL_SCOPES
from photocall.errors import CodedError

CALLER = "photocall.caller"  # scope keys: this one is filled by the gatekeeper,
QUOTA = "photocall.quota"  # and this one by the turnstile, for a key with limits
LOCAL_OWNER = "local"


@dataclass(frozen=True, slots=True, eq=False)
class Caller:
    """What is asked belongs to `id`. `gone` is done once the key is revoked or its scopes changed; None: never."""

    id: str
    scopes: frozenset[str]
    gone: asyncio.Future[None] | None = None

    @property
    def revoked(self) -> bool:
        """What is still open for this caller ends."""
        return self.gone is not None and self.gone.done()

    @property
    def is_admin(self) -> bool:
        """It sees jobs and batches of every key, and may cancel them."""
        return "admin" in self.scopes

    def sees(self, owner: str) -> bool:
        """Whether a job or batch of this owner is there for the caller."""
        return owner == self.id or self.is_admin

    def need(self, *scopes: str) -> None:
        """Raises CodedError `missing_scope` for a caller with none of these."""
        if not self.scopes.intersection(scopes):
            raise CodedError("missing_scope", f"This API key lacks the scope `{scopes[0]}`", scope=scopes[0])


LOCAL = Caller(LOCAL_OWNER, frozenset(USUAL_SCOPES))


def caller_of(connection: HTTPConnection) -> Caller:
    """Who made a call, or opened a WebSocket."""
    found: Caller = connection.scope[CALLER]
    return found

"""What the routes work with, put together once per process in app.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import redis.asyncio
from starlette.requests import Request

from photocall.calibrations import AsyncCalibrations
from photocall.images import AsyncImageStore
from photocall.key_uses import KeyUses
from photocall.records import AsyncRecords
from photocall.sessions import AsyncSessions
from photocall.settings import GatewaySettings
from photocall.streams import AsyncEvents
from photocall_gateway.batches.desk import BatchDesk
from photocall_gateway.body import Limits
from photocall_gateway.caller import Caller, caller_of
from photocall_gateway.console_files import ConsoleFiles
from photocall_gateway.dispatch import Dispatcher
from photocall_gateway.draining import Drain
from photocall_gateway.job_views import JobViews
from photocall_gateway.key_ring import KeyRing
from photocall_gateway.load import Load
from photocall_gateway.metrics import Metrics
from photocall_gateway.models import ModelNames
from photocall_gateway.readiness import Readiness
from photocall_gateway.shows import Shows
from photocall_gateway.sync_calls import SyncCalls
from photocall_gateway.turnstile import Turnstile
from photocall_gateway.vitals import Vitals
from photocall_gateway.waiting import WakeReader


@dataclass(frozen=True, slots=True)
class Services:
    """The gateway's parts."""

    settings: GatewaySettings
    redis: redis.asyncio.Redis
    records: AsyncRecords
    images: AsyncImageStore
    events: AsyncEvents
    sessions: AsyncSessions
    calibrations: AsyncCalibrations
    dispatcher: Dispatcher
    sync_calls: SyncCalls
    views: JobViews
    wakes: WakeReader
    load: Load
    models: ModelNames
    metrics: Metrics
    drain: Drain
    readiness: Readiness
    vitals: Vitals
    limits: Limits
    shows: Shows
    description: dict[str, Any]  # of the API, as OpenAPI has it
    desk: BatchDesk
    keys: KeyRing
    key_uses: KeyUses
    turnstile: Turnstile
    console: ConsoleFiles | None  # None: switched off

    def leaving(self, caller: Caller) -> Callable[[], bool]:
        """Whether what is open for a caller ends: this process is leaving, or the caller's key is revoked."""
        return lambda: self.drain.started or caller.revoked


def services(request: Request) -> Services:
    """The parts that serve this request."""
    found: Services = request.app.state.services
    return found


def owner(request: Request) -> str:
    """Whom belongs what is asked."""
    return caller_of(request).id

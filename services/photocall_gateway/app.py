"""The gateway's composition root: every part is made here, once, and handed to those that need it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from photocall.addresses import AddressRules
from photocall.calibrations import AsyncCalibrations
from photocall.connections import connect, connect_async
from photocall.images import AsyncImageStore
from photocall.key_uses import KeyUses
from photocall.operations import Policy
from photocall.outbound import Caller
from photocall.queueing import PrepQueues, WebhookQueue
from photocall.records import AsyncRecords, Records
from photocall.sessions import AsyncSessions
from photocall.settings import GatewaySettings
from photocall.standings import Standings
from photocall.streams import AsyncEvents
from photocall.sweeper import Sweeper
from photocall.tracing import Spans
from photocall.webhooks import ATTEMPT_S
from photocall.wire import Wire
from photocall_gateway.admission import Admission
from photocall_gateway.auth import Gatekeeper
from photocall_gateway.batches.desk import BatchDesk
from photocall_gateway.batches.news import BatchNews
from photocall_gateway.body import Limits
from photocall_gateway.console_files import ConsoleFiles
from photocall_gateway.courier import Courier
from photocall_gateway.delivery import MAX_ANSWER_BYTES, Sender
from photocall_gateway.described import Described, DescribedSocket
from photocall_gateway.dispatch import Dispatcher
from photocall_gateway.draining import Drain, DrainGate
from photocall_gateway.job_views import JobViews
from photocall_gateway.key_ring import KeyRing
from photocall_gateway.load import Load
from photocall_gateway.metrics import Meter, Metrics
from photocall_gateway.models import ModelNames
from photocall_gateway.openapi import document
from photocall_gateway.problems import ErrorBoundary, http_exception
from photocall_gateway.readiness import Readiness
from photocall_gateway.routes import (
    batches,
    calibrations,
    channels,
    console,
    decisions,
    files,
    health,
    images,
    jobs,
    keys,
    models,
    sessions,
    status,
    systemone,
    webhooks,
)
from photocall_gateway.services import Services
from photocall_gateway.shows import Shows
from photocall_gateway.status_reads import StatusReads
from photocall_gateway.store_state import say_store
from photocall_gateway.sweeping import SweeperThread
from photocall_gateway.sync_calls import ABANDONED_AFTER_S, Queue, SyncCalls
from photocall_gateway.tasks import stop
from photocall_gateway.traced import Traced
from photocall_gateway.turnstile import Turnstile
from photocall_gateway.vitals import Vitals
from photocall_gateway.waiting import WakeReader

END_S = 1.5  # for what works beside the calls to end, all at once; what hangs longer is left: a lease ends by itself

ROUTES: list[Described | DescribedSocket] = [
    *jobs.ROUTES,
    *sessions.ROUTES,
    *channels.ROUTES,
    *systemone.ROUTES,
    *decisions.ROUTES,
    *files.ROUTES,
    *batches.ROUTES,
    *images.ROUTES,
    *webhooks.ROUTES,
    *keys.ROUTES,
    *calibrations.ROUTES,
    *models.ROUTES,
    *status.ROUTES,
    *health.ROUTES,
    *console.ROUTES,
]


def create_app(
    settings: GatewaySettings,
    policy: Policy | None = None,
    abandoned_after_s: float = ABANDONED_AFTER_S,
    spans: Spans | None = None,
) -> Starlette:
    """The ASGI app. Raises SettingsError for a key file that cannot be used; Redis need not be there yet.

    `policy` replaces the settings' times and bounds of the job records, for tests. `spans`: None traces nothing.
    """
    wire = Wire(settings.signing_key(), f"gateway-{secrets.token_hex(4)}")
    policy = policy or Policy.from_settings(settings)
    client = connect_async(settings.redis_url)
    blocking = connect(settings.redis_url)
    queues = PrepQueues(blocking, wire)

    records = AsyncRecords(client, wire, policy)
    wakes = WakeReader(records)
    load = Load(client, policy.job_ttl_s)
    views = JobViews(records, Standings(client), load)
    metrics = Metrics()
    names = ModelNames(settings.model_name, settings.model_aliases)
    store = AsyncImageStore(client, policy.image_ttl_s, policy.memory_share)
    ring, uses = KeyRing(settings.api_keys), KeyUses(client)
    turnstile = Turnstile(client, ring.limits_of, uses)
    fitted = AsyncCalibrations(
        client, settings.calibration_ttl_s, settings.max_calibrations_per_key, policy.memory_share
    )
    dispatcher = Dispatcher(records, store, queues, names, load, metrics, ring.limits_of, fitted)
    queue = Queue(Admission(client, policy.job_ttl_s), load, settings.sync_queue_s)
    drain = Drain()
    limits = Limits(
        max_decompressed_bytes=settings.max_decompressed_bytes,
        max_text_chars=settings.max_text_chars,
        max_image_bytes=settings.max_image_bytes,
        max_images=settings.max_images,
        fetch_urls=settings.fetch_urls,
        webhooks=settings.webhooks,
        plain_http=bool(settings.allow_networks),
    )
    readiness = Readiness(client, wire)
    news = BatchNews(client, wire, policy.event_limit, policy.job_ttl_s)
    parts = Services(
        settings=settings,
        redis=client,
        records=records,
        images=store,
        events=AsyncEvents(client, wire, policy.event_limit),
        sessions=AsyncSessions(records, wire),
        calibrations=fitted,
        dispatcher=dispatcher,
        sync_calls=SyncCalls(records, dispatcher, wakes, metrics, queue, abandoned_after_s),
        views=views,
        wakes=wakes,
        load=load,
        models=names,
        metrics=metrics,
        drain=drain,
        shows=Shows(client, queues, wakes),
        readiness=readiness,
        vitals=Vitals(client, readiness, load, policy.job_ttl_s),
        limits=limits,
        desk=BatchDesk(settings, client, records, dispatcher, wakes, names, load, limits, news),
        description=document(ROUTES),
        keys=ring,
        key_uses=uses,
        turnstile=turnstile,
        console=ConsoleFiles() if settings.console else None,
    )

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        blocking_records = Records(blocking, wire, policy)
        hooks = WebhookQueue(blocking, wire) if settings.webhooks else None
        sweeper = SweeperThread(Sweeper(blocking_records, queues, hooks))
        sweeper.start()
        courier = None
        if hooks is not None:
            caller = Caller(AddressRules(settings.allow_networks), ATTEMPT_S, MAX_ANSWER_BYTES)
            courier = Courier(blocking, hooks, Sender(blocking_records, caller, settings.signing_key()).send)
            courier.start()
        beside = [asyncio.create_task(wakes.run()), asyncio.create_task(say_store(client))]
        beside.append(asyncio.create_task(ring.watch(revoked=wakes.wake_all)))
        parts.desk.keeper.start()
        try:
            yield
        finally:
            threads = [asyncio.to_thread(sweeper.stop, END_S)]
            if courier is not None:
                threads.append(asyncio.to_thread(courier.stop, END_S))
            await asyncio.gather(parts.desk.keeper.stop(END_S), *threads)
            for task in beside:
                await stop(task)
            await parts.sync_calls.close()
            await uses.close()
            await client.aclose()
            await client.connection_pool.disconnect()
            blocking.close()

    app = Starlette(
        routes=ROUTES,
        middleware=[
            *([] if spans is None else [Middleware(Traced, spans=spans)]),
            Middleware(Meter, metrics=metrics),
            Middleware(ErrorBoundary),
            Middleware(Gatekeeper, keys=ring, hosts=settings.allowed_hosts, turnstile=turnstile),
            Middleware(DrainGate, drain=drain),
            Middleware(StatusReads, parts=parts, route=jobs.READ),
        ],
        exception_handlers={HTTPException: http_exception},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # a redirect is an error to clients of the synchronous shapes
    app.state.services = parts
    return app

"""GET /v1/status: the service at a glance, for people who watch it and for programs that wait for a quiet moment."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from photocall_gateway.described import Described, operation
from photocall_gateway.openapi_parts import Schema, obj, ref
from photocall_gateway.services import owner, services


async def read(request: Request) -> Response:
    """Totals of all callers, and how much of the queue is the caller's own. 200 when nothing would be answered too.

    Figures that only Redis knows are null while it is away.
    """
    s = services(request)
    shown = await s.vitals.shown_to(owner(request))
    body = {
        **shown,
        "object": "status",
        "model": s.models.name,
        "ready": shown["ready"] and not s.drain.announced,
        "draining": s.drain.announced,
    }
    return JSONResponse(body, headers={"cache-control": "no-store"})


_COUNT: Schema = {"type": "integer", "minimum": 0}
_FIGURE: Schema = {"type": ["integer", "null"], "minimum": 0}  # null: Redis is away
_RATE: Schema = {"type": ["number", "null"], "description": "null until there is something to measure."}
_ENGINE: Schema = obj(
    ("id", "model", "device", "ready", "load", "capacity", "pages_free", "pages_total"),
    id={"type": "string"},
    model={"type": "string"},
    device={"type": "string"},
    ready={"type": "boolean"},
    load={**_COUNT, "description": "Requests it holds."},
    capacity={**_COUNT, "description": "How many it may hold."},
    pages_free=_COUNT,
    pages_total=_COUNT,
)
_STATUS: Schema = obj(
    ("object", "model", "ready", "draining", "queue", "engines", "prep_workers", "rates", "latency"),
    object={"const": "status"},
    model={"type": "string"},
    ready={"type": "boolean", "description": "A request sent now would be answered."},
    draining={"type": "boolean", "description": "This gateway is leaving."},
    redis={"type": "boolean"},
    store={"type": ["object", "null"], "description": "As in /readyz."},
    queue=obj(
        ("depth", "yours", "bytes", "eta_s"),
        depth={
            **_FIGURE,
            "description": "Unfinished jobs of all callers; null, like the next two, while Redis is away.",
        },
        yours={**_FIGURE, "description": "Those of the key that asks."},
        bytes={**_FIGURE, "description": "Kept for them."},
        eta_s={**_RATE, "description": "Until they are done, at the measured pace."},
    ),
    prep_workers=_COUNT,
    engines={"type": "array", "items": ref("EngineStatus")},
    rates=obj(
        ("window_s", "requests_per_s", "images_per_s", "rows_per_step"),
        window_s={**_RATE, "description": "Seconds that the rates are of."},
        requests_per_s=_RATE,
        images_per_s={**_RATE, "description": "Pictures that answered requests were about."},
        rows_per_step={**_RATE, "description": "How full forwards are."},
    ),
    latency=obj(
        ("window_s", "count", "p50_ms", "p90_ms"),
        window_s={"type": "number"},
        count={**_FIGURE, "description": "How many jobs it is of, the last ones; rows of batches are none of them."},
        p50_ms=_RATE,
        p90_ms=_RATE,
    ),
)

ROUTES = [
    Described(
        "/v1/status",
        read,
        "GET",
        operation("The service at a glance", {200: ref("ServiceStatus")}),
        {"ServiceStatus": _STATUS, "EngineStatus": _ENGINE},
    )
]

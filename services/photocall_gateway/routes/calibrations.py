"""Calibrations: fitted from labelled answers, kept for their key, and named by id in what is asked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from photocall.calibration_reports import report_diagram
from photocall.calibrations import StoredCalibration
from photocall.errors import CodedError
from photocall.invalid import InvalidField
from photocall.reliability import stacked
from photocall_gateway.body import open_body
from photocall_gateway.calibration_intake import NewCalibration, read_calibration
from photocall_gateway.described import WRITE_ERRORS, Described, in_path, json_body, operation, query
from photocall_gateway.listing import read_limit
from photocall_gateway.openapi_calibrations import SCHEMAS
from photocall_gateway.openapi_parts import content, ref
from photocall_gateway.reading import read_body
from photocall_gateway.services import owner, services

# One at a time each: it is arithmetic in Python, and others wait for the lock.
_FITTING = ThreadPoolExecutor(1, "calibrate")  # and drawing
_SHOWING = ThreadPoolExecutor(1, "calibrations-shown")  # does not wait for a fit
MAX_PAGE = 100
P = ParamSpec("P")
R = TypeVar("R")
_PICTURE_ALONE = {  # should somebody open it as a page of its own
    "content-security-policy": "default-src 'none'; sandbox",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}


async def create(request: Request) -> Response:
    """Fit, in a thread of its own, and keep: 201; 200 where nothing is kept, as asked or for there is nothing."""
    s = services(request)
    body = await read_body(request, s.settings.max_body_bytes)
    raw, _ = await asyncio.to_thread(open_body, body, s.limits)
    new = await _aside(_FITTING, read_calibration, raw)
    if not new.store:
        return await _aside(_FITTING, _made, new, new.fitted, False)
    await s.calibrations.store(owner(request), new.fitted)
    kept = await s.calibrations.get(owner(request), new.fitted.calibration.id)
    return await _aside(_FITTING, _made, new, kept, True)


async def listing(request: Request) -> Response:
    """The caller's, newest first, a page at a time."""
    asked = request.query_params
    limit = read_limit(asked.get("limit", "20"), MAX_PAGE)
    found = await services(request).calibrations.of_owner(owner(request), asked.get("after"), limit + 1)
    return await _aside(_SHOWING, _listed, found, limit)


async def read(request: Request) -> Response:
    """One of the caller's, with what its fit has to say for itself."""
    return await _aside(_SHOWING, _whole, await _own(request))


async def draw(request: Request) -> Response:
    """Its reliability diagrams below each other, or the one that `of` names."""
    found, wanted = await _own(request), request.query_params.get("of")
    if not found.reports:
        raise CodedError("not_found", "This calibration was stored without reports: there is nothing to draw")
    if wanted is not None and wanted not in found.reports:
        raise InvalidField(("of",), "Expected a question or type that it has a report of", "literal_error")
    names = found.reports if wanted is None else [wanted]
    picture = await _aside(_FITTING, lambda: stacked([report_diagram(name, found.reports[name]) for name in names]))
    return Response(picture, media_type="image/svg+xml", headers=_PICTURE_ALONE)


async def remove(request: Request) -> Response:
    """Forget it. What was accepted with it is answered with it."""
    await services(request).calibrations.delete(owner(request), request.path_params["calibration_id"])
    return Response(status_code=204)


async def _own(request: Request) -> StoredCalibration:
    return await services(request).calibrations.get(owner(request), request.path_params["calibration_id"])


async def _aside(pool: ThreadPoolExecutor, work: Callable[P, R], *args: P.args, **named: P.kwargs) -> R:
    """Nothing that grows with a calibration is done on the event loop."""
    return await asyncio.get_running_loop().run_in_executor(pool, partial(work, *args, **named))


def _made(new: NewCalibration, shown: StoredCalibration, kept: bool) -> Response:
    body = {**_shown(shown, kept), "reports": new.told_reports, "refused": new.refused}
    return JSONResponse(body, 201, {"location": body["urls"]["self"]}) if kept else JSONResponse(body)


def _listed(found: list[StoredCalibration], limit: int) -> Response:
    """A page; one more than `limit` says that there are more."""
    data = [_shown(one) for one in found[:limit]]
    last_id = data[-1]["id"] if data else None
    return JSONResponse({"object": "list", "data": data, "has_more": len(found) > limit, "last_id": last_id})


def _whole(found: StoredCalibration) -> Response:
    return JSONResponse({**_shown(found), "reports": found.reports}, headers={"cache-control": "no-store"})


def _shown(found: StoredCalibration, kept: bool = True) -> dict[str, Any]:
    """A calibration as its caller sees it, without reports."""
    name = None if found.calibration.empty else found.calibration.id
    base = f"/v1/calibrations/{name}"
    return {
        "id": name,
        "object": "calibration",
        "by": found.by,
        **found.calibration.to_content(),
        "created_at": round(found.created_at, 3),
        "expires_at": round(time.time() + found.expires_in_s, 3) if kept else None,
        "metadata": dict(found.metadata),
        "urls": {"self": base, "diagram": f"{base}/diagram.svg"} if kept else {},
    }


_ID = in_path("calibration_id")
_CALIBRATION = ref("Calibration")

ROUTES = [
    Described(
        "/v1/calibrations",
        create,
        "POST",
        operation(
            "Fit a calibration to labelled answers, and keep it",
            {200: _CALIBRATION, 201: _CALIBRATION},
            (*(status for status in WRITE_ERRORS if status != 404), 409),
            body=json_body("CalibrationRequest"),
            description="A request's `calibration` names it by its id. docs/questions.md.",
        ),
        SCHEMAS,
    ),
    Described(
        "/v1/calibrations",
        listing,
        "GET",
        operation(
            "The caller's calibrations, newest first",
            {200: ref("CalibrationList")},
            (404, 422),
            parameters=[
                query("after", {"type": "string"}, "The id of the last calibration of the page before."),
                query("limit", {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": 20}),
            ],
        ),
    ),
    Described(
        "/v1/calibrations/{calibration_id}",
        read,
        "GET",
        operation("A calibration, with its reports", {200: _CALIBRATION}, (404,), parameters=[_ID]),
    ),
    Described(
        "/v1/calibrations/{calibration_id}/diagram.svg",
        draw,
        "GET",
        operation(
            "Its reliability diagrams",
            {200: content({"type": "string"}, "image/svg+xml")},
            (404, 422),
            parameters=[_ID, query("of", {"type": "string"}, "Only that of this question or type.")],
        ),
    ),
    Described(
        "/v1/calibrations/{calibration_id}",
        remove,
        "DELETE",
        operation("Forget a calibration", {204: None}, (403, 404), parameters=[_ID]),
    ),
]

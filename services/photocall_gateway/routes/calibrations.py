"""POST /v1/calibrations: from labelled answers to a calibration, which the caller keeps and sends with its requests.

Nothing is stored here: what comes back is all there is, and a request that carries it is the same anywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from photocall.calibrating import TooLittle
from photocall.calibration_object import calibration_object
from photocall.invalid import InvalidField, Json
from photocall_gateway.body import open_body
from photocall_gateway.described import Described, json_body, operation
from photocall_gateway.openapi_parts import ref
from photocall_gateway.openapi_schemas import MAX_LABELS
from photocall_gateway.reading import read_body
from photocall_gateway.services import services

_FITTING = ThreadPoolExecutor(1, "calibrate")  # one at a time: it is arithmetic in Python, and others wait for the lock
MAX_PROBABILITIES = 10 * MAX_LABELS  # of all labels together: what is fitted takes time with each


async def calibrate(request: Request) -> Response:
    """Fit, in a thread of its own."""
    s = services(request)
    body = await read_body(request, s.settings.max_body_bytes)
    raw, _ = await asyncio.to_thread(open_body, body, s.limits)
    return JSONResponse(await asyncio.get_running_loop().run_in_executor(_FITTING, _fitted, raw))


def _fitted(raw: Mapping[str, Json]) -> dict[str, Any]:
    labels, by = raw.get("labels"), raw.get("by", "question")
    if not isinstance(labels, list):
        raise InvalidField(("labels",), "Expected a list of labelled answers", "list_type")
    if len(labels) > MAX_LABELS:
        msg = f"At most {MAX_LABELS}, got {len(labels)}: `photocall calibrate` takes any number"
        raise InvalidField(("labels",), msg, "too_long")
    if by not in ("question", "type"):
        raise InvalidField(("by",), "Expected 'question' or 'type'", "literal_error")
    if (count := sum(map(_size, labels))) > MAX_PROBABILITIES:
        raise InvalidField(("labels",), f"At most {MAX_PROBABILITIES} probabilities, got {count}", "too_long")
    try:
        return calibration_object(labels, "type" if by == "type" else "question")
    except TooLittle as error:
        raise InvalidField(("labels",), str(error), "too_short") from error


def _size(label: Json) -> int:
    answer = label.get("answer") if isinstance(label, Mapping) else None
    found = answer.get("probabilities") if isinstance(answer, Mapping) else None
    return len(found) if isinstance(found, Mapping) else 2


ROUTES = [
    Described(
        "/v1/calibrations",
        calibrate,
        "POST",
        operation(
            "Fit a calibration to labelled answers",
            {200: ref("Calibration")},
            (400, 408, 413, 415, 422),
            body=json_body("CalibrationRequest"),
            description="Nothing is stored: send what comes back as a job's `calibration`. docs/questions.md.",
        ),
    )
]

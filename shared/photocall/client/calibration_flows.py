"""What the client does about calibrations, call by call, without doing it; see flows.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias
from urllib.parse import quote

from photocall.client.answer import Answer
from photocall.client.errors import RequestRefused
from photocall.client.flows import Call, Flow, call

FIT_READ_S = 120.0  # one is fitted at a time, and others may be in front
PAGE = 100
_PLACE = "/v1/calibrations"


Label: TypeAlias = Mapping[str, Any] | tuple[Answer, bool | int | str]
"""`{"question", "answer", "label"}`, or an answer as the client gave it and what is right."""


def create(labels: Iterable[Label], by: str, metadata: Mapping[str, str] | None) -> Flow[dict[str, Any]]:
    """Fit one, and keep it: what is kept has its content for an id, so a repeat keeps no second one."""
    return (yield from _kept({"labels": [_label(one) for one in labels], "by": by, "metadata": metadata}))


def keep(calibration: Mapping[str, Any], metadata: Mapping[str, str] | None) -> Flow[dict[str, Any]]:
    """Keep what was fitted elsewhere."""
    return (yield from _kept({"calibration": dict(calibration), "metadata": metadata}))


def get(calibration_id: str) -> Flow[dict[str, Any]]:
    return dict((yield from call(Call("GET", _path(calibration_id)))).body)


def listing() -> Flow[list[dict[str, Any]]]:
    """All of them, newest first, without their reports."""
    found: list[dict[str, Any]] = []
    query = f"?limit={PAGE}"
    while True:
        page = (yield from call(Call("GET", _PLACE + query))).body
        found += page["data"]
        if not page["has_more"]:
            return found
        query = f"?limit={PAGE}&after={page['last_id']}"


def diagram(calibration_id: str, of: str | None) -> Flow[str]:
    query = "" if of is None else f"?of={quote(of, safe='')}"
    return (yield from call(Call("GET", f"{_path(calibration_id)}/diagram.svg{query}"))).content.decode()


def delete(calibration_id: str) -> Flow[None]:
    try:
        yield from call(Call("DELETE", _path(calibration_id)))
    except RequestRefused as error:
        if not (error.repeated and error.code == "unknown_calibration"):
            raise


def _label(one: Label) -> dict[str, Any]:
    if isinstance(one, Mapping):
        return dict(one)
    answer, right = one
    return {"question": answer.name, "answer": dict(answer.fields), "label": right}


def _kept(body: dict[str, Any]) -> Flow[dict[str, Any]]:
    return dict((yield from call(Call("POST", _PLACE, body, read_s=FIT_READ_S))).body)


def _path(calibration_id: str) -> str:
    return f"{_PLACE}/{quote(calibration_id, safe='')}"

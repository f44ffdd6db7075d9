"""Between the flows and httpx: how a connection is set up, and what an answer is to a flow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx

from photocall import __version__
from photocall.client.flows import Call, Reply

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def options(base_url: str, api_key: str | None) -> dict[str, Any]:
    """Arguments of httpx' clients. Calls to this machine ignore proxies."""
    headers = {"user-agent": f"photocall-client/{__version__}"}
    if api_key:
        headers["authorization"] = f"Bearer {api_key}"
    return {"base_url": base_url, "headers": headers, "trust_env": urlsplit(base_url).hostname not in _LOOPBACK}


@contextmanager
def arguments(call: Call) -> Iterator[dict[str, Any]]:
    """Arguments of a request of httpx, while it is made."""
    timeout = httpx.Timeout(30.0, read=call.read_s)
    if call.file is not None:
        with call.file.open("rb") as source:
            form = {"files": {"file": (call.file.name, source)}, "data": {"purpose": "batch"}}
            yield {**form, "headers": call.headers, "timeout": timeout}
        return
    content = call.data if call.json is None else json.dumps(call.json, ensure_ascii=False).encode()
    kind = {} if call.json is None else {"content-type": "application/json"}
    yield {"content": content, "headers": {**kind, **call.headers}, "timeout": timeout}


def reply_of(response: httpx.Response | None) -> Reply:
    """What a flow sees; None: no answer came."""
    if response is None:
        return Reply(0, {}, None)
    headers = {name.lower(): value for name, value in response.headers.items()}
    kind = headers.get("content-type", "json").partition(";")[0]
    try:
        body = response.json() if response.content and kind.endswith("json") else None
    except ValueError:
        body = None
    return Reply(response.status_code, headers, body, response.content)

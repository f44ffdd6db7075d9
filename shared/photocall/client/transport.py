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
from photocall.settings import client_settings

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def options(base_url: str | None, api_key: str | None) -> dict[str, Any]:
    """Arguments of httpx' clients. Calls to this machine ignore proxies.

    Without a URL both are those of the environment; a URL that is given is never sent the environment's key.
    """
    if base_url is None:
        told = client_settings()
        base_url, api_key = told.url, api_key or told.api_key
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


def no_reply(base_url: object, error: httpx.TransportError) -> Reply:
    """What a flow sees where no answer came."""
    why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return Reply(0, {}, f"no answer from {base_url} ({why}); is a photocall running there?")


def reply_of(response: httpx.Response) -> Reply:
    """What a flow sees."""
    headers = {name.lower(): value for name, value in response.headers.items()}
    kind = headers.get("content-type", "json").partition(";")[0]
    try:
        body = response.json() if response.content and kind.endswith("json") else None
    except ValueError:
        body = None
    return Reply(response.status_code, headers, body, response.content)

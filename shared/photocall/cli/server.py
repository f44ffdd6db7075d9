"""The server that a command talks to: which one, with which key, and that it is there before anything else is done."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import httpx

from photocall.cli.errors import Unable
from photocall.client import Client, flows
from photocall.client.flows import Call, Reply
from photocall.client.transport import options as connection
from photocall.settings import ClientSettings

PROBE_S = 10.0
PAGE = 100  # of a list


def add_server(parser: ArgumentParser) -> None:
    """`--url`. There is no option for the key: other users of a machine see command lines."""
    parser.add_argument("--url", metavar="URL", help="of the server (PHOTOCALL_URL); its key is PHOTOCALL_API_KEY")


class Server(Client):
    """The client, and calls that it has no method for."""

    def call(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, read_s: float = 30.0
    ) -> Reply:
        """One call, repeated where that may help. Raises RequestRefused."""
        return self._run(flows.call(Call(method, path, body, headers=headers or {}, read_s=read_s)))

    def newest(self, path: str, limit: int, **query: str | None) -> Iterator[dict[str, Any]]:
        """The newest `limit` of a list, page by page. What is None in `query` is not asked. Raises RequestRefused."""
        after = None
        while limit > 0:
            asked = {**query, "after": after, "limit": min(limit, PAGE)}
            named = urlencode({name: value for name, value in asked.items() if value is not None})
            page = self.call("GET", f"{path}?{named}").body
            yield from page["data"]
            limit -= len(page["data"])
            after = page["last_id"]
            if not page["has_more"]:
                return


@contextmanager
def connected(options: Namespace) -> Iterator[Server]:
    """A server that answers, for as long as it is needed. Raises SettingsError and Unable."""
    settings = client_settings(options)
    probe(settings)
    with Server(settings.url, settings.api_key or None) as server:
        yield server


def client_settings(options: Namespace) -> ClientSettings:
    """What the environment and `--url` say. Raises SettingsError."""
    environ = dict(os.environ)
    if options.url is not None:
        environ["PHOTOCALL_URL"] = options.url
    return ClientSettings.from_env(environ)


def probe(settings: ClientSettings) -> None:
    """Says at once what the client would try several times: that nobody listens there. Raises Unable."""
    address = settings.url
    try:
        with httpx.Client(**connection(address, None), timeout=PROBE_S) as http:
            answer = http.get("/healthz")
    except httpx.TimeoutException:
        raise Unable(f"{address} did not answer in {PROBE_S:.0f} s: see whether it runs (`photocall doctor`)") from None
    except (httpx.TransportError, httpx.InvalidURL) as error:
        why = str(error).partition("] ")[2] or str(error) or type(error).__name__
        advice = "start one with `photocall up`, or name another in PHOTOCALL_URL"
        raise Unable(f"no server answers at {address} ({why}): {advice}") from None
    if "status" not in _json(answer):
        raise Unable(f"what answers at {address} is not photocall: name another URL with --url or PHOTOCALL_URL")


def _json(answer: httpx.Response) -> dict[str, Any]:
    try:
        found = answer.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}

"""Who may call: the Host and Origin checks of an open local server, or API keys.

Without a key file the server is for this machine only: a page on the web must not reach it through a browser, by a
foreign name that resolves to loopback or by a form sent across origins. With keys, the key decides alone.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Protocol
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from photocall.errors import CodedError
from photocall.settings import GatewaySettings, SettingsError
from photocall_gateway.caller import CALLER, LOCAL, Caller
from photocall_gateway.key_ring import KeyRing
from photocall_gateway.scopes import scopes_for

WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_OPEN_PATHS = frozenset({"/healthz", "/readyz"})  # probes come under any name and without a key
_METRICS = "/metrics"
_CONSOLE = "/console/"  # the console's own files are everybody's; what it shows is asked for with a key
_OPEN_WITH_KEYS = _OPEN_PATHS | {"/", _METRICS, "/openapi.json", "/docs"}


class Counts(Protocol):
    """Counts a call under its caller's limits. Raises CodedError `rate_limited`."""

    async def enter(self, caller: Caller, scope: Scope) -> None: ...


class Gatekeeper:
    """Middleware: refuses a caller, or notes who it is in the scope."""

    def __init__(self, app: ASGIApp, keys: KeyRing, hosts: Iterable[str], turnstile: Counts) -> None:
        self._app = app
        self._keys = keys
        self._hosts = frozenset(host.lower() for host in hosts)
        self._turnstile = turnstile

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            headers = Headers(scope=scope)
            scope[CALLER] = LOCAL
            if not self._keys.wanted:
                self._check_local(scope, headers)
            elif not _needs_no_key(scope["path"]):
                caller = scope[CALLER] = self._known_key(headers)
                if scopes := scopes_for(scope.get("method", "GET"), scope["path"]):
                    caller.need(*scopes)
                await self._turnstile.enter(caller, scope)
        await self._app(scope, receive, send)

    def _known_key(self, headers: Headers) -> Caller:
        scheme, _, key = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise CodedError("missing_key", "Missing API key")
        found = self._keys.find(key.strip())
        if found is None:
            raise CodedError("bad_key", "Invalid API key")
        return found

    def _check_local(self, scope: Scope, headers: Headers) -> None:
        host = headers.get("host", "")
        # Prometheus calls containers by their addresses; no page of a stranger's name can
        by_address = scope["path"] == _METRICS and is_address(host_name(host))
        if scope["path"] not in _OPEN_PATHS and not by_address and not self._known(host):
            raise CodedError("unknown_host", "Unknown Host; PHOTOCALL_ALLOWED_HOSTS adds names")
        origin = headers.get("origin")
        if origin is None or (scope["type"] == "http" and scope["method"] not in WRITES):
            return
        if urlsplit(origin).netloc.lower() != host.lower():
            raise CodedError("foreign_origin", "Writes from another origin are refused")

    def _known(self, host: str) -> bool:
        name = host_name(host)
        return is_loopback(name) or name in self._hosts


def _needs_no_key(path: str) -> bool:
    return path in _OPEN_WITH_KEYS or path.startswith(_CONSOLE)


def host_name(host: str) -> str:
    """The name in a Host header, without its port, in lower case; an IPv6 address without its brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.rpartition(":")[0].lower() if host.count(":") == 1 else host.lower()


def is_loopback(name: str) -> bool:
    """Whether a host name or address is this machine and nothing else."""
    if name in ("localhost", "127.0.0.1"):  # what it nearly always is, and parsing an address takes its time
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def is_address(name: str) -> bool:
    """Whether a host is named by an address, which no name of a stranger's resolves into."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def check_bind(settings: GatewaySettings) -> None:
    """Refuse to listen beyond this machine without a key. Raises SettingsError."""
    if settings.api_keys is None and not settings.behind_loopback and not is_loopback(settings.host):
        expected = "a loopback address, or PHOTOCALL_API_KEYS, or PHOTOCALL_BEHIND_LOOPBACK=1"
        raise SettingsError("PHOTOCALL_HOST", settings.host, expected)

"""Who may call: the Host and Origin checks of an open local server, or API keys.

Without a key file the server is for this machine only: a page on the web must not reach it through a browser, by a
foreign name that resolves to loopback or by a form sent across origins. With keys, the key decides alone.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from photocall.errors import CodedError
from photocall.settings import GatewaySettings, SettingsError

LOCAL_OWNER = "local"
OWNER = "photocall.owner"  # scope key: the caller's id, filled here
WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_OPEN_PATHS = frozenset({"/healthz", "/readyz"})  # probes come under any name and without a key
_OPEN_WITH_KEYS = _OPEN_PATHS | {"/metrics", "/openapi.json", "/docs"}


class Gatekeeper:
    """Middleware: refuses a caller, or notes its owner id in the scope. `keys` maps sha256 (hex) to key id."""

    def __init__(self, app: ASGIApp, keys: Mapping[str, str], hosts: Iterable[str]) -> None:
        self._app = app
        self._keys = dict(keys)
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            headers = Headers(scope=scope)
            if self._keys:
                scope[OWNER] = LOCAL_OWNER if scope["path"] in _OPEN_WITH_KEYS else self._owner(headers)
            else:
                self._check_local(scope, headers)
                scope[OWNER] = LOCAL_OWNER
        await self._app(scope, receive, send)

    def _owner(self, headers: Headers) -> str:
        scheme, _, key = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise CodedError("missing_key", "Missing API key")
        digest = hashlib.sha256(key.strip().encode()).hexdigest()
        owner = None
        for known, known_owner in self._keys.items():  # every key is compared: the time does not tell which matched
            if hmac.compare_digest(known, digest):
                owner = known_owner
        if owner is None:
            raise CodedError("bad_key", "Invalid API key")
        return owner

    def _check_local(self, scope: Scope, headers: Headers) -> None:
        host = headers.get("host", "")
        if scope["path"] not in _OPEN_PATHS and not self._known(host):
            raise CodedError("unknown_host", "Unknown Host; PHOTOCALL_ALLOWED_HOSTS adds names")
        origin = headers.get("origin")
        if origin is None or (scope["type"] == "http" and scope["method"] not in WRITES):
            return
        if urlsplit(origin).netloc.lower() != host.lower():
            raise CodedError("foreign_origin", "Writes from another origin are refused")

    def _known(self, host: str) -> bool:
        name = host_name(host)
        return is_loopback(name) or name in self._hosts


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


def check_bind(settings: GatewaySettings) -> None:
    """Refuse to listen beyond this machine without a key. Raises SettingsError."""
    if settings.api_keys is None and not settings.behind_loopback and not is_loopback(settings.host):
        expected = "a loopback address, or PHOTOCALL_API_KEYS, or PHOTOCALL_BEHIND_LOOPBACK=1"
        raise SettingsError("PHOTOCALL_HOST", settings.host, expected)


def load_keys(file: Path | None) -> dict[str, str]:
    """The key file's `id:sha256` lines as sha256 -> id; `#` starts a comment. Raises SettingsError."""
    if file is None:
        return {}
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError("PHOTOCALL_API_KEYS", str(file), "a readable text file") from error
    keys: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        entry = line.partition("#")[0].strip()
        if not entry:
            continue
        owner, _, digest = entry.rpartition(":")
        if not owner or len(digest) != 64 or not set(digest.lower()) <= set("0123456789abcdef"):
            raise SettingsError("PHOTOCALL_API_KEYS", str(file), f"`id:sha256` in line {number}")
        keys[digest.lower()] = owner
    if not keys:
        raise SettingsError("PHOTOCALL_API_KEYS", str(file), "at least one `id:sha256` line")
    return keys

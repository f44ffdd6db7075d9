"""Who may call: the Host and Origin checks of an open local server, or API keys.

Without a key file the server is for this machine only: a page on the web must not reach it through a browser, by a
foreign name that resolves to loopback or by a form sent across origins. With keys, the key decides alone.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import time
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from photocall.api_keys import ApiKey, KeyFile, KeyFileError, digest_of
from photocall.errors import CodedError
from photocall.logs import fields
from photocall.settings import GatewaySettings, SettingsError

log = logging.getLogger(__name__)

LOOK_S = 1.0  # between two looks at the file of keys
LOCAL_OWNER = "local"
OWNER = "photocall.owner"  # scope key: the caller's id, filled here
WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_OPEN_PATHS = frozenset({"/healthz", "/readyz"})  # probes come under any name and without a key
_OPEN_WITH_KEYS = _OPEN_PATHS | {"/metrics", "/openapi.json", "/docs"}


class Gatekeeper:
    """Middleware: refuses a caller, or notes its owner id in the scope."""

    def __init__(self, app: ASGIApp, keys: KeyRing, hosts: Iterable[str]) -> None:
        self._app = app
        self._keys = keys
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            headers = Headers(scope=scope)
            if self._keys.wanted:
                opened = scope["path"] in _OPEN_WITH_KEYS
                scope[OWNER] = LOCAL_OWNER if opened else self._owner(headers, scope["path"])
            else:
                self._check_local(scope, headers)
                scope[OWNER] = LOCAL_OWNER
        await self._app(scope, receive, send)

    def _owner(self, headers: Headers, path: str) -> str:
        scheme, _, key = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise CodedError("missing_key", "Missing API key")
        found = self._keys.find(key.strip())
        if found is None:
            raise CodedError("bad_key", "Invalid API key")
        wanted = scope_of(path)
        if wanted is not None and wanted not in found.scopes:
            raise CodedError("missing_scope", f"This API key lacks the scope `{wanted}`", scope=wanted)
        return found.id

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


def scope_of(path: str) -> str | None:
    """What a key must be for to call a path; None: any key will do."""
    if path == "/v1/models":
        return None
    return "batch" if path.startswith(("/v1/files", "/v1/batches")) else "ask"


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


class KeyRing:
    """The keys of a file, read again when it has changed. Without a file there are none, and none is wanted."""

    def __init__(self, file: Path | None) -> None:
        """Raises SettingsError for a file that cannot be used, or holds no key."""
        self._file = None if file is None else KeyFile(file)
        self._keys: tuple[ApiKey, ...] = ()
        self._looked_at = time.monotonic()
        self._seen = None if file is None else _version(file)
        self._told = self._seen  # the last version that could not be read and was said to be so
        if self._file is None:
            return
        try:
            self._keys = self._file.read()
        except KeyFileError as error:
            raise SettingsError("PHOTOCALL_API_KEYS", str(file), str(error)) from error
        if not self._keys:
            raise SettingsError("PHOTOCALL_API_KEYS", str(file), "at least one `id:sha256` line")

    @property
    def wanted(self) -> bool:
        """Whoever calls needs a key."""
        return self._file is not None

    def find(self, key: str) -> ApiKey | None:
        """The key's entry. Every entry is compared: the time does not tell which one matched."""
        self._look()
        digest, found = digest_of(key), None
        for known in self._keys:
            if hmac.compare_digest(known.digest, digest):
                found = known
        return found

    def _look(self) -> None:
        """Read a file that has changed; one that cannot be read changes nothing, and is told of in the log."""
        if self._file is None or time.monotonic() - self._looked_at < LOOK_S:
            return
        self._looked_at = time.monotonic()
        version = _version(self._file.path)
        if version == self._seen:
            return
        try:
            self._keys = self._file.read()
        except KeyFileError as error:  # tried again at every look, told of once
            if version != self._told:
                log.error("the file of API keys cannot be used, the keys stay as they were: %s", error)
            self._told = version
            return
        self._seen = version
        log.info("API keys read again", extra=fields(keys=len(self._keys)))


def _version(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino

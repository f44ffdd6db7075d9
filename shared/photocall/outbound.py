"""One outgoing HTTP exchange with an address that has been checked: bounded in time and bytes, no proxy, no redirect.

The connection goes to the address, while certificate, SNI and Host keep the name. Nothing here knows what is asked for.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from photocall.addresses import AddressRules, RefusedAddress, Resolver, Unresolved, Url, resolved

_CHUNK = 1 << 16


class OutboundError(Exception):
    """An exchange that came to nothing: who answers for it is the other side, or the name, or the network."""


class AnswerTooLarge(OutboundError):
    """More bytes than wanted; `limit` of them."""

    def __init__(self, limit: int, status: int) -> None:
        super().__init__(f"it has more than {limit} bytes")
        self.limit = limit
        self.status = status


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. Header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@cache
def trusted() -> ssl.SSLContext:
    """Of whom this machine trusts, read once in a process: it takes thirty milliseconds."""
    return ssl.create_default_context()


@dataclass(frozen=True, slots=True)
class Caller:
    """Makes exchanges. Only `resolve` and `tls` are replaced by tests."""

    rules: AddressRules
    timeout_s: float
    max_bytes: int
    resolve: Resolver = resolved
    tls: ssl.SSLContext = field(default_factory=trusted)

    def exchange(
        self, method: str, url: Url, headers: Mapping[str, str], body: bytes | None = None, until: float | None = None
    ) -> Answer:
        """One request. `until` is a `time.monotonic` instead of `timeout_s` from now; 3xx comes back like any other.

        Raises OutboundError, or RefusedAddress before any connection is made.
        """
        until = time.monotonic() + self.timeout_s if until is None else until
        address = self._address(url, until)
        connection = _Pinned(url, address, self.tls, max(0.01, until - time.monotonic()))
        # A socket's timeout is per read: a sender of one byte a second would never meet it.
        watchdog = threading.Timer(max(0.01, until - time.monotonic()), connection.abort)
        watchdog.daemon = True
        watchdog.start()
        try:
            connection.request(method, url.target, body, {"Host": url.authority, "Connection": "close", **headers})
            with connection.getresponse() as response:
                found = {name.lower(): value for name, value in response.getheaders()}
                answer = Answer(response.status, found, self._read(response))
            if connection.aborted:  # an end without a length looks like any other
                raise TimeoutError
            return answer
        except AnswerTooLarge:
            raise
        except (OSError, OutboundError, http.client.HTTPException, ValueError, AttributeError) as error:
            if connection.aborted or isinstance(error, TimeoutError):
                raise OutboundError("it did not answer in time") from error
            raise error if isinstance(error, OutboundError) else OutboundError(_reason(error)) from error
        finally:
            watchdog.cancel()
            connection.end()

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        if (response.length or 0) > self.max_bytes:
            raise AnswerTooLarge(self.max_bytes, response.status)
        body = bytearray()
        while chunk := response.read(_CHUNK):
            body += chunk
            if len(body) > self.max_bytes:
                raise AnswerTooLarge(self.max_bytes, response.status)
        if response.length:  # bytes that were promised and did not come
            raise OutboundError("the answer broke off")
        return bytes(body)

    def _address(self, url: Url, until: float) -> str:
        """Resolve in a thread: the system's resolver has times of its own."""
        found: list[str | Exception] = []

        def look() -> None:
            try:
                found.append(self.rules.address_of(url, self.resolve))
            except Exception as error:
                found.append(error)

        thread = threading.Thread(target=look, name="resolve", daemon=True)
        thread.start()
        thread.join(max(0.0, until - time.monotonic()))
        match found:
            case [str() as address]:
                return address
            case [RefusedAddress() as refused]:
                raise refused
            case [Unresolved()]:
                raise OutboundError("its name has no address")
            case [Exception() as error]:
                raise OutboundError(_reason(error)) from error
        raise OutboundError("its name was not resolved in time")


class _Pinned(http.client.HTTPConnection):
    """A connection to an address that keeps the name for everything that is checked or sent."""

    def __init__(self, url: Url, address: str, tls: ssl.SSLContext, timeout_s: float) -> None:
        super().__init__(url.host, url.port, timeout=timeout_s)
        self._url, self._address, self._tls, self._timeout_s = url, address, tls, timeout_s
        self._live: socket.socket | None = None  # `sock` is let go of as soon as the answer's head is read
        self.aborted = False

    def connect(self) -> None:
        self._live = socket.create_connection((self._address, self._url.port), self._timeout_s)
        if self._url.scheme == "https":
            self._live = self._tls.wrap_socket(self._live, server_hostname=self._url.host)
        self.sock: Any = self._live

    def end(self) -> None:
        """Close everything, whatever was reached."""
        self.close()
        if self._live is not None:
            self._live.close()

    def abort(self) -> None:
        """End whatever reads or writes; from another thread."""
        self.aborted = True
        if self._live is not None:
            with contextlib.suppress(OSError):
                self._live.shutdown(socket.SHUT_RDWR)


def _reason(error: BaseException) -> str:
    """For the caller who sent the URL; nothing of our network stands in it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return "its certificate is not valid for its name"
    if isinstance(error, ssl.SSLError):
        return "the TLS handshake failed"
    if isinstance(error, ConnectionRefusedError):
        return "it refused the connection"
    return "the connection failed" if isinstance(error, OSError) else "it does not speak HTTP"

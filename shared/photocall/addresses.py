"""Where an outgoing call may go: URLs that callers send us are fetched or called only at public addresses.

One checker for pictures by URL and for webhooks. A name is resolved once, every address it has is checked, and the
caller connects to the address found here: what the name says a moment later does not matter any more.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import urlsplit

Address: TypeAlias = "ipaddress.IPv4Address | ipaddress.IPv6Address"
Network: TypeAlias = "ipaddress.IPv4Network | ipaddress.IPv6Network"
Resolver: TypeAlias = Callable[[str, int], list[str]]

MAX_URL_CHARS = 2048
_PORTS = {"https": 443, "http": 80}

# `is_global` is not enough: these are ways into other networks, or differ between Python versions.
_NEVER = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8",
        "100.64.0.0/10",  # behind a carrier's NAT; metadata of some clouds
        "168.63.129.16/32",  # a public number that one cloud answers itself, on every machine
        "169.254.0.0/16",  # link-local: metadata of most clouds
        "192.0.0.0/24",
        "192.88.99.0/24",  # 6to4 relays
        "198.18.0.0/15",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "::/96",  # IPv4-compatible, unspecified, loopback
        "::ffff:0:0/96",  # IPv4-mapped
        "::ffff:0:0:0/96",  # IPv4-translated
        "64:ff9b::/96",  # NAT64
        "64:ff9b:1::/48",
        "100::/64",
        "2001::/23",  # Teredo, ORCHID and other protocol assignments
        "2002::/16",  # 6to4
        "3fff::/20",
        "5f00::/16",
        "fc00::/7",
        "fe80::/10",
        "fec0::/10",
        "ff00::/8",
    )
)


class BadUrl(ValueError):
    """A URL that is not called, whatever its address is; the message says why."""


class RefusedAddress(Exception):
    """A name with an address that must not be reached. Which one is not told: it would map a network for strangers."""


class Unresolved(Exception):
    """A name without an address."""


@dataclass(frozen=True, slots=True)
class Url:
    """A checked URL: what to connect to, and what to ask for there."""

    scheme: str  # "https" | "http"
    host: str  # lower case, without brackets
    port: int
    target: str  # path and query

    @property
    def authority(self) -> str:
        """The Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"


def parse_url(text: str, plain_http: bool = False) -> Url:
    """Check what can be said without the network. `plain_http` lets `http:` pass, for `AddressRules` to decide on.

    Raises BadUrl.
    """
    if len(text) > MAX_URL_CHARS:
        raise BadUrl(f"A URL has at most {MAX_URL_CHARS} characters")
    if not text.isascii() or any(char <= " " or char in '\\"<>^`{|}\x7f' for char in text):
        raise BadUrl("A URL is ASCII, without blanks; other characters stand in it percent-encoded")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise BadUrl("Not a valid URL") from error
    if parts.scheme not in (("https", "http") if plain_http else ("https",)):
        raise BadUrl("Only https URLs are called")
    if "@" in parts.netloc:
        raise BadUrl("A URL with a user name is not called")
    if not host or port == 0:
        raise BadUrl("The URL names no host")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Url(parts.scheme, host.rstrip("."), port or _PORTS[parts.scheme], target)


@dataclass(frozen=True, slots=True)
class AddressRules:
    """`allowed`: networks that may be reached although they are private; plain http may be used there only."""

    allowed: tuple[Network, ...] = ()

    def permits(self, address: Address, scheme: str = "https") -> bool:
        """Whether a call may go to this address."""
        if any(address.version == network.version and address in network for network in self.allowed):
            return True
        if scheme != "https" or not address.is_global or address.is_multicast:
            return False
        return not any(address.version == network.version and address in network for network in _NEVER)

    def address_of(self, url: Url, resolve: Resolver | None = None) -> str:
        """The one address to connect to. Raises Unresolved, or RefusedAddress when any of the name's is forbidden."""
        try:
            found = [ipaddress.ip_address(url.host)]
        except ValueError:
            found = [ipaddress.ip_address(text) for text in (resolve or resolved)(url.host, url.port)]
        if not found:
            raise Unresolved(url.host)
        if not all(self.permits(address, url.scheme) for address in found):
            raise RefusedAddress(url.host)
        return str(found[0])


def resolved(host: str, port: int) -> list[str]:
    """Every address of a name, by the system's resolver. Raises Unresolved."""
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Unresolved(host) from error
    return [str(info[4][0]).partition("%")[0] for info in infos]

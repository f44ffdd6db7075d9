"""Message to bytes and back: a 32-byte HMAC-SHA256, then the five parts in msgpack.

The signature covers everything behind it, buffers included, and is checked before anything is decoded. What bytes
travel on is not known here.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgpack

from photocall.errors import BadSignature, MalformedMessage, UnknownVersion
from photocall.messages import TYPES, VERSION, Envelope, Header, Message, new_header

SIGNATURE_BYTES = hashlib.sha256().digest_size
_HEADER_FIELDS = tuple(name for name in Header.__annotations__ if name in Header.__required_keys__)


class Wire:
    """Signs with one key and speaks for one session (a process of this run)."""

    def __init__(self, key: bytes, session: str) -> None:
        if not key:
            raise ValueError("the signing key is empty")
        self._key = key
        self.session = session

    def encode(
        self,
        message: Message,
        cause: Header | None = None,
        metadata: Mapping[str, Any] | None = None,
        buffers: Sequence[bytes] = (),
        header: Header | None = None,
    ) -> bytes:
        """Pack and sign. `cause` becomes the parent header; `header` is made unless one was fixed before."""
        parts = [
            header or new_header(message.msg_type, self.session),
            cause or {},
            dict(metadata or {}),
            message.to_content(),
            list(buffers),
        ]
        body: bytes = msgpack.packb(parts, use_bin_type=True)
        return self._signature(body) + body

    def decode(self, data: bytes) -> Envelope:
        """Check, then unpack. Raises BadSignature, UnknownVersion or MalformedMessage."""
        body = data[SIGNATURE_BYTES:]
        if not hmac.compare_digest(data[:SIGNATURE_BYTES], self._signature(body)):
            raise BadSignature(f"{len(data)} bytes without our signature")
        try:
            parts = msgpack.unpackb(body, raw=False)
        except (ValueError, msgpack.UnpackException) as error:
            raise MalformedMessage(f"not msgpack: {error}") from error
        if not (isinstance(parts, list) and len(parts) == 5 and isinstance(parts[0], dict)):
            raise MalformedMessage("not five parts")
        header = _header(parts[0])
        if header["version"].partition(".")[0] != VERSION.partition(".")[0]:
            raise UnknownVersion(header["version"])
        parent, metadata, content, buffers = parts[1:]
        if not (isinstance(parent, dict) and isinstance(metadata, dict) and isinstance(content, dict)):
            raise MalformedMessage("parent header, metadata and content are maps")
        if not (isinstance(buffers, list) and all(isinstance(buffer, bytes) for buffer in buffers)):
            raise MalformedMessage("buffers are raw bytes")
        cls = TYPES.get(header["msg_type"])
        if cls is None:
            raise MalformedMessage(f"unknown message type {header['msg_type']!r}")
        cause = _header(parent) if parent else None
        return Envelope(header, cause, metadata, cls.from_content(content), tuple(buffers))

    def _signature(self, body: bytes) -> bytes:
        return hmac.new(self._key, body, hashlib.sha256).digest()


def pack(value: Any) -> bytes:
    """A field of the job record in msgpack."""
    packed: bytes = msgpack.packb(value, use_bin_type=True)
    return packed


def unpack(data: bytes) -> Any:
    """A field of the job record."""
    return msgpack.unpackb(data, raw=False, strict_map_key=False)


def _header(part: Mapping[str, Any]) -> Header:
    if not all(isinstance(part.get(name), str) for name in _HEADER_FIELDS):
        raise MalformedMessage("a header lacks a field")
    found = {name: part[name] for name in _HEADER_FIELDS}
    if isinstance(traceparent := part.get("traceparent"), str):
        found["traceparent"] = traceparent
    return cast(Header, found)

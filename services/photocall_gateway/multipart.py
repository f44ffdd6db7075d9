"""multipart/form-data bodies: the `request` part first, then one part per picture.

The body is already read, bounded and decompressed; this file only takes it apart. It knows nothing of what the parts
mean.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from photocall.errors import CodedError

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

MAX_PARTS = 65  # the request, and a picture for each asset


@dataclass(slots=True)
class Form:
    """A body taken apart: the JSON of the first part, and the bytes of the others by name, in their order."""

    request: bytes
    parts: dict[str, bytes]


@dataclass(slots=True)
class _Part:
    headers: dict[str, str] = field(default_factory=dict)
    data: bytearray = field(default_factory=bytearray)
    name: str = ""


def parse_form(body: bytes, content_type: str) -> Form:
    """Raises CodedError `malformed` for anything that is not such a body, the end boundary included."""
    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    if not boundary:
        raise CodedError("malformed", "Content-Type multipart/form-data needs a boundary")
    reader = _Reader()
    try:
        parser = MultipartParser(boundary, reader.callbacks())
        parser.write(body)
        parser.finalize()
    except FormParserError as error:
        raise CodedError("malformed", f"Request body is not valid multipart/form-data: {error}") from error
    if not reader.ended:
        raise CodedError("malformed", "The multipart/form-data body ends before its last boundary")
    return _form(reader.parts)


def _form(parts: list[_Part]) -> Form:
    if not parts or parts[0].name != "request":
        raise CodedError("malformed", "The first part of a multipart/form-data body must be named 'request'")
    named: dict[str, bytes] = {}
    for part in parts[1:]:
        if part.name in named or part.name == "request":
            raise CodedError("malformed", f"Part {part.name[:80]!r} stands twice")
        named[part.name] = bytes(part.data)
    return Form(bytes(parts[0].data), named)


class _Reader:
    """The parser's callbacks, collecting whole parts."""

    def __init__(self) -> None:
        self.parts: list[_Part] = []
        self.ended = False
        self._field = bytearray()
        self._value = bytearray()

    def callbacks(self) -> MultipartCallbacks:
        return {
            "on_part_begin": self._begin,
            "on_header_field": lambda data, start, end: self._field.extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
            "on_header_end": self._header,
            "on_headers_finished": self._named,
            "on_part_data": lambda data, start, end: self.parts[-1].data.extend(data[start:end]),
            "on_end": self._end,
        }

    def _begin(self) -> None:
        if len(self.parts) == MAX_PARTS:
            raise CodedError("malformed", f"A multipart/form-data body may have at most {MAX_PARTS} parts")
        self.parts.append(_Part())

    def _header(self) -> None:
        self.parts[-1].headers[self._field.decode("latin-1").lower()] = self._value.decode("latin-1")
        self._field.clear()
        self._value.clear()

    def _named(self) -> None:
        part = self.parts[-1]
        _, options = parse_options_header(part.headers.get("content-disposition", ""))
        name = options.get(b"name")
        if name is None:
            raise CodedError("malformed", "A part of the multipart/form-data body has no name")
        try:
            part.name = name.decode()
        except UnicodeDecodeError as error:
            raise CodedError("malformed", "A part's name is not UTF-8") from error

    def _end(self) -> None:
        self.ended = True

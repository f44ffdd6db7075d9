"""A request body as it came, and the JSON object and form parts that it holds."""

from __future__ import annotations

from dataclasses import dataclass

from photocall.errors import CodedError
from photocall.questions import InvalidField, Json
from photocall_gateway.compression import decompress
from photocall_gateway.json_body import load_json
from photocall_gateway.multipart import parse_form

OTHER_VALUES = 10_000  # in a body, beside the text: no text of n characters has more than n of them


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one request, in bytes where not said otherwise. `max_images` counts distinct pictures.

    `max_text_chars`: state and questions as JSON. What is longer fits no model, and would hold up tokenizers.
    """

    max_decompressed_bytes: int
    max_text_chars: int
    max_image_bytes: int
    max_images: int
    fetch_urls: bool = False
    webhooks: bool = True
    plain_http: bool = False  # URLs may be http: they then reach allowed private networks only


@dataclass(frozen=True, slots=True)
class Body:
    """A request body as it came, in whole, with the two headers that say how to read it."""

    data: bytes
    content_type: str
    content_encoding: str


def open_body(body: Body, limits: Limits) -> tuple[dict[str, Json], dict[str, bytes]]:
    """The JSON object of a body and its other parts.

    Raises InvalidField, or CodedError `malformed`, `unsupported_type`, `body_too_large`.
    """
    data = decompress(body.data, body.content_encoding, limits.max_decompressed_bytes)
    max_values = limits.max_text_chars + OTHER_VALUES
    kind = body.content_type.partition(";")[0].strip().lower()
    if not data:
        raise CodedError("malformed", "The request body is empty")
    if kind == "multipart/form-data":
        form = parse_form(data, body.content_type)
        value, parts = load_json(form.request, max_values), form.parts
    elif kind in ("", "application/json", "text/json") or kind.endswith("+json"):
        value, parts = load_json(data, max_values), {}
    else:
        raise CodedError("unsupported_type", "Content-Type must be application/json or multipart/form-data")
    if not isinstance(value, dict):
        raise InvalidField((), "The request body must be a JSON object", "dict_type")
    return value, parts

"""From a decoded request body to a checked request: questions, state, and the bytes behind each asset.

Shared by the native and the System One route. Nothing here touches Redis or the event loop, so a large body can be
parsed in a thread. A picture never appears in an error.
"""

from __future__ import annotations

import binascii
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from photocall.asks import Ask, mentioned
from photocall.errors import CodedError
from photocall.questions import InvalidField, Json, Question, parse_questions
from photocall_gateway.compression import decompress
from photocall_gateway.formats import picture_format
from photocall_gateway.json_body import load_json
from photocall_gateway.multipart import parse_form

_NOT_YET = ("webhook", "budget", "order", "calibration")  # fields of a native job that change its answer
_PICTURE_FIELDS = ("images", "media")  # pictures as other clients send them; not taken, an answer would not see them
MAX_METADATA = 16
MAX_ASSETS = 64  # keys; each is looked for at every place of the text
MAX_KEY_CHARS = 256


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one request, in bytes where not said otherwise. `max_images` counts distinct pictures.

    `max_text_chars`: state and questions as JSON. What is longer fits no model, and would hold up tokenizers.
    """

    max_decompressed_bytes: int
    max_text_chars: int
    max_image_bytes: int
    max_images: int


@dataclass(frozen=True, slots=True)
class Body:
    """A request body as it came, in whole, with the two headers that say how to read it."""

    data: bytes
    content_type: str
    content_encoding: str


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """A checked request. `images` holds the bytes of each distinct picture of `ask` by its hash."""

    ask: Ask
    images: dict[str, bytes]
    hash: str  # over everything that decides the answer, and the job's own fields: equal bodies have equal hashes


@dataclass(frozen=True, slots=True)
class JobOptions:
    """The fields of a native job beside the question."""

    priority: Literal["interactive", "batch"] = "interactive"
    deadline_s: float | None = None
    metadata: dict[str, str] = field(default_factory=dict)


def parse_systemone(body: Body, limits: Limits) -> ParsedRequest:
    """Raises InvalidField, or CodedError `malformed`, `unsupported_type`, `body_too_large`, `image_*` and others."""
    raw, parts = _open(body, limits)
    return _request(raw, parts, limits, name_parts=False)[0]


def parse_job(body: Body, limits: Limits, max_deadline_s: float) -> tuple[ParsedRequest, JobOptions]:
    """As parse_systemone; a multipart body may also send a picture as a part named by the word that stands for it."""
    raw, parts = _open(body, limits)
    options = _options(raw, max_deadline_s)
    request, digest = _request(raw, parts, limits, name_parts=True)
    digest.update(repr((options.priority, options.deadline_s, sorted(options.metadata.items()))).encode())
    return ParsedRequest(request.ask, request.images, digest.hexdigest()), options


def _open(body: Body, limits: Limits) -> tuple[dict[str, Json], dict[str, bytes]]:
    """The JSON object of a body and its other parts."""
    data = decompress(body.data, body.content_encoding, limits.max_decompressed_bytes)
    kind = body.content_type.partition(";")[0].strip().lower()
    if not data:
        raise CodedError("malformed", "The request body is empty")
    if kind == "multipart/form-data":
        form = parse_form(data, body.content_type)
        value, parts = load_json(form.request), form.parts
    elif kind in ("", "application/json", "text/json") or kind.endswith("+json"):
        value, parts = load_json(data), {}
    else:
        raise CodedError("unsupported_type", "Content-Type must be application/json or multipart/form-data")
    if not isinstance(value, dict):
        raise InvalidField((), "The request body must be a JSON object", "dict_type")
    return value, parts


def _request(
    raw: Mapping[str, Json], parts: dict[str, bytes], limits: Limits, *, name_parts: bool
) -> tuple[ParsedRequest, Any]:
    model = raw.get("model")
    if model is not None and not isinstance(model, str):
        raise InvalidField(("model",), "Expected a string", "string_type")
    state = _state(raw)
    if "questions" not in raw:
        raise InvalidField(("questions",), "Field required", "missing")
    questions = parse_questions(raw["questions"])
    body: str = Ask(model, state, questions).to_content()["body"]
    if len(body) > limits.max_text_chars:
        msg = f"State and questions have {len(body)} characters, limit {limits.max_text_chars}"
        raise CodedError("prompt_too_long", msg, characters=len(body), limit=limits.max_text_chars)
    blobs = _assets(raw, parts, limits, name_parts=name_parts)
    _all_mentioned(blobs, state, questions)
    hashes = {key: hashlib.sha256(data).hexdigest() for key, data in blobs.items()}
    images = {hashes[key]: data for key, data in blobs.items()}
    if len(images) > limits.max_images:
        msg = f"At most {limits.max_images} pictures, got {len(images)}"
        raise InvalidField(("assets",), msg, "too_long")
    ask = Ask(model, state, questions, hashes)
    digest = hashlib.sha256(repr((model, body, hashes)).encode())
    return ParsedRequest(ask, images, digest.hexdigest()), digest


def _state(raw: Mapping[str, Json]) -> Json:
    if "state" not in raw:
        raise InvalidField(("state",), "Field required", "missing")
    state = raw["state"]
    if not isinstance(state, str | Mapping | list):
        raise InvalidField(("state",), "Expected a string, an object or an array", "content_type")
    return state


def _assets(raw: Mapping[str, Json], parts: dict[str, bytes], limits: Limits, *, name_parts: bool) -> dict[str, bytes]:
    """Asset key -> the picture's bytes. Every part belongs to exactly one asset."""
    for name in _PICTURE_FIELDS:
        if raw.get(name):
            raise InvalidField((name,), "Pictures are taken as assets, or as parts of a form", "unsupported_field")
    entries = raw.get("assets")
    if entries is None:
        entries = {}
    elif not isinstance(entries, Mapping):
        raise InvalidField(("assets",), "Expected an object of assets by key", "dict_type")
    elif not entries:
        raise InvalidField(("assets",), "At least one asset is required where assets are given", "too_short")
    elif len(entries) > MAX_ASSETS:
        raise InvalidField(("assets",), f"At most {MAX_ASSETS} assets, got {len(entries)}", "too_long")
    blobs: dict[str, bytes] = {}
    claimed: dict[str, str] = {}
    for key, entry in entries.items():
        if not 1 <= len(key) <= MAX_KEY_CHARS:
            msg = f"An asset key has 1 to {MAX_KEY_CHARS} characters"
            raise InvalidField(("assets", key[:MAX_KEY_CHARS]), msg, "key_length")
        blobs[key] = _asset(key, entry, parts, claimed)
    for name in parts.keys() - claimed.keys():
        if not name_parts or name in blobs:
            raise CodedError("malformed", f"Part {name[:80]!r} belongs to no asset")
    blobs |= {name: data for name, data in parts.items() if name not in claimed}
    for key, data in blobs.items():
        _check_picture(key, data, limits)
    return blobs


def _asset(key: str, entry: Json, parts: Mapping[str, bytes], claimed: dict[str, str]) -> bytes:
    loc = ("assets", key)
    if not isinstance(entry, Mapping):
        raise InvalidField(loc, "Expected an object", "dict_type")
    if entry.get("type") not in (None, "image"):
        raise InvalidField((*loc, "type"), "Expected 'image'", "literal_error")
    part = entry.get("part")
    if part is not None:
        if not isinstance(part, str):
            raise InvalidField((*loc, "part"), "Expected a string", "string_type")
        if part not in parts:
            raise InvalidField((*loc, "part"), "The body has no such part", "missing_part")
        if part in claimed:
            raise InvalidField((*loc, "part"), f"Asset {claimed[part][:80]!r} has this part already", "duplicate")
        claimed[part] = key
        return parts[part]
    text = entry.get("data_base64")
    if text is None:
        raise InvalidField((*loc, "data_base64"), "Field required, or part in a multipart body", "missing")
    if not isinstance(text, str):
        raise InvalidField((*loc, "data_base64"), "Expected a string", "string_type")
    try:
        # Wrapped base64 is common (`base64 photo.jpg`); any other foreign character is a fault.
        return binascii.a2b_base64("".join(text.split()).encode("ascii"), strict_mode=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise InvalidField((*loc, "data_base64"), "Not valid base64", "base64") from error


def _check_picture(key: str, data: bytes, limits: Limits) -> None:
    shown = key[:80]
    if not data:
        raise InvalidField(("assets", key), "The picture has no bytes", "too_short")
    if len(data) > limits.max_image_bytes:
        msg = f"Asset {shown!r} has {len(data)} bytes, limit {limits.max_image_bytes}"
        raise CodedError("image_too_large", msg, asset=shown, bytes=len(data), limit=limits.max_image_bytes)
    if picture_format(data) is None:
        raise CodedError("image_unsupported", f"Asset {shown!r} is no picture of a supported format", asset=shown)


def _all_mentioned(blobs: Mapping[str, bytes], state: Json, questions: tuple[Question, ...]) -> None:
    found = mentioned(blobs.keys(), state, questions)
    for key in blobs:
        if key not in found:
            msg = f"Asset {key[:80]!r} is not referenced in the request"
            raise CodedError("unreferenced_asset", msg, asset=key[:80])


def _options(raw: Mapping[str, Json], max_deadline_s: float) -> JobOptions:
    for name in _NOT_YET:
        if raw.get(name) is not None:
            raise InvalidField((name,), "Not supported by this version", "unsupported_field")
    priority = raw.get("priority", "interactive")
    if priority not in ("interactive", "batch"):
        raise InvalidField(("priority",), "Expected 'interactive' or 'batch'", "literal_error")
    deadline = raw.get("deadline_s")
    if deadline is not None and (isinstance(deadline, bool) or not isinstance(deadline, int | float)):
        raise InvalidField(("deadline_s",), "Expected a number of seconds", "float_type")
    if deadline is not None and not 0 < deadline <= max_deadline_s:
        raise InvalidField(("deadline_s",), f"Expected above 0, at most {max_deadline_s:g}", "out_of_range")
    metadata = raw.get("metadata")
    return JobOptions(priority, None if deadline is None else float(deadline), _metadata(metadata))


def _metadata(raw: Json) -> dict[str, str]:
    if raw is None:
        return {}
    if not isinstance(raw, Mapping):
        raise InvalidField(("metadata",), "Expected an object of strings", "dict_type")
    if len(raw) > MAX_METADATA:
        raise InvalidField(("metadata",), f"At most {MAX_METADATA} entries, got {len(raw)}", "too_long")
    checked: dict[str, str] = {}
    for key, value in raw.items():
        if not isinstance(value, str):
            raise InvalidField(("metadata", key), "Expected a string", "string_type")
        if len(key) > 64 or len(value) > 512:
            raise InvalidField(("metadata", key[:64]), "A key has at most 64 characters, a value 512", "too_long")
        checked[key] = value
    return checked

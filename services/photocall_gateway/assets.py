"""The `assets` of a request and the parts of its form: which picture stands behind which key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from photocall.errors import CodedError
from photocall.names import SHOWN_CHARS, check_name
from photocall.questions import InvalidField, Json
from photocall_gateway.pictures import Picture, from_base64, from_url, picture, stored
from photocall_gateway.viewing import view_of

MAX_ASSETS = 64  # keys; each is looked for at every place of the text
MAX_KEY_CHARS = 256


def read_assets(entries: Json, parts: dict[str, bytes], max_bytes: int, *, name_parts: bool) -> dict[str, Picture]:
    """Asset key -> its picture. Every part belongs to exactly one asset; with `name_parts`, else to its own name.

    Raises InvalidField, or CodedError `malformed` and `image_*`.
    """
    if entries is None:
        entries = {}
    elif not isinstance(entries, Mapping):
        raise InvalidField(("assets",), "Expected an object of assets by key", "dict_type")
    elif not entries:
        raise InvalidField(("assets",), "At least one asset is required where assets are given", "too_short")
    elif len(entries) > MAX_ASSETS:
        raise InvalidField(("assets",), f"At most {MAX_ASSETS} assets, got {len(entries)}", "too_long")
    found: dict[str, Picture] = {}
    claimed: dict[str, str] = {}
    for key, entry in entries.items():
        check_name(key, ("assets", key[:SHOWN_CHARS]), 1, MAX_KEY_CHARS)
        sent = _asset(key, entry, parts, claimed, max_bytes)
        found[key] = replace(sent, view=view_of(entry, ("assets", key)))
    for name in parts.keys() - claimed.keys():
        if not name_parts or name in found:
            raise CodedError("malformed", f"Part {name[:SHOWN_CHARS]!r} belongs to no asset")
        check_name(name, ("assets", name[:SHOWN_CHARS]), 1, MAX_KEY_CHARS)
    return found | {name: _sent(name, data, max_bytes) for name, data in parts.items() if name not in claimed}


def _sent(key: str, data: bytes, max_bytes: int) -> Picture:
    return picture(data, f"Asset {key[:80]!r}", ("assets", key), max_bytes)


def _asset(key: str, entry: Json, parts: Mapping[str, bytes], claimed: dict[str, str], max_bytes: int) -> Picture:
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
        return _sent(key, parts[part], max_bytes)
    text = entry.get("data_base64")
    if text is not None:
        return _sent(key, from_base64(text, (*loc, "data_base64")), max_bytes)
    if entry.get("sha256") is not None:
        return stored(entry["sha256"], (*loc, "sha256"))
    if entry.get("url") is not None:
        where = (*loc, "url")
        return picture(from_url(entry["url"], where), f"Asset {key[:80]!r}", where, max_bytes)
    msg = "Field required, or part in a multipart body, or sha256 of an image that is stored"
    raise InvalidField((*loc, "data_base64"), msg, "missing")

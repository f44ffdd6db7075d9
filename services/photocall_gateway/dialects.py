"""Pictures as other clients of System One's shape send them, turned into assets.

Three ways: a list `images` (named `[image N]` in the text), a list `media` (named `<image:N>`), and parts of type
`image_url` inside an array of the state. N counts from 0 where the text has a picture 0, else from 1. A picture of a
list that the text does not name stands before the state, in its order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from photocall.asks import mentioned
from photocall.questions import InvalidField, Json, Loc, Question
from photocall_gateway.assets import MAX_ASSETS
from photocall_gateway.pictures import Gathered, Picture, from_base64, from_text, from_url, picture, stored
from photocall_gateway.viewing import view_of

MARKERS = {"images": "[image {}]", "media": "<image:{}>"}
MAX_LOC_CHARS = 80  # of a key, in an error
_PART_TYPES = ("image_url", "input_image")
_BASE64_FIELDS = ("data_base64", "base64")
_TEXT_FIELDS = ("data", "url")


def without_parts(state: Json, max_bytes: int) -> tuple[Json, dict[str, Picture]]:
    """The state with a key in place of each picture part of its arrays, and the pictures by these keys.

    Raises InvalidField, or CodedError `image_*`.
    """
    gathered = Gathered("image_url", max_bytes)
    return _walk(state, ("state",), gathered), gathered.pictures


def _walk(value: Json, loc: Loc, gathered: Gathered) -> Json:
    if isinstance(value, Mapping):
        return {key: _walk(item, (*loc, key[:MAX_LOC_CHARS]), gathered) for key, item in value.items()}
    if isinstance(value, str) or not isinstance(value, Sequence):
        return value
    return [
        _part(item, (*loc, i), gathered) if _is_part(item) else _walk(item, (*loc, i), gathered)
        for i, item in enumerate(value)
    ]


def _is_part(value: Json) -> bool:
    return isinstance(value, Mapping) and value.get("type") in _PART_TYPES


def _part(raw: Json, loc: Loc, gathered: Gathered) -> str:
    if isinstance(raw, Mapping) and raw.get("image_url") is None and raw.get("sha256") is not None:
        return gathered.put(stored(raw["sha256"], (*loc, "sha256")), loc, view_of(raw, loc))
    found = raw.get("image_url") if isinstance(raw, Mapping) else None
    where: Loc = (*loc, "image_url")
    if isinstance(found, Mapping):
        found, where = found.get("url"), (*where, "url")
    if found is None:
        raise InvalidField(where, "Field required", "missing")
    return gathered.add(from_url(found, where), where, view_of(raw, loc))


def listed(
    raw: Mapping[str, Json], state: Json, questions: tuple[Question, ...], max_bytes: int
) -> tuple[Json, dict[str, Picture]]:
    """The state with the pictures of both lists that nothing names before it, and all of them by their keys.

    Raises InvalidField, or CodedError `image_*`.
    """
    found: dict[str, Picture] = {}
    unnamed: list[str] = []
    for field, marker in MARKERS.items():
        pictures = _pictures(raw.get(field), field, max_bytes)
        markers = [marker.format(i) for i in range(len(pictures) + 1)] if pictures else []
        named = mentioned(markers, state, questions)
        keys = markers[:-1] if markers[:1] and markers[0] in named else markers[1:]
        found |= dict(zip(keys, pictures, strict=True))
        unnamed += [key for key in keys if key not in named]
    if not unnamed:
        return state, found
    if isinstance(state, str):
        return "\n".join([*unnamed, state]), found
    return [*unnamed, *([state] if isinstance(state, Mapping) or not isinstance(state, Sequence) else state)], found


def _pictures(raw: Json, field: str, max_bytes: int) -> list[Picture]:
    if raw is None:
        return []
    if isinstance(raw, str) or not isinstance(raw, Sequence):
        raise InvalidField((field,), "Expected a list of pictures", "list_type")
    if len(raw) > MAX_ASSETS:
        raise InvalidField((field,), f"At most {MAX_ASSETS} pictures, got {len(raw)}", "too_long")
    return [
        replace(_listed_picture(item, (field, i), max_bytes), view=view_of(item, (field, i)))
        for i, item in enumerate(raw)
    ]


def _listed_picture(raw: Json, loc: Loc, max_bytes: int) -> Picture:
    """A string, or an object that holds one; a path beside it is not read, and alone it is refused."""
    shown = f"Picture {loc[0]}[{loc[1]}]"
    if isinstance(raw, str):
        return picture(from_text(raw, loc), shown, loc, max_bytes)
    if not isinstance(raw, Mapping):
        raise InvalidField(loc, "Expected base64 or a data URL", "string_type")
    if raw.get("type") not in (None, "image", *_PART_TYPES):
        raise InvalidField((*loc, "type"), "Expected 'image'", "literal_error")
    for name in _BASE64_FIELDS:
        if raw.get(name) is not None:
            return picture(from_base64(raw[name], (*loc, name)), shown, (*loc, name), max_bytes)
    for name in _TEXT_FIELDS:
        if raw.get(name) is not None:
            return picture(from_text(raw[name], (*loc, name)), shown, (*loc, name), max_bytes)
    if raw.get("image_url") is not None:
        nested = raw["image_url"]
        url, where = (nested.get("url"), (*loc, "image_url", "url")) if isinstance(nested, Mapping) else (nested, loc)
        return picture(from_url(url, where), shown, where, max_bytes)
    if raw.get("sha256") is not None:
        return stored(raw["sha256"], (*loc, "sha256"))
    if "path" in raw:
        raise InvalidField((*loc, "path"), "Paths are not read: send the picture's bytes", "path_not_read")
    raise InvalidField((*loc, "data_base64"), "Field required", "missing")

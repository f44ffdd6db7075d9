"""The pictures of a Windows icon: its directory, and each picture as a file of its own, to be read like any other.

An entry is a whole PNG, whose header has the last word on its size, or a bitmap without a file's header. Pillow would
decode whichever is in the file first to learn how large it is; here only the wanted one is touched.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from photocall_prep.frames import no_such_frame
from photocall_prep.refusal import ImageRefused, Limits

_HEAD = struct.Struct("<HHH")
_ENTRY = struct.Struct("<BBBBHHII")
_BITMAP = struct.Struct("<Iii")
_PNG = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True, slots=True)
class IconPicture:
    """One of `count` pictures. `data` is a PNG, or an icon with this picture alone."""

    data: bytes
    is_png: bool
    frame: int
    count: int


def icon_picture(data: bytes, frame: int | None, limits: Limits) -> IconPicture:
    """The picture number `frame`, from 0 in the file's order; None: the largest. Raises ImageRefused, struct.error."""
    _, _, count = _HEAD.unpack_from(data)
    if count < 1:
        raise ImageRefused("image_undecodable", "an icon without a picture")
    if count > limits.max_frames:
        raise ImageRefused("image_too_large", f"{count} frames; at most {limits.max_frames} are accepted")
    if frame is not None and frame >= count:
        raise no_such_frame(frame, count)
    entries = [_ENTRY.unpack_from(data, _HEAD.size + _ENTRY.size * i) for i in range(count)]
    if frame is None:
        frame = max(range(count), key=lambda i: (_side(entries[i][0]) * _side(entries[i][1]), entries[i][5], -i))
    width, height, colours, _, planes, bits, size, at = entries[frame]
    body = data[at : at + size]
    if len(body) < size or size < _BITMAP.size:
        raise ImageRefused("image_undecodable", "damaged ICO: a picture ends behind the file")
    if body.startswith(_PNG):
        return IconPicture(body, True, frame, count)
    _, stored_width, stored_height = _BITMAP.unpack_from(body)
    if (stored_width, stored_height) != (_side(width), 2 * _side(height)):  # colours, and a mask of the same size
        raise ImageRefused("image_undecodable", "damaged ICO: its directory states another size than its picture")
    entry = _ENTRY.pack(width, height, colours, 0, planes, bits, size, _HEAD.size + _ENTRY.size)
    return IconPicture(_HEAD.pack(0, 1, 1) + entry + body, False, frame, count)


def _side(stored: int) -> int:
    return stored or 256

"""PillowSource: a file that Pillow reads, opened at one of its frames, its header within the limits."""

from __future__ import annotations

import io

import numpy as np
import pillow_heif
from PIL import AvifImagePlugin, Image

from photocall.views import View
from photocall_prep.colour import to_rgb
from photocall_prep.frames import check_frames, go_to
from photocall_prep.png_chunks import PngChunks
from photocall_prep.profiles import moves_colours
from photocall_prep.refusal import ImageRefused, Limits
from photocall_prep.sources import Facts, Fitted, Loaded
from photocall_prep.stated_colours import Stated, stated
from photocall_prep.streaming import reducing, streamed
from photocall_prep.turning import known, on_its_side

# The limit is ours and is checked on the header; Pillow's own would only warn about 9000 x 9000.
Image.MAX_IMAGE_PIXELS = None
# A worker prepares one picture at a time on one core; a codec that takes all of them starves its neighbours.
AvifImagePlugin.DEFAULT_MAX_THREADS = 1
pillow_heif.register_heif_opener(decode_threads=1, thumbnails=False, depth_images=False, aux_images=False)

_JPEGS = ("JPEG", "MPO")
_TURNED_BY_THEIR_DECODERS = ("TIFF", "HEIF")
_TIFF_TILE_SIDES = (322, 323)
_JPEG_SCAN = b"\xff\xda"  # cannot occur inside a scan: there 0xff is followed by 0x00 or a restart mark
_SCANS_OF_THE_LARGEST = 16  # progressive files have about ten; smaller pictures may have more
_ORIENTATION = 0x0112
_RAW_EXIF = "Raw profile type exif"  # how ImageMagick writes it


class PillowSource:
    """See `sources.Source`. `name` is Pillow's name of the format; no other is tried."""

    def __init__(self, data: bytes, name: str, limits: Limits, view: View, background: str) -> None:
        self._background = view.background or background
        self._chunks = PngChunks.read(data) if name == "PNG" else None
        self._data = data
        self._file = io.BytesIO(data)
        self._image = Image.open(self._file, formats=(name,))
        try:
            if self._chunks is not None:
                _scale_key(self._image, self._chunks.depth)
            frames = check_frames(self._image, limits)
            _check_header(self._image, data, limits)
            if view.frame:
                go_to(self._image, view.frame, frames, limits)
                _check_header(self._image, data, limits)
            orientation = _orientation(self._image, self._chunks)
            self._facts = Facts(
                format=self._image.format or name,  # a JPEG of several pictures is an MPO
                mode=self._image.mode,
                size=self._image.size,
                orientation=orientation,
                turn=1 if name in _TURNED_BY_THEIR_DECODERS else orientation,
                frame=view.frame or 0,
                frames=frames,
            )
        except BaseException:
            self.close()
            raise

    @property
    def facts(self) -> Facts:
        """What the header says."""
        return self._facts

    def fitted(self, size: tuple[int, int]) -> Fitted | None:
        """See `sources.Source`. Grey becomes RGB after the resize.

        A profile that moves colours does not: on photographs in Display P3 single pixels came out 48 levels apart.
        """
        image, kind = self._image, "JPEG" if self._image.format in _JPEGS else self._image.format
        if self._facts.frame or kind is None or image.has_transparency_data:
            return None
        says = stated(image, self._data, self._chunks)
        if _moves(says):
            return None
        found = streamed(self._data, kind, image.mode, image.size, size, on_its_side(self._facts.turn))
        if found is None:
            return None
        if image.mode == "RGB" and says.profile is None:
            return Fitted(found.pixels, (), found.decoded_size)
        rgb, steps = to_rgb(Image.fromarray(found.pixels), self._background, says)
        return Fitted(np.asarray(rgb), steps, found.decoded_size)

    def load(self, at_least: tuple[int, int] | None) -> Loaded:
        """See `sources.Source`. A JPEG's transform gives every second, fourth or eighth pixel, filtered.

        It is used where whole pixels are too many, or their colours cost more than the pixels.
        """
        image, covers = self._image, None
        if at_least is not None and image.format in _JPEGS:
            costly = image.mode not in ("RGB", "L") or _moves(stated(image, self._data, self._chunks))
            drafted = image.draft(None, at_least) if costly or reducing("JPEG", image.size) else None
            covers = None if drafted is None else (drafted[1][2], drafted[1][3])
        image.load()
        rgb, steps = to_rgb(image, self._background, stated(image, self._data, self._chunks))
        return Loaded(rgb, steps, covers)

    def close(self) -> None:
        """Close the file. The picture itself is not closed: its pixels may have been handed out as they are."""
        self._file.close()


def _moves(says: Stated) -> bool:
    return says.profile is not None and moves_colours(says.profile)


def _scale_key(image: Image.Image, depth: int) -> None:
    """The colour key of a PNG is told in stored values, and compared with pixels that are scaled to 8 bits."""
    key = image.info.get("transparency")
    if image.mode == "L" and isinstance(key, int) and depth < 8:
        image.info["transparency"] = key * 255 // (2**depth - 1)
    elif image.mode == "RGB" and isinstance(key, tuple) and depth == 16:
        image.info["transparency"] = tuple(value >> 8 for value in key)


def _check_header(image: Image.Image, data: bytes, limits: Limits) -> None:
    width, height = image.size
    if width < 1 or height < 1:
        raise ImageRefused("image_undecodable", f"its header says {width}x{height} pixels")
    if width * height > limits.max_pixels:
        reason = f"{width}x{height} = {width * height} pixels; at most {limits.max_pixels} are accepted"
        raise ImageRefused("image_too_large", reason)
    if image.format in _JPEGS:  # every scan passes over the whole picture, however few bytes it has
        scans = data.count(_JPEG_SCAN)
        if scans * width * height > _SCANS_OF_THE_LARGEST * limits.max_pixels:
            raise ImageRefused("image_too_large", f"{scans} scans of {width}x{height} pixels")
    if image.format == "TIFF":  # a whole tile is held in memory, however small the picture
        tile_width, tile_height = (_tag(image, tag, 1) for tag in _TIFF_TILE_SIDES)
        if tile_width * tile_height > limits.max_pixels:
            reason = f"tiles of {tile_width}x{tile_height} pixels; at most {limits.max_pixels} are accepted"
            raise ImageRefused("image_too_large", reason)


def _tag(image: Image.Image, tag: int, default: int) -> int:
    value = getattr(image, "tag_v2", {}).get(tag, default)
    return int(value[0] if isinstance(value, tuple) else value)


def _orientation(image: Image.Image, chunks: PngChunks | None) -> int:
    try:
        if chunks is not None:  # asked for its EXIF, Pillow would decode a PNG: the chunk may stand behind the pixels
            exif = Image.Exif()
            exif.load(chunks.exif or b"")
            if chunks.exif is None and _RAW_EXIF in image.info:
                exif = image.getexif()
            return known(exif.get(_ORIENTATION, 1))
        if image.format == "TIFF":
            return known(_tag(image, _ORIENTATION, 1))
        if image.format == "HEIF":  # its EXIF was set to 1
            return known(image.info.get("original_orientation"))
        return known(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # whatever is wrong with an EXIF block, it does not make the pixels unreadable
        return 1

"""From the bytes of one picture file to RGB pixels, or a refusal that says why. The hub of what opens files.

The format is found in the content, never in a name, and only the formats of `photocall.formats` are ever opened. Limits
are checked on the header, before any pixel is decoded. Of a file with several frames or pages one is read, the first
unless the view names another. Knows nothing of grids, jobs or Redis.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Self

from PIL import UnidentifiedImageError

from photocall.formats import FORMATS, picture_format, what_it_is
from photocall.views import PLAIN, View
from photocall_prep.colour import WHITE, ColourRefused
from photocall_prep.ico import icon_picture
from photocall_prep.pdf_source import PdfSource
from photocall_prep.pillow_source import PillowSource
from photocall_prep.refusal import ImageRefused, Limits
from photocall_prep.sources import Facts, Fitted, Loaded, Renamed, Source

# What the decoders raise on damaged files: the picture is refused, the process goes on.
_DAMAGE = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    LookupError,
    EOFError,
    AttributeError,
    ArithmeticError,
    NotImplementedError,
    RuntimeError,
    struct.error,
    zlib.error,
)


class OpenPicture:
    """One picture of a file, within the limits; what it is, and its pixels when they are asked for."""

    def __init__(self, source: Source) -> None:
        self._source = source

    @property
    def facts(self) -> Facts:
        """What its header says."""
        return self._source.facts

    def fitted(self, size: tuple[int, int]) -> Fitted | None:
        """Straight to a width and height, not turned; None where `load` and a resize are the way."""
        with _refusing(self.facts.format):
            return self._source.fitted(size)

    def load(self, at_least: tuple[int, int] | None = None) -> Loaded:
        """Decode, once. `at_least`: fewer pixels than stored will do, on neither side fewer than this; None: all.

        Raises ImageRefused.
        """
        with _refusing(self.facts.format):
            return self._source.load(at_least)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._source.close()


def open_picture(data: bytes, limits: Limits, view: View = PLAIN, background: str = WHITE) -> OpenPicture:
    """Read a file's header. `background` (rrggbb) lies behind what is transparent, unless the view says otherwise.

    Raises ImageRefused.
    """
    name = checked_format(data, limits)
    if view.dpi is not None and name != "PDF":
        raise ImageRefused(
            "image_view_unsupported", f"dpi is for pages of a PDF, and this is a {name} with its own pixels"
        )
    with _refusing(name):
        return OpenPicture(_source(data, name, limits, view, background))


def _source(data: bytes, name: str, limits: Limits, view: View, background: str) -> Source:
    if name == "PDF":
        return PdfSource(data, limits, view, background)
    if name == "ICO":
        found = icon_picture(data, view.frame, limits)
        alone = PillowSource(
            found.data, "PNG" if found.is_png else "ICO", limits, replace(view, frame=None), background
        )
        return Renamed(alone, "ICO", found.frame, found.count)
    return PillowSource(data, name, limits, view, background)


def checked_format(data: bytes, limits: Limits) -> str:
    """Its format, as Pillow names it. Raises ImageRefused for too many bytes, and for what is not read here."""
    if not data:
        raise ImageRefused("image_undecodable", "the file is empty")
    if len(data) > limits.max_image_bytes:
        raise ImageRefused("image_too_large", f"{len(data)} bytes; at most {limits.max_image_bytes} are accepted")
    name = picture_format(data)
    if name is None:
        accepted = ", ".join(FORMATS).upper()
        raise ImageRefused("image_unsupported", f"it is {what_it_is(data)}, not one of {accepted}")
    return name.upper()


@contextmanager
def _refusing(name: str) -> Iterator[None]:
    try:
        yield
    except ColourRefused as error:
        raise ImageRefused("image_unsupported", str(error)) from error
    except _DAMAGE as error:
        raise ImageRefused("image_undecodable", f"damaged {name}: {_describe(error)}") from error


def _describe(error: BaseException) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "its header cannot be read"  # Pillow names an object of this process instead
    return " ".join(str(error).split())[:200] or type(error).__name__

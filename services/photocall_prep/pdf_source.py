"""PdfSource: one page of a PDF, drawn by PDFium at a resolution.

A page has no pixels of its own. Its size at the wanted resolution is held to the limits before anything is drawn; what
a page makes PDFium do is bounded by the worker's own limits on memory and time. Scripts and links are not run.
"""

from __future__ import annotations

import pypdfium2

from photocall.views import MAX_DPI, MIN_DPI, View
from photocall_prep.colour import named, rgb_of
from photocall_prep.frames import no_such_frame
from photocall_prep.refusal import ImageRefused, Limits
from photocall_prep.sources import Facts, Fitted, Loaded

DEFAULT_DPI = 150
_POINTS_PER_INCH = 72


class PdfSource:
    """See `sources.Source`."""

    def __init__(self, data: bytes, limits: Limits, view: View, background: str) -> None:
        self._background = view.background or background
        dpi = view.dpi or DEFAULT_DPI
        if not MIN_DPI <= dpi <= MAX_DPI:
            raise ImageRefused("image_view_unsupported", f"{dpi} dpi; {MIN_DPI} to {MAX_DPI} are drawn")
        self._scale = dpi / _POINTS_PER_INCH
        try:
            self._document = pypdfium2.PdfDocument(data)
        except pypdfium2.PdfiumError as error:
            if "password" in str(error).lower():
                raise ImageRefused("image_undecodable", "it needs a password") from error
            raise
        try:
            pages, frame = len(self._document), view.frame or 0
            if frame >= pages:
                raise no_such_frame(frame, pages)
            self._page = self._document[frame]
            width, height = (max(1, round(side * self._scale)) for side in self._page.get_size())
            if width * height > limits.max_pixels:
                reason = f"a page of {width}x{height} pixels at {dpi} dpi; at most {limits.max_pixels} are accepted"
                raise ImageRefused("image_too_large", reason)
        except BaseException:
            self.close()
            raise
        self._facts = Facts(format="PDF", mode=f"{dpi} dpi", size=(width, height), frame=frame, frames=pages)

    @property
    def facts(self) -> Facts:
        """What is known of the page."""
        return self._facts

    def fitted(self, size: tuple[int, int]) -> Fitted | None:
        """See `sources.Source`."""
        return None

    def load(self, at_least: tuple[int, int] | None) -> Loaded:
        """See `sources.Source`. The page is always drawn at its resolution."""
        bitmap = self._page.render(
            scale=self._scale, fill_color=(*rgb_of(self._background), 255), rev_byteorder=True, prefer_bgrx=True
        )
        drawn = bitmap.to_pil().convert("RGB")
        bitmap.close()
        if drawn.size != self._facts.size:  # PDFium rounds a page's size up
            drawn = drawn.crop((0, 0, *self._facts.size))
        return Loaded(drawn, (f"drawn on {named(self._background)}",))

    def close(self) -> None:
        """Close page and document."""
        self._document.close()

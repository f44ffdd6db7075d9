"""A picture small enough to stand in a page, as a data URL: nothing is asked of any server to show it."""

from __future__ import annotations

import base64
import html
import io

from photocall.client.packages import installed, needed
from photocall.client.pictures import Image, Picture, load, path_of
from photocall.formats import picture_format

SIDE = 360  # pixels of the longer side
LARGEST_BYTES = 300_000  # of a file that is shown as it is, where Pillow is not there to make it smaller
_SHOWN_BY_BROWSERS = ("jpeg", "png", "webp", "gif", "bmp", "avif")


def thumbnail(image: Image) -> str | None:
    """A data URL; None for what cannot be shown: it lies elsewhere, is gone, or is of a kind that needs more."""
    if isinstance(image, Picture) and (image.page or image.frame):
        return None  # another page than the one that would be drawn
    try:
        data = load(image).data
    except (OSError, TypeError, ValueError):
        return None
    if data is None:
        return None
    if installed("PIL") and (made := _smaller(data)) is not None:
        return made
    kind = picture_format(data)
    if kind not in _SHOWN_BY_BROWSERS or len(data) > LARGEST_BYTES:
        return None
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def caption(name: str, image: Image) -> str:
    """What a picture is called, for HTML."""
    path = path_of(image)
    inner = image.image if isinstance(image, Picture) else image
    known = path.name if path is not None else inner if isinstance(inner, str) and not inner.startswith("data:") else ""
    return html.escape(str(known)[:80] or name)


def _smaller(data: bytes) -> str | None:
    """As a PNG or JPEG, upright. None where Pillow cannot read it."""
    pillow, ops = needed("PIL.Image", "a thumbnail"), needed("PIL.ImageOps", "a thumbnail")
    try:
        with pillow.open(io.BytesIO(data)) as opened:
            opened.draft("RGB", (2 * SIDE, 2 * SIDE))
            small = ops.exif_transpose(opened)
            small.thumbnail((SIDE, SIDE))
            clear = "A" in small.getbands() or "transparency" in small.info
            small = small.convert("RGBA" if clear else "RGB")
    except Exception:  # whatever a decoder raises: there is no picture then, and the answers are shown all the same
        return None
    out = io.BytesIO()
    small.save(out, "PNG" if clear else "JPEG", **({} if clear else {"quality": 85}))
    return f"data:image/{'png' if clear else 'jpeg'};base64,{base64.b64encode(out.getvalue()).decode()}"

"""Where printed words get their letters: a directory of font families, or the one font that Pillow carries.

A family is a sub-directory of font files. `heldout.json` names the families that training never sees; the built-in font
is a training one.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from pathlib import Path

from PIL import ImageFont

from ops.train import splits

BUILT_IN = "pillow-built-in"
Font = ImageFont.FreeTypeFont
log = logging.getLogger(__name__)


class FontBook:
    """The font families of one split. Without a directory every split has Pillow's built-in font alone."""

    def __init__(self, directory: Path | None, split: str) -> None:
        self.families: dict[str, tuple[str, ...]] = {}
        if directory is None:
            log.warning("no font directory: printed words use Pillow's built-in font alone, in every split")
            self.families[BUILT_IN] = (BUILT_IN,)
            return
        for folder in sorted(path for path in directory.iterdir() if path.is_dir()):
            files = tuple(str(p) for p in sorted(folder.iterdir()) if p.suffix.lower() in (".ttf", ".otf"))
            if files:
                self.families[folder.name] = files
        kept = splits.names(split, "fonts", (*self.families, BUILT_IN), mixed=False)
        self.families = {name: self.families.get(name, (BUILT_IN,)) for name in kept}
        if not self.families:
            raise ValueError(f"no font family of the split {split!r} in {directory}")


@lru_cache(maxsize=2048)
def load(path: str, size: int) -> Font:
    """A font file (or BUILT_IN) at a size in pixels."""
    if path == BUILT_IN:
        built_in = ImageFont.load_default(size)
        if not isinstance(built_in, ImageFont.FreeTypeFont):
            raise RuntimeError("Pillow was built without FreeType: its built-in font cannot be scaled")
        return built_in
    return ImageFont.truetype(path, size)


@lru_cache(maxsize=1 << 16)
def advance(path: str, size: int, glyph: str) -> float:
    """How far a character moves the pen, in pixels."""
    return load(path, size).getlength(glyph)

"""Pictures that the generator does not draw itself: emoji and clothing, from Debian's packages.

    apt-get install fonts-noto-color-emoji dataset-fashion-mnist     (and the fonts that README.md lists)
    python -m ops.train.assets --out DIR

makes DIR/fonts, DIR/emoji.npz and DIR/clothes.npz. Without such a directory the generator uses Pillow's font and draws
neither emoji nor clothing.
"""

from __future__ import annotations

import argparse
import gzip
import logging
import re
import shutil
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from ops.train.things import EMOJI, UNSEEN

NATIVE = 109  # the one size of the bitmaps in Noto Color Emoji
SIDE = 112
PICTURES = {"train": 20_000, "validation": 2_000, "heldout": 4_000}  # pieces of clothing kept for each split
MOST_FILES = 6  # of a font family
_ODD = re.compile(
    r"thin|hairline|extralight|emoji|outline|variable|tamil|math|black|heavy|_K|smallcaps|R?ZI?\.|\[", re.I
)
log = logging.getLogger(__name__)


class Assets:
    """An asset directory, or none: then there are no emoji and no clothes."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self.fonts = directory / "fonts" if directory else None
        if directory is None:
            log.warning("no asset directory: no emoji and no clothing, and Pillow's font alone in every split")

    @property
    def complete(self) -> bool:
        """Whether emoji and clothing can be drawn."""
        return self._directory is not None and (self._directory / "emoji.npz").exists()

    def _load(self, name: str) -> dict[str, NDArray[np.uint8]]:
        if self._directory is None:
            raise FileNotFoundError(f"{name} needs an asset directory")
        with np.load(self._directory / name) as file:
            return {key: file[key] for key in file.files}

    @cached_property
    def emoji(self) -> dict[str, Image.Image]:
        """RGBA squares by name, those of the unseen names too."""
        pictures = self._load("emoji.npz")["pictures"]
        return {name: Image.fromarray(picture) for name, picture in zip((*EMOJI, *UNSEEN), pictures, strict=True)}

    @cached_property
    def _clothes(self) -> dict[str, NDArray[np.uint8]]:
        return self._load("clothes.npz")

    def clothes(self, split: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """(pictures [N, 28, 28] light on black, labels [N]) of a split."""
        return self._clothes[split], self._clothes[f"{split}_labels"]


def emoji_pictures(font_file: Path) -> NDArray[np.uint8]:
    """[names, SIDE, SIDE, 4]: every emoji of `things`, cut out and made square."""
    font = ImageFont.truetype(str(font_file), NATIVE)
    pictures = []
    for char in (*EMOJI.values(), *UNSEEN.values()):
        tile = Image.new("RGBA", (200, 200), (0, 0, 0, 0))
        ImageDraw.Draw(tile).text((30, 30), char, font=font, embedded_color=True)
        cut = tile.crop(tile.getbbox())
        side = max(cut.size)
        square = Image.new("RGBA", (side, side), (0, 0, 0, 0))
        square.paste(cut, ((side - cut.width) // 2, (side - cut.height) // 2))
        pictures.append(np.asarray(square.resize((SIDE, SIDE), Image.Resampling.LANCZOS)))
    return np.stack(pictures)


def clothes_pictures(directory: Path) -> dict[str, NDArray[np.uint8]]:
    """Fashion-MNIST (MIT licence): the held-out split is from its test part, the others from its training part."""

    def read(name: str, header: int) -> NDArray[np.uint8]:
        return np.frombuffer(gzip.decompress((directory / name).read_bytes()), np.uint8, offset=header)

    found = {}
    start = 0
    for split, count in PICTURES.items():
        part = "t10k" if split == "heldout" else "train"
        span = slice(0, count) if split == "heldout" else slice(start, start + count)
        found[split] = read(f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28)[span]
        found[f"{split}_labels"] = read(f"{part}-labels-idx1-ubyte.gz", 8)[span]
        start += count
    return found


def family_of(file: Path) -> str:
    """The family's name in `heldout.json`: weights, slants and optical sizes are one family."""
    name = re.split(r"[-_]", file.stem)[0]
    return "b612" if name.startswith("B612") else re.sub(r"(Bold|Oblique|Italic|Display|08|12)+$", "", name).lower()


def font_families(root: Path, out: Path) -> int:
    """Copies of font files by family: `out`/family/file. Faces too thin or too odd to read are left out."""
    for file in sorted((*root.rglob("*.ttf"), *root.rglob("*.otf"))):
        if _ODD.search(str(file)):
            continue
        folder = out / family_of(file)
        folder.mkdir(parents=True, exist_ok=True)
        if len(list(folder.iterdir())) < MOST_FILES:
            shutil.copy(file, folder / file.name)
    return len(list(out.iterdir()))


def main() -> None:
    """Make an asset directory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=Path, default=Path("/usr/share"), help="where Debian's packages are installed")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        args.out / "emoji.npz", pictures=emoji_pictures(args.share / "fonts/truetype/noto/NotoColorEmoji.ttf")
    )
    clothes: dict[str, Any] = clothes_pictures(args.share / "datasets/fashion-mnist")
    np.savez_compressed(args.out / "clothes.npz", **clothes)
    print(f"{font_families(args.share / 'fonts', args.out / 'fonts')} font families")


if __name__ == "__main__":
    main()

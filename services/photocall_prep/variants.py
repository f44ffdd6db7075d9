"""`python -m photocall_prep variants`: pictures encoded anew, for `photocall drift`.

A file is decoded, turned upright and brought to sRGB as for the model, whatever its format; what is written are those
pixels in other clothes. One line of JSON for each file. Status 1 when one of them cannot be read, 2 for settings.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from photocall.settings import PrepSettings, SettingsError
from photocall_prep.decode import open_picture
from photocall_prep.refusal import ImageRefused, Limits
from photocall_prep.turning import upright_pixels

FEWER = 4  # pixels on each side


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Write them and say where they are."""
    parser = argparse.ArgumentParser(prog="photocall_prep variants")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--into", type=Path, required=True)
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore", category=UserWarning, module="PIL")  # on damaged metadata; damage is handled
    try:
        settings = PrepSettings.from_env(environ)
    except SettingsError as error:
        print(f"photocall prep: {error}", file=sys.stderr)
        return 2
    for number, file in enumerate(options.files):
        try:
            made = variants(file.read_bytes(), settings, settings.background)
        except (ImageRefused, OSError) as error:
            reason = error.reason if isinstance(error, ImageRefused) else error.strerror
            print(f"{file}: {reason}", file=sys.stderr)
            return 1
        written = {}
        for place, (kind, data) in enumerate(made.items()):
            target = options.into / f"{number}-{place}"
            target.write_bytes(data)
            written[kind] = str(target)
        print(json.dumps({"file": str(file), "variants": written}))
    return 0


def variants(data: bytes, limits: Limits, background: str) -> dict[str, bytes]:
    """The picture as files, by what was done to it. Raises ImageRefused."""
    with open_picture(data, limits, background=background) as picture:
        pixels = upright_pixels(np.asarray(picture.load().rgb), picture.facts.turn)
    rgb = Image.fromarray(np.ascontiguousarray(pixels))
    return {kind: make(rgb) for kind, make in KINDS.items()}


def _png(rgb: Image.Image) -> bytes:
    out = io.BytesIO()
    rgb.save(out, "PNG", compress_level=1)
    return out.getvalue()


def _jpeg(quality: int) -> Callable[[Image.Image], bytes]:
    def make(rgb: Image.Image) -> bytes:
        out = io.BytesIO()
        rgb.save(out, "JPEG", quality=quality)
        return out.getvalue()

    return make


def _smaller(rgb: Image.Image) -> bytes:
    width, height = (max(1, side - FEWER) for side in rgb.size)
    return _png(rgb.resize((width, height), Image.Resampling.BICUBIC))


KINDS: Mapping[str, Callable[[Image.Image], bytes]] = {
    "as PNG": _png,
    "as JPEG q90": _jpeg(90),
    "as JPEG q75": _jpeg(75),
    f"{FEWER} pixels smaller": _smaller,
}

"""What a file says about the meaning of its colours, in any of the ways there are, as one ICC profile.

In a PNG cICP wins over iCCP, that over sRGB, and that over gAMA and cHRM (PNG, third edition). In AVIF and HEIF an ICC
profile wins over code points. Elsewhere there is an ICC profile or nothing. EXIF's colour space tag is not looked at.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from PIL import Image

from photocall_prep.matrix_profile import SRGB, Chromaticities, coded_profile, gamma_profile, srgb_curve_profile
from photocall_prep.png_chunks import PngChunks

_SRGB_GAMMA, _GAMMA_TOLERANCE = 1 / 2.2, 0.005  # of gAMA: what is near is a power law that stands for sRGB's curve
_LEAST_GAMMA, _MOST_GAMMA = 0.05, 5.0  # of gAMA: what lies outside is rubbish
_CHROMATICITY_TOLERANCE = 0.002
_NCLX_LOOK = 1 << 20  # an AVIF says it in front of its pixels


@dataclass(frozen=True, slots=True)
class Stated:
    """`profile`: None for sRGB, and where nothing is said. `name`: how it was said, None for an ICC profile."""

    profile: bytes | None
    name: str | None = None


UNSTATED = Stated(None)


def stated(image: Image.Image, data: bytes, chunks: PngChunks | None) -> Stated:
    """`chunks`: of a PNG."""
    if chunks is not None:
        if chunks.cicp is not None:
            return _coded("cICP", *chunks.cicp)
        if "icc_profile" not in image.info:
            return UNSTATED if "srgb" in image.info else _gamma(image)
    icc = image.info.get("icc_profile")
    if isinstance(icc, bytes) and icc:
        return Stated(icc)
    if image.format == "HEIF":
        nclx = image.info.get("nclx_profile")
        if isinstance(nclx, dict):
            return _coded("nclx", int(nclx["color_primaries"]), int(nclx["transfer_characteristics"]))
    at = data.find(b"colrnclx", 0, _NCLX_LOOK) if image.format == "AVIF" else -1
    if 0 <= at <= len(data) - 12:
        return _coded("nclx", *struct.unpack_from(">HH", data, at + 8))
    return UNSTATED


def _coded(way: str, primaries: int, transfer: int) -> Stated:
    return Stated(coded_profile(primaries, transfer), f"{way} {primaries}/{transfer}")


def _gamma(image: Image.Image) -> Stated:
    gamma, found = image.info.get("gamma"), image.info.get("chromaticity")
    chromaticities: Chromaticities = SRGB if found is None else found
    near = all(abs(a - b) <= _CHROMATICITY_TOLERANCE for a, b in zip(chromaticities, SRGB, strict=True))
    if gamma is None or abs(gamma - _SRGB_GAMMA) <= _GAMMA_TOLERANCE:
        if near:
            return UNSTATED
        gamma = None
    try:
        if gamma is None:
            return Stated(srgb_curve_profile(chromaticities), "cHRM")
        if not _LEAST_GAMMA <= gamma <= _MOST_GAMMA:
            return UNSTATED
        name = f"gAMA {gamma:g}" if near else f"gAMA {gamma:g} and cHRM"
        return Stated(gamma_profile(SRGB if near else chromaticities, 1 / gamma), name)
    except ValueError:  # colours that cannot be
        return UNSTATED

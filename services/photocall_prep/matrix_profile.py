"""ICC profiles for files that say in other words which colours they mean: primaries and a curve, as an ICC v4 profile.

So that every way of saying it ends in the same conversion. Code points are those of ITU-T H.273, which PNG (cICP), AVIF
and HEIF (nclx) share. Curves made for cameras or televisions are taken as sRGB's, as displays show them. PQ and HLG are
brighter than a screen's white: their reference white of 203 candela (ITU-R BT.2408) becomes white, light up to four
fifths of it stays as it is, and all above is pressed into what is left.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Chromaticities = tuple[float, float, float, float, float, float, float, float]  # x, y of white, red, green, blue

_D65 = (0.3127, 0.3290)
SRGB: Chromaticities = (*_D65, 0.64, 0.33, 0.30, 0.60, 0.15, 0.06)
_PRIMARIES: dict[int, Chromaticities] = {
    1: SRGB,
    4: (0.310, 0.316, 0.67, 0.33, 0.21, 0.71, 0.14, 0.08),
    5: (*_D65, 0.64, 0.33, 0.29, 0.60, 0.15, 0.06),
    6: (*_D65, 0.63, 0.34, 0.31, 0.595, 0.155, 0.07),
    7: (*_D65, 0.63, 0.34, 0.31, 0.595, 0.155, 0.07),
    9: (*_D65, 0.708, 0.292, 0.170, 0.797, 0.131, 0.046),
    11: (0.314, 0.351, 0.680, 0.320, 0.265, 0.690, 0.150, 0.060),
    12: (*_D65, 0.680, 0.320, 0.265, 0.690, 0.150, 0.060),
}
_GAMMA_22, _GAMMA_28, _LINEAR, _PQ, _HLG = 4, 5, 8, 16, 18
_D50 = np.array([0.9642, 1.0, 0.8249])
_BRADFORD = np.array([[0.8951, 0.2664, -0.1614], [-0.7502, 1.7135, 0.0367], [0.0389, -0.0685, 1.0296]])
_CURVE_POINTS = 4096
_KNEE = 0.8  # of white
_WHITE_NITS, _HLG_PEAK_NITS, _HLG_GAMMA = 203.0, 1000.0, 1.2

Values = NDArray[np.float64]


@lru_cache(maxsize=64)  # the code points are a file's: there are 2^32 pairs
def coded_profile(primaries: int, transfer: int) -> bytes | None:
    """The profile of two code points; None where they mean sRGB, or nothing that is known."""
    chromaticities = _PRIMARIES.get(primaries, SRGB)
    curve = _curve(transfer)
    if curve is None and chromaticities == SRGB:
        return None
    return matrix_profile(chromaticities, _table(curve or _srgb))


def gamma_profile(chromaticities: Chromaticities, exponent: float) -> bytes:
    """The profile of light that is the stored value to the power of `exponent`. Raises ValueError for no colours."""
    return matrix_profile(chromaticities, b"para" + struct.pack(">IHHi", 0, 0, 0, round(exponent * 65536)))


def srgb_curve_profile(chromaticities: Chromaticities) -> bytes:
    """The profile of sRGB's curve over other primaries. Raises ValueError for no colours."""
    return matrix_profile(chromaticities, _table(_srgb))


def matrix_profile(chromaticities: Chromaticities, curve: bytes) -> bytes:
    """A profile of three primaries and one curve, itself an ICC `curv` or `para` element. Raises ValueError."""
    columns = _to_d50(chromaticities)
    tags = {
        b"wtpt": _xyz(_D50),
        **{name: _xyz(columns[:, i]) for i, name in enumerate((b"rXYZ", b"gXYZ", b"bXYZ"))},
        **dict.fromkeys((b"rTRC", b"gTRC", b"bTRC"), curve),
    }
    directory, body = struct.pack(">I", len(tags)), b""
    start = 128 + 4 + 12 * len(tags)
    for name, element in tags.items():
        directory += name + struct.pack(">II", start + len(body), len(element))
        body += element + bytes(-len(element) % 4)
    header = struct.pack(">I4sI4s4s4s", start + len(body), b"\0" * 4, 0x04300000, b"mntr", b"RGB ", b"XYZ ")
    header += struct.pack(">6H", 2026, 1, 1, 0, 0, 0) + b"acsp" + bytes(28) + struct.pack(">3i", *_fixed(_D50))
    return header.ljust(128, b"\0") + directory + body


def _to_d50(chromaticities: Chromaticities) -> Values:
    """Columns: XYZ of the primaries under D50, which is what a profile holds."""
    white, *primaries = (_from_xy(*chromaticities[i : i + 2]) for i in (0, 2, 4, 6))
    columns = np.array(primaries).T
    try:
        columns = columns * np.linalg.solve(columns, white)
    except np.linalg.LinAlgError:
        raise ValueError("its primaries lie on a line") from None
    adapt = np.linalg.inv(_BRADFORD) @ np.diag((_BRADFORD @ _D50) / (_BRADFORD @ white)) @ _BRADFORD
    found = adapt @ columns
    if not np.isfinite(found).all() or np.abs(found).max() > 100:
        raise ValueError("its primaries are no colours")
    return np.asarray(found)


def _from_xy(x: float, y: float) -> Values:
    if not 0 < y <= 1:
        raise ValueError("its primaries are no colours")
    return np.array([x / y, 1.0, (1 - x - y) / y])


def _fixed(values: Values) -> list[int]:
    return [round(float(value) * 65536) for value in values]


def _xyz(values: Values) -> bytes:
    return b"XYZ " + struct.pack(">I3i", 0, *_fixed(values))


def _table(curve: Callable[[Values], Values]) -> bytes:
    values = np.clip(curve(np.linspace(0, 1, _CURVE_POINTS)), 0, 1)
    return b"curv" + struct.pack(">II", 0, _CURVE_POINTS) + (values * 65535).round().astype(">u2").tobytes()


def _curve(transfer: int) -> Callable[[Values], Values] | None:
    """From stored values to light, white being 1; None for what is taken as sRGB's."""
    known: dict[int, Callable[[Values], Values]] = {
        _GAMMA_22: lambda v: v**2.2,
        _GAMMA_28: lambda v: v**2.8,
        _LINEAR: lambda v: v,
        _PQ: lambda v: _pressed(_pq_nits(v) / _WHITE_NITS),
        _HLG: lambda v: _pressed(_hlg_nits(v) / _WHITE_NITS),
    }
    return known.get(transfer)


def _srgb(v: Values) -> Values:
    return np.where(v <= 0.04045, v / 12.92, ((v + 0.055) / 1.055) ** 2.4)


def _pq_nits(v: Values) -> Values:
    """SMPTE ST 2084."""
    root = v ** (32 / 2523)
    return 10_000 * (np.maximum(root - 107 / 128, 0) / (2413 / 128 - 2392 / 128 * root)) ** (8192 / 1305)


def _hlg_nits(v: Values) -> Values:
    """ITU-R BT.2100, its system gamma for a display of 1000 candela applied to each colour by itself."""
    a, b, c = 0.17883277, 0.28466892, 0.55991073
    scene = np.where(v <= 0.5, v**2 / 3, (np.exp((v - c) / a) + b) / 12)
    return _HLG_PEAK_NITS * scene**_HLG_GAMMA


def _pressed(light: Values) -> Values:
    rest = 1 - _KNEE
    return np.where(light <= _KNEE, light, _KNEE + rest * (1 - np.exp(-np.maximum(light - _KNEE, 0) / rest)))

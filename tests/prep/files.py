"""Files that no library here writes: PNGs of every depth, interlaced or with more chunks; PDFs; a CMYK profile."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))


def chunk(kind: bytes, body: bytes) -> bytes:
    """One chunk of a PNG."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(
    samples: NDArray[np.integer],
    depth: int,
    colour_type: int,
    chunks: Sequence[tuple[bytes, bytes]] = (),
    interlaced: bool = False,
    behind: Sequence[tuple[bytes, bytes]] = (),
) -> bytes:
    """`samples` [height, width, channels] of `depth` bits; `chunks` stand before the pixels, `behind` after them."""
    height, width, _ = samples.shape
    passes: Iterable[tuple[int, int, int, int]] = ADAM7 if interlaced else ((0, 0, 1, 1),)
    body = b""
    for x, y, step_x, step_y in passes:
        part = samples[y::step_y, x::step_x]
        if part.size:
            body += b"".join(b"\0" + _row(row.reshape(-1), depth) for row in part)
    header = struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, int(interlaced))
    parts = [(b"IHDR", header), *chunks, (b"IDAT", zlib.compress(body)), *behind, (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def _row(values: NDArray[np.integer], depth: int) -> bytes:
    if depth == 16:
        return values.astype(">u2").tobytes()
    bits = ((values[:, None] >> np.arange(depth - 1, -1, -1)) & 1).astype(np.uint8)
    return np.packbits(bits.reshape(-1)).tobytes()


def pdf(*pages: str, size: tuple[int, int] = (96, 48), rotate: int = 0) -> bytes:
    """A PDF whose pages have these drawing operators."""
    kids = " ".join(f"{3 + 2 * i} 0 R" for i in range(len(pages)))
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>"]
    for i, drawn in enumerate(pages):
        box = f"[0 0 {size[0]} {size[1]}]"
        page = f"/MediaBox {box} /Rotate {rotate} /Contents {4 + 2 * i} 0 R /Resources << >>"
        objects.append(f"<< /Type /Page /Parent 2 0 R {page} >>")
        objects.append(f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream")
    return document(*(body.encode("ascii") for body in objects))


def document(*objects: bytes) -> bytes:
    """A PDF of these objects, numbered from 1; the first is its catalogue."""
    out, offsets = b"%PDF-1.7\n", []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % at for at in offsets)
    trailer = b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, len(out))
    return out + b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1) + table + trailer


def cmyk_profile(lab_of_corner: dict[tuple[int, int, int, int], tuple[float, float, float]]) -> bytes:
    """An ICC v2 output profile: Lab at the 16 corners of CMYK (0 or 1 each), straight lines between; missing: white."""
    ramp = bytes(range(256))
    table = b""
    for corner in np.ndindex(2, 2, 2, 2):
        light, a, b = lab_of_corner.get((corner[0], corner[1], corner[2], corner[3]), (100.0, 0.0, 0.0))
        table += bytes((round(light * 2.55), round(a + 128), round(b + 128)))
    identity = struct.pack(">9i", *(65536 * int(i % 4 == 0) for i in range(9)))
    lut = b"mft1" + struct.pack(">IBBBB", 0, 4, 3, 2, 0) + identity + ramp * 4 + table + ramp * 3
    white = b"XYZ " + struct.pack(">I3i", 0, 63190, 65536, 54061)
    return _profile(
        b"prtr", b"CMYK", b"Lab ", {b"wtpt": white, b"A2B0": lut, b"A2B1": lut, b"desc": _desc("Four inks")}
    )


def grey_profile(gamma: float) -> bytes:
    """An ICC v2 profile of grey pixels with a power curve."""
    curve = b"curv" + struct.pack(">IIH", 0, 1, round(gamma * 256)) + b"\0\0"
    white = b"XYZ " + struct.pack(">I3i", 0, 63190, 65536, 54061)
    return _profile(b"mntr", b"GRAY", b"XYZ ", {b"wtpt": white, b"kTRC": curve, b"desc": _desc("Grey")})


def _desc(text: str) -> bytes:
    body = b"desc" + struct.pack(">II", 0, len(text) + 1) + text.encode() + b"\0" + bytes(8 + 3 + 67)
    return body + bytes(-len(body) % 4)


def _profile(kind: bytes, space: bytes, pcs: bytes, tags: dict[bytes, bytes]) -> bytes:
    directory, body, start = struct.pack(">I", len(tags)), b"", 132 + 12 * len(tags)
    for name, element in tags.items():
        directory += name + struct.pack(">II", start + len(body), len(element))
        body += element + bytes(-len(element) % 4)
    header = struct.pack(">I4sI4s4s4s", start + len(body), b"\0" * 4, 0x02100000, kind, space, pcs)
    header += struct.pack(">6H", 2026, 1, 1, 0, 0, 0) + b"acsp" + bytes(28) + struct.pack(">3i", 63190, 65536, 54061)
    return header.ljust(128, b"\0") + directory + body

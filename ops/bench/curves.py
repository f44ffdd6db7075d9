"""Curves over time as an SVG picture, by hand: a few lines, two axes, a name at each end."""

from __future__ import annotations

from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 760, 360
LEFT, RIGHT, TOP, BOTTOM = 56, 110, 40, 40
COLOURS = ("#0b6e99", "#c2571a", "#3a7d34", "#7a3a94")
MAX_POINTS = 600


@dataclass(frozen=True)
class Curve:
    """Points are (x, y), x rising."""

    name: str
    points: list[tuple[float, float]]


def draw(title: str, curves: list[Curve]) -> str:
    """The picture's text. Both axes begin at 0."""
    right = max(x for curve in curves for x, _ in curve.points) or 1.0
    top = _nice(max(y for curve in curves for _, y in curve.points) * 1.1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"',
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="22" font-size="14">{escape(title)}</text>',
    ]

    def at(x: float, y: float) -> tuple[float, float]:
        across = LEFT + x / right * (WIDTH - LEFT - RIGHT)
        return round(across, 1), round(HEIGHT - BOTTOM - y / top * (HEIGHT - TOP - BOTTOM), 1)

    for step in range(5):
        x, y = right * step / 4, top * step / 4
        (left, level), (place, floor) = at(0, y), at(x, 0)
        end = at(right, y)[0]
        parts.append(f'<line x1="{left}" y1="{level}" x2="{end}" y2="{level}" stroke="#dddddd"/>')
        parts.append(f'<text x="{left - 8}" y="{level + 4}" text-anchor="end">{y:g}</text>')
        parts.append(f'<text x="{place}" y="{floor + 20}" text-anchor="middle">{x:.0f}</text>')
    for curve, colour in zip(curves, COLOURS, strict=False):
        thin = curve.points[:: max(1, len(curve.points) // MAX_POINTS)]
        path = " ".join("{},{}".format(*at(x, y)) for x, y in [*thin, curve.points[-1]])
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        x, y = at(*curve.points[-1])
        parts.append(f'<text x="{x + 6}" y="{y + 4}" fill="{colour}">{escape(curve.name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _nice(value: float) -> float:
    """The next of 1, 2, 4, 5, 8, 10 times a power of ten."""
    scale = 1.0
    while scale * 10 < value:
        scale *= 10
    return next((factor * scale for factor in (1, 2, 4, 5, 8, 10) if factor * scale >= value), value)

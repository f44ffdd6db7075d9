"""A reliability diagram as SVG: how often answers are right, by how sure they were; before and after."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from photocall.calibrating import Bin

_SIDE, _EDGE = 300, 40


def diagram(title: str, before: Sequence[Bin], after: Sequence[Bin], ece_before: float, ece_after: float) -> str:
    """One picture, no script, no reference to anything outside of it. On the diagonal, sureness is frequency."""
    size = _SIDE + 2 * _EDGE
    shown = "".join(char if char.isprintable() else " " for char in title[:60])  # XML has no way to write the others
    ticks = "".join(
        f'<text x="{_x(tick)}" y="{size - _EDGE + 16}" text-anchor="middle">{tick:g}</text>'
        f'<text x="{_EDGE - 6}" y="{_y(tick) + 4}" text-anchor="end">{tick:g}</text>'
        for tick in (0.0, 0.5, 1.0)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{size}" height="{size}" viewBox="0 0 {size} {size}"'
        ' font-family="sans-serif" font-size="12">'
        f'<rect width="{size}" height="{size}" fill="#fff"/>'
        f'<text x="{size / 2}" y="20" text-anchor="middle">{escape(shown)}</text>'
        f'<rect x="{_EDGE}" y="{_EDGE}" width="{_SIDE}" height="{_SIDE}" fill="none" stroke="#888"/>'
        f'<path d="M{_x(0)} {_y(0)}L{_x(1)} {_y(1)}" stroke="#bbb" stroke-dasharray="4"/>{ticks}'
        f"{_line(before, '#c44')}{_line(after, '#27a')}"
        f'<text x="{_EDGE + 8}" y="{_EDGE + 18}" fill="#c44">before: ECE {ece_before:.3f}</text>'
        f'<text x="{_EDGE + 8}" y="{_EDGE + 34}" fill="#27a">after: ECE {ece_after:.3f}</text>'
        f'<text x="{size / 2}" y="{size - 6}" text-anchor="middle">probability of the answer / how often right</text>'
        "</svg>"
    )


def stacked(diagrams: Sequence[str]) -> str:
    """Several below each other, as one picture."""
    size = _SIDE + 2 * _EDGE
    height = size * len(diagrams)
    places = "".join(f'<g transform="translate(0 {size * i})">{one}</g>' for i, one in enumerate(diagrams))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{size}" height="{height}" viewBox="0 0 {size} {height}">'
    return f"{head}{places}</svg>"


def _line(bins: Sequence[Bin], colour: str) -> str:
    points = [(_x(one.confidence), _y(one.accuracy)) for one in bins]
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points)
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}"/>{dots}'


def _x(share: float) -> float:
    return _EDGE + _SIDE * share


def _y(share: float) -> float:
    return _EDGE + _SIDE * (1 - share)

"""Box questions: where a thing is, edge by edge, and that it is not there."""

from __future__ import annotations

from functools import lru_cache

from ops.train import shapes
from ops.train.asker import Asker, Edges, Made
from ops.train.backgrounds import COLORS
from ops.train.marks import Box as Area
from ops.train.names import a_name
from ops.train.scene import Item
from ops.train.things import CLOTHES, EMOJI, ROAD_SIGNS
from photocall.questions import Box

_ABSENT = 0.15  # share of questions for what is not there


@lru_cache(maxsize=64)
def extent(shape: str, direction: str) -> Area:
    """Left, top, right and bottom of a silhouette, in halves of its square's side from the middle."""
    found = shapes.silhouette(shape, 100, 0.0, direction).getbbox() or (0, 0, 100, 100)
    return found[0] / 50 - 1, found[1] / 50 - 1, found[2] / 50 - 1, found[3] / 50 - 1


def item_area(item: Item) -> Area:
    """What an item covers, model pixels."""
    left, top, right, bottom = extent(item.shape, item.direction)
    r = item.radius
    return item.x + left * r, item.y + top * r, item.x + right * r, item.y + bottom * r


def edges(area: Area, width: float, height: float) -> Edges:
    """Top, bottom, left and right as fractions of the picture."""

    def part(value: float, whole: float) -> float:
        return min(1.0, max(0.0, value / whole))

    return part(area[1], height), part(area[3], height), part(area[0], width), part(area[2], width)


def _absent(a: Asker) -> str | None:
    """The name of a thing that this scene does not have."""
    scene, rng = a.scene, a.rng
    sorts = {getattr(part, "sort", "") for part in scene.parts}
    here = {getattr(part, "name", "") for part in scene.parts}
    pool = next((p for s, p in (("emoji", EMOJI), ("clothing", CLOTHES), ("sign", ROAD_SIGNS)) if s in sorts), None)
    if pool is not None:
        name = rng.choice([n for n in pool if n not in here])
        return f"{name} sign" if "sign" in sorts else name
    shape, color = rng.choice(shapes.SHAPES), rng.choice(list(COLORS))
    if scene.parts or any(i.shape == shape for i in scene.items):
        return None
    return a_name(rng, shape) if a.coin() else f"{a_name(rng, color)} {a_name(rng, shape)}"


def box(a: Asker) -> Made:
    scene, rng = a.scene, a.rng
    if rng.random() < _ABSENT:
        name = _absent(a)
        return (Box("q", a.say("box", thing=name)), None) if name else None
    found = list(scene.named)
    if a.items and (not found or a.coin()):
        one = a.unique()
        found = [(one[1], item_area(one[0]))] if one else found
    if a.boards and (not found or a.coin()):
        board = rng.choice(a.boards)
        called = a.board_name(board) if board.form != "bare" else None
        found = [(called, board.box)] if called else found
    if not found:
        return None
    name, area = rng.choice(found)
    return Box("q", a.say("box", thing=name)), edges(area, scene.width, scene.height)

"""Questions about things: which, where, what colour, how many, how large, which way."""

from __future__ import annotations

from ops.train import shapes
from ops.train.asker import Asker, Made
from ops.train.backgrounds import COLORS
from ops.train.names import COUNT_WORDS, PLACES, SYNONYMS, a_name
from ops.train.scene import Item
from photocall.questions import Noul, Number, Score


def what_shape(a: Asker) -> Made:
    if len(a.items) != 1 or not a.plain:
        return None
    return a.one_of("what_shape", a.items[0].shape, shapes.SHAPES)


def what_color(a: Asker) -> Made:
    named = a.unique()
    if named is None or any(named[1].startswith(c) for name in COLORS for c in SYNONYMS.get(name, (name,))):
        return None
    return a.one_of("what_color", named[0].color, tuple(COLORS), thing=named[1])


def which_of_color(a: Asker) -> Made:
    alone = [i for i in a.items if sum(j.color == i.color for j in a.items) == 1]
    if not alone or not a.plain:
        return None
    item = a.rng.choice(alone)
    pool = (
        [i.shape for i in a.items] if a.coin() and len(a.items) > 1 else [*(i.shape for i in a.items), *shapes.SHAPES]
    )
    return a.one_of("which_of_color", item.shape, pool, color=a_name(a.rng, item.color))


def exists(a: Asker) -> Made:
    rng, answer = a.rng, a.coin()
    if answer:
        if not a.items:
            return None
        item = rng.choice(a.items)
        shape, color = item.shape, item.color
    else:
        shape, color = rng.choice(shapes.SHAPES), rng.choice(list(COLORS))
        if a.items and a.coin():  # near misses: the right shape in another colour, or the reverse
            other = rng.choice(a.items)
            shape, color = (other.shape, color) if a.coin() else (shape, other.color)
    plain = a.plain
    form = rng.choice(("shape", "both", "both", "color") if plain else ("shape", "both"))
    if form == "shape":
        thing, truth = a_name(rng, shape), any(i.shape == shape for i in a.items)
    elif form == "color":
        thing, truth = f"{a_name(rng, color)} {a.style}", any(i.color == color for i in a.items)
    else:
        thing = f"{a_name(rng, color)} {a_name(rng, shape)}"
        truth = any(i.shape == shape and i.color == color for i in a.items)
    if truth != answer:
        return None
    if rng.random() < 0.06:  # no instructions: the described side is the question
        return Noul("q", None, f"there is a {thing}", f"there is no {thing}" if a.coin() else None), truth
    return a.yes_no(a.say("exists", thing=thing), truth, f"there is a {thing}", f"there is no {thing}")


def count(a: Asker) -> Made:
    things, found = a.group()
    if found == 0 and a.rng.random() < 0.5:
        return None
    tops = (8, 9, 10, 20) if found < 9 else (20, 25, 50)
    bounds = (0.0, float(a.rng.choice(tops))) if a.rng.random() < 0.3 else (None, None)
    unit = "pieces" if a.rng.random() < 0.04 else None
    said = a.say("count", things=things)
    return Number("q", said, bounds[0], bounds[1], 1.0 if a.rng.random() < 0.3 else None, unit), found


def count_choice(a: Asker) -> Made:
    things, found = a.group()
    pool = (COUNT_WORDS if a.coin() else tuple(str(n) for n in range(21)))[: 9 if a.scene.plain else 21]
    window = a.rng.randint(max(0, found - 4), found)
    return a.one_of("count", pool[found], pool[window : window + 5], most=5, things=things)


def count_score(a: Asker) -> Made:
    things, found = a.group()
    top = a.rng.randint(2, 8)
    names = COUNT_WORDS if a.coin() else tuple(str(n) for n in range(9))
    levels = [*names[:top], f"{names[top]} or more" if a.coin() else f"at least {names[top]}"]
    return Score("q", a.say("count", things=things), tuple(levels)), min(found, top)


def where(a: Asker) -> Made:
    named = a.unique()
    if named is None:
        return None
    item, name = named
    truth, pool = place(a, item.x / a.scene.width, item.y / a.scene.height)
    return a.one_of("where", truth, pool, least=len(pool), thing=name) if truth else None


def place(a: Asker, x: float, y: float) -> tuple[str, tuple[str, ...]]:
    """The name of a place in one of several divisions; "" where it is too near a border to say."""
    pool = a.rng.choice(PLACES)
    if pool == ("left", "middle", "right"):
        third = 0 if x < 0.29 else 1 if 0.38 < x < 0.62 else 2 if x > 0.71 else None
        return ("" if third is None else pool[third]), pool
    side = "left" if x < 0.46 else "right" if x > 0.54 else ""
    height = "top" if y < 0.46 else "bottom" if y > 0.54 else ""
    if len(pool) == 4:
        return (f"{height} {side}" if side and height else ""), pool
    return (side if "left" in pool else height), pool


def relation(a: Asker) -> Made:
    first, second = a.unique(), a.unique()
    if first is None or second is None or first[0] is second[0]:
        return None
    (p, p_name), (q, q_name) = first, second
    across = a.coin()
    gap = (q.x - p.x) if across else (q.y - p.y)
    if abs(gap) < 0.08 * (a.scene.width if across else a.scene.height):
        return None
    before = a.coin()
    words = (
        (("left of", "to the left of"), ("right of", "to the right of"))
        if across
        else (("above", "higher than"), ("below", "under", "lower than"))
    )
    said = a.rng.choice(words[0] if before else words[1])
    return a.yes_no(a.say("relation", a=p_name, b=q_name, relation=said), (gap > 0) == before)


def _extreme(a: Asker) -> tuple[Item, str] | None:
    large = a.coin()
    order = sorted(a.items, key=lambda i: i.radius, reverse=large)
    ratio = order[0].radius / order[1].radius
    if (ratio if large else 1 / ratio) < 1.3:
        return None
    return order[0], a.rng.choice(("largest", "biggest") if large else ("smallest",))


def size(a: Asker) -> Made:
    found = _extreme(a)
    if found is None or sum(i.shape == found[0].shape for i in a.items) > 1:
        return None
    pool = [i.shape for i in a.items]
    if a.rng.random() < 0.3:
        pool += a.rng.sample(shapes.SHAPES, 4)
    return a.one_of("size", found[0].shape, pool, size=found[1])


def size_color(a: Asker) -> Made:
    found = _extreme(a)
    return (
        a.one_of("size_color", found[0].color, [*(i.color for i in a.items), *COLORS], size=found[1]) if found else None
    )


def empty(a: Asker) -> Made:
    if a.items and a.rng.random() < 0.6:
        return None
    place = a.rng.choice(("shelf", "rack") if a.scene.shelves else ("picture", "image", "scene"))
    return a.yes_no(a.say("empty", place=place), not a.items, "there is nothing", "there is something")


def more(a: Asker) -> Made:
    (first, m), (second, n) = a.group(), a.group()
    if m == n or first == second or (m > n) != a.coin():
        return None
    return a.yes_no(a.say("more", a=first, b=second), m > n)


def same(a: Asker) -> Made:
    if not a.plain:
        return None
    by_color = a.coin()
    truth = len({i.color if by_color else i.shape for i in a.items}) == 1
    if not truth and a.rng.random() < 0.4:
        return None
    return a.yes_no(a.say("same", trait=a.rng.choice(("color", "colour")) if by_color else "shape"), truth)


def _arrow(a: Asker) -> tuple[Item, str] | None:
    arrows = [i for i in a.items if i.shape == "arrow"]
    arrow = a.rng.choice(arrows)
    if len(arrows) > 1 and sum(i.color == arrow.color for i in arrows) > 1:
        return None
    return arrow, f"{a_name(a.rng, arrow.color)} arrow" if len(arrows) > 1 or a.rng.random() < 0.2 else "arrow"


def direction(a: Asker) -> Made:
    found = _arrow(a)
    return a.one_of("direction", found[0].direction, shapes.DIRECTIONS, least=4, arrow=found[1]) if found else None


def direction_yes(a: Asker) -> Made:
    found = _arrow(a)
    if found is None:
        return None
    asked = found[0].direction if a.coin() else a.rng.choice(shapes.DIRECTIONS)
    said = {
        "left": ("left", "to the left"),
        "right": ("right", "to the right"),
        "up": ("up", "upwards"),
        "down": ("down", "downwards"),
    }
    text = a.say("direction_yes", arrow=found[1], direction=a.rng.choice(said[asked]))
    return a.yes_no(text, asked == found[0].direction)

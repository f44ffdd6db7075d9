"""Questions about emoji, clothing and signs, and about damage: what it is, whether, how many, where."""

from __future__ import annotations

from typing import TypeAlias

from ops.train.about_items import place
from ops.train.asker import Asker, Made, Maker
from ops.train.families.parcels import DAMAGES, MEANINGS, Parcel
from ops.train.families.roadsigns import RoadSign
from ops.train.families.stickers import Sticker
from ops.train.names import plural
from ops.train.things import CLOTHES, EMOJI, ROAD_SIGNS
from photocall.questions import Choice, Number, Option, Score

Named: TypeAlias = Sticker | RoadSign
_NOUNS = {
    "emoji": ("emoji", "symbol", "icon", "thing"),
    "clothing": ("piece of clothing", "garment", "item", "article"),
    "sign": ("sign", "traffic sign", "pictogram", "symbol"),
}
_EVERY = {"emoji": tuple(EMOJI), "clothing": CLOTHES, "sign": ROAD_SIGNS}


def _all(a: Asker) -> list[Named]:
    return a.scene.parts


def _noun(a: Asker) -> str:
    return a.rng.choice(_NOUNS[_all(a)[0].sort])


def _called(name: str, sort: str) -> str:
    return f"{name} sign" if sort == "sign" else name


def _alone(a: Asker) -> list[Named]:
    names = [part.name for part in _all(a)]
    return [part for part in _all(a) if names.count(part.name) == 1]


def thing_what(a: Asker) -> Made:
    if len(_all(a)) != 1:
        return None
    only = _all(a)[0]
    pool = _EVERY[only.sort]
    if only.sort == "clothing" and a.rng.random() < 0.5:  # all ten, as whoever sorts a wardrobe would ask
        return a.one_of("thing_what", only.name, pool, least=10, most=10, noun=_noun(a))
    return a.one_of("thing_what", only.name, pool, least=4, noun=_noun(a))


def thing_exists(a: Asker) -> Made:
    sort = _all(a)[0].sort
    here = {part.name for part in _all(a)}
    answer = a.coin()
    name = a.rng.choice(sorted(here)) if answer else a.rng.choice([n for n in _EVERY[sort] if n not in here])
    thing = _called(name, sort)
    return a.yes_no(a.say("exists", thing=thing), answer, f"there is a {thing}", f"there is no {thing}")


def thing_is(a: Asker) -> Made:
    if len(_all(a)) != 1:
        return None
    only, answer = _all(a)[0], a.coin()
    name = only.name if answer else a.rng.choice([n for n in _EVERY[only.sort] if n != only.name])
    return a.yes_no(a.say("thing_is", noun=_noun(a), thing=_called(name, only.sort)), answer)


def thing_count(a: Asker) -> Made:
    sort = _all(a)[0].sort
    if a.coin():
        general = {"emoji": ("emoji", "symbols"), "clothing": ("garments", "pieces of clothing"), "sign": ("signs",)}
        return Number("q", a.say("count", things=a.rng.choice(general[sort]))), len(_all(a))
    name = a.rng.choice(_all(a)).name
    found = sum(part.name == name for part in _all(a))
    return Number("q", a.say("count", things=plural(_called(name, sort)))), found


def thing_where(a: Asker) -> Made:
    alone = _alone(a)
    if not alone:
        return None
    one = a.rng.choice(alone)
    x0, y0, x1, y1 = one.box
    truth, pool = place(a, (x0 + x1) / 2 / a.scene.width, (y0 + y1) / 2 / a.scene.height)
    return a.one_of("where", truth, pool, least=len(pool), thing=_called(one.name, one.sort)) if truth else None


def thing_relation(a: Asker) -> Made:
    alone = _alone(a)
    if len(alone) < 2:
        return None
    p, q = a.rng.sample(alone, 2)
    across = a.coin()
    low, high = (0, 2) if across else (1, 3)
    gap = (q.box[low] + q.box[high] - p.box[low] - p.box[high]) / 2
    if abs(gap) < 0.08 * (a.scene.width if across else a.scene.height):
        return None
    before = a.coin()
    words = (
        (("left of", "to the left of"), ("right of", "to the right of")) if across else (("above",), ("below", "under"))
    )
    said = a.rng.choice(words[0] if before else words[1])
    first, second = _called(p.name, p.sort), _called(q.name, q.sort)
    return a.yes_no(a.say("relation", a=first, b=second, relation=said), (gap > 0) == before)


def thing_outermost(a: Asker) -> Made:
    """Which one is furthest to a side."""
    if len(_all(a)) < 2:
        return None
    side = a.rng.choice(("left", "right", "top", "bottom"))
    axis = 0 if side in ("left", "right") else 1
    order = sorted(_all(a), key=lambda part: part.box[axis] + part.box[axis + 2], reverse=side in ("right", "bottom"))
    gap = abs(order[0].box[axis] + order[0].box[axis + 2] - order[1].box[axis] - order[1].box[axis + 2]) / 2
    if gap < 20:
        return None
    pool = [*(part.name for part in _all(a)), *a.rng.sample(_EVERY[order[0].sort], 3)]
    return a.one_of("outermost", order[0].name, pool, noun=_noun(a), side=side)


def sign_number(a: Asker) -> Made:
    limits = [part for part in _all(a) if isinstance(part, RoadSign) and part.name == "speed limit"]
    if len(limits) != 1:
        return None
    unit = a.rng.choice(("km/h", None, None))
    return Number("q", a.say("sign_number"), None, None, a.rng.choice((10.0, None)), unit), limits[0].limit


def _parcel(a: Asker) -> Parcel:
    found = a.scene.parts[0]
    assert isinstance(found, Parcel)
    return found


def _thing(a: Asker) -> str:
    return a.rng.choice(("parcel", "package", "box")) if _parcel(a).thing == "parcel" else "plate"


def damaged(a: Asker) -> Made:
    truth = bool(_parcel(a).damage)
    return a.yes_no(a.say("damaged", thing=_thing(a)), truth, "there is damage", "nothing is wrong with it")


def damage_is(a: Asker) -> Made:
    parcel, answer = _parcel(a), a.coin()
    if answer and not parcel.damage:
        return None
    kinds = [kind for kind in DAMAGES[parcel.thing] if kind != parcel.damage]
    return a.yes_no(
        a.say("damage_is", thing=_thing(a), damage=parcel.damage if answer else a.rng.choice(kinds)), answer
    )


def damage_kind(a: Asker) -> Made:
    parcel, rng = _parcel(a), a.rng
    whole = rng.choice(("not damaged", "undamaged", "intact", "no damage"))
    labels = [*DAMAGES[parcel.thing], whole]
    rng.shuffle(labels)
    described = rng.random() < 0.3
    options = tuple(Option(label, MEANINGS.get(label) if described else None) for label in labels)
    return Choice("q", a.say("damage_kind", thing=_thing(a)), options), parcel.damage or whole


def damage_level(a: Asker) -> Made:
    parcel = _parcel(a)
    names = a.rng.choice(
        (("none", "a little", "a lot"), ("no damage", "small damage", "large damage"), ("intact", "minor", "severe"))
    )
    return Score("q", a.say("damage_level", thing=_thing(a)), names), parcel.level


def damage_where(a: Asker) -> Made:
    parcel = _parcel(a)
    if not parcel.damage:
        return None
    x0, y0, x1, y1 = parcel.spot
    px0, py0, px1, py1 = parcel.box
    truth, pool = place(a, ((x0 + x1) / 2 - px0) / (px1 - px0), ((y0 + y1) / 2 - py0) / (py1 - py0))
    return a.one_of("damage_where", truth, pool, least=len(pool), thing=_thing(a)) if truth else None


NAMED: dict[Maker, float] = {
    thing_what: 3.4,
    thing_exists: 2.0,
    thing_is: 1.2,
    thing_count: 1.2,
    thing_where: 0.8,
    thing_relation: 1.2,
    thing_outermost: 1.0,
}
SIGNS: dict[Maker, float] = {**NAMED, sign_number: 2.0}
PARCELS: dict[Maker, float] = {damaged: 1.6, damage_is: 1.2, damage_kind: 1.6, damage_level: 1.2, damage_where: 0.9}

"""Questions about a scene, with their right answers: the one place where truth becomes text.

Every maker looks at the scene and gives a question with its answer, or None where the scene does not suit it.
"""

from __future__ import annotations

import random

from ops.train import about_boards, about_charts, about_gauges, about_items, about_named, about_papers, about_places
from ops.train.asker import Asked, Asker, Maker
from ops.train.scene import Scene

MAKERS: dict[str, Maker] = {
    maker.__name__: maker
    for maker in (
        about_items.what_shape,
        about_items.what_color,
        about_items.which_of_color,
        about_items.exists,
        about_items.count,
        about_items.count_choice,
        about_items.count_score,
        about_items.where,
        about_boards.board_where,
        about_items.relation,
        about_items.size,
        about_items.size_color,
        about_items.empty,
        about_items.more,
        about_items.same,
        about_items.direction,
        about_items.direction_yes,
        about_boards.read_word,
        about_boards.which_word,
        about_boards.word_yes,
        about_boards.first_letter,
        about_boards.read_number,
        about_boards.number_choice,
        about_boards.number_yes,
        about_boards.number_is,
        about_boards.board_color,
        about_boards.which_board,
        about_boards.count_boards,
        about_boards.text_yes,
        about_gauges.level,
        about_gauges.level_choice,
        about_gauges.level_yes,
        about_gauges.percent,
        about_gauges.gauge_color,
        about_gauges.light,
        about_gauges.light_yes,
        about_gauges.may_go,
        about_gauges.mostly,
        about_boards.no_number,
        about_places.box,
    )
}
FAMILIES: dict[str, dict[Maker, float]] = {
    "paper": about_papers.MAKERS,
    "chart": about_charts.CHARTS,
    "meter": about_charts.METERS,
    "roadsign": about_named.SIGNS,
    "emoji": about_named.NAMED,
    "unseen": about_named.NAMED,
    "clothes": about_named.NAMED,
    "parcel": about_named.PARCELS,
}
MAKERS |= {maker.__name__: maker for makers in FAMILIES.values() for maker in makers}


def ask(scene: Scene, split: str, rng: random.Random, count: int) -> list[Asked]:
    """Up to `count` different questions in the wording of a split; makers that suit the scene are drawn by weight."""
    asker = Asker(scene, split, rng)
    asked: list[Asked] = []
    seen: set[str] = set()
    odds = weights(scene)
    for _ in range(count * 6):
        if len(asked) == count:
            break
        name = rng.choices(list(odds), list(odds.values()))[0]
        made = MAKERS[name](asker)
        if made is None or (key := repr(made[0])) in seen:
            continue
        seen.add(key)
        asked.append(Asked(made[0], made[1], name))
    return asked


def weights(scene: Scene) -> dict[str, float]:
    """How often each maker is tried on a scene; one that does not suit it gives nothing."""
    if scene.kind in FAMILIES:
        own = {maker.__name__: weight for maker, weight in FAMILIES[scene.kind].items() if scene.parts}
        return own | {"mostly": 0.25, "box": 1.6 if len(scene.named) > 1 else 0.9}
    odds: dict[str, float] = {"mostly": 0.5, "exists": 0.9, "text_yes": 0.3, "box": 1.3}
    if scene.kind in ("things", "shelf", "arrow"):
        odds.update(dict.fromkeys(("count", "count_choice", "count_score"), 1.0), exists=1.5, empty=0.5, count=1.8)
    elif scene.items:
        odds.update(count=0.6, count_score=0.3, count_choice=0.3)
    if scene.items:
        odds.update(what_shape=1.2, what_color=1.4, which_of_color=1.2, where=1.2)
        if len(scene.items) > 1:
            odds.update(relation=1.6, size=0.9, size_color=0.6, more=0.8, same=0.5)
        if any(i.shape == "arrow" for i in scene.items):
            odds.update(direction=2.0, direction_yes=1.2)
    if scene.boards:
        text = 4.0 / (0.6 + 0.4 * len(scene.boards))
        odds.update(read_word=text, which_word=1.4, word_yes=1.4, first_letter=0.4, board_color=0.8, board_where=0.5)
        odds.update(read_number=text * 1.2, number_choice=1.2, number_yes=0.8, number_is=1.2, count_boards=0.3)
        odds.update(no_number=0.4)
        if len(scene.boards) > 1:
            odds.update(which_board=1.2)
    if scene.gauge:
        odds.update(level=3.0, level_choice=1.4, level_yes=2.0, percent=1.4, gauge_color=0.6)
    if scene.light:
        odds.update(light=2.0, light_yes=1.5, may_go=0.8)
    return odds

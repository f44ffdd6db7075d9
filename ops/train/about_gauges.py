"""Questions about gauges, traffic lights, and what the whole picture is."""

from __future__ import annotations

from ops.train.asker import Asker, Made
from ops.train.backgrounds import COLORS
from ops.train.names import LEVEL_WORDS
from photocall.questions import Number, Score


def _gauge_name(a: Asker) -> str:
    assert a.scene.gauge is not None
    return a.rng.choice((a.scene.gauge.form if a.scene.gauge.form != "bar" else "progress bar", "gauge", "container"))


def level(a: Asker) -> Made:
    assert a.scene.gauge is not None
    names = a.rng.choice(LEVEL_WORDS)
    return Score("q", a.say("level", gauge=_gauge_name(a)), names), a.scene.gauge.level


def level_choice(a: Asker) -> Made:
    assert a.scene.gauge is not None
    names = a.rng.choice(LEVEL_WORDS)
    return a.one_of("level", names[a.scene.gauge.level], names, least=3, gauge=_gauge_name(a))


def level_yes(a: Asker) -> Made:
    assert a.scene.gauge is not None
    real = a.scene.gauge.level
    tests = {
        "empty": real == 0,
        "full": real == 4,
        "half full": real == 2,
        "more than half full": real > 2,
        "less than half full": real < 2,
    }
    said = a.rng.choice(list(tests))
    if not tests[said] and a.rng.random() < 0.55:
        return None
    return a.yes_no(a.say("level_yes", gauge=_gauge_name(a), level=said), tests[said])


def percent(a: Asker) -> Made:
    assert a.scene.gauge is not None
    low, high = (0.0, 100.0) if a.coin() else (None, None)
    unit = "percent" if a.coin() else None
    said = a.say("percent", gauge=_gauge_name(a))
    return Number("q", said, low, high, 25.0 if a.coin() else None, unit), 25 * a.scene.gauge.level


def gauge_color(a: Asker) -> Made:
    assert a.scene.gauge is not None
    if a.scene.gauge.level == 0:
        return None
    return a.one_of("what_color", a.scene.gauge.color, tuple(COLORS), thing=a.rng.choice(("filling", "filled part")))


def light(a: Asker) -> Made:
    assert a.scene.light is not None
    return a.one_of("light", a.scene.light, ("red", "yellow", "green"), least=3)


def light_yes(a: Asker) -> Made:
    assert a.scene.light is not None
    asked = a.scene.light if a.coin() else a.rng.choice(("red", "yellow", "green"))
    return a.yes_no(a.say("light_yes", color=asked), asked == a.scene.light)


def may_go(a: Asker) -> Made:
    assert a.scene.light is not None
    return a.yes_no(a.say("may_go"), a.scene.light == "green", "the light is green", "the light is red or yellow")


def mostly(a: Asker) -> Made:
    names = {
        "things": ("shapes", "several objects"),
        "sign": ("a sign", "a sign with writing"),
        "label": ("a label with two lines", "a word and a number"),
        "tags": ("several tags", "several labels with writing"),
        "gauge": ("a gauge", "something that is filled"),
        "shelf": ("a shelf", "a shelf for things"),
        "light": ("a traffic light", "lights for cars"),
        "paper": ("a document", "a paper with lines of writing"),
        "chart": ("a chart", "a diagram of values"),
        "meter": ("a measuring instrument", "an instrument that shows a value"),
        "clothes": ("clothing", "something to wear"),
        "emoji": ("emoji", "small coloured symbols"),
        "roadsign": ("a traffic sign", "a sign with a symbol"),
        "parcel": ("a parcel or a number plate", "something that may be damaged"),
    }
    if (
        a.scene.kind not in names
        or (a.scene.kind == "things" and len(a.items) < 2)
        or (a.scene.kind == "tags" and len(a.boards) < 2)
    ):
        return None
    which = a.rng.randrange(2)
    alike = ({"sign", "label"}, {"sign", "roadsign"}, {"sign", "parcel"}, {"gauge", "meter"}, {"label", "paper"})
    pool = {kind: both[which] for kind, both in names.items() if {kind, a.scene.kind} not in alike}
    return a.one_of("mostly", pool[a.scene.kind], list(pool.values()), least=3)

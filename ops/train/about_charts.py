"""Questions about charts and instruments."""

from __future__ import annotations

from decimal import Decimal

from ops.train.asker import Asker, Made, Maker
from ops.train.families.charts import FORMS, Chart
from ops.train.families.meters import Meter
from photocall.questions import Number, Text

_OVER = ("more than", "higher than", "greater than")
_UNDER = ("less than", "lower than", "smaller than")


def _chart(a: Asker) -> Chart:
    found = a.scene.parts[0]
    assert isinstance(found, Chart)
    return found


def chart_extreme(a: Asker) -> Made:
    chart, most = _chart(a), a.coin()
    values = sorted(chart.values, reverse=most)
    if values[0] == values[1] or (
        chart.form == "pie" and not chart.printed and min(values[:2]) > 0.85 * max(values[:2])
    ):
        return None
    word = a.rng.choice(("highest", "largest", "most") if most else ("lowest", "smallest", "least"))
    name = chart.names[chart.values.index(values[0])]
    return a.one_of("chart_extreme", name, chart.names, least=len(chart.names), extreme=word)


def _readable(chart: Chart, value: int) -> bool:
    """Printed at the bar, or on a tick of the axis."""
    return chart.printed or bool(chart.step and value % chart.step == 0)


def chart_value(a: Asker) -> Made:
    chart = _chart(a)
    fit = [(n, v) for n, v in zip(chart.names, chart.values, strict=True) if _readable(chart, v)]
    if not fit:
        return None
    name, value = a.rng.choice(fit)
    low, high = (0.0, 1000.0) if a.rng.random() < 0.2 else (None, None)
    return Number("q", a.say("chart_value", name=name), low, high, 1.0 if a.rng.random() < 0.3 else None), value


def chart_name_of(a: Asker) -> Made:
    chart = _chart(a)
    fit = [(n, v) for n, v in zip(chart.names, chart.values, strict=True) if _readable(chart, v)]
    fit = [(n, v) for n, v in fit if chart.values.count(v) == 1]
    if not fit:
        return None
    name, value = a.rng.choice(fit)
    return a.one_of("chart_name_of", name, chart.names, least=len(chart.names), value=str(value))


def chart_more(a: Asker) -> Made:
    chart = _chart(a)
    i, j = a.rng.sample(range(len(chart.names)), 2)
    m, n = chart.values[i], chart.values[j]
    if m == n or (chart.form == "pie" and not chart.printed and min(m, n) > 0.8 * max(m, n)):
        return None
    over = a.coin()
    said = a.say("chart_more", a=chart.names[i], b=chart.names[j], relation=a.rng.choice(_OVER if over else _UNDER))
    return a.yes_no(said, (m > n) == over)


def chart_count(a: Asker) -> Made:
    chart = _chart(a)
    parts = {"pie": ("slices", "parts"), "line": ("points",)}.get(chart.form, ("bars",))
    return Number("q", a.say("count", things=a.rng.choice(parts))), len(chart.values)


def chart_kind(a: Asker) -> Made:
    return a.one_of("chart_kind", FORMS[_chart(a).form], tuple(dict.fromkeys(FORMS.values())), least=3)


def chart_trend(a: Asker) -> Made:
    chart = _chart(a)
    ordered = list(chart.values)
    if chart.form == "pie" or len(set(ordered)) < len(ordered):
        return None
    up, down = ordered == sorted(ordered), ordered == sorted(ordered, reverse=True)
    names = ("they rise", "they fall", "they go up and down")
    return a.one_of("chart_trend", names[0 if up else 1 if down else 2], names, least=3)


def _meter(a: Asker) -> Meter:
    found = a.scene.parts[0]
    assert isinstance(found, Meter)
    return found


def _meter_name(a: Asker) -> str:
    names = {
        "dial": ("gauge", "dial", "meter", "instrument"),
        "thermometer": ("thermometer", "instrument"),
        "scale": ("scale", "instrument"),
        "display": ("display", "screen", "meter", "instrument"),
    }
    return a.rng.choice(names[_meter(a).form])


def meter_value(a: Asker) -> Made:
    meter = _meter(a)
    if meter.unit == "clock":
        return None
    limited = meter.form != "display" and a.rng.random() < 0.4
    low, high = (float(meter.low), float(meter.high)) if limited else (None, None)
    unit = meter.unit or None if meter.form != "thermometer" else a.rng.choice((None, "degrees"))
    return Number("q", a.say("meter_value", meter=_meter_name(a)), low, high, None, unit), meter.value


def meter_text(a: Asker) -> Made:
    meter = _meter(a)
    if meter.form != "display" or (meter.unit != "clock" and a.rng.random() < 0.6):
        return None
    return Text("q", a.say("meter_value", meter=_meter_name(a))), meter.shown


def meter_yes(a: Asker) -> Made:
    meter = _meter(a)
    if meter.unit == "clock":
        return None
    span = (
        meter.step * a.rng.choice((1, 2, 3)) if meter.step else max(1, abs(int(meter.value)) // a.rng.choice((2, 4, 9)))
    )
    limit = int(meter.value) + span * a.rng.choice((-1, 1))
    if limit == meter.value:
        return None
    over = a.coin()
    relation = a.rng.choice(_OVER if over else _UNDER)
    said = a.say("meter_yes", meter=_meter_name(a), relation=relation, number=str(limit))
    return a.yes_no(said, (meter.value > Decimal(limit)) == over)


def meter_choice(a: Asker) -> Made:
    meter = _meter(a)
    if meter.form == "display":
        spots = [i for i, c in enumerate(meter.shown) if c.isdigit()]
        pool = []
        for _ in range(5):
            spot = a.rng.choice(spots)
            pool.append(meter.shown[:spot] + str(a.rng.randint(0, 9)) + meter.shown[spot + 1 :])
        return a.one_of("meter_value", meter.shown, pool, meter=_meter_name(a))
    pool = [str(meter.low + meter.step * i) for i in range((meter.high - meter.low) // meter.step + 1)]
    return a.one_of("meter_value", str(meter.value), pool, meter=_meter_name(a))


CHARTS: dict[Maker, float] = {
    chart_extreme: 2.2,
    chart_value: 2.6,
    chart_name_of: 1.2,
    chart_more: 1.6,
    chart_count: 0.7,
    chart_kind: 0.6,
    chart_trend: 0.6,
}
METERS: dict[Maker, float] = {meter_value: 3.0, meter_text: 0.8, meter_yes: 1.4, meter_choice: 1.4}

"""Dashboard, alerts and Prometheus' settings: every expression is about metrics and labels that there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from ops.docs import ROOT
from ops.metrics import dashboard
from photocall import metrics

FOLDER = ROOT / "ops" / "metrics"
PROMETHEUS_OWN = {"job", "instance", "le"}
FOREIGN = {"up", "process_resident_memory_bytes", "process_cpu_seconds_total"}
FUNCTIONS = {"sum", "max", "min", "rate", "increase", "histogram_quantile"}
WORDS = {"by", "without", "and", "or", "unless", "on", "ignoring", "bool"}
LABELS = {name: set(metric.labels) | ({"le"} if name.endswith("_bucket") else set())
          for room in metrics.ROOMS.values() for metric in room for name in metric.shown}  # fmt: skip
TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"|\[[^\]]*\]|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|[a-zA-Z_:][a-zA-Z0-9_:]*|=~|!~|!=|==|<=|>=|[-+*/<>=(){},]|\s+'
)
RANGE = re.compile(r"\[(?:\d+[smhd](?::\d+[smhd]?)?|\$__rate_interval)\]")


class BadExpression(Exception):
    """What is wrong with it."""


def check(expression: str) -> set[str]:
    """The metrics of an expression. Raises BadExpression for a name, label or bracket that is none.

    The part of PromQL that is used here, and no more: what it does not know is an error.
    """
    tokens, at = [], 0
    while at < len(expression):
        found = TOKEN.match(expression, at)
        if found is None:
            raise BadExpression(f"{expression[at:]!r} is no PromQL")
        if not found[0].isspace():
            tokens.append(found[0])
        at = found.end()
    _check_brackets(tokens)
    named: set[str] = set()
    wanted: set[str] = set()
    place = 0
    while place < len(tokens):
        token, behind = tokens[place], tokens[place + 1] if place + 1 < len(tokens) else ""
        if token.startswith("[") and not RANGE.fullmatch(token):
            raise BadExpression(f"{token} is no range")
        if re.match(r"[a-zA-Z_]", token):
            if token in ("by", "without", "on", "ignoring"):
                end = tokens.index(")", place)
                wanted |= {each for each in tokens[place + 2 : end] if each != ","}
                place = end
            elif token in FUNCTIONS:
                if behind not in ("(", "by"):
                    raise BadExpression(f"{token} of nothing")
            elif token not in WORDS:
                place = _selector(tokens, place, named, wanted)
        place += 1
    known = PROMETHEUS_OWN.union(*(LABELS.get(name, set()) for name in named))
    if wanted - known:
        raise BadExpression(f"no such labels of {sorted(named)}: {sorted(wanted - known)}")
    if not named:
        raise BadExpression("no metric")
    return named


def _selector(tokens: list[str], place: int, named: set[str], wanted: set[str]) -> int:
    name = tokens[place]
    if name not in LABELS and name not in FOREIGN:
        raise BadExpression(f"no such metric: {name}")
    named.add(name)
    if tokens[place + 1 : place + 2] != ["{"]:
        return place
    end = tokens.index("}", place)
    matchers = tokens[place + 2 : end]
    for label, operator, value in zip(matchers[::4], matchers[1::4], matchers[2::4], strict=True):
        if operator not in ("=", "!=", "=~", "!~") or not value.startswith('"'):
            raise BadExpression(f"{label} {operator} {value}")
        if label not in LABELS.get(name, set()) | PROMETHEUS_OWN:
            raise BadExpression(f"{name} has no label {label}")
    return end


def _check_brackets(tokens: list[str]) -> None:
    stack: list[str] = []
    for token in tokens:
        if token in "({":
            stack.append(token)
        elif token in ")}" and (not stack or stack.pop() + token not in ("()", "{}")):
            raise BadExpression(f"a {token} too many")
    if stack:
        raise BadExpression(f"a {stack[-1]} that stays open")


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def queries() -> Iterator[tuple[str, str, str]]:
    """Title, legend and expression of everything in the dashboard's file."""
    for panel in json.loads(dashboard.FILE.read_text())["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["legendFormat"], target["expr"]


def test_the_dashboard_is_the_code_s() -> None:
    assert dashboard.FILE.read_text() == dashboard.text(), "run: python -m ops.metrics.dashboard"


@pytest.mark.parametrize(("title", "legend", "expression"), list(queries()))
def test_the_dashboard_shows_what_there_is(title: str, legend: str, expression: str) -> None:
    named = check(expression)
    labels = PROMETHEUS_OWN.union(*(LABELS.get(name, set()) for name in named))
    assert set(re.findall(r"{{(\w+)}}", legend)) <= labels
    if labels & {"shape"} or " by (" in expression:
        grouped = {each for found in re.findall(r"by \(([^)]*)\)", expression) for each in found.split(", ")}
        assert set(re.findall(r"{{(\w+)}}", legend)) == grouped - {"le"}, "a legend that cannot tell its lines apart"


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_an_alert_can_be_raised_and_says_what_to_do(rule: dict[str, Any]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    named = check(rule["expr"])
    assert re.search(r"(==|<|>|<=|>=|!=) [\d.]+$", rule["expr"]), "no bound"
    assert re.fullmatch(r"\d+[smh]", rule.get("for", "0m"))
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert set(rule["annotations"]) == {"summary", "description"}
    labels = PROMETHEUS_OWN.union(*(LABELS.get(name, set()) for name in named))
    assert set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"]))) <= labels


def test_alerts_have_names_of_their_own() -> None:
    names = [rule["alert"] for rule in alerts()]
    assert len(set(names)) == len(names) > 8


def test_every_metric_is_in_the_dashboard() -> None:
    """What nobody looks at need not be counted."""
    seen = set[str]().union(*(check(expression) for _, _, expression in queries()))
    unseen = [m.name for room in metrics.ROOMS.values() for m in room if not seen & set(m.shown)]
    assert unseen == []


def test_panels_do_not_lie_on_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard.dashboard()["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= dashboard.COLUMNS
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}  # fmt: skip
        assert not cells & taken, panel["title"]
        taken |= cells


def test_grafana_finds_the_source_that_the_panels_name() -> None:
    [source] = yaml.safe_load((FOLDER / "grafana" / "datasources.yml").read_text())["datasources"]
    assert source["uid"] == dashboard.SOURCE["uid"]
    assert source["url"] == "http://prometheus:9090"


@pytest.mark.parametrize(
    "expression",
    [
        "sum(rate(photocall_no_such_thing_total[5m]))",
        "sum(rate(photocall_engine_failed_steps[5m]))",
        "sum by (colour) (photocall_engine_pages)",
        'photocall_engine_pages{colour="red"}',
        "photocall_engine_pages{pool=full}",
        "sum(rate(photocall_engine_failed_steps_total[5m])",
        "rate(photocall_engine_failed_steps_total[5 minutes])",
        "avg_of_all(photocall_redis_up)",
        "photocall_redis_up ? 1",
        "sum photocall_redis_up",
        "1 + 1",
    ],
)
def test_the_check_sees_what_is_wrong(expression: str) -> None:
    with pytest.raises(BadExpression):
        check(expression)

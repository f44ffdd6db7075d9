"""An engine's metrics: every one of the table with its labels, and the numbers of what was run."""

from __future__ import annotations

import math

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from photocall import metrics
from photocall.exporter import histogram
from photocall.questions import Noul, Text
from photocall_engine.canary import Canary, asking
from photocall_engine.edges import Answered
from photocall_engine.metrics import EngineMetrics
from photocall_engine.tally import Distribution, Tally
from photocall_engine.tokenizer import ChatTokenizer
from tests.engine.harness import Bench, bench, choice, picture


def scraped(found: Bench, tally: Tally) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample by name and labels. The bench's outlet is no RedisOutlet, so its answers are counted here."""
    for outcome in found.outcomes.values():
        assert isinstance(outcome, Answered)
        tally.answered(outcome.body, {**outcome.timings, "prepare": 0.5}, 1)
    canary = Canary(found, found, asking(None), {}, 0.0)
    registry = CollectorRegistry()
    about = ("e", "tiny", "cpu", "invariant")
    registry.register(
        EngineMetrics(
            found.engine, about, canary, lambda: 3, lambda: 4096, lambda: {"64": 2, "none": 1}, lambda: {"hit": 1}
        )
    )
    text = generate_latest(registry).decode()
    families = list(text_string_to_metric_families(text))
    assert {(family.name, family.type) for family in families} == {(m.name, m.kind) for m in metrics.ENGINE}
    labels = {metric.name: set(metric.labels) for metric in metrics.ENGINE}
    for family in families:
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == labels[family.name], sample
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def test_what_an_engine_shows(tokenizer: ChatTokenizer) -> None:
    found = bench(tokenizer)
    found.ask("a", "see pic", Noul("q", "Is it?"), choice("c", "x", "y"), images={"pic": picture(1)})
    found.run()
    found.ask("b", "see pic", Text("t", "Say it.", max_tokens=4), images={"pic": picture(1)})
    found.run()
    shown = scraped(found, found.engine.tally)
    usage = [found.body(job)["usage"] for job in ("a", "b")]
    assert usage[1]["cached_rows"] > 0
    for kind, name in (("prompt", "prompt_rows"), ("decode", "decode_rows"), ("cached", "cached_rows")):
        assert shown["photocall_engine_tokens_total", (("kind", kind),)] == sum(one[name] for one in usage)
    assert shown["photocall_engine_step_rows_count", ()] == found.engine.steps
    assert shown["photocall_engine_step_rows_sum", ()] == found.engine.rows
    assert shown["photocall_engine_step_seconds_count", ()] == found.engine.steps
    assert shown["photocall_engine_encoded_pictures_total", ()] == 1
    assert shown["photocall_engine_pictures_total", ()] == 2
    assert shown["photocall_engine_prefix_lookups_total", (("result", "hit"),)] == 1
    assert shown["photocall_engine_outcomes_total", (("code", ""), ("outcome", "answered"))] == 2
    assert shown["photocall_engine_questions_total", (("status", "answered"), ("type", "choice"))] == 1
    assert shown["photocall_engine_stage_seconds_sum", (("stage", "prepare"),)] == 1.0
    assert shown["photocall_engine_stage_seconds_bucket", (("le", "0.5"), ("stage", "prepare"))] == 2
    assert shown["photocall_engine_graph_batches_total", (("bucket", "none"),)] == 1
    assert shown["photocall_engine_unwritten", ()] == 3
    assert shown["photocall_blob_bytes", ()] == 4096
    assert shown["photocall_engine_canary_same", ()] == 1
    pages = found.engine.scheduler.pages
    states = {state: shown["photocall_engine_pages", (("pool", "full"), ("state", state))] for state in
              ("free", "cached", "used")}  # fmt: skip
    assert sum(states.values()) == pages.num_pages - 1
    assert states["used"] == 0
    assert states["cached"] > 0


def test_pages_that_are_taken_away_are_counted(tokenizer: ChatTokenizer) -> None:
    found = bench(tokenizer, num_pages=14, token_budget=64)
    found.ask("slow", "w" * 60, Text("t", "Say it.", max_tokens=40), priority="batch")
    for _ in range(4):
        found.step()
    assert found.engine.scheduler.preemptions == 0
    found.ask("urgent", "x" * 60, Text("t", "Say it.", max_tokens=40))
    found.run()
    assert found.engine.scheduler.preemptions > 0


def test_label_mass_is_that_of_the_answers_that_have_it() -> None:
    tally = Tally()
    answers = {"a": {"type": "noul", "noul": 0.5, "label_mass": 0.97}, "b": {"type": "noul", "noul": 0.5}}
    tally.answered({"answers": answers, "usage": {}}, {}, 0)
    assert sum(tally.label_mass["noul"].counts) == 1
    assert tally.label_mass["noul"].total == 0.97


@pytest.mark.parametrize("value", [0.0, 0.001, 0.0011, 5.0, 299.9, 300.0, 1e9])
def test_a_distribution_is_the_library_s_histogram(value: float) -> None:
    metric = metrics.ENGINE_STAGE_SECONDS
    ours = Distribution(metric.buckets)
    theirs = histogram(metrics.Metric("x", "histogram", "x", (), metric.buckets), CollectorRegistry())
    ours.add(value)
    theirs.observe(value)
    [family] = theirs.collect()
    below = [sample.value for sample in family.samples if sample.name == "x_bucket"]
    assert [sum(ours.counts[: n + 1]) for n in range(len(ours.counts))] == below
    assert math.isclose(ours.total, value)

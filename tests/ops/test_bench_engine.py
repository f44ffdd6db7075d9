"""The engine's bench end to end at a shape for any CPU: what it measures is what it says, and what fails is said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.bench import engine, workloads
from ops.bench.figures import GOALS, Figure, figure
from ops.bench.stand import SIZES, Stand, make_runner
from photocall_engine.sequence import Request

TINY = SIZES["tiny"]


@pytest.fixture(scope="module")
def stand() -> Stand:
    return Stand("tiny", "cpu", "invariant", TINY, make_runner("tiny", "cpu", "invariant", TINY))


def composed(stand: Stand, *, pictured: bool) -> Request:
    return stand.engine.composer.compose(workloads.fresh(stand, pictured=pictured))


def test_requests_have_the_lengths_that_others_were_measured_with(stand: Stand) -> None:
    soft = TINY.grid[0] * TINY.grid[1] // 9
    with_picture, alone = composed(stand, pictured=True), composed(stand, pictured=False)
    assert with_picture.input_tokens == alone.input_tokens == soft + 66
    assert [len(branch.base.tokens) for branch in with_picture.branches] == [31]
    assert (with_picture.image_tokens, alone.image_tokens) == (soft, 0)
    assert set(with_picture.prefix.tokens) != set(composed(stand, pictured=True).prefix.tokens)


def test_every_workload_runs_and_is_written_with_where_its_time_went(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    assert engine.main(["--shape", "tiny", "--device", "cpu", "--rounds", "1", "--out", str(out)]) == 0
    written = json.loads(out.read_text())
    assert {"date", "gpu", "torch", "triton", "commit", "results"} <= written.keys()
    found = {each["workload"]: each for each in written["results"]}
    assert found.keys() == {
        "KV of 4k tokens", "W1 picture", "W1 text", "W1L picture", "W1L 10 questions", "W1L text",
        "W2 fresh", "W2 warm", "W3 batch 1", "W3 batch 4",
    }  # fmt: skip
    for name in found.keys() - {"KV of 4k tokens"}:
        where = found[name]["where"]
        assert found[name]["value"] > 0
        assert sum(where["host_ms"].values()) + where["rest_ms"] == pytest.approx(where["wall_ms"], abs=0.01)
        assert {"plan", "forward", "account", "compose", "tell"} <= where["host_ms"].keys()
    assert found["W2 fresh"]["where"]["cached_rows"] == 0
    assert found["W2 warm"]["where"]["cached_rows"] > 0
    assert found["W3 batch 4"]["where"]["steps"] >= TINY.out


def test_a_workload_that_fails_is_said_and_the_next_one_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(stand: Stand, rounds: int) -> Iterator[Figure]:
        raise RuntimeError("no such kernel")

    monkeypatch.setitem(workloads.ALL, "W2", broken)
    out = tmp_path / "figures.json"
    arguments = ["--shape", "tiny", "--device", "cpu", "--rounds", "1", "--only", "W2,W1L", "--out", str(out)]
    assert engine.main(arguments) == 1
    written = json.loads(out.read_text())
    assert written["failed"] == ["W2"]
    assert len(written["results"]) == 3


def test_what_was_put_in_place_to_keep_time_is_gone_afterwards(stand: Stand) -> None:
    before = dict(vars(stand.runner)), dict(vars(stand.engine.scheduler))
    workloads.measured(stand, lambda: [workloads.fresh(stand, pictured=False)], 1)
    assert vars(stand.runner).keys() == before[0].keys()
    assert vars(stand.engine.scheduler).keys() == before[1].keys()


def test_a_goal_is_met_from_its_own_side_and_the_ratio_is_above_one() -> None:
    fast, slow = figure("W1 picture", "e4b", "fast", 160.0), figure("W1 picture", "e4b", "invariant", 160.0)
    assert (fast.met, slow.met) == (False, True)
    assert slow.ratio == pytest.approx(288 / 160)
    latency = figure("W1L picture", "e4b", "invariant", 9.0)
    assert latency.met
    assert latency.ratio == pytest.approx(9 / 3.5)
    assert figure("W1 picture", "tiny", "invariant", 1.0).met is None


def test_invariance_costs_what_the_slowest_figure_of_a_workload_loses() -> None:
    values = {"W1 picture": (120.0, 150.0), "W1 text": (380.0, 400.0), "W3 batch 1": (4.0, 3.2)}
    results = [
        figure(name, "e4b", numerics, value)
        for name, pair in values.items()
        for numerics, value in zip(("invariant", "fast"), pair, strict=True)
    ]
    assert [round(cost.value, 6) for cost in engine.cost_of_invariance(results)] == [20.0, 25.0]
    assert engine.cost_of_invariance(results[::2]) == []


def test_a_long_sequence_at_31b_stays_under_a_third_and_a_bit_of_one_pool() -> None:
    measured = workloads.kv("31b", SIZES["31b"])
    assert measured.met
    # 60 layers, of which 50 keep 1,024 of 4,096 positions: (10 * 4 * 512 + 50 * 16 * 256 / 4) over all of them
    assert measured.value == pytest.approx(
        (10 * 4 * 512 + 50 * 16 * 256 / 4) / (10 * 4 * 512 + 50 * 16 * 256), abs=0.01
    )


def test_goals_are_of_workloads_that_exist() -> None:
    for of_shape in GOALS["shapes"].values():
        assert of_shape.keys() <= GOALS["workloads"].keys()

"""The GPU session without a GPU: its order, its limits, what it writes; and what steps make of their figures."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ops.bench import figures
from ops.gpu import same_bits, session, traces, tune
from ops.gpu.steps import STEPS, Step
from photocall_engine.kernels.matmul_plan import Tile


def step(name: str, code: str, limit_s: float = 20.0) -> Step:
    return Step(name, name, limit_s, ("-c", code, "{out}", "{work}"))


def summary(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "summary.json").read_text())
    return found


WRITES = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text('{\"value\": 3}'); print('said')"


def test_a_step_that_fails_is_noted_and_the_next_one_runs(tmp_path: Path) -> None:
    out, work = tmp_path / "out", tmp_path / "work"
    steps = [step("broken", "print('no such kernel'); raise SystemExit(7)"), step("sound", WRITES)]
    done = session.run_steps(steps, out, work, 60)
    assert [(each.name, each.state, each.status) for each in done] == [("broken", "failed", 7), ("sound", "ok", 0)]
    assert "no such kernel" in done[0].log_end
    assert (out / "sound.log").read_text() == "said\n"
    written = summary(out)
    assert [each["state"] for each in written["steps"]] == ["failed", "ok"]
    assert written["figures"] == {"sound": {"value": 3}}


def test_a_step_out_of_time_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    child = "import time, pathlib, sys; time.sleep(6); pathlib.Path(sys.argv[1]).touch()"
    code = (
        "import subprocess, sys, time; print('begun', flush=True);"
        f"subprocess.Popen([sys.executable, '-c', {child!r}, sys.argv[2] + '/alive']); time.sleep(60)"
    )
    began = time.monotonic()
    [done] = session.run_steps([step("endless", code, limit_s=4.0)], tmp_path, tmp_path, 60)
    assert (done.state, done.status) == ("timeout", None)
    assert "begun" in done.log_end
    assert time.monotonic() - began < 40
    time.sleep(3.0)
    assert not (tmp_path / "alive").exists()


def test_what_does_not_fit_into_the_total_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "LEAST_S", 0.5)
    steps = [step("long", "import time; time.sleep(30)"), step("late", WRITES)]
    done = session.run_steps(steps, tmp_path, tmp_path, 1.0)
    assert [each.state for each in done] == ["timeout", "skipped"]
    assert [each["state"] for each in summary(tmp_path)["steps"]] == ["timeout", "skipped"]


def test_figures_cut_off_in_the_middle_do_not_hide_the_others(tmp_path: Path) -> None:
    half = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text('{\"value\": ')"
    session.run_steps([step("half", half), step("whole", WRITES)], tmp_path, tmp_path, 60)
    assert "not JSON" in summary(tmp_path)["figures"]["half"]
    assert summary(tmp_path)["figures"]["whole"] == {"value": 3}


def test_an_unknown_step_stops_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        session.main(["--steps", "tests,tset", "--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


def test_steps_run_modules_that_exist_and_take_these_arguments() -> None:
    assert len({each.name for each in STEPS}) == len(STEPS)
    for each in STEPS:
        flag, module, *arguments = each.command
        assert flag == "-m"
        assert importlib.util.find_spec(module) is not None, module
        if module.startswith("ops."):
            source = Path(cast(str, importlib.util.find_spec(module).origin)).read_text()  # type: ignore[union-attr]
            assert [word for word in arguments if word.startswith("--") and f'"{word}"' not in source] == []


def kernel(name: str, start: float, end: float) -> Any:
    return SimpleNamespace(name=name, time_range=SimpleNamespace(start=start, end=end))


def test_a_trace_counts_overlapping_kernels_once_and_gaps_by_length() -> None:
    events = [kernel("mm", 0, 100), kernel("mm", 90, 150), kernel("norm", 160, 200), kernel("mm", 350, 400)]
    found = traces.summed(events)
    assert (found["kernels"], found["busy_ms"]) == (4, 0.24)
    assert found["busy_share"] == 0.6
    assert found["gaps"] == {">=5us": {"count": 1, "ms": 0.01}, ">=100us": {"count": 1, "ms": 0.15}}
    assert [(top["name"], top["count"], top["ms"]) for top in found["top"]] == [("mm", 3, 0.21), ("norm", 1, 0.04)]


@dataclass
class FakeClock:
    """cuBLAS takes 10 us; four splits are best, walking is slow, tiles of 256 columns do not fit, and tiles of 32
    columns give other bits than the rest."""

    def library(self, m: int) -> float:
        return 10.0

    def micro(self, m: int, splits: int, tile: Tile) -> float:
        if tile.block_n == 256:
            raise RuntimeError("out of shared memory")
        return 12.0 + (splits != 4) + 10 * (tile.walk != "no") + abs(tile.block_n - (32 if m < 64 else 128)) / 64

    def bits(self, m: int, splits: int, tile: Tile) -> str:
        return f"{splits} {tile.block_n == 32}"


def test_the_tuner_chooses_splits_for_all_rows_and_tiles_that_keep_the_bits() -> None:
    use = tune.Use("product", 2560, 10240, (32, 64, 1024), (1, 2, 4))
    found = json.loads(json.dumps(tune.measure(use, FakeClock())))
    assert "out of shared memory" in next(iter(found["failed"].values()))
    plan = tune.choose(found)
    assert plan is not None
    assert plan.splits == 4
    assert plan.tile(32).block_n == 16  # 32 would be faster, with other bits
    assert plan.tile(64).block_n == plan.tile(9999).block_n == 128
    assert 'MatmulPlan("tma", 4, (' in tune.table([found])
    walked = [one for one in found["tried"] if one["tile"]["walk"] == "flat"]
    assert {tuple(one["us"]) for one in walked} == {("1024",), ()}
    assert "1024: 12.0/10.0" in tune.table([found])
    fewest = [tile for _, tile in tune.candidates(use, tune.FEWEST_ROWS)]
    assert {tile.across for tile in fewest} == {False, True}
    assert all(tile.block_m == tune.FEWEST_ROWS for tile in fewest if tile.across)


def test_the_tuner_says_where_nothing_runs() -> None:
    found = {"kind": "gate", "n": 8, "k": 8, "rows": [1], "splits": [1], "cublas_us": {"1": 1.0}, "tried": []}
    assert tune.choose(found) is None
    assert "nothing could run" in tune.table([found])


def test_the_tuner_knows_every_product_of_the_decoder_and_the_tower() -> None:
    def shapes(model: str) -> set[tuple[str, int, int]]:
        return {(use.kind, use.n, use.k) for use in tune.uses(model)}

    assert shapes("31b") >= {("product", 16384, 5376), ("product", 5376, 8192), ("product", 18432, 5376),
        ("product", 5376, 16384), ("pair", 43008, 5376), ("product", 5376, 21504), ("product", 3456, 1152)}  # fmt: skip
    assert shapes("e4b") >= {("pair", 20480, 2560), ("product", 2560, 10240), ("gate", 256, 2560),
        ("product", 2560, 256), ("product", 256 * 42, 2560), ("product", 3072, 2560)}  # fmt: skip
    split = {(use.n, use.k): use.splits for use in tune.uses("e4b")}
    assert (split[2560, 10240], split[2560, 256], split[3072, 2560]) == ((1, 2, 4), (1,), (1,))


def test_the_same_requests_in_any_company_have_the_same_answers() -> None:
    found = same_bits.compare("tiny", "cpu", 5)
    ways = {"together", "without a step ahead", "cached", "one at a time", "in steps of 128 rows"}
    assert set(found["different"]) == ways
    assert not any(found["different"].values())


def test_an_answer_that_differs_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one = same_bits._one_by_one
    monkeypatch.setattr(same_bits, "_one_by_one", lambda stand, requests: one_by_one(stand, requests) | {"job-1": {}})
    made: list[str] = []
    monkeypatch.setattr(figures, "print", lambda text: made.append(text), raising=False)
    assert same_bits.main(["--shape", "tiny", "--device", "cpu", "--requests", "3"]) == 1
    [shown] = made
    assert json.loads(shown)["different"]["one at a time"] >= 1


def test_nothing_here_runs_without_a_gpu_as_if_it_had_one(capsys: pytest.CaptureFixture[str]) -> None:
    if "torch" in sys.modules and sys.modules["torch"].cuda.is_available():
        pytest.skip("there is one")
    assert tune.main([]) == 2
    assert "CUDA" in capsys.readouterr().err

"""`photocall verify`: passes on checkpoints that fit, fails on an engine that is wrong, and says what it lacks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ops.bench.random_weights import SHAPES, read_shape
from photocall import cli
from photocall_engine import verify
from photocall_engine.torch_runner import TorchRunner
from tests.engine.checkpoints import DENSE, ETYPE, MERGER, UNIFIED, VISION, make_checkpoint
from tests.engine.test_gemma4 import causal_pictures, without_softcap, without_window

KINDS: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "etype": (ETYPE, VISION),
    "unified": (UNIFIED, MERGER),
    "text": (DENSE | {"use_bidirectional_attention": None}, None),
}


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("dense"), DENSE, VISION).directory


def test_the_command_passes_on_a_checkpoint_that_fits(dense: Path) -> None:
    command = [sys.executable, "-m", "photocall.cli", "verify", str(dense), "--tolerance", "1e-4"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "text of 64 tokens, window 24: max abs difference" in done.stdout
    assert "three pictures between text: max abs difference" in done.stdout
    assert lines[-1] == "4 of 4 samples agree within 0.0001"


def test_the_command_passes_json_on(dense: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine room prints it, in a process of its own."""
    asked: list[list[str]] = []

    def run(command: list[str], check: bool) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(subprocess, "run", run)
    assert cli.main(["verify", str(dense), "--tolerance", "1", "--json"]) == 1
    assert asked == [[sys.executable, "-m", "photocall_engine.verify", str(dense), "--tolerance", "1", "--json"]]


def test_verdicts_as_json(dense: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    verdicts = [verify.Verdict("x", 0.5, 2.0, 3, 3), verify.Verdict("y", float("nan"), 1.0, 0, 1)]
    monkeypatch.setattr(verify, "verify", lambda directory: verdicts)
    assert verify.main([str(dense), "--tolerance", "1", "--json"]) == 1
    [line] = capsys.readouterr().out.splitlines()
    found = json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert (found["checkpoint"], found["tolerance"], found["ok"]) == (str(dense), 1.0, False)
    assert found["samples"] == [
        {"sample": "x", "difference": 0.5, "spread": 2.0, "agreed": 3, "rows": 3, "ok": True},
        {"sample": "y", "difference": None, "spread": 1.0, "agreed": 0, "rows": 1, "ok": False},
    ]
    monkeypatch.setattr(verify, "verify", lambda directory: verdicts[:1])
    assert verify.main([str(dense), "--tolerance", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_checkpoint_can_be_compared(kind: str, tmp_path: Path) -> None:
    make_checkpoint(tmp_path, *KINDS[kind])
    verdicts = verify.verify(tmp_path)
    assert len(verdicts) == (2 if kind == "text" else 4)
    assert all(verdict.difference <= 1e-4 and verdict.spread >= 0.5 for verdict in verdicts)
    assert all(verdict.agreed == verdict.rows for verdict in verdicts)


@pytest.mark.parametrize(
    ("tamper", "failing"),
    [(without_softcap, 4), (without_window, 4), (causal_pictures, 2)],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_an_engine_that_is_wrong_fails(
    dense: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tamper: Callable[[TorchRunner], None],
    failing: int,
) -> None:
    original = TorchRunner.load

    def load(*arguments: Any, **settings: Any) -> TorchRunner:
        runner = original(*arguments, **settings)
        tamper(runner)
        return runner

    monkeypatch.setattr(TorchRunner, "load", load)
    assert verify.main([str(dense)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == f"{4 - failing} of 4 samples agree within 0.002"


def test_samples_keep_clear_of_tokens_that_mean_something() -> None:
    """Public checkpoints name several end tokens, as a list."""
    shape = "12b"
    raw = json.loads((SHAPES / f"{shape}.json").read_text())
    assert isinstance(raw["eos_token_id"], list)
    for ends in (raw["eos_token_id"], list(range(2, 200_000))):
        raw["eos_token_id"] = ends
        samples = verify.make_samples(read_shape(shape), raw)
        assert [len(sample.images) for sample in samples] == [0, 0, 1, 3]
        for sample in samples:
            assert sample.tokens.count(raw["image_token_id"]) == sum(image.num_soft for image in sample.images)
            assert not set(sample.tokens) & {0, *ends}


def test_a_difference_that_is_no_number_fails(dense: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "verify", lambda directory: [verify.Verdict("x", float("nan"), 1.0, 0, 1)])
    assert verify.main([str(dense)]) == 1


def test_what_is_missing_is_said(
    dense: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify.main([str(tmp_path)]) == 2
    assert "config.json" in capsys.readouterr().err
    (tmp_path / "config.json").write_text((dense / "config.json").read_text())
    assert verify.main([str(tmp_path)]) == 2
    assert "holds neither" in capsys.readouterr().err
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma3"}))
    assert verify.main([str(tmp_path)]) == 2
    assert "'gemma3' is not supported" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert verify.main([str(dense)]) == 2
    assert "pip install 'transformers>=5.17'" in capsys.readouterr().err

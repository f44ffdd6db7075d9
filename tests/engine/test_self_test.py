"""The self-test asks a real question about a real grid, and its failures are failures."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from photocall.grid import grid_for
from photocall_engine import self_test
from photocall_engine.calibration import Calibration
from photocall_engine.engine import build_engine
from photocall_engine.fake_runner import FakeRunner
from photocall_engine.self_test import SelfTestError, run_self_test
from photocall_engine.tokenizer import ChatTokenizer
from tests.engine.harness import Clock


def build(tokenizer: ChatTokenizer, runner: FakeRunner) -> Any:
    return partial(
        build_engine,
        runner=runner,
        tokenizer=tokenizer,
        calibration=Calibration(),
        model="m",
        clock=Clock(),
        token_budget=512,
        max_requests=4,
    )


def runner_for(tokenizer: ChatTokenizer, **options: Any) -> FakeRunner:
    return FakeRunner(vocab_size=tokenizer.vocab_size, **options)


def test_it_looks_at_one_picture(tokenizer: ChatTokenizer) -> None:
    runner = runner_for(tokenizer)
    assert run_self_test(build(tokenizer, runner), grid_for(1280, 720, 140)).took_s >= 0
    assert runner.encoded == 1
    assert any((batch.soft_idx >= 0).sum() == grid_for(1280, 720, 140).num_soft for batch in runner.batches)


def test_a_model_without_eyes_is_asked_about_text(tokenizer: ChatTokenizer) -> None:
    runner = runner_for(tokenizer)
    run_self_test(build(tokenizer, runner), None)
    assert runner.encoded == 0
    assert runner.batches


def test_a_model_that_fails_is_not_ready(tokenizer: ChatTokenizer) -> None:
    def broken(history: int, tokens: list[int]) -> Any:
        raise RuntimeError("broken")

    with pytest.raises(SelfTestError, match="answered with Refused"):
        run_self_test(build(tokenizer, runner_for(tokenizer, logits=broken)), None)


def test_a_model_that_answers_nonsense_is_not_ready(tokenizer: ChatTokenizer) -> None:
    def nonsense(history: int, tokens: list[int]) -> Any:
        return np.full(tokenizer.vocab_size, np.nan, dtype=np.float32)

    with pytest.raises(SelfTestError):
        run_self_test(build(tokenizer, runner_for(tokenizer, logits=nonsense)), None)


def test_a_model_that_takes_for_ever_is_not_ready(tokenizer: ChatTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_test, "TIMEOUT_S", -1.0)
    monkeypatch.setattr("photocall_engine.engine.Engine.step", lambda self: False)
    with pytest.raises(SelfTestError, match="no answer within"):
        run_self_test(build(tokenizer, runner_for(tokenizer)), None)

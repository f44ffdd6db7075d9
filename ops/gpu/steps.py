"""The steps of a GPU session: what each runs and how long it may take. Data; `session.py` runs it.

In a command `{out}` is the file for the step's figures and `{work}` a folder that all steps of one session share. Times
are for an H200-class device with no compiled kernels; they are guesses until a session has been run.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """Arguments of Python, the seconds it may take, and whether it runs where no steps are named."""

    name: str
    about: str
    limit_s: float
    command: tuple[str, ...]
    usual: bool = True


def _module(name: str, *arguments: str) -> tuple[str, ...]:
    return ("-m", name, *arguments)


def _engine(shape: str, *arguments: str) -> tuple[str, ...]:
    return _module("ops.bench.engine", "--shape", shape, "--device", "cuda", "--out", "{out}", *arguments)


STEPS: tuple[Step, ...] = (
    Step(
        "tests",
        "tests that need a GPU, and those of every kernel, compiled",
        240,
        _module("pytest", "-q", "-Wdefault", "-pno:cacheprovider", "tests/engine", "-k", "test_gpu or test_triton"),
    ),
    Step(
        "kernels",
        "every kernel at the shapes of E4B and 31B against the reference, and its bits among batches",
        180,
        _module("ops.bench.kernels", "--no-times"),
    ),
    Step(
        "same-bits",
        "whole answers at E4B: alone, together, cached, with and without graphs",
        150,
        _module("ops.gpu.same_bits", "--shape", "e4b", "--device", "cuda", "--out", "{out}"),
    ),
    Step(
        "tower",
        "the vision tower of E4B: bits, error, passes eager and captured, attention, kernels beside their floors",
        120,
        _module("ops.bench.tower", "--shape", "e4b", "--device", "cuda", "--out", "{out}"),
    ),
    Step("kernel-times", "every kernel timed", 240, _module("ops.bench.kernels")),
    Step(
        "tune",
        "matrix products of each weight shape in every tile: proposes entries for the table",
        300,
        _module("ops.gpu.tune", "--models", "e4b,31b", "--limit", "280", "--out", "{out}"),
    ),
    Step("engine-e4b", "workloads at E4B", 240, _engine("e4b", "--numerics", "invariant")),
    Step(
        "engine-fast",
        "the same with fast numerics and what invariance costs",
        300,
        _engine("e4b", "--numerics", "invariant,fast", "--only", "W3,W1,W2", "--rounds", "2"),
        usual=False,
    ),
    Step(
        "finite-31b",
        "every operation of a text and a picture at 31B: finite, as the reference, and the same from graphs",
        150,
        _module("ops.gpu.finite", "--shape", "31b", "--device", "cuda", "--out", "{out}"),
    ),
    Step("engine-31b", "workloads at 31B", 240, _engine("31b", "--only", "W1L,W3,W1", "--rounds", "2")),
    Step(
        "traces",
        "which kernels take the time, and where the device waits: W1L, W1, W2, W3 at E4B",
        150,
        _module("ops.gpu.traces", "--shape", "e4b", "--device", "cuda", "--out", "{out}"),
    ),
    Step(
        "startup",
        "from nothing to an engine that has answered, at E4B, kernels cold and cached",
        240,
        _module("ops.bench.startup", "--shape", "e4b", "--checkpoint", "{work}/e4b", "--out", "{out}"),
    ),
    Step(
        "loading",
        "a checkpoint from the page cache to the device (written by `startup`)",
        90,
        _module("ops.bench.loading", "{work}/e4b", "--device", "cuda"),
    ),
    Step(
        "service",
        "the whole service over HTTP at E4B",
        240,
        _module("ops.bench.service", "--shape", "e4b", "--checkpoint", "{work}/e4b", "--out", "{out}"),
    ),
    Step("fp8-loss", "what 8-bit weights cost in answers", 200, _module("ops.bench.fp8_loss"), usual=False),
)

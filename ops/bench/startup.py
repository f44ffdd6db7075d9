"""From nothing to an engine that has answered: seconds by stage, in processes of their own, kernels cold and cached.

Writes a checkpoint of random weights first (or takes a directory), so that its files are in the page cache. `cold` has
an empty cache of compiled kernels, `warm` the one that `cold` left. Redis, prep and the gateway are left out; a service
as a whole is timed by `service.py`.

    python -m ops.bench.startup --shape e4b --device cuda
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path

from ops.bench import figures
from ops.bench.figures import Figure, figure
from ops.bench.prompts import write_tokenizer
from ops.bench.random_weights import DTYPES, write_checkpoint
from ops.bench.stand import SIZES, Sizes, config_of
from photocall.grid import ProcessorConfig, grid_for
from photocall_engine.calibration import Calibration
from photocall_engine.engine import build_engine
from photocall_engine.self_test import run_self_test
from photocall_engine.tokenizer import ChatTokenizer
from photocall_engine.torch_runner import TorchRunner

TIMEOUT_S = 400.0


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when both starts were measured, 1 otherwise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SIZES, default="e4b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--checkpoint", type=Path, help="a directory for the checkpoint; one that is there is taken")
    parser.add_argument("--out", type=Path, help="the JSON file (default: a new one under ops/bench/results/)")
    parser.add_argument("--once", type=Path, help=argparse.SUPPRESS)  # what a process of its own does
    options = parser.parse_args(arguments)
    if options.once:
        print(json.dumps(start(options.once, options.device, SIZES[options.shape])))
        return 0
    out = options.out or figures.RESULTS / f"startup-{options.shape}-{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
    temporary = tempfile.TemporaryDirectory() if options.checkpoint is None else nullcontext(options.checkpoint)
    with temporary as directory, tempfile.TemporaryDirectory() as cache:
        checkpoint = make_checkpoint(Path(directory), options.shape, options.device)
        results: list[Figure] = []
        for name in ("start-up cold", "start-up warm"):
            found = timed_start(checkpoint, options.shape, options.device, Path(cache))
            if found is None:
                return 1
            results.append(figure(name, options.shape, "invariant", found["total_s"], where=found))
            print(f"{figures.line(results[-1])}\n    {found}", flush=True)
            figures.write(out, results)
    print(f"written: {out}")
    return 0


def make_checkpoint(directory: Path, shape: str, device: str) -> Path:
    """A checkpoint of random weights with a tokenizer, unless there is one."""
    if not (directory / "model.safetensors.index.json").exists():
        began = time.monotonic()
        config = config_of(shape)
        total = write_checkpoint(config, directory, device=device, dtype=DTYPES["bfloat16"])
        write_tokenizer(directory, config)
        processor = {"image_processor": {"max_soft_tokens": 280 if shape != "tiny" else 70}}
        (directory / "processor_config.json").write_text(json.dumps(processor))
        print(f"checkpoint: {total / 1e9:.2f} GB in {time.monotonic() - began:.1f} s", flush=True)
    return directory


def timed_start(checkpoint: Path, shape: str, device: str, cache: Path) -> dict[str, float] | None:
    """Seconds by stage and in total, of a fresh process with this cache of kernels; None if it failed."""
    command = [sys.executable, "-m", "ops.bench.startup", "--once", str(checkpoint), "--shape", shape]
    environment = os.environ | {"TRITON_CACHE_DIR": str(cache)}
    began = time.monotonic()
    try:
        done = subprocess.run(
            [*command, "--device", device], env=environment, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        print(f"no engine within {TIMEOUT_S:.0f} s", file=sys.stderr)
        return None
    if done.returncode:
        print(f"the engine ended with status {done.returncode}", file=sys.stderr)
        return None
    stages: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    total = time.monotonic() - began
    return {"total_s": round(total, 2), "process_and_imports_s": round(total - sum(stages.values()), 2)} | stages


def start(checkpoint: Path, device: str, sizes: Sizes) -> dict[str, float]:
    """Do what the engine's process does between its imports and being ready; seconds by stage."""
    marks = [("", time.monotonic())]
    tokenizer = ChatTokenizer(checkpoint)
    marks.append(("tokenizer", time.monotonic()))
    runner = TorchRunner.load(
        checkpoint,
        device=device,
        num_pages=sizes.pages,
        sliding_pages=sizes.pages - 1,
        max_rows=sizes.rows,
        soft_capacity=32 * 280,
    )
    runner.sync()
    marks.append(("weights", time.monotonic()))
    build = partial(
        build_engine,
        runner=runner,
        tokenizer=tokenizer,
        calibration=Calibration(),
        model="bench",
        clock=time.monotonic,
        token_budget=sizes.rows,
        max_requests=64,
    )
    run_self_test(build, grid_for(1280, 720, ProcessorConfig.read(checkpoint).budget))
    marks.append(("self-test", time.monotonic()))
    runner.enable_graphs()
    marks.append(("graphs", time.monotonic()))
    return {f"{name}_s": round(now - before, 2) for (_, before), (name, now) in pairwise(marks)}


if __name__ == "__main__":
    sys.exit(main())

"""One command for a machine with a GPU: tests, comparisons, measurements, one after another, each within its own time.

Every step is a process of its own; its output goes to OUT/NAME.log as it comes, its figures to OUT/NAME.json. A step
that fails or runs out of time is noted and the next one starts. OUT/summary.json is written anew after each step and
holds every step's state, its seconds, the end of its log where it failed, and all figures.

    python -m ops.gpu.session --list
    python -m ops.gpu.session --steps tests,kernels,graphs --out /tmp/out --total-limit 540
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from ops.gpu.steps import STEPS, Step

State: TypeAlias = Literal["ok", "failed", "timeout", "skipped"]
LOG_END = 4_000  # characters of a failed step's log that the summary carries
TERM_S = 5.0
LEAST_S = 5.0  # with less left, a step is not begun


@dataclass(frozen=True, slots=True)
class Done:
    """How one step ended. `status` is its exit status; None where it had none."""

    name: str
    state: State
    seconds: float
    status: int | None = None
    log_end: str = ""


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every step that was asked for is ok."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", default="", help="names with commas between, in the order in which they run")
    parser.add_argument("--out", type=Path, default=Path("gpu-session"))
    parser.add_argument(
        "--work", type=Path, help="for checkpoints, 16 GB at the shape of E4B (default: a temporary one)"
    )
    parser.add_argument("--total-limit", type=float, default=540.0, help="seconds for all steps together (default 540)")
    parser.add_argument("--list", action="store_true", help="say which steps there are")
    options = parser.parse_args(arguments)
    if options.list:
        for step in STEPS:
            print(f"{step.name:14} {step.limit_s:4.0f} s  {step.about}")
        return 0
    known = {step.name: step for step in STEPS}
    names = options.steps.split(",") if options.steps else [step.name for step in STEPS if step.usual]
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no step of this name: {', '.join(unknown)}")
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        done = run_steps([known[name] for name in names], options.out, work, options.total_limit)
    return 0 if all(each.state == "ok" for each in done) else 1


def run_steps(steps: Sequence[Step], out: Path, work: Path, total_limit_s: float) -> list[Done]:
    """Run them in order; what no longer fits into the total is skipped."""
    out.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + total_limit_s
    done: list[Done] = []
    for step in steps:
        left = until - time.monotonic()
        if left < LEAST_S:
            done.append(Done(step.name, "skipped", 0.0))
        else:
            print(f"--- {step.name}: {step.about} (at most {min(step.limit_s, left):.0f} s)", flush=True)
            done.append(run_step(step, out, work, min(step.limit_s, left)))
        print(f"--- {step.name}: {done[-1].state}, {done[-1].seconds:.1f} s\n{done[-1].log_end}", flush=True)
        summarise(out, done)
    return done


def run_step(step: Step, out: Path, work: Path, limit_s: float) -> Done:
    """One step in a process group of its own, which is gone afterwards."""
    log = out / f"{step.name}.log"
    figures = str(out / f"{step.name}.json")
    command = [sys.executable, *(w.replace("{out}", figures).replace("{work}", str(work)) for w in step.command)]
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "OUT": str(out)}
    began = time.monotonic()
    with log.open("wb") as lines:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=lines, stderr=lines, env=environment, start_new_session=True
        )
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            end_group(process)
    seconds = round(time.monotonic() - began, 1)
    if status == 0:
        return Done(step.name, "ok", seconds, 0)
    log_end = log.read_text(errors="replace")[-LOG_END:]
    return Done(step.name, "timeout" if status is None else "failed", seconds, status, log_end)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Whatever is left of a step: asked to end, then ended."""
    for kind, patience_s in ((signal.SIGTERM, TERM_S), (signal.SIGKILL, TERM_S)):
        try:
            os.killpg(process.pid, kind)
        except ProcessLookupError:
            break
        until = time.monotonic() + patience_s
        while time.monotonic() < until and _lives(process):
            time.sleep(0.05)
    process.wait()


def _lives(process: subprocess.Popen[bytes]) -> bool:
    process.poll()  # a group whose leader is a zombie still counts as there
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    return True


def summarise(out: Path, done: Sequence[Done]) -> None:
    """Everything so far in one file."""
    summary: dict[str, Any] = {"steps": [asdict(each) for each in done], "figures": {}}
    for file in sorted(out.glob("*.json")):
        if file.name != "summary.json":
            try:
                summary["figures"][file.stem] = json.loads(file.read_text())
            except ValueError as error:  # a step that was ended while it wrote
                summary["figures"][file.stem] = f"not JSON: {error}"
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())

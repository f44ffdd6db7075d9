#!/usr/bin/env python3
"""What the Makefile calls, one function per command. Standard library only.

It knows how to set up (`environment.py`) and what `make up` leaves behind (`background.py`); what runs then is the
business of `photocall up`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # so that `python3 ops/dev.py` finds its neighbours

from ops import background
from ops.environment import ROOT, VENV, PreconditionError, run_in_venv, say, set_up, venv_environment

RUN_EXTRAS = "gateway,prep,engine,client,local"
CACHES = (".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis")


def main(arguments: list[str]) -> int:
    """Run one command by name; unknown ones list what there is."""
    name = arguments[0] if arguments else ""
    command = COMMANDS.get(name)
    if command is None:
        print(f"usage: python3 ops/dev.py {{{','.join(COMMANDS)}}}", file=sys.stderr)
        return 2
    try:
        return command(arguments[1:])
    except PreconditionError as stop:
        print(f"photocall: {stop}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def demo(arguments: list[str]) -> int:
    """Everything up on a free port and an own state directory, the sample pictures asked, everything down."""
    set_up(RUN_EXTRAS)
    return run_in_venv(["-m", "ops.demo", *arguments])


def up(_: list[str]) -> int:
    """Start `photocall up` in the background and wait until it is ready."""
    port = background.wanted_port()
    running = background.running_pid()
    if running is not None:
        print(f"already up (pid {running}); `make status` says how it is")
        return 0
    background.refuse_taken_port(port)
    set_up(RUN_EXTRAS)
    background.STATE.mkdir(mode=0o700, exist_ok=True)
    environment = venv_environment() | {"PHOTOCALL_DATA": os.environ.get("PHOTOCALL_DATA", str(background.STATE))}
    with background.LOG_FILE.open("ab") as log:
        process = subprocess.Popen(
            [str(VENV / "bin" / "photocall"), "up", "--port", str(port)],
            cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    background.PID_FILE.write_text(str(process.pid))
    say(f"starting (log: {background.LOG_FILE.relative_to(ROOT)})")
    if not background.wait_ready(port, process):
        background.stop_pid(process.pid)
        background.PID_FILE.unlink(missing_ok=True)
        log_end = background.LOG_FILE.read_text(errors="replace").splitlines(keepends=True)[-30:]
        print("".join(log_end), file=sys.stderr)
        print(f"not ready within {background.START_TIMEOUT_S} s; the end of the log is above", file=sys.stderr)
        return 1
    print_address(port)
    return 0


def print_address(port: int) -> None:
    """The address, and one line that works."""
    print(f"photocall is up: http://127.0.0.1:{port}")
    print(f"try: {curl_line(port)}")


def curl_line(port: int) -> str:
    """One request with a sample picture, for a shell in the project's directory."""
    return (
        f"curl -s http://127.0.0.1:{port}/v1/systemone"
        " -F 'request=<ops/samples/request.json;type=application/json' -F photo=@ops/samples/street.png"
    )


def down(_: list[str]) -> int:
    """Stop what `make up` started, and nothing else."""
    pid = background.running_pid()
    if pid is None:
        print("not running")
    else:
        background.stop_pid(pid)
        print("stopped")
    background.PID_FILE.unlink(missing_ok=True)
    return 0


def logs(_: list[str]) -> int:
    """The log of `make up`; in a terminal it is followed until Ctrl-C."""
    if not background.LOG_FILE.exists():
        print("no log yet: nothing was started by `make up`")
        return 0
    with background.LOG_FILE.open(errors="replace") as log:
        sys.stdout.write("".join(log.readlines()[-200:]))
        while sys.stdout.isatty():
            line = log.readline()
            if line:
                sys.stdout.write(line)
            else:
                sys.stdout.flush()
                time.sleep(0.2)
    return 0


def status(_: list[str]) -> int:
    """What runs, and what it says of itself; 0 when ready, 1 otherwise."""
    pid = background.running_pid()
    if pid is None:
        print("not running")
        return 1
    port = background.wanted_port()
    code, body = background.fetch(f"http://127.0.0.1:{port}/readyz")
    print(f"running (pid {pid}), http://127.0.0.1:{port}, {'ready' if code == 200 else 'not ready'}")
    print(body.strip() or "the gateway does not answer")
    return 0 if code == 200 else 1


def clean(_: list[str]) -> int:
    """Stop everything, then delete the environment, all state and all caches."""
    down([])
    for path in (VENV, background.STATE, *(ROOT / name for name in CACHES)):
        shutil.rmtree(path, ignore_errors=True)
    for cache in [path for path in ROOT.rglob("__pycache__") if path.is_dir()]:
        shutil.rmtree(cache, ignore_errors=True)
    print("deleted .venv, .photocall and caches")
    return 0


def test(arguments: list[str]) -> int:
    """ruff, mypy and the whole suite; extra arguments go to pytest."""
    return check([]) or run_in_venv(["-m", "pytest", "-m", "not stack and not gpu", *arguments])


def check(_: list[str]) -> int:
    """Lint, format and types."""
    set_up("dev")
    for command in (["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"]):
        code = run_in_venv(["-m", *command])
        if code:
            return code
    return 0


def docs(arguments: list[str]) -> int:
    """Write the generated parts of the documents."""
    set_up("dev")
    return run_in_venv(["-m", "ops.docs", *arguments])


def site(arguments: list[str]) -> int:
    """The documents as a site in build/site, which any browser reads from the disk; a broken link is an error."""
    set_up("dev")
    os.environ["NO_MKDOCS_2_WARNING"] = "1"
    return run_in_venv(["-m", "mkdocs", "build", "--strict", "--quiet", *arguments])


def bench(arguments: list[str]) -> int:
    set_up(RUN_EXTRAS)
    return run_in_venv(["-m", "ops.bench.pipeline", *arguments])


def bench_prep(arguments: list[str]) -> int:
    """The photographs come with packages of `dev`."""
    set_up("dev")
    return run_in_venv(["-m", "ops.bench.prep", *arguments])


def eval_mini(arguments: list[str]) -> int:
    """A hundred held-out pictures, unless the arguments say otherwise; a run that is stopped goes on.

    Exits 0 only when the model card's figures hold. Answers of other weights, or of another generator, do not count.
    """
    set_up("dev")
    background.STATE.mkdir(mode=0o700, exist_ok=True)
    judged = sorted((*(ROOT / "models/mini").iterdir(), *(p for p in (ROOT / "ops/train").rglob("*") if p.is_file())))
    parts = [hashlib.sha256(p.read_bytes()).hexdigest() for p in judged if "__pycache__" not in p.parts]
    name = hashlib.sha256("".join(parts).encode()).hexdigest()[:12]
    rows = str(background.STATE / f"eval-mini-{name}.jsonl")
    card = str(ROOT / "ops/train/results/heldout.json")
    asked = ["-m", "ops.train.evaluate", "--world", "all", "--pictures", "100", "--rows", rows, "--card", card]
    return run_in_venv([*asked, *arguments])


def stack_test(arguments: list[str]) -> int:
    set_up("dev")
    return run_in_venv(["-m", "ops.stack_test", *arguments])


def chaos(arguments: list[str]) -> int:
    """The crash matrix; SEED and DURATION are variables."""
    set_up(RUN_EXTRAS)
    return run_in_venv(["-m", "ops.chaos", *arguments])


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "demo": demo,
    "up": up,
    "down": down,
    "logs": logs,
    "status": status,
    "test": test,
    "check": check,
    "docs": docs,
    "site": site,
    "bench": bench,
    "bench-prep": bench_prep,
    "eval-mini": eval_mini,
    "stack-test": stack_test,
    "chaos": chaos,
    "clean": clean,
}

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

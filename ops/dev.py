#!/usr/bin/env python3
"""What the Makefile calls: set up `.venv`, start, stop, test. Standard library only.

It knows how to make the environment and where the background processes of `make up` leave their traces (`.photocall/`);
what those processes are is the business of `photocall up`.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STATE = ROOT / ".photocall"
PID_FILE = STATE / "up.pid"
LOG_FILE = STATE / "up.log"
STAMP = VENV / "photocall-stamp.json"
RUN_EXTRAS = "gateway,prep,engine,client,local"
DEFAULT_TORCH = "torch==2.13.0"
DEFAULT_PORT = 8080
DISK_NEEDED = 4 << 30
START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 40
CACHES = (".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis")


class Stamp(NamedTuple):
    """What a finished `.venv` was made from."""

    key: str
    extras: list[str]


class PreconditionError(Exception):
    """A precondition does not hold; the message says what to do. The command exits with 2."""


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


# --- the environment ---------------------------------------------------------------------------------------------


def set_up(extras: str) -> None:
    """Make `.venv` with `extras` installed, unless its stamp says that this is so already."""
    check_machine()
    wanted = stamp_for(extras)
    held = read_stamp()
    if held is not None and held.key == wanted.key and ("dev" in held.extras or held.extras == wanted.extras):
        return  # dev contains the other extras
    if held is None or held.key != wanted.key:
        make_venv()
    STAMP.unlink(missing_ok=True)  # an install that is interrupted must not look finished
    install(extras)
    STAMP.write_text(json.dumps(wanted._asdict()))


def check_machine() -> None:
    """Python, a way to make a virtual environment, and room on the disk."""
    if sys.version_info < (3, 11):  # noqa: UP036  this file is what an older Python is told by
        raise PreconditionError(f"Python 3.11 or newer is needed; {sys.executable} is {sys.version.split()[0]}")
    if not VENV.exists() and shutil.disk_usage(ROOT).free < DISK_NEEDED:
        raise PreconditionError(
            f"4 GB of free disk are needed in {ROOT}; {shutil.disk_usage(ROOT).free / 1e9:.1f} GB are free"
        )


def stamp_for(extras: str) -> Stamp:
    """What an environment must have been made from: pyproject, this Python, this place, the torch asked for."""
    parts = [(ROOT / "pyproject.toml").read_bytes(), sys.version.encode(), str(VENV).encode(), torch_spec().encode()]
    return Stamp(hashlib.sha256(b"\0".join(parts)).hexdigest(), extras.split(","))


def read_stamp() -> Stamp | None:
    try:
        held = json.loads(STAMP.read_text())
        return Stamp(held["key"], held["extras"]) if venv_python().exists() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def make_venv() -> None:
    """A fresh `.venv` by venv, or by virtualenv where Debian's ensurepip is missing."""
    say("making .venv")
    shutil.rmtree(VENV, ignore_errors=True)
    if importlib.util.find_spec("ensurepip") is not None:
        run([sys.executable, "-m", "venv", str(VENV)])
    elif importlib.util.find_spec("virtualenv") is not None:
        run([sys.executable, "-m", "virtualenv", "--quiet", str(VENV)])
    else:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise PreconditionError(
            f"this Python cannot make virtual environments; run: apt-get install python{version}-venv"
        )


def install(extras: str) -> None:
    """torch first, so that its build is the one that was asked for; then the project with its extras."""
    pip = [str(venv_python()), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    if subprocess.run([str(venv_python()), "-c", "import torch"], capture_output=True, check=False).returncode:
        say(f"installing {torch_spec()} ({download_size(torch_spec())})")
        run([*pip, torch_spec()])
    say(f"installing photocall[{extras}]")
    run([*pip, "--editable", f"{ROOT}[{extras}]"])


def torch_spec() -> str:
    """The requirement torch is installed by: `PHOTOCALL_TORCH`, or the default."""
    return os.environ.get("PHOTOCALL_TORCH") or DEFAULT_TORCH


def download_size(requirement: str) -> str:
    """How much pip would fetch for one requirement, for the eyes of whoever waits; never an error."""
    command = [str(venv_python()), "-m", "pip", "install", "--quiet", "--dry-run", "--no-deps", "--report", "-"]
    found = subprocess.run([*command, requirement], capture_output=True, text=True, check=False)
    try:
        url = json.loads(found.stdout)["install"][0]["download_info"]["url"]
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=10) as answer:
            size = int(answer.headers["Content-Length"])
        return f"{size / 1e6:.0f} MB " + ("from this machine's disk" if url.startswith("file:") else "to download")
    except (ValueError, KeyError, IndexError, TypeError, OSError):
        return "size unknown"


def venv_python() -> Path:
    return VENV / "bin" / "python"


# --- processes ---------------------------------------------------------------------------------------------------


def demo(arguments: list[str]) -> int:
    """Everything up on a free port and an own state directory, the sample pictures asked, everything down."""
    set_up(RUN_EXTRAS)
    return run_in_venv(["-m", "ops.demo", *arguments])


def up(_: list[str]) -> int:
    """Start `photocall up` in the background and wait until it is ready."""
    port = wanted_port()
    running = running_pid()
    if running is not None:
        print(f"already up (pid {running}); `make status` says how it is")
        return 0
    refuse_taken_port(port)
    set_up(RUN_EXTRAS)
    STATE.mkdir(mode=0o700, exist_ok=True)
    environment = venv_environment() | {"PHOTOCALL_DATA": os.environ.get("PHOTOCALL_DATA", str(STATE))}
    with LOG_FILE.open("ab") as log:
        process = subprocess.Popen(
            [str(VENV / "bin" / "photocall"), "up", "--port", str(port)],
            cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    PID_FILE.write_text(str(process.pid))
    say(f"starting (log: {LOG_FILE.relative_to(ROOT)})")
    if not wait_ready(port, process):
        stop_pid(process.pid)
        PID_FILE.unlink(missing_ok=True)
        print("".join(LOG_FILE.read_text(errors="replace").splitlines(keepends=True)[-30:]), file=sys.stderr)
        print(
            f"photocall did not become ready within {START_TIMEOUT_S} s; the end of its log is above", file=sys.stderr
        )
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
        " -F 'request=<ops/samples/request.json;type=application/json' -F 'photo=@ops/samples/street.png'"
    )


def down(_: list[str]) -> int:
    """Stop what `make up` started, and nothing else."""
    pid = running_pid()
    if pid is None:
        print("not running")
    else:
        stop_pid(pid)
        print("stopped")
    PID_FILE.unlink(missing_ok=True)
    return 0


def logs(_: list[str]) -> int:
    """The log of `make up`; in a terminal it is followed until Ctrl-C."""
    if not LOG_FILE.exists():
        print("no log yet: nothing was started by `make up`")
        return 0
    with LOG_FILE.open(errors="replace") as log:
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
    pid = running_pid()
    if pid is None:
        print("not running")
        return 1
    port = wanted_port()
    code, body = fetch(f"http://127.0.0.1:{port}/readyz")
    print(f"running (pid {pid}), http://127.0.0.1:{port}, {'ready' if code == 200 else 'not ready'}")
    print(body.strip() or "the gateway does not answer")
    return 0 if code == 200 else 1


def clean(_: list[str]) -> int:
    """Stop everything, then delete the environment, all state and all caches."""
    down([])
    for path in (VENV, STATE, *(ROOT / name for name in CACHES)):
        shutil.rmtree(path, ignore_errors=True)
    for cache in [path for path in ROOT.rglob("__pycache__") if path.is_dir()]:
        shutil.rmtree(cache, ignore_errors=True)
    print("deleted .venv, .photocall and caches")
    return 0


def wanted_port() -> int:
    text = os.environ.get("PHOTOCALL_PORT", str(DEFAULT_PORT))
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise PreconditionError(f"PHOTOCALL_PORT={text!r}: expected a port number from 1 to 65535")
    return int(text)


def refuse_taken_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise PreconditionError(
                f"port {port} is taken by {port_owner(port)}; PHOTOCALL_PORT=N chooses another"
            ) from None


def port_owner(port: int) -> str:
    """Name and pid of the process that listens on a port, from /proc; 'another process' where that cannot be seen."""
    inodes = set(listening_inodes(port))
    for descriptors in Path("/proc").glob("[0-9]*/fd"):
        with contextlib.suppress(OSError):
            for descriptor in descriptors.iterdir():
                if os.readlink(descriptor) in inodes:
                    return f"{(descriptors.parent / 'comm').read_text().strip()} (pid {descriptors.parent.name})"
    return "another process"


def listening_inodes(port: int) -> Iterator[str]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                    yield f"socket:[{fields[9]}]"


def running_pid() -> int | None:
    """The pid of `make up`'s supervisor if it is alive and ours."""
    try:
        pid = int(PID_FILE.read_text())
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, ValueError):
        return None
    return pid if b"photocall" in command else None


def wait_ready(port: int, process: subprocess.Popen[bytes]) -> bool:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        if fetch(f"http://127.0.0.1:{port}/readyz")[0] == 200:
            return True
        time.sleep(0.2)
    return False


def fetch(url: str) -> tuple[int, str]:
    """Status and body of a loopback GET, proxies ignored; (0, '') when nothing answers."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=5) as answer:
            return answer.status, answer.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")
    except OSError:
        return 0, ""


def stop_pid(pid: int) -> None:
    """SIGTERM, and SIGKILL for the process alone when it outstays the drain."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)  # reaps it when it is our child, as after a failed start
            os.kill(pid, 0)
            time.sleep(0.1)
        os.kill(pid, signal.SIGKILL)


# --- checks ------------------------------------------------------------------------------------------------------


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


def bench(arguments: list[str]) -> int:
    set_up(RUN_EXTRAS)
    return run_in_venv(["-m", "ops.bench.pipeline", *arguments])


def eval_mini(arguments: list[str]) -> int:
    set_up("dev")
    return run_in_venv(["-m", "ops.train.evaluate", *arguments])


def stack_test(arguments: list[str]) -> int:
    set_up("dev")
    return run_in_venv(["-m", "ops.stack_test", *arguments])


def run_in_venv(arguments: list[str]) -> int:
    return subprocess.run([str(venv_python()), *arguments], cwd=ROOT, env=venv_environment(), check=False).returncode


def venv_environment() -> dict[str, str]:
    return os.environ | {"PATH": f"{VENV / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}


def run(command: list[str]) -> None:
    if subprocess.run(command, check=False).returncode:
        raise PreconditionError(f"failed: {' '.join(command)}")


def say(text: str) -> None:
    print(f"photocall: {text}", flush=True)


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "demo": demo,
    "up": up,
    "down": down,
    "logs": logs,
    "status": status,
    "test": test,
    "check": check,
    "bench": bench,
    "eval-mini": eval_mini,
    "stack-test": stack_test,
    "clean": clean,
}

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

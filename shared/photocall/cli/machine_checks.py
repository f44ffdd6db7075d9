"""Checks of the machine: what is installed, the processor, a GPU, memory, disks and ports."""

from __future__ import annotations

import errno
import os
import platform
import shutil
import socket
from contextlib import closing
from pathlib import Path

from photocall.cli.checks import Finding, Machine, failure, mib, nearest, ok, warning
from photocall.settings import EngineSettings, GatewaySettings, LocalSettings, SharedSettings

ROOMS = {
    "gateway": ("starlette", "uvicorn", "multipart", "rq"),
    "prep": ("PIL", "numpy", "rq"),
    "engine": ("torch", "numpy", "safetensors", "tokenizers"),
}
FAST_PREP = ("cykooz_resizer", "pyvips", "simplejpeg")


def packages(machine: Machine) -> Finding:
    """The packages of every room."""
    missing = {room: [name for name in names if not machine.installed(name)] for room, names in ROOMS.items()}
    rooms = [room for room, names in missing.items() if names]
    if rooms:
        told = "; ".join(f"{room} lacks {', '.join(missing[room])}" for room in rooms)
        return failure(told, f"pip install 'photocall[{','.join(rooms)}]'")
    slow = [name for name in FAST_PREP if not machine.installed(name)]
    if slow:
        return warning(f"without {' and '.join(slow)} pictures are prepared several times slower",
                       "pip install 'photocall[prep]'")  # fmt: skip
    return ok("gateway, prep and engine are installed")


def processor(machine: Machine) -> Finding:
    """AVX2, where the processor is one that may have it."""
    cores = len(os.sched_getaffinity(0))
    if platform.machine() not in ("x86_64", "AMD64"):
        return ok(f"{platform.machine()}, {cores} cores")
    flags = set(machine.cpuinfo.read_text().partition("flags")[2].partition("\n")[0].split())
    if "avx2" not in flags:
        return warning("the processor has no AVX2: the model runs several times slower on it",
                       "run the engine on another machine, or on a GPU")  # fmt: skip
    return ok(f"AVX2{', AVX-512' if 'avx512f' in flags else ''}, {cores} cores")


def gpu(machine: Machine) -> Finding:
    """That PHOTOCALL_DEVICE can be had, and that a GPU is not forgotten."""
    device = EngineSettings.from_env(machine.environ).device
    if device == "cpu":
        if machine.gpu.exists():
            return warning("there is a GPU, and the model runs on the CPU", "set PHOTOCALL_DEVICE=cuda")
        return ok("none is used: the model runs on the CPU")
    if not machine.gpu.exists():
        return failure(f"PHOTOCALL_DEVICE=cuda, and there is no {machine.gpu}",
                       "install NVIDIA's driver (`nvidia-smi` shows it), or set PHOTOCALL_DEVICE=cpu")  # fmt: skip
    usable, version = machine.torch()
    if not usable:
        return failure(f"PHOTOCALL_DEVICE=cuda, and {version} cannot use the GPU",
                       "install a CUDA build of torch that the driver is new enough for")  # fmt: skip
    return ok(f"{version} can use it")


def memory(machine: Machine) -> Finding:
    """Room for the weights beside what runs now. On the CPU they take what their files take."""
    settings = LocalSettings.from_env(machine.environ)
    words = machine.meminfo.read_text().partition("MemAvailable:")[2].split()
    free = int(words[0]) << 10
    device = EngineSettings.from_env(machine.environ).device
    weights = sum(file.stat().st_size for file in settings.model.glob("*.safetensors")) if device == "cpu" else 0
    need = weights + EngineSettings.from_env(machine.environ).kv_bytes * (device == "cpu") + settings.redis_memory
    if need > free:
        return warning(f"{mib(free)} are available; weights, K/V and Redis may take {mib(need)}",
                       "lower PHOTOCALL_KV_BYTES and PHOTOCALL_REDIS_MEMORY, or take a smaller checkpoint")  # fmt: skip
    return ok(f"{mib(free)} available, {mib(need)} may be taken")


def disk(machine: Machine) -> Finding:
    """The state directory can be written, and has room."""
    settings = GatewaySettings.from_env(machine.environ)
    place = nearest(settings.data)
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        return failure(f"{place} cannot be written", "set PHOTOCALL_DATA to a directory of yours")
    free = shutil.disk_usage(place).free
    if free < settings.min_free_bytes:
        return failure(f"{mib(free)} are free at {place}, less than PHOTOCALL_MIN_FREE_BYTES",
                       "free some room, or set PHOTOCALL_DATA to another disk")  # fmt: skip
    if free < 4 * settings.min_free_bytes:
        return warning(f"{mib(free)} are free at {place}", "free some room before large batches")
    return ok(f"{mib(free)} free at {place}")


def shared_memory(machine: Machine) -> Finding:
    """Room for prepared pictures."""
    settings = SharedSettings.from_env(machine.environ)
    place = nearest(Path(settings.blobs.removeprefix("dir:"))) if "PHOTOCALL_BLOBS" in machine.environ else None
    if place is None:
        if not machine.shared_memory.is_dir():
            return warning(f"there is no {machine.shared_memory}: prepared pictures go to the disk",
                           "mount a tmpfs there")  # fmt: skip
        place = machine.shared_memory
    elif not settings.blobs.startswith("dir:"):
        return ok("prepared pictures go to a Redis of their own")
    free = shutil.disk_usage(place).free
    if free < settings.blob_bytes:
        return warning(f"{mib(free)} are free at {place}; prepared pictures may take {mib(settings.blob_bytes)}",
                       "make it larger, or set PHOTOCALL_BLOB_BYTES lower")  # fmt: skip
    return ok(f"{mib(free)} free at {place}")


def port(machine: Machine) -> Finding:
    """The gateway's port is free, or its own gateway has it."""
    from photocall.cli.up import ready

    settings = GatewaySettings.from_env(machine.environ)
    host, number = settings.host, settings.port
    if number == 0:
        return ok("a free one is taken")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with closing(socket.create_server((host, number), family=family)):
            return ok(f"{host}:{number} is free")
    except OSError as error:
        if error.errno == errno.EADDRINUSE and ready(f"http://127.0.0.1:{number}"):
            return ok(f"photocall answers at {host}:{number}")
        why = "another program listens there" if error.errno == errno.EADDRINUSE else os.strerror(error.errno or 0)
        return failure(f"{host}:{number} cannot be listened on: {why}", "set PHOTOCALL_PORT to another, or 0")

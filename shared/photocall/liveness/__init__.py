"""Whether this host's gateway, prep worker or engine is alive: `python -m photocall.liveness ROOM`, for health checks.

It looks where the room itself shows its life, so that a process which hangs is noticed and not only one which is gone:
the gateway on its port, prep and engine by their last heartbeat on Redis.
"""

from __future__ import annotations

import socket
import sys
import urllib.request
from collections.abc import Callable, Mapping
from typing import cast

import redis

from photocall import keys
from photocall.connections import connect
from photocall.settings import EngineSettings, GatewaySettings, SettingsError, SharedSettings

TIMEOUT_S = 3.0
RQ_WORKERS = "rq:workers"  # set: keys of RQ's workers; each key goes when its worker stops beating


def gateway_lives(environ: Mapping[str, str]) -> bool:
    """It answers /healthz on its port."""
    settings = GatewaySettings.from_env(environ)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{settings.port}/healthz", timeout=TIMEOUT_S) as answer:
        return bool(answer.status == 200)


def prep_lives(environ: Mapping[str, str]) -> bool:
    """A worker of this host is registered and its registration has not run out."""
    client = connect(SharedSettings.from_env(environ).redis_url)
    mine = f"rq:worker:prep-{socket.gethostname()}-"
    known = [raw.decode() for raw in cast("set[bytes]", client.smembers(RQ_WORKERS))]
    return any(client.exists(key) for key in known if key.startswith(mine))


def engine_lives(environ: Mapping[str, str]) -> bool:
    """An engine of this host has a heartbeat; it has one only after its self-test."""
    settings = EngineSettings.from_env(environ)
    client = connect(settings.redis_url)
    wanted = settings.engine_id or f"{socket.gethostname()}-"
    known = [raw.decode() for raw in cast("list[bytes]", client.zrange(keys.ENGINES, 0, -1))]
    return any(client.exists(keys.heartbeat(engine)) for engine in known if engine.startswith(wanted))


ROOMS: dict[str, Callable[[Mapping[str, str]], bool]] = {
    "gateway": gateway_lives,
    "prep": prep_lives,
    "engine": engine_lives,
}


def main(arguments: list[str], environ: Mapping[str, str]) -> int:
    """0 alive, 1 not, 2 for a room or settings that there are not."""
    if len(arguments) != 1 or arguments[0] not in ROOMS:
        print(f"usage: python -m photocall.liveness {{{','.join(ROOMS)}}}", file=sys.stderr)
        return 2
    try:
        alive = ROOMS[arguments[0]](environ)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    except (redis.RedisError, OSError) as error:
        print(f"{arguments[0]}: {error}", file=sys.stderr)
        return 1
    return 0 if alive else 1

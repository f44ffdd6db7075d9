"""A whole stack with its patch blobs on a second Redis: nothing prepared twice, and nothing lost while it is away."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, cast

import pytest
import redis

from photocall import keys
from photocall.connections import connect
from photocall.redis_server import RedisServer
from tests.stack.local_service import service, wait_for

pytestmark = pytest.mark.timeout(180)


def blobs(client: redis.Redis) -> list[bytes]:
    return [name for name in client.scan_iter(match=keys.blob("*")) if not name.endswith(b"-grid")]


def sets(client: redis.Redis) -> int:
    """How often something was stored."""
    return int(cast(Any, client.info("commandstats"))["cmdstat_set"]["calls"])


def test_a_stack_with_its_blobs_on_a_second_redis(tmp_path: Path) -> None:
    with (
        RedisServer.start_temporary(persistent=False) as server,
        connect(server.url) as client,
        service(PHOTOCALL_BLOBS=server.url) as running,
    ):
        first = running.ended(running.submit(1)[1]["id"])
        assert first["status"] == "succeeded", first
        [blob] = blobs(client)
        assert cast(int, client.strlen(blob.decode())) % 768 == 0
        assert 0 < cast(int, client.ttl(blob.decode())) <= 3600

        stored = sets(client)
        again = running.ended(running.submit(1)[1]["id"])
        assert again["result"]["answers"] == first["result"]["answers"]
        assert sets(client) == stored, "the same picture is prepared once"

        client.flushall()  # it may vanish: the next question makes it anew
        assert running.ended(running.submit(1)[1]["id"])["result"]["answers"] == first["result"]["answers"]

        pid = cast(int, client.info("server")["process_id"])
        os.kill(pid, signal.SIGSTOP)  # away: nothing answers, and nothing is lost
        try:
            status, waiting = running.submit(2)
            assert status == 202
            wait_for(lambda: "a blob cannot be stored yet" in running.log.read_text(), 60, "prep to notice", running)
            assert running.call("GET", f"/v1/jobs/{waiting['id']}")[1]["status"] in ("queued", "preparing")
        finally:
            os.kill(pid, signal.SIGCONT)
        ended = running.ended(waiting["id"])
        assert ended["status"] == "succeeded", ended
        assert ended["attempts"] == 1, "that the blobs were away is no fault of the job"

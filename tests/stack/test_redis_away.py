"""Redis away for a while: every process waits it out, ever longer between tries and not in step, and goes on."""

from __future__ import annotations

import re
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from photocall.backoff import MOST_S
from photocall.redis_server import RedisServer, find_binary
from tests.redis_child import start
from tests.stack.local_service import alive, pid_of, service, wait_for

AWAY_S = 7.0
LINE = re.compile(
    r"^(?P<process>\S+) +\| .* WARNING \S+ (?P<what>[^:]+): .* tries=(?P<tries>\d+) retry_s=(?P<wait>[\d.]+)"
)
# What each room may not do without Redis; everything else asks only when it is asked.
WAITING = {
    "gateway": {"no wake channel", "cannot sweep", "cannot take deliveries"},
    "prep-1": {"cannot take pictures"},
    "engine": {"no heartbeat", "no control channel", "cannot take requests"},
}


def test_every_process_waits_for_redis() -> None:
    with tempfile.TemporaryDirectory(prefix="pc-r-") as directory:
        server = RedisServer(find_binary(), Path(directory), Path(directory))
        child = start(server)
        try:
            with service(PHOTOCALL_REDIS_URL=server.url) as running:
                job_id = running.submit_text(1)
                assert running.ended(job_id)["status"] == "succeeded"
                pids = {name: pid_of(running, name) for name in WAITING}
                child.kill()
                child.wait(10)
                time.sleep(AWAY_S)
                assert running.call("GET", "/v1/jobs/" + job_id)[0] == 503
                child = start(server)
                wait_for(lambda: running.call("GET", "/readyz")[0] == 200, 60, "everything to be ready again", running)
                status, job = running.submit(2)
                assert status == 202
                assert running.ended(job["id"])["status"] == "succeeded"
                assert pids == {name: pid_of(running, name) for name in WAITING}
                assert all(alive(pid) for pid in pids.values())
                lines = running.log.read_text().splitlines()
        finally:
            child.terminate()
            child.wait(10)
    waits: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for found in filter(None, map(LINE.match, lines)):
        process, what, tries, wait_s = found.groups()
        if int(tries) == len(waits[process, what]) + 1:  # of the first outage
            waits[process, what].append(float(wait_s))
    for process, whats in WAITING.items():
        for what in whats:
            loop = waits[process, what]
            assert len(loop) >= 2, (process, what, lines[-40:])
            assert max(loop) <= MOST_S
            assert loop[-1] > loop[0], "it does not wait longer"
            assert len(loop) < 12, "it asks again and again"
    drawn = [wait for loop in waits.values() for wait in loop]
    assert len(set(drawn)) > len(drawn) / 2, "they would come back in step"

"""A rolling restart under load: every process leaves on SIGTERM, one after another, and no caller notices."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import pytest

from ops.chaos.balancer import Balancer
from ops.chaos.callers import Crowd
from ops.chaos.tasks import task
from ops.chaos.witness import Witness
from ops.chaos.world import world
from tests.slowness import Slowness

SEED = 4
NOTICE_S = 4.0  # the balancer looks each 0.2 s, and a busy machine may keep it waiting for a second or two
LEAVE_S = {"gateway": NOTICE_S + 10 + 5, "engine": 10 + 5, "prep": 10}  # docs/reliability.md


@pytest.mark.timeout(240)
def test_every_process_is_replaced_under_load_and_nobody_is_refused() -> None:
    witness = Witness()
    with tempfile.TemporaryDirectory(prefix="pc-roll-") as directory:
        log = Path(directory) / "log"
        with (
            log.open("w") as out,
            Slowness() as slowness,
            world(
                Path(directory),
                out,
                twice=("gateway", "engine"),
                PHOTOCALL_RUNNER="fake",
                PHOTOCALL_DRAIN_NOTICE_S=str(NOTICE_S),
            ) as made,
        ):
            balancer = Balancer(made.addresses)
            crowd = Crowd(6, balancer, witness, SEED, task, pause_s=0.2)
            balancer.start()
            crowd.start()
            for name in made.names:
                if name == "redis":
                    continue  # there is one, and its absence is an outage: gateways say 503 until it is back
                slowness.begin()
                status, took_s = made.restart(name)
                assert status == 0, f"{name}\n{log.read_text()[-6000:]}"
                assert took_s < LEAVE_S[name.partition("-")[0]] * slowness.worst, name
                until = time.monotonic() + 60 * slowness.worst
                while not balancer.all_ready:
                    assert time.monotonic() < until, f"the balancer does not see the successor of {name}"
                    made.poll()
                    time.sleep(0.05)
            crowd.stop()
            while crowd.busy:
                made.poll()
                time.sleep(0.02)
            balancer.stop()
            assert witness.faults == [], log.read_text()[-6000:]
            assert not witness.retries, f"calls that were refused or broke off\n{log.read_text()[-6000:]}"
            assert witness.outcomes.total() > 20
            assert made.stop() == dict.fromkeys(made.names, 0)

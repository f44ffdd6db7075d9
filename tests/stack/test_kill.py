"""SIGKILL under `photocall up` with real processes: texts, poison, suspects and orphans; test_chaos.py has every point.

The engine runs its fake model, so that an answer takes milliseconds and what is measured is the pipeline alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time
from functools import partial

import pytest

from photocall.messages import StreamText
from tests.stack.local_service import Service, alive, picture, pid_of, service, wait_for

pytestmark = pytest.mark.timeout(180)


def assert_one_answer(running: Service, job_id: str, attempts: int) -> None:
    job = running.ended(job_id)
    assert job["status"] == "succeeded", running.log.read_text()[-6000:]
    assert job["attempts"] == attempts
    assert job["result"]["answers"]["colour"]["choice"] in ("red", "green")
    kinds = [event.msg_type for event in running.events(job_id)]
    assert kinds.count("result") == 1
    assert kinds.count("error") == 0
    assert kinds[-1] == "status"
    time.sleep(1.5)  # a sweep later nothing has changed
    again = running.call("GET", f"/v1/jobs/{job_id}")[1]
    assert again == job


def test_killed_in_the_middle_of_texts() -> None:
    """Twice, each at some text's next token: no text breaks off, and no word of one is sent again."""
    with service("engine.decode:2") as running:
        jobs = [running.submit_text(number, max_tokens=24) for number in range(2)]
        ended = [running.ended(job_id, within_s=90) for job_id in jobs]
        assert all(running.died_at("engine.decode", visit) for visit in (1, 2))
        assert [job["status"] for job in ended] == ["succeeded", "succeeded"]
        assert max(job["attempts"] for job in ended) >= 2
        for job in ended:
            sent = "".join(event.text for event in running.events(job["id"]) if isinstance(event, StreamText))
            assert sent == job["result"]["answers"]["words"]["text"] != ""


def test_a_job_that_kills_three_times_is_poison_and_hurts_nobody_else() -> None:
    """One picture kills prep, among a batch's that share its queue entry; another kills the engine among texts."""
    in_prep, in_engine = 100, 200
    hashes = [hashlib.sha256(picture(seed)).hexdigest() for seed in (in_prep, in_engine)]
    with service(f"prep.decode@{hashes[0]},engine.take@{hashes[1]}") as running:
        texts = [running.submit_text(number, max_tokens=200) for number in range(3)]
        wait_for(partial(runs, running, texts, set(), 3), 30, "texts in the engine", running)
        status, deadly = running.submit(seed=in_engine)
        assert status == 202
        seeds = [in_prep + n for n in range(-3, 4)]
        batch = running.start_batch([(f"photo-{seed}", seed) for seed in seeds])
        poisoned = running.ended(deadly["id"], within_s=120)
        assert (poisoned["status"], poisoned["error"]["code"], poisoned["attempts"]) == ("failed", "poison", 3)
        assert [running.ended(job_id, within_s=120)["status"] for job_id in texts] == ["succeeded"] * 3
        done, failed = running.batch_results(batch, within_s=120)
        assert set(failed) == {f"photo-{in_prep}"}
        assert "prep stopped 3 times" in json.dumps(failed[f"photo-{in_prep}"])
        assert set(done) == {f"photo-{seed}" for seed in seeds if seed != in_prep}
        buried = [line for line in running.log.read_text().splitlines() if "then=poison" in line]
        assert len(buried) == 2
        assert any(f"job={deadly['id']}" in line for line in buried)
        status, other = running.submit(seed=2)
        assert status == 202
        assert_one_answer(running, other["id"], attempts=1)


def test_an_engine_that_dies_again_and_again_takes_no_neighbours_with_it() -> None:
    """Jobs that were in an engine when it died run alone afterwards, so its deaths do not add up for each of them."""
    with service() as running:
        jobs = [running.submit_text(number, max_tokens=256) for number in range(6)]
        killed: set[tuple[str, int]] = set()
        for least in (3, 1, 1):
            wait_for(partial(runs, running, jobs, killed, least), 30, "jobs in an engine that was not killed", running)
            time.sleep(0.3)  # time for every job that would be taken together to be there
            killed |= runs(running, jobs, killed, 1)
            pid = pid_of(running, "engine")
            os.kill(pid, signal.SIGKILL)
            wait_for(partial(pid_of, running, "engine", but=pid), 30, "another engine", running)
        ended = [running.ended(job_id, within_s=120) for job_id in jobs]
        assert [job["status"] for job in ended] == ["succeeded"] * len(jobs)
        assert sum(job["attempts"] > 1 for job in ended) >= 3


def runs(running: Service, jobs: list[str], but: set[tuple[str, int]], least: int) -> set[tuple[str, int]]:
    """Attempts that run now, other than those known to be dead; none when they are fewer than `least`."""
    seen = [running.call("GET", f"/v1/jobs/{job_id}")[1] for job_id in jobs]
    found = {(job["id"], job["attempts"]) for job in seen if job.get("status") == "running"} - but
    return found if len(found) >= least else set()


def test_a_killed_supervisor_leaves_no_orphan() -> None:
    with service(stopped_by=signal.SIGKILL) as running:
        children = [pid_of(running, name) for name in ("redis", "prep-1", "engine", "gateway")]
        assert all(children)
        running.process.kill()
        running.process.wait(10)
        wait_for(lambda: not any(alive(pid) for pid in children), 30, "the children to end", running)

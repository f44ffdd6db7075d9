"""SIGKILL at named points, under the real supervisor with real processes: what was accepted ends in one answer.

The engine runs its fake model, so that an answer takes milliseconds and what is measured is the pipeline alone.
"""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from PIL import Image

from photocall import failpoints, keys
from photocall.connections import connect
from photocall.local import LocalStack, free_port
from photocall.messages import Message
from photocall.settings import SharedSettings
from photocall.wire import Wire

pytestmark = pytest.mark.timeout(180)

MODEL = Path(__file__).parents[2] / "models" / "mini"
QUESTIONS = {"colour": {"type": "choice", "instructions": "Which colour is it?", "criteria": ["red", "green"]}}
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass
class Service:
    """A running `photocall up` and where to ask it."""

    address: str
    data: Path
    environ: dict[str, str]
    process: subprocess.Popen[bytes]
    log: Path

    def call(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, dict[str, Any]]:
        """Status and JSON body; (0, {}) when the connection broke."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(self.address + path, body, named, method=method)
        try:
            with OPENER.open(request, timeout=30) as answer:
                return answer.status, json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"{}")
        except OSError:
            return 0, {}

    def submit(self, seed: int = 0, **headers: str) -> tuple[int, dict[str, Any]]:
        """A job about a picture nobody has asked about."""
        boundary = "x" * 30
        parts = [
            ("request", "application/json", json.dumps(body_of(seed)).encode()),
            ("photo", "image/png", picture(seed)),
        ]
        body = b"".join(
            f'--{boundary}\r\ncontent-disposition: form-data; name="{name}"; filename="{name}"\r\n'
            f"content-type: {kind}\r\n\r\n".encode()
            + data
            + b"\r\n"
            for name, kind, data in parts
        )
        body += f"--{boundary}--\r\n".encode()
        return self.call("POST", "/v1/jobs", body, content_type=f"multipart/form-data; boundary={boundary}", **headers)

    def ended(self, job_id: str, within_s: float = 60.0) -> dict[str, Any]:
        """The job, once it has ended."""

        def look() -> dict[str, Any] | None:
            status, job = self.call("GET", f"/v1/jobs/{job_id}")
            return job if status == 200 and job["status"] in ("succeeded", "failed", "cancelled", "expired") else None

        return cast("dict[str, Any]", wait_for(look, within_s, f"job {job_id} to end", self))

    def events(self, job_id: str) -> list[Message]:
        """Everything in the job's event stream."""
        settings = SharedSettings.from_env(self.environ | {"PHOTOCALL_DATA": str(self.data)})
        wire = Wire(settings.signing_key(), "test")
        client = connect(self.environ["PHOTOCALL_REDIS_URL"])
        entries = cast(Any, client.xrange(keys.events(job_id)))
        client.close()
        return [wire.decode(values[b"m"]).message for _, values in entries]

    def died_at(self, point: str, visit: int = 1) -> bool:
        return failpoints.marker(self.data, point, visit).exists()


def body_of(seed: int) -> dict[str, Any]:
    return {
        "state": f"photo number {seed}",
        "questions": QUESTIONS,
        "assets": {"photo": {"type": "image", "part": "photo"}},
    }


def picture(seed: int) -> bytes:
    pixels = random.Random(seed).randbytes(64 * 48 * 3)
    out = io.BytesIO()
    Image.frombytes("RGB", (64, 48), pixels).save(out, "PNG")
    return out.getvalue()


def wait_for(look: Callable[[], Any], within_s: float, what: str, service: Service) -> Any:
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        found = look()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"waited {within_s:.0f} s for {what}\n{service.log.read_text()[-6000:]}")


@contextmanager
def service(failpoint: str = "", stopped_by: signal.Signals = signal.SIGTERM) -> Iterator[Service]:
    """`photocall up` on a free port, in a state directory of its own; stopped and checked afterwards."""
    with tempfile.TemporaryDirectory(prefix="pc-kill-") as directory:
        data = Path(directory) / "data"
        environ = {name: value for name, value in os.environ.items() if not name.startswith("PHOTOCALL_")}
        environ |= {
            "PHOTOCALL_DATA": str(data),
            "PHOTOCALL_MODEL": str(MODEL),
            "PHOTOCALL_RUNNER": "fake",
            "PHOTOCALL_PORT": str(free_port("127.0.0.1")),
            "PHOTOCALL_PREP_WORKERS": "1",
        }
        if failpoint:
            environ["PHOTOCALL_FAILPOINT"] = failpoint
        stack = LocalStack.plan(environ)
        log = Path(directory) / "log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "photocall.cli", "up"], env=environ, stdout=out, stderr=out
            )
        running = Service(stack.address, data, environ | {"PHOTOCALL_REDIS_URL": stack.redis_url}, process, log)
        try:
            wait_for(lambda: running.call("GET", "/readyz")[0] == 200, 60, "everything to be ready", running)
            yield running
        finally:
            process.send_signal(stopped_by)
            status = process.wait(60)
            if stack.run_dir is not None and stopped_by == signal.SIGKILL:
                shutil.rmtree(stack.run_dir, ignore_errors=True)
        assert status == (0 if stopped_by == signal.SIGTERM else -stopped_by), log.read_text()[-6000:]


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


def test_killed_after_the_202_and_before_the_enqueue() -> None:
    with service("gateway.enqueue") as running:
        status, job = running.submit()
        assert status == 202
        wait_for(lambda: running.died_at("gateway.enqueue"), 10, "the gateway to die", running)
        assert_one_answer(running, job["id"], attempts=1)


@pytest.mark.parametrize("point", ["prep.decode", "engine.step", "engine.publish"])
def test_killed_at_work(point: str) -> None:
    with service(point) as running:
        status, job = running.submit()
        assert status == 202
        wait_for(lambda: running.died_at(point), 20, f"a death at {point}", running)
        assert_one_answer(running, job["id"], attempts=2)


def test_killed_three_times_under_the_same_job_is_poison_and_hurts_nobody_else() -> None:
    with service("prep.decode:3") as running:
        status, job = running.submit(seed=1)
        assert status == 202
        poisoned = running.ended(job["id"], within_s=90)
        assert all(running.died_at("prep.decode", visit) for visit in (1, 2, 3))
        assert poisoned["status"] == "failed"
        assert poisoned["error"]["code"] == "poison"
        assert poisoned["attempts"] == 3
        status, other = running.submit(seed=2)
        assert status == 202
        assert_one_answer(running, other["id"], attempts=1)


def test_every_process_killed_under_load_loses_and_doubles_nothing() -> None:
    with service() as running:
        jobs = []
        for seed in range(12):
            status, job = running.submit(seed)
            assert status == 202
            jobs.append(job["id"])
        for name in ("prep-1", "engine", "gateway", "redis"):
            os.kill(pid_of(running, name), signal.SIGKILL)
            time.sleep(0.3)
        wait_for(lambda: running.call("GET", "/readyz")[0] == 200, 60, "everything to be back", running)
        for job_id in jobs:
            assert running.ended(job_id, within_s=90)["status"] == "succeeded"
            assert [event.msg_type for event in running.events(job_id)].count("result") == 1


def test_a_killed_supervisor_leaves_no_orphan() -> None:
    with service(stopped_by=signal.SIGKILL) as running:
        children = [pid_of(running, name) for name in ("redis", "prep-1", "engine", "gateway")]
        running.process.kill()
        running.process.wait(10)
        wait_for(lambda: not any(alive(pid) for pid in children), 10, "the children to end", running)


def pid_of(running: Service, name: str) -> int:
    """The process of a name among the supervisor's children."""
    marks = {"redis": b"redis.sock", "prep-1": b"photocall_prep", "engine": b"photocall_engine"}
    mark = marks.get(name, b"photocall_gateway")
    for child in Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children").read_text().split():
        try:
            command = Path(f"/proc/{child}/cmdline").read_bytes()
            title = Path(f"/proc/{child}/comm").read_text()
        except OSError:
            continue
        if mark in command or (name == "redis" and ("valkey" in title or "redis" in title)):
            return int(child)
    raise AssertionError(f"no {name} among the supervisor's children")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False

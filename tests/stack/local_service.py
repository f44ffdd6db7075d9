"""A whole `photocall up` for the stack tests: real processes, the fake model, a state directory of its own."""

from __future__ import annotations

import base64
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

from PIL import Image

from photocall import failpoints, keys
from photocall.connections import connect
from photocall.local import LocalStack, free_port
from photocall.messages import EngineInfo, Message
from photocall.settings import SharedSettings
from photocall.wire import Wire

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
        request = ("request", "request", "application/json", json.dumps(body_of(seed)).encode())
        kind, body = form([request, ("photo", "photo", "image/png", picture(seed))])
        return self.call("POST", "/v1/jobs", body, content_type=kind, **headers)

    def submit_text(self, number: int, max_tokens: int = 32) -> str:
        """A job that decodes a while; its id."""
        question = {"type": "text", "instructions": "Say something.", "max_tokens": max_tokens}
        body = json.dumps({"state": f"number {number}", "questions": {"words": question}}).encode()
        status, job = self.call("POST", "/v1/jobs", body, content_type="application/json")
        assert status == 202, job
        return str(job["id"])

    def start_batch(self, rows: list[tuple[str, int]]) -> str:
        """A batch of pictures by name and seed; its id."""
        lines = []
        for name, seed in rows:
            asset = {"type": "image", "data_base64": base64.b64encode(picture(seed)).decode()}
            body = {**body_of(seed), "assets": {"photo": asset}}
            lines.append(json.dumps({"custom_id": name, "method": "POST", "url": "/v1/systemone", "body": body}))
        kind, data = form([("file", "rows.jsonl", "application/jsonl", "\n".join(lines).encode())], purpose="batch")
        status, file = self.call("POST", "/v1/files", data, content_type=kind)
        assert status == 200, file
        asked = {"input_file_id": file["id"], "endpoint": "/v1/systemone", "completion_window": "24h"}
        status, batch = self.call("POST", "/v1/batches", json.dumps(asked).encode(), content_type="application/json")
        assert status == 200, batch
        return str(batch["id"])

    def batch_results(self, batch_id: str, within_s: float) -> tuple[dict[str, Any], dict[str, Any]]:
        """Answers and failures of a batch that ends in time, by row."""

        def look() -> dict[str, Any] | None:
            status, batch = self.call("GET", f"/v1/batches/{batch_id}")
            return batch if status == 200 and batch["status"] in ("completed", "failed") else None

        batch = wait_for(look, within_s, f"batch {batch_id} to end", self)
        found = []
        for file_id in (batch["output_file_id"], batch["error_file_id"]):
            with OPENER.open(f"{self.address}/v1/files/{file_id}/content", timeout=30) as answer:
                rows = [json.loads(line) for line in answer]
            found.append({row["custom_id"]: row for row in rows})
        return found[0], found[1]

    def ended(self, job_id: str, within_s: float = 60.0) -> dict[str, Any]:
        """The job, once it has ended."""

        def look() -> dict[str, Any] | None:
            status, job = self.call("GET", f"/v1/jobs/{job_id}")
            return job if status == 200 and job["status"] in ("succeeded", "failed", "cancelled", "expired") else None

        return cast("dict[str, Any]", wait_for(look, within_s, f"job {job_id} to end", self))

    def events(self, job_id: str) -> list[Message]:
        """Everything in the job's event stream."""
        client = connect(self.environ["PHOTOCALL_REDIS_URL"])
        entries = cast(Any, client.xrange(keys.events(job_id)))
        client.close()
        return [self.wire().decode(values[b"m"]).message for _, values in entries]

    def engine_info(self) -> EngineInfo:
        """The engine's last heartbeat."""
        client = connect(self.environ["PHOTOCALL_REDIS_URL"])
        [engine_id] = cast(Any, client.zrange(keys.ENGINES, 0, -1))
        beat = cast(bytes, client.get(keys.heartbeat(engine_id.decode())))
        client.close()
        info = self.wire().decode(beat).message
        assert isinstance(info, EngineInfo)
        return info

    def wire(self) -> Wire:
        return Wire(SharedSettings.from_env(self.environ).signing_key(), "test")

    def died_at(self, point: str, visit: int = 1) -> bool:
        return failpoints.marker(self.data, point, visit).exists()


def form(files: list[tuple[str, str, str, bytes]], **fields: str) -> tuple[str, bytes]:
    """The content type and body of a form: files as (name, file name, type, bytes), and plain fields."""
    boundary = "x" * 30
    heads = [(f'name="{name}"', value.encode()) for name, value in fields.items()]
    heads += [
        (f'name="{name}"; filename="{filename}"\r\ncontent-type: {kind}', data) for name, filename, kind, data in files
    ]
    parts = [
        f"--{boundary}\r\ncontent-disposition: form-data; {head}\r\n\r\n".encode() + data + b"\r\n"
        for head, data in heads
    ]
    return f"multipart/form-data; boundary={boundary}", b"".join(parts) + f"--{boundary}--\r\n".encode()


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
def service(failpoint: str = "", stopped_by: signal.Signals = signal.SIGTERM, **settings: str) -> Iterator[Service]:
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
            **settings,
        }
        if failpoint:
            environ["PHOTOCALL_FAILPOINT"] = failpoint
        stack = LocalStack.plan(environ)
        log = Path(directory) / "log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "photocall.cli", "up", "--json"], env=environ, stdout=out, stderr=out
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


MARKS = {
    "redis": "redis.sock",
    "prep-1": "photocall_prep",
    "engine": "photocall_engine",
    "gateway": "photocall_gateway",
}


def pid_of(running: Service, name: str, but: int = 0) -> int:
    """The process of a name among the supervisor's children; 0 while there is none, or only the one not meant."""
    children = Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children").read_text().split()
    for child in (int(word) for word in children):
        try:
            shown = Path(f"/proc/{child}/cmdline").read_text() + Path(f"/proc/{child}/comm").read_text()
        except OSError:
            continue
        is_redis = name == "redis" and ("valkey" in shown or "redis-server" in shown)
        if child != but and (MARKS[name] in shown or is_redis):
            return child
    return 0


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False

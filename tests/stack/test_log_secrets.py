"""What callers send never stands in a log: keys, pictures, prompts, secrets, through a real stack and every failure.

The project's own loggers are set to their lowest level in every process. Redis is killed on the way, so that errors
come from where nobody planned them.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import signal
import socket
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from PIL import Image, PngImagePlugin

from photocall.api_keys import KeyFile
from tests.stack.local_service import Service, form, pid_of, service, wait_for

LOUD = """
import logging
for name in ("photocall", "photocall_gateway", "photocall_prep", "photocall_engine", "chaos"):
    logging.getLogger(name).setLevel(logging.DEBUG)
"""
# Each stands where nothing else is, so that what was found says where it came from.
PROMPT, ANSWERED, PICTURED, HEADER, FILED, METADATA = (
    f"zq{word}{number}" for number, word in enumerate(["prompt", "turn", "pixel", "idem", "row", "meta"], 1000)
)
QUESTION = {"q": {"type": "noul", "instructions": f"Is it {PROMPT}?"}}


def picture() -> bytes:
    """A PNG that says who it is, in its pixels and in its metadata."""
    about = PngImagePlugin.PngInfo()
    about.add_text("Comment", PICTURED)
    out = io.BytesIO()
    Image.frombytes("RGB", (64, 48), (PICTURED.encode() * 2000)[: 64 * 48 * 3]).save(out, "PNG", pnginfo=about)
    return out.getvalue()


def written(secret: bytes) -> list[str]:
    """A secret as a log could have it: as it is, escaped, in hex, and in base64 wherever it begins."""
    found = [secret.decode("latin-1"), repr(secret)[2:-1], secret.hex()]
    return found + [base64.b64encode(b"x" * shift + secret)[4 * bool(shift) : -4].decode() for shift in range(3)]


class Deaf:
    """A webhook's target that takes connections and answers none with a 2xx."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.heard = b""
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                with connection:
                    self.heard += connection.recv(1 << 16)
                    connection.sendall(b"HTTP/1.1 500 no\r\ncontent-length: 0\r\n\r\n")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}/hook"


def everything(running: Service, key: str, hook: str) -> None:
    """Good and bad of each kind; most of it fails."""
    who = {"authorization": f"Bearer {key}", "content_type": "application/json"}
    photo = picture()
    asset = {"img": {"type": "image", "data_base64": base64.b64encode(photo).decode()}}

    def post(path: str, body: Any, **more: str) -> tuple[int, dict[str, Any]]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return running.call("POST", path, data, **{**who, **more})

    good: dict[str, Any] = {
        "state": f"img {PROMPT}",
        "questions": QUESTION,
        "assets": asset,
        "metadata": {"a": METADATA},
    }
    for path in ("/v1/jobs", "/v1/systemone"):
        for body in (
            good,
            {**good, "webhook": {"url": hook}},
            {**good, "model": PROMPT},
            {**good, "state": PROMPT * 200_000},
            {**good, "state": f"img {PROMPT} " * 3000},
            {**good, "assets": {"img": {"data_base64": base64.b64encode(photo[:90]).decode()}}},
            {**good, "assets": {"img": {"url": f"http://127.0.0.1:9/{PICTURED}"}}},
            {**good, "questions": {"q": {"type": "choice", "criteria": [PROMPT, PROMPT]}}},
            {**good, "questions": {"n": {"type": "number", "instructions": PROMPT, "min": 0, "max": 9}}},
            {**good, "questions": {"t": {"type": "text", "instructions": PROMPT, "max_tokens": 3}}},
            json.dumps(good).encode()[:-9],
            PROMPT.encode(),
        ):
            post(path, body, idempotency_key=HEADER)
            post(path, body, prefer="wait=1")
    post("/v1/decisions", {"input": PROMPT, "questions": [{"type": "predicate", "instructions": PROMPT}]})
    post("/v1/jobs", photo)
    post("/v1/jobs", photo, content_type="multipart/form-data; boundary=x")
    post("/v1/jobs", good, authorization="Bearer " + key[:-1] + "x")
    post("/v1/jobs", good, authorization=key)
    sha256 = hashlib.sha256(photo).hexdigest()
    running.call("PUT", f"/v1/images/{sha256}", photo, **who)
    running.call("PUT", f"/v1/images/{sha256}", photo[:-1], **who)
    running.call("GET", f"/v1/images/{sha256}/report", None, **who)
    _, session = post("/v1/sessions", {"state": f"{PROMPT} {ANSWERED}"})
    for body in ({"questions": QUESTION}, {"text": f"{ANSWERED} " * 9}, {"text": 1}, {"questions": PROMPT}):
        post(f"/v1/sessions/{session.get('id')}/turns", body, prefer="wait=3")
    line = {"custom_id": FILED, "method": "POST", "url": "/v1/jobs", "body": good}
    lines = [line, {**line, "custom_id": "b", "body": {**good, "state": 1}}, {**line, "custom_id": "c", "body": {}}]
    rows = "\n".join(map(json.dumps, lines)).encode()
    for data in (rows, rows[:-20], photo, PROMPT.encode()):
        kind, body = form([("file", "rows.jsonl", "application/jsonl", data)], purpose="batch")
        _, file = running.call("POST", "/v1/files", body, **{**who, "content_type": kind})
        asked = {"input_file_id": file.get("id"), "endpoint": "/v1/jobs", "webhook": {"url": hook}}
        post("/v1/batches", asked)


def test_no_secret_and_no_content_stands_in_a_log() -> None:
    target = Deaf()
    with tempfile.TemporaryDirectory(prefix="pc-loud-") as directory:
        Path(directory, "sitecustomize.py").write_text(LOUD)
        file = Path(directory, "keys")
        key, other = KeyFile(file).create("ann", ["ask", "batch"]), KeyFile(file).create("bob", ["ask"])
        told = {
            "PHOTOCALL_API_KEYS": str(file),
            "PHOTOCALL_ALLOW_NETWORKS": "127.0.0.0/8",
            "PHOTOCALL_FETCH_URLS": "1",
            "PHOTOCALL_SIGNING_KEY": "zqsigning" * 4,
            "PYTHONPATH": os.pathsep.join(filter(None, (directory, os.environ.get("PYTHONPATH")))),
        }
        with service("", signal.SIGTERM, **told) as running:
            everything(running, key, target.url)
            _, found = running.call("GET", "/v1/webhooks/secret", authorization=f"Bearer {key}")
            killed = pid_of(running, "redis")
            asking = threading.Thread(target=everything, args=(running, other, target.url))
            asking.start()
            time.sleep(1.0)
            os.kill(killed, signal.SIGKILL)
            asking.join()
            wait_for(lambda: running.call("GET", "/readyz")[0] == 200, 60, "everything to be ready again", running)
            wait_for(lambda: target.heard, 30, "a webhook to be tried", running)
            time.sleep(1.0)
            log = running.log.read_bytes().decode()
    assert target.heard
    assert " WARNING " in log
    secrets = {"key": key, "other key": other, "webhook secret": found["secret"].removeprefix("whsec_")}
    secrets |= {"signing key": told["PHOTOCALL_SIGNING_KEY"], "digest": hashlib.sha256(key.encode()).hexdigest()}
    words = {"prompt": PROMPT, "turn": ANSWERED, "picture": PICTURED, "idempotency key": HEADER, "metadata": METADATA}
    leaks = [
        (what, line[:300])
        for what, secret in (secrets | words).items()
        for shape in written(secret.encode())
        for line in log.splitlines()
        if shape in line
    ]
    assert leaks == []

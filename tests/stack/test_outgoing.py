"""Outgoing calls of the whole service: a picture by URL, seen.png of it, and a webhook that outlives its gateway."""

from __future__ import annotations

import io
import json
import os
import signal
import urllib.request
from http.server import BaseHTTPRequestHandler

import pytest
from PIL import Image

from tests.stack.local_service import OPENER, QUESTIONS, picture, pid_of, service, wait_for
from tests.web_server import page, web_server

pytestmark = pytest.mark.timeout(180)


def test_fetched_answered_shown_and_told_after_a_kill() -> None:
    """The gateway is killed between the first attempt, which failed, and the second."""
    heard: list[tuple[str, bytes]] = []

    def hook(request: BaseHTTPRequestHandler) -> None:
        heard.append((request.headers["webhook-id"], request.rfile.read(int(request.headers["content-length"]))))
        page(b"", 503 if len(heard) == 1 else 204)(request)

    with (
        web_server(plain=True) as web,
        service(PHOTOCALL_FETCH_URLS="1", PHOTOCALL_ALLOW_NETWORKS="127.0.0.0/8") as running,
    ):
        web.pages |= {"/photo": page(picture(3)), "/hook": hook}
        base = f"http://127.0.0.1:{web.port}"
        body = {
            "state": "photo",
            "questions": QUESTIONS,
            "assets": {"photo": {"url": f"{base}/photo"}},
            "webhook": {"url": f"{base}/hook"},
        }
        status, job = running.call("POST", "/v1/jobs", json.dumps(body).encode(), content_type="application/json")
        assert status == 202, job
        assert running.ended(job["id"])["status"] == "succeeded"
        wait_for(lambda: heard, 60, "the first attempt", running)
        os.kill(pid_of(running, "gateway"), signal.SIGKILL)
        wait_for(lambda: len(heard) == 2, 60, "the second attempt", running)
        assert [delivery_id for delivery_id, _ in heard] == [job["id"]] * 2
        assert heard[0][1] == heard[1][1]
        assert json.loads(heard[0][1])["data"]["status"] == "succeeded"
        wait_for(lambda: running.call("GET", "/readyz")[0] == 200, 60, "the gateway to be back", running)
        prepared = next(event for event in running.events(job["id"]) if event.msg_type == "prepared")
        sha256 = prepared.to_content()["images"][0]["sha256"]
        status, report = running.call("GET", f"/v1/images/{sha256}/report")
        assert (status, report["size_in"]) == (200, [64, 48])
        seen = urllib.request.Request(f"{running.address}/v1/images/{sha256}/seen.png")
        with OPENER.open(seen, timeout=30) as answer, Image.open(io.BytesIO(answer.read())) as image:
            assert list(image.size) == report["size_out"]

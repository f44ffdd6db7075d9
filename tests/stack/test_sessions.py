"""A session through real processes: held between turns, and going on when the engine and the gateway are killed."""

from __future__ import annotations

import json
import os
import signal
from functools import partial
from typing import Any

import pytest

from tests.stack.local_service import Service, pid_of, service, wait_for

pytestmark = pytest.mark.timeout(180)


def turn(running: Service, session: str, body: dict[str, Any]) -> dict[str, Any]:
    """The job of a turn, ended."""

    def accepted() -> Any:
        status, job = running.call(
            "POST", f"/v1/sessions/{session}/turns", json.dumps(body).encode(), content_type="application/json"
        )
        return job if status == 202 else None

    job = wait_for(accepted, 30, "a turn to be accepted", running)
    ended = running.ended(job["id"])
    assert ended["status"] == "succeeded", ended
    return ended


def test_a_session_goes_on_after_its_engine_and_its_gateway_were_killed() -> None:
    question = {"type": "choice", "instructions": "Which colour?", "criteria": ["red", "green"]}
    with service() as running:
        _, made = running.call("POST", "/v1/sessions", b'{"state": "Be brief."}', content_type="application/json")
        session = made["id"]
        first = turn(running, session, {"state": "One.", "questions": {"c": question}})["result"]["session"]
        assert (first["turn"], first["reused"], first["notices"]) == (1, 0, ["Backend: fake (no model)"])
        _, shown = running.call("GET", f"/v1/sessions/{session}")
        assert (shown["held"]["tokens"], shown["held"]["bytes"]) == (first["held"]["tokens"], first["held"]["bytes"])
        second = turn(running, session, {"text": "Why?", "max_tokens": 8})["result"]["session"]
        assert second["reused"] == first["held"]["tokens"]
        for name in ("engine", "gateway"):
            pid = pid_of(running, name)
            os.kill(pid, signal.SIGKILL)
            wait_for(partial(pid_of, running, name, but=pid), 30, f"another {name}", running)
        wait_for(lambda: running.call("GET", "/readyz")[0] == 200, 60, "everything to be ready", running)
        third = turn(running, session, {"text": "And then?", "max_tokens": 8})["result"]["session"]
        assert (third["turn"], third["reused"]) == (3, 0)
        assert any("prefilled again from the transcript" in notice for notice in third["notices"])
        fourth = turn(running, session, {"text": "Go on.", "max_tokens": 8})["result"]["session"]
        assert fourth["reused"] == third["held"]["tokens"]
        _, shown = running.call("GET", f"/v1/sessions/{session}")
        assert shown["turns"]["answered"] == 4
        assert shown["reused"] == {"turns": 2, "tokens": second["reused"] + fourth["reused"]}
        assert shown["notices"][0] == "Backend: fake (no model)"

"""Server-sent events of a job: in order, resumable, ended."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from starlette.testclient import TestClient

from photocall.settings import GatewaySettings
from photocall.streams import AsyncEvents, Event
from photocall_gateway.app import create_app
from tests.gateway.conftest import KEY, POLICY
from tests.gateway.fake_backend import FakeBackend

PNG_B64 = "iVBORw0KGgpyZXN0"
PICTURE = {
    "state": "img",
    "questions": {"q": {"type": "noul", "instructions": "Is it?"}},
    "assets": {"img": {"type": "image", "data_base64": PNG_B64}},
}
TEXT = {"state": "text", "questions": PICTURE["questions"]}


def parse(text: str) -> list[dict[str, Any]]:
    """The events of a finished stream."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if fields:
            found.append({**fields, "data": json.loads(fields["data"])})
    return found


def test_the_events_of_a_job_from_its_beginning(client: TestClient, backend: FakeBackend) -> None:
    job_id = client.post("/v1/jobs", json=PICTURE, headers={"prefer": "wait=10"}).json()["id"]
    response = client.get(f"/v1/jobs/{job_id}/events")
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-store"
    events = parse(response.text)
    kinds = [event["event"] for event in events]
    assert kinds[-2:] == ["result", "status"]
    assert events[-1]["data"]["execution_state"] == "idle"
    (prepared,) = [event for event in events if event["event"] == "prepared"]
    assert prepared["data"]["images"][0]["num_soft"] == 140
    assert "blob_key" not in prepared["data"]["images"][0]
    assert all(event["data"]["job_id"] == job_id for event in events)
    for i, event in enumerate(events):
        rest = client.get(f"/v1/jobs/{job_id}/events", headers={"last-event-id": event["id"]})
        assert parse(rest.text) == events[i + 1 :]


def test_events_come_while_the_job_runs(http: httpx.Client, backend: FakeBackend) -> None:
    backend.hold.set()
    job_id = http.post("/v1/jobs", json=PICTURE).json()["id"]
    with http.stream("GET", f"/v1/jobs/{job_id}/events") as response:
        lines = response.iter_lines()
        assert next(line for line in lines if line.startswith("event: prepared"))
        backend.hold.clear()
        rest = list(lines)
    assert "event: result" in rest


def test_a_client_that_missed_too_much_gets_a_snapshot(settings: GatewaySettings) -> None:
    capped = replace(POLICY, event_limit=1)
    with (
        FakeBackend(settings.redis_url, KEY.encode(), capped),
        TestClient(create_app(settings, capped), base_url="http://localhost") as client,
    ):
        job_id = client.post("/v1/jobs", json=PICTURE, headers={"prefer": "wait=10"}).json()["id"]
        (last,) = parse(client.get(f"/v1/jobs/{job_id}/events").text)
        resumed = parse(client.get(f"/v1/jobs/{job_id}/events", headers={"last-event-id": "1-0"}).text)
        assert client.get(f"/v1/jobs/{job_id}/events", headers={"last-event-id": last["id"]}).text == ""
    assert [event["event"] for event in resumed] == ["snapshot", "status"]
    assert resumed[0]["data"]["result"]["answers"]["q"]["noul"] == 0.875


@pytest.mark.parametrize("last", ["x", "1-2-3", "-1", "", "9" * 20, "1-" + "9" * 20])
def test_a_last_event_id_that_is_none(client: TestClient, backend: FakeBackend, last: str) -> None:
    job_id = client.post("/v1/jobs", json=TEXT).json()["id"]
    response = client.get(f"/v1/jobs/{job_id}/events", headers={"last-event-id": last})
    assert (response.status_code, response.json()["loc"]) == (422, ["Last-Event-ID"])


def test_a_store_that_goes_away_for_a_moment_does_not_end_a_stream(
    client: TestClient, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams were torn, each with a traceback in the log, when Redis was restarted."""
    job_id = client.post("/v1/jobs", json=TEXT, headers={"prefer": "wait=10"}).json()["id"]
    whole, calls = AsyncEvents.read, []

    async def read(self: AsyncEvents, *arguments: Any) -> list[Event]:
        calls.append(arguments)
        if len(calls) == 1:
            client.app.state.services.wakes.wake_all()  # type: ignore[attr-defined]  # as when the channel is back
            raise RedisConnectionError("away")
        return await whole(self, *arguments)

    monkeypatch.setattr(AsyncEvents, "read", read)
    events = parse(client.get(f"/v1/jobs/{job_id}/events").text)
    assert [event["event"] for event in events][-1] == "status"
    assert len(calls) == 2


def test_a_deleted_job_ends_its_streams(http: httpx.Client, backend: FakeBackend) -> None:
    backend.hold.set()
    job_id = http.post("/v1/jobs", json=TEXT).json()["id"]
    text: list[str] = []

    def read() -> None:
        text.append(http.get(f"/v1/jobs/{job_id}/events").text)

    reader = threading.Thread(target=read)
    reader.start()
    reader.join(0.3)
    assert reader.is_alive()
    assert http.delete(f"/v1/jobs/{job_id}").status_code == 204
    reader.join(4)
    assert not reader.is_alive()
    assert len(text) == 1


def test_a_drain_ends_streams_so_that_clients_resume_elsewhere(
    settings: GatewaySettings, backend: FakeBackend, eventually: Callable[..., Any]
) -> None:
    backend.hold.set()
    app = create_app(replace(settings), POLICY)
    with TestClient(app, base_url="http://localhost") as client:
        parts = app.state.services
        job_id = client.post("/v1/jobs", json=TEXT).json()["id"]
        reader = threading.Thread(target=client.get, args=(f"/v1/jobs/{job_id}/events",))
        reader.start()
        eventually(lambda: parts.wakes.listeners)
        parts.drain.start()
        assert client.portal is not None
        client.portal.call(parts.wakes.wake_all)
        reader.join(4)
        assert not reader.is_alive()
        refused = client.post("/v1/jobs", json=TEXT)
        assert (refused.status_code, refused.json()["code"]) == (503, "draining")
        assert client.get(f"/v1/jobs/{job_id}").status_code == 200
        assert client.get("/readyz").json()["draining"] is True

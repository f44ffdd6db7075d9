"""Sessions over HTTP, against the real app with a scripted back end."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from starlette.testclient import TestClient

from photocall import keys
from photocall.asks import Ask
from photocall.images import ImageStore
from photocall.jobs import JobRecord, Outcome, Refused
from photocall.settings import GatewaySettings
from photocall_gateway.app import create_app
from tests.gateway.conftest import POLICY, served
from tests.gateway.fake_backend import FakeBackend, answered
from tests.gateway.test_events import parse

QUESTIONS = {"q": {"type": "noul", "instructions": "Is it?"}}
PNG = b"\x89PNG\r\n\x1a\n" + b"rest"
NOW = {"prefer": "wait=10"}
Eventually = Callable[..., Any]


def frame(seed: int = 0, **more: Any) -> dict[str, Any]:
    data = base64.b64encode(PNG + bytes([seed])).decode()
    return {"state": "img", "questions": QUESTIONS, "assets": {"img": {"type": "image", "data_base64": data}}, **more}


def made(client: TestClient | httpx.Client, **body: Any) -> str:
    response = client.post("/v1/sessions", json=body)
    assert response.status_code == 201, response.text
    assert response.headers["location"] == f"/v1/sessions/{response.json()['id']}"
    return str(response.headers["location"])


def test_a_session_from_its_first_turn_to_its_end(client: TestClient, backend: FakeBackend) -> None:
    backend.announce()
    at = made(client, state={"rules": "Be brief."}, metadata={"for": "test"}, ttl_s=100)
    session = client.get(at).json()
    assert (session["object"], session["mode"], session["remember"], session["held"]) == (
        "session",
        "every",
        True,
        None,
    )
    assert (session["state"], session["metadata"]) == ({"rules": "Be brief."}, {"for": "test"})
    assert 90 < session["expires_in_s"] <= 100
    first = client.post(f"{at}/turns", json=frame(), headers=NOW)
    assert (first.status_code, first.json()["status"]) == (200, "succeeded")
    assert first.json()["result"]["answers"]["q"]["noul"] == 0.875
    second = client.post(f"{at}/turns", json={"text": "What else?"}, headers=NOW).json()
    assert second["result"]["answers"]["text"]["text"] == "two boxes"
    session = client.get(at).json()
    assert session["turns"] == {"accepted": 2, "answered": 2, "remembered": 2, "unfinished": []}
    assert session["reused"] == {"turns": 1, "tokens": 100}
    assert session["notices"] == ["Backend: fake"]
    assert (session["held"]["engine"], session["held"]["tokens"], session["held"]["bytes"]) == ("fake", 200, 8192)
    assert 0 < session["held"]["expires_in_s"] <= 30
    [shown] = client.get("/v1/sessions").json()["data"]
    assert (shown["id"], shown["turns"]) == (session["id"], {"accepted": 2, "answered": 2})
    assert client.delete(at).status_code == 204
    for call in (client.get(at), client.post(f"{at}/turns", json={"text": "?"}), client.get(f"{at}/events")):
        assert (call.status_code, call.json()["code"]) == (404, "unknown_session")
    assert client.get("/v1/sessions").json()["data"] == []


def test_a_turn_is_a_job(client: TestClient, backend: FakeBackend) -> None:
    at = made(client)
    response = client.post(f"{at}/turns", json={"text": "Hello.", "metadata": {"a": "b"}})
    assert response.status_code == 202
    job = response.json()
    assert response.headers["location"] == job["urls"]["self"]
    done = client.get(job["urls"]["self"], headers=NOW).json()
    assert (done["status"], done["metadata"]) == ("succeeded", {"a": "b"})


def test_the_same_key_and_body_are_one_turn(client: TestClient, backend: FakeBackend) -> None:
    at = made(client)
    headers = {**NOW, "idempotency-key": "once"}
    bodies = [client.post(f"{at}/turns", json={"text": "Hello."}, headers=headers).json()["id"] for _ in range(3)]
    assert len(set(bodies)) == 1
    assert client.get(at).json()["turns"]["accepted"] == 1
    for elsewhere, text in ((at, "Bye."), (made(client), "Hello.")):
        other = client.post(f"{elsewhere}/turns", json={"text": text}, headers=headers)
        assert (other.status_code, other.json()["code"]) == (422, "idempotency_mismatch")


def test_turns_come_to_the_engine_in_order_and_each_knows_what_was_before(
    client: TestClient, backend: FakeBackend
) -> None:
    at = made(client)
    ids = [client.post(f"{at}/turns", json={"text": f"Word {n}."}).json()["id"] for n in range(5)]
    assert client.get(f"/v1/jobs/{ids[-1]}", headers=NOW).json()["status"] == "succeeded"
    assert backend.seen == ids


def test_a_text_turn_behind_pictures_skips_prep_and_keeps_them(
    client: TestClient, backend: FakeBackend, redis_client: redis.Redis
) -> None:
    prepared: list[str] = []
    backend.prepare = lambda record: prepared.append(record.job_id)
    at = made(client)
    first = client.post(f"{at}/turns", json=frame(), headers=NOW).json()["id"]
    seen: list[JobRecord] = []

    def look(ask: Ask, record: JobRecord) -> Outcome:
        seen.append(record)
        return answered(ask, record)

    backend.respond = look
    client.post(f"{at}/turns", json={"text": "And?"}, headers=NOW)
    assert prepared == [first]
    sha256 = hashlib.sha256(PNG + b"\0").hexdigest()
    assert seen[0].images == (sha256,)  # so that it is there for as long as the session may need it again
    ImageStore(redis_client).get(sha256)
    assert redis_client.hget(keys.image(sha256), "refs") == b"0"


def test_a_picture_of_the_transcript_that_has_expired_refuses_the_turn(
    client: TestClient, backend: FakeBackend, redis_client: redis.Redis
) -> None:
    at = made(client)
    client.post(f"{at}/turns", json=frame(), headers=NOW)
    sha256 = hashlib.sha256(PNG + b"\0").hexdigest()
    redis_client.delete(keys.image(sha256))
    refused = client.post(f"{at}/turns", json={"text": "And?"})
    assert (refused.status_code, refused.json()["code"], refused.json()["sha256"]) == (404, "image_expired", sha256)


def test_a_bad_picture_fails_its_own_turn_only(client: TestClient, backend: FakeBackend) -> None:
    at = made(client)
    backend.prepare = lambda record: Refused("image_undecodable", "cannot decode image img: truncated")
    failed = client.post(f"{at}/turns", json=frame(), headers=NOW).json()
    assert (failed["status"], failed["error"]["code"]) == ("failed", "image_undecodable")
    backend.prepare = lambda record: None
    assert client.post(f"{at}/turns", json=frame(1), headers=NOW).json()["status"] == "succeeded"
    assert client.get(at).json()["turns"]["remembered"] == 1


def test_the_newest_frame_replaces_those_that_wait(
    client: TestClient, backend: FakeBackend, eventually: Eventually
) -> None:
    backend.announce()
    at = made(client, mode="newest")
    assert client.get(at).json()["remember"] is False
    backend.stall.set()
    running = client.post(f"{at}/turns", json=frame(0)).json()["id"]
    eventually(lambda: client.get(f"/v1/jobs/{running}").json()["status"] == "running" and backend.seen)
    older = client.post(f"{at}/turns", json=frame(1)).json()["id"]
    newer = client.post(f"{at}/turns", json=frame(2)).json()
    backend.stall.clear()
    assert client.get(f"/v1/jobs/{newer['id']}", headers=NOW).json()["status"] == "succeeded"
    replaced = client.get(f"/v1/jobs/{older}", headers=NOW).json()
    assert replaced["status"] == "cancelled"
    assert (replaced["error"]["code"], replaced["error"]["replaced_by"]) == ("replaced", newer["id"])
    assert client.get(f"/v1/jobs/{running}").json()["status"] == "succeeded"
    assert backend.seen == [running, newer["id"]]
    assert client.get(at).json()["turns"]["remembered"] == 0


def test_interrupt(client: TestClient, backend: FakeBackend, eventually: Eventually) -> None:
    at = made(client)
    backend.stall.set()
    running = client.post(f"{at}/turns", json={"text": "Go on."}).json()["id"]
    eventually(lambda: backend.seen)
    waiting = client.post(f"{at}/turns", json={"text": "And on."}).json()["id"]
    shown = client.post(f"{at}/interrupt").json()
    assert shown["interrupted"] == [running]
    assert client.get(f"/v1/jobs/{running}", headers=NOW).json()["status"] == "cancelled"
    assert client.post(f"{at}/interrupt", json={"waiting": True}).json()["interrupted"] == [waiting]
    assert client.get(f"/v1/jobs/{waiting}", headers=NOW).json()["status"] == "cancelled"
    assert client.post(f"{at}/interrupt").json()["interrupted"] == []
    assert client.post(f"{at}/interrupt", json={"waiting": 1}).status_code == 422


def test_events_of_all_turns_resume(http: httpx.Client, backend: FakeBackend) -> None:
    at = made(http)
    ids = [http.post(f"{at}/turns", json={"text": f"{n}"}, headers=NOW).json()["id"] for n in range(2)]
    seen: list[dict[str, Any]] = []
    with http.stream("GET", f"{at}/events") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        text = ""
        for part in response.iter_text():
            text += part
            seen = parse(text[: text.rfind("\n\n")])
            if sum(event["event"] == "result" for event in seen) == 2:
                break
    assert {event["data"]["job_id"] for event in seen} == set(ids)
    first = next(event for event in seen if event["event"] == "result")
    with http.stream("GET", f"{at}/events", headers={"last-event-id": first["id"]}) as response:
        text = ""
        for part in response.iter_text():
            text += part
            if "event: result" in text:
                break
    assert ids[1] in text
    assert f'"job_id": "{ids[0]}", "execution_state": "busy"' not in text
    assert http.get(f"{at}/events", headers={"last-event-id": "x"}).status_code == 422


def test_a_closed_session_ends_its_stream(http: httpx.Client, backend: FakeBackend) -> None:
    at = made(http)
    http.post(f"{at}/turns", json={"text": "Hello."}, headers=NOW)
    with http.stream("GET", f"{at}/events") as response:
        lines = response.iter_lines()
        assert next(lines).startswith("id: ")
        assert http.delete(at).status_code == 204
        list(lines)  # ends


def test_a_session_outlives_the_gateway_that_made_it(settings: GatewaySettings, backend: FakeBackend) -> None:
    with served(settings) as address, httpx.Client(base_url=address, trust_env=False) as client:
        at = made(client)
        client.post(f"{at}/turns", json=frame(), headers=NOW)
        backend.hold.set()
        job = client.post(f"{at}/turns", json={"text": "And?"}).json()["id"]
    backend.hold.clear()
    with served(settings) as address, httpx.Client(base_url=address, trust_env=False) as client:
        assert client.get(f"/v1/jobs/{job}", headers=NOW).json()["status"] == "succeeded"
        assert client.get(at).json()["turns"]["remembered"] == 2


@pytest.fixture
def two_keys(settings: GatewaySettings, tmp_path: Path) -> GatewaySettings:
    lines = [f"{name}:{hashlib.sha256(name.encode()).hexdigest()}" for name in ("ann", "ben")]
    file = tmp_path / "keys"
    file.write_text("\n".join(lines))
    return replace(settings, api_keys=file)


def test_sessions_belong_to_a_key(two_keys: GatewaySettings, backend: FakeBackend) -> None:
    with TestClient(create_app(two_keys, POLICY), base_url="http://127.0.0.1:8080") as client:
        ann, ben = ({"authorization": f"Bearer {name}"} for name in ("ann", "ben"))
        at = client.post("/v1/sessions", headers=ann).headers["location"]
        assert client.get(at, headers=ann).status_code == 200
        for method, path in (
            ("GET", ""),
            ("DELETE", ""),
            ("POST", "/turns"),
            ("POST", "/interrupt"),
            ("GET", "/events"),
        ):
            refused = client.request(method, at + path, headers=ben)
            assert (refused.status_code, refused.json()["code"]) == (404, "unknown_session")
        assert client.get("/v1/sessions", headers=ben).json()["data"] == []
        assert len(client.get("/v1/sessions", headers=ann).json()["data"]) == 1


def test_a_list_is_paged_and_goes_on_behind_a_session_that_is_closed(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("photocall.sessions.LIST_PAGE", 2)
    made = [client.post("/v1/sessions").json()["id"] for _ in range(7)][::-1]
    page = client.get("/v1/sessions?limit=3").json()
    assert ([item["id"] for item in page["data"]], page["has_more"], page["last_id"]) == (made[:3], True, made[2])
    for closed in (made[2], made[4]):
        assert client.delete(f"/v1/sessions/{closed}").status_code == 204
    rest = client.get(f"/v1/sessions?limit=3&after={page['last_id']}").json()
    assert [item["id"] for item in rest["data"]] == [made[3], made[5], made[6]]
    assert rest["has_more"] is False
    assert client.get(f"/v1/sessions?after={rest['last_id']}").json()["data"] == []
    assert client.get("/v1/sessions?after=ses_nothing").status_code == 404
    assert client.get("/v1/sessions?limit=101").json()["loc"] == ["limit"]


@pytest.mark.parametrize(
    ("body", "loc"),
    [
        ({"mode": "latest"}, ["mode"]),
        ({"state": 3}, ["state"]),
        ({"remember": "yes"}, ["remember"]),
        ({"ttl_s": 1}, ["ttl_s"]),
        ({"ttl_s": 10**6}, ["ttl_s"]),
        ({"ttl_s": True}, ["ttl_s"]),
        ({"metadata": {"a": 1}}, ["metadata", "a"]),
        ({"assets": {}}, ["assets"]),
    ],
)
def test_a_session_that_cannot_be_made(client: TestClient, body: dict[str, Any], loc: list[str]) -> None:
    response = client.post("/v1/sessions", json=body)
    assert (response.status_code, response.json()["loc"]) == (422, loc)


@pytest.mark.parametrize(
    ("body", "loc"),
    [
        ({}, ["questions"]),
        ({"text": 3}, ["text"]),
        ({"text": "a", "questions": QUESTIONS}, ["text"]),
        ({"text": "a", "max_tokens": 0}, ["questions", "text", "max_tokens"]),
        ({"text": "a", "remember": 1}, ["remember"]),
        ({"text": "a", "deadline_s": -1}, ["deadline_s"]),
        ({"text": "a", "state": 3}, ["state"]),
    ],
)
def test_a_turn_that_cannot_be_taken(client: TestClient, body: dict[str, Any], loc: list[str]) -> None:
    at = made(client)
    response = client.post(f"{at}/turns", json=body)
    assert response.status_code == 422
    assert [part for part in dict.fromkeys(response.json()["loc"]) if part in loc] == loc
    assert client.get(at).json()["turns"]["accepted"] == 0


def test_too_many_turns_at_once(settings: GatewaySettings, backend: FakeBackend) -> None:
    backend.hold.set()
    few = replace(POLICY, max_turns_waiting=2)
    with TestClient(create_app(settings, few), base_url="http://127.0.0.1:8080") as client:
        at = made(client)
        for _ in range(2):
            assert client.post(f"{at}/turns", json={"text": "x"}).status_code == 202
        full = client.post(f"{at}/turns", json={"text": "x"})
        assert (full.status_code, full.json()["code"], full.json()["allowed"]) == (429, "queue_full", 2)
        assert int(full.headers["retry-after"]) >= 1


def test_a_session_ends_with_its_time_to_live(
    settings: GatewaySettings, backend: FakeBackend, eventually: Eventually
) -> None:
    short = replace(settings, image_ttl_s=1)
    with TestClient(create_app(short, POLICY), base_url="http://127.0.0.1:8080") as client:
        made_now = client.post("/v1/sessions", json={})
        assert made_now.json()["ttl_s"] == 1
        eventually(lambda: client.get(made_now.headers["location"]).status_code == 404)

"""What one key has made is to every other key as what never was: every route of the app, with a stranger's key.

A route that is not in the tables fails: whoever adds one says here what a stranger gets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from starlette.testclient import TestClient

from photocall import keys
from photocall.settings import GatewaySettings
from photocall.wire import pack
from photocall_gateway.app import ROUTES, create_app
from tests.gateway.batch_helper import Caller, jsonl, line
from tests.gateway.conftest import POLICY
from tests.gateway.fake_backend import FakeBackend
from tests.gateway.key_helper import bearer, keyed
from tests.gateway.test_images_route import PLACE, PNG, SHA
from tests.shared.test_calibrating import labels

QUESTIONS = {"q": {"type": "noul", "instructions": "Is it?"}}
ASK = {"state": "photo", "questions": QUESTIONS}
BY_HASH = {"photo": {"type": "image", "sha256": SHA}}
BATCH = {"endpoint": "/v1/systemone", "completion_window": "24h"}
DECISION = {"questions": [{"type": "predicate", "instructions": "Is it?"}]}
PART = {"type": "input_image", "sha256": SHA}

# Routes whose path names a thing: with ann's, ann gets this (None: she is not asked); bob, who is a stranger, gets 404.
# In an order in which each finds ann's thing there; a body where one is needed.
OWNED: dict[str, tuple[int | None, Any]] = {
    "GET /v1/jobs/{job_id}": (200, None),
    "GET /v1/jobs/{job_id}/events": (200, None),
    "POST /v1/jobs/{job_id}/cancel": (200, None),
    "POST /v1/jobs/{job_id}/replay": (409, None),  # it was asked without provenance
    "GET /v1/sessions/{session_id}": (200, None),
    "GET /v1/sessions/{session_id}/events": (None, None),  # goes on until the session is closed
    "POST /v1/sessions/{session_id}/turns": (202, {"text": "And now?"}),
    "POST /v1/sessions/{session_id}/interrupt": (200, None),
    "GET /v1/files/{file_id}": (200, None),
    "GET /v1/files/{file_id}/content": (200, None),
    "GET /v1/batches/{batch_id}": (200, None),
    "GET /v1/batches/{batch_id}/events": (200, None),
    "POST /v1/batches/{batch_id}/cancel": (409, None),
    "POST /v1/batches/{batch_id}/retry-failed": (409, None),
    "HEAD /v1/images/{sha256}": (200, None),
    "GET /v1/images/{sha256}/seen.png": (200, None),
    "GET /v1/images/{sha256}/report": (200, None),
    "DELETE /v1/images/{sha256}": (204, None),
    "DELETE /v1/jobs/{job_id}": (204, None),
    "DELETE /v1/sessions/{session_id}": (204, None),
    "DELETE /v1/files/{file_id}": (200, None),
    "DELETE /v1/batches/{batch_id}": (200, None),
    "GET /v1/calibrations/{calibration_id}": (200, None),
    "GET /v1/calibrations/{calibration_id}/diagram.svg": (200, None),
    "DELETE /v1/calibrations/{calibration_id}": (204, None),
}
# Routes whose body may name a thing of ann's: bob, who names it, gets 404.
NAMED: dict[str, Callable[[dict[str, str]], Any]] = {
    "POST /v1/jobs": lambda made: {**ASK, "assets": BY_HASH},
    "POST /v1/systemone": lambda made: {**ASK, "assets": BY_HASH},
    "POST /v1/decisions": lambda made: {"input": [{"role": "user", "content": [PART]}], **DECISION},
    "POST /v1/batches": lambda made: {**BATCH, "input_file_id": made["file_id"]},
}
# Lists: bob's is empty, and knows no place behind ann's things.
LISTS = {
    "GET /v1/jobs": "job_id", "GET /v1/sessions": "session_id", "GET /v1/files": None, "GET /v1/batches": None,
    "GET /v1/calibrations": "calibration_id",
}  # fmt: skip
# What is the caller's own, or everybody's, whoever calls.
OTHERS = {
    "PUT /v1/images/{sha256}": "makes the picture the caller's own too",
    "POST /v1/sessions": "makes one",
    "POST /v1/calibrations": "makes one",
    "POST /v1/files": "makes one",
    "GET /v1/webhooks/secret": "differs by key: tested below",
    "GET /v1/models": "the same for all",
    "GET /v1/status": "totals, and the caller's own part: tested in test_status.py",
    "GET /v1/keys": "for admins: 403 to bob, tested below",
    "GET /v1/channels": "a WebSocket: its messages are tested in test_channels.py",
    "GET /healthz": "open", "GET /readyz": "open", "GET /metrics": "open, totals only",
    "GET /openapi.json": "open", "GET /docs": "open", "GET /": "open", "GET /console/{name}": "open",
}  # fmt: skip


def test_every_route_is_in_one_of_the_tables() -> None:
    routes = [f"{route.method} {route.path}" for route in ROUTES]
    assert sorted(routes) == sorted([*OWNED, *NAMED, *LISTS, *OTHERS])


def test_the_app_serves_no_route_beside_these(settings: GatewaySettings) -> None:
    assert create_app(settings, POLICY).routes == ROUTES


@pytest.fixture
def http(settings: GatewaySettings, backend: FakeBackend) -> Iterator[TestClient]:
    app = create_app(keyed(settings, ann="ask,batch", bob="ask,batch", root="admin"), POLICY)
    with TestClient(app, base_url="http://127.0.0.1:8080") as found:
        yield found


@pytest.fixture
def made(http: TestClient, redis_client: redis.Redis) -> dict[str, str]:
    """One of everything, ann's, by the name that paths have for it."""
    shown: dict[Any, Any] = {"png": b"pixels", "report": pack({"decoder": "png"})}
    redis_client.hset(keys.shown(SHA), mapping=shown)  # as prep would
    ann, wait = bearer("ann"), {"prefer": "wait=10"}
    assert http.put(PLACE, content=PNG, headers=ann).status_code == 201
    job = http.post("/v1/jobs", json={**ASK, "assets": BY_HASH}, headers={**ann, **wait}).json()
    assert job["status"] == "succeeded"
    session_id = http.post("/v1/sessions", headers=ann).json()["id"]
    turn = http.post(f"/v1/sessions/{session_id}/turns", json={"text": "Look."}, headers={**ann, **wait}).json()
    assert turn["status"] == "succeeded"
    fitted = http.post("/v1/calibrations", json={"labels": labels(60)}, headers=ann)
    assert fitted.status_code == 201
    caller = Caller(http, "ann")
    batch = caller.run(jsonl(line("a")))
    assert batch["status"] == "completed"
    return {
        "job_id": job["id"], "session_id": session_id, "file_id": batch["input_file_id"], "batch_id": batch["id"],
        "sha256": SHA, "output_file_id": batch["output_file_id"], "calibration_id": fitted.json()["id"],
    }  # fmt: skip


def call(http: TestClient, route: str, made: dict[str, str], who: str, body: Any = None) -> Any:
    method, path = route.split(" ")
    content = {} if body is None else {"json": body}
    return http.request(method, path.format(**made), headers=bearer(who), **content)


def never_made(made: dict[str, str]) -> dict[str, str]:
    """The same ids with other digits: what never was."""
    return {name: re.sub(r"[0-9a-f]{12,}", lambda found: "0" * len(found[0]), value) for name, value in made.items()}


def said(response: Any, ids: dict[str, str]) -> tuple[int, str]:
    """Status and body, without the ids that the caller named and the request's own."""
    text = re.sub(r"req_[0-9a-f]+", "req", response.text)
    for value in ids.values():
        text = text.replace(value, "it").replace(value[:64], "it")
    return response.status_code, text


def test_a_stranger_gets_what_nobody_made(http: TestClient, made: dict[str, str]) -> None:
    """The very answer, word for word; and what it is asked for is left as it was for its owner, who is served after."""
    nothing = never_made(made)
    for route, (status, body) in OWNED.items():
        theirs = call(http, route, made, "bob", body)
        assert theirs.status_code == 404, (route, theirs.text)
        assert said(theirs, made) == said(call(http, route, nothing, "bob", body), nothing), route
        if status is not None:
            served = call(http, route, made, "ann", body)
            assert served.status_code == status, (route, served.text)


def test_a_stranger_cannot_name_it(http: TestClient, made: dict[str, str]) -> None:
    for route, body in NAMED.items():
        theirs = call(http, route, made, "bob", body(made))
        assert theirs.status_code == 404, (route, theirs.text)
        assert call(http, route, made, "ann", body(made)).status_code in (200, 202), route


def test_a_stranger_cannot_ask_under_a_calibration(http: TestClient, made: dict[str, str]) -> None:
    """Wherever one can be named; word for word what is said of one that nobody made."""
    nothing = never_made(made)
    asks: dict[str, Any] = {"/v1/jobs": ASK, "/v1/systemone": ASK, "/v1/decisions": {"input": "photo", **DECISION}}
    for who, status in (("bob", 404), ("ann", 202)):
        session = http.post("/v1/sessions", headers=bearer(who)).json()["id"]
        headers = {**bearer(who), "prefer": "respond-async"}
        for path, body in {**asks, f"/v1/sessions/{session}/turns": ASK}.items():
            found = http.post(path, json={**body, "calibration": made["calibration_id"]}, headers=headers)
            assert found.status_code == status, (path, found.text)
            if who == "bob":
                other = http.post(path, json={**body, "calibration": nothing["calibration_id"]}, headers=headers)
                assert said(found, made) == said(other, nothing), path


def test_a_stranger_s_lists_are_empty(http: TestClient, made: dict[str, str]) -> None:
    for route, place in LISTS.items():
        assert call(http, route, made, "bob").json()["data"] == [], route
        assert call(http, route, made, "ann").json()["data"], route
        if place is not None:
            behind = http.get(f"{route.split()[1]}?after={made[place]}", headers=bearer("bob"))
            assert (behind.status_code, behind.json().get("data", [])) in ((404, []), (200, [])), route


def test_results_are_the_batch_s(http: TestClient, made: dict[str, str]) -> None:
    results = {**made, "file_id": made["output_file_id"]}
    for route in ("GET /v1/files/{file_id}", "GET /v1/files/{file_id}/content", "DELETE /v1/files/{file_id}"):
        assert call(http, route, results, "bob").status_code == 404, route
        assert call(http, route, results, "ann").status_code == 200, route


def test_what_is_gone_is_gone_for_its_owner_only(
    http: TestClient, made: dict[str, str], redis_client: redis.Redis
) -> None:
    """A deleted job was 410 to everybody who named it; so was one whose time had ended."""
    assert call(http, "DELETE /v1/jobs/{job_id}", made, "ann").status_code == 204
    ended = {"job_id": http.post("/v1/jobs", json=ASK, headers={**bearer("ann"), "prefer": "wait=10"}).json()["id"]}
    redis_client.delete(keys.job(ended["job_id"]))
    for ids in (made, ended):
        for route, (_, body) in OWNED.items():
            if "{job_id}" in route:
                assert call(http, route, ids, "ann", body).status_code == 410, route
                assert call(http, route, ids, "root", body).status_code in (403, 410), route
                theirs = call(http, route, ids, "bob", body)
                assert (theirs.status_code, theirs.json()["code"]) == (404, "unknown_job"), route


def test_what_differs_by_key(http: TestClient) -> None:
    secrets = {http.get("/v1/webhooks/secret", headers=bearer(who)).json()["secret"] for who in ("ann", "bob")}
    assert len(secrets) == 2
    assert http.get("/v1/keys", headers=bearer("bob")).status_code == 403


# --- an admin ---------------------------------------------------------------------------------------------------------

SEEN_BY_ADMIN = {
    "GET /v1/jobs/{job_id}", "GET /v1/jobs/{job_id}/events", "POST /v1/jobs/{job_id}/cancel",
    "GET /v1/batches/{batch_id}", "GET /v1/batches/{batch_id}/events", "POST /v1/batches/{batch_id}/cancel",
}  # fmt: skip


@pytest.mark.parametrize("scopes", ["admin", "ask,batch,admin"])
def test_an_admin_sees_and_cancels_jobs_and_batches_and_nothing_else(
    settings: GatewaySettings, backend: FakeBackend, made: dict[str, str], scopes: str
) -> None:
    app = create_app(keyed(settings, ann="ask,batch", root=scopes), POLICY)
    with TestClient(app, base_url="http://127.0.0.1:8080") as http:
        for route, (status, body) in OWNED.items():
            found = call(http, route, made, "root", body)
            if route in SEEN_BY_ADMIN:
                assert found.status_code == status, (route, found.text)
                assert found.status_code >= 400 or found.text == call(http, route, made, "ann", body).text, route
            else:
                assert found.status_code == (403 if scopes == "admin" else 404), (route, found.text)
        for route, body in NAMED.items():
            assert call(http, route, made, "root", body(made)).status_code == (403 if scopes == "admin" else 404), route


def test_an_admin_finds_everybody_s_by_key(http: TestClient, made: dict[str, str], backend: FakeBackend) -> None:
    backend.hold.set()
    running = http.post("/v1/jobs", json=ASK, headers=bearer("ann")).json()["id"]
    http.get("/v1/models", headers=bearer("bob"))
    root = bearer("root")
    listed = http.get("/v1/jobs?key=ann&status=queued", headers=root).json()["data"]
    assert [job["id"] for job in listed] == [running]
    assert [batch["id"] for batch in http.get("/v1/batches?key=ann", headers=root).json()["data"]] == [made["batch_id"]]
    assert http.get("/v1/jobs", headers=root).json()["data"] == [], "its own, where none is named"
    for path in ("/v1/jobs", "/v1/batches"):
        refused = http.get(f"{path}?key=ann", headers=bearer("bob"))
        assert refused.status_code == 403
        assert http.get(f"{path}?key=bob", headers=bearer("bob")).json()["data"] == []
    shown = {key["id"]: key for key in http.get("/v1/keys", headers=root).json()["data"]}
    assert list(shown) == ["ann", "bob", "root"]
    assert shown["root"]["scopes"] == ["admin"]
    assert (shown["ann"]["jobs"], shown["bob"]["jobs"]) == (1, 0)
    assert shown["ann"]["bytes"] > 0
    assert shown["ann"]["limits"] == {"rate": None, "burst": None, "concurrency": None}
    assert "last_used_at" in shown["ann"]
    assert not re.search("[0-9a-f]{64}", json.dumps(shown)), "nor the hash of a key"
    assert http.post(f"/v1/jobs/{running}/cancel", headers=root).json()["status"] == "cancelled"
    assert http.get(f"/v1/jobs/{running}", headers=bearer("ann")).json()["status"] == "cancelled"

"""Names that callers choose have bounds wherever they choose one, and what cannot be an id is not looked for."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
import redis
from starlette.testclient import TestClient

from photocall.recalibration import parse_recalibration
from photocall.redis_server import RedisServer
from tests.gateway.fake_backend import FakeBackend
from tests.gateway.test_bad_input import form
from tests.shared.test_calibrating import labels

PNG = b"\x89PNG\r\n\x1a\n" + b"rest"
QUESTION = {"type": "noul", "instructions": "Is it?"}
SENT = {"type": "image", "data_base64": base64.b64encode(PNG).decode()}
Call = tuple[str, dict[str, Any], list[str]]


def asked(name: str) -> Call:
    return "/v1/jobs", {"state": "x", "questions": {name: QUESTION}}, ["questions", name]


def asset(name: str) -> Call:
    return "/v1/jobs", {"state": name, "questions": {"q": QUESTION}, "assets": {name: SENT}}, ["assets", name]


def decided(name: str) -> Call:
    question = {"type": "predicate", "name": name, "instructions": "Is it?"}
    return "/v1/decisions", {"input": "x", "questions": [question]}, ["questions", "0", "name"]


def applied(name: str) -> Call:
    own = {"questions": {name: {"temperature": 2}}}
    body = {"state": "x", "questions": {"q": QUESTION}, "calibration": own}
    return "/v1/jobs", body, ["calibration", "questions", name]


def kept(name: str) -> Call:
    return "/v1/calibrations", {"calibration": applied(name)[1]["calibration"]}, ["calibration", "questions", name]


def labelled(name: str) -> Call:
    fitted = [label | {"question": name} for label in labels(60) if label["question"] == "ok"]
    return "/v1/calibrations", {"labels": fitted}, ["labels", "0", "question"]


@pytest.mark.parametrize("call", [asked, asset, decided, applied, kept, labelled])
def test_a_name_has_bounds(client: TestClient, backend: FakeBackend, call: Callable[[str], Call]) -> None:
    most = 256 if call in (asset, decided) else 1024
    path, body, loc = call("x" * (most + 1))
    refused = client.post(path, json=body)
    assert refused.status_code in (400, 422), refused.text
    assert f"{most} characters, this one {most + 1}" in refused.text
    assert len(refused.text) < 1000, "an error does not grow with what was sent"
    if path != "/v1/decisions":
        assert list(map(str, refused.json()["loc"])) == [part[:80] for part in loc]
    for name in ("x" * most, "a\n\x1b\x85"):
        path, body, _ = call(name)
        taken = client.post(path, json=body)
        assert taken.status_code in (200, 201, 202), taken.text


def test_the_name_of_a_part_has_them_too(client: TestClient) -> None:
    """It stands for its picture where no asset claims it."""
    for name, status in (("x" * 257, 422), ("x" * 256, 202)):
        request = json.dumps({"state": name, "questions": {"q": QUESTION}}).encode()
        body = form(("request", request), (name, PNG))
        answer = client.post("/v1/jobs", content=body, headers={"content-type": "multipart/form-data; boundary=B"})
        assert answer.status_code == status, answer.text


def test_what_was_kept_before_there_were_bounds_can_be_read() -> None:
    own = parse_recalibration({"questions": {"x" * 3000: {"temperature": 2}}})
    assert own is not None
    assert list(own.questions) == ["x" * 3000]


def test_a_part_of_a_session_is_no_session(client: TestClient, redis_server: RedisServer) -> None:
    """Its line and what is held of it have keys that begin as the session's: asked for as sessions they were a 500."""
    session_id = client.post("/v1/sessions", json={}).json()["id"]
    with redis.Redis.from_url(redis_server.url) as store:
        store.hset(f"photocall:session:{session_id}:held", mapping={"engine": "e", "tokens": 1})
        store.rpush(f"photocall:session:{session_id}:line", "job_1")
    for part in ("held", "line"):
        path = f"/v1/sessions/{session_id}:{part}"
        for answer in (client.get(path), client.delete(path), client.post(f"{path}/turns", json={"text": "?"})):
            assert (answer.status_code, answer.json()["code"]) == (404, "unknown_session")


@pytest.mark.parametrize("place", ["jobs", "sessions", "calibrations", "batches", "files"])
def test_an_id_that_nothing_can_have(client: TestClient, place: str) -> None:
    for name in ("x" * 60_000, "a b", "a:b", "ses_\x00"):
        path = f"/v1/{place}/" + name.replace(" ", "%20").replace("\x00", "%00")
        answer = client.get(path)
        assert answer.status_code == 404
        assert len(answer.content) < 1000
        answer = client.get(f"/v1/{place}", params={"after": name})
        assert answer.status_code == 404
        assert len(answer.content) < 1000

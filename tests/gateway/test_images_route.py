"""Pictures once: stored under their hash, then named by it on every shape; unknown to whom they are not."""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis
from starlette.testclient import TestClient

from photocall import keys
from photocall.settings import GatewaySettings
from photocall.sweeper import Sweeper
from photocall_gateway.app import create_app
from tests.gateway.conftest import POLICY
from tests.gateway.fake_backend import FakeBackend
from tests.gateway.test_bad_input import kept

PNG = b"\x89PNG\r\n\x1a\n" + b"rest"
SHA = hashlib.sha256(PNG).hexdigest()
PLACE = f"/v1/images/{SHA}"
QUESTION = {"q": {"type": "noul", "instructions": "Is it?"}}
BY_HASH = {"state": "img", "questions": QUESTION, "assets": {"img": {"type": "image", "sha256": SHA}}}
PART = {"type": "input_image", "sha256": SHA}
DECISION = {
    "input": [{"role": "user", "content": [PART]}],
    "questions": [{"type": "predicate", "instructions": "Is it?"}],
}
ASKS = [
    ("/v1/jobs", BY_HASH),
    ("/v1/systemone", BY_HASH),
    ("/v1/systemone", {"state": "[image 1]", "questions": QUESTION, "images": [{"sha256": SHA}]}),
    ("/v1/systemone", {"state": [{"type": "image_url", "sha256": SHA}], "questions": QUESTION}),
    ("/v1/decisions", DECISION),
]


def test_a_picture_is_put_once_and_found(client: TestClient, redis_client: redis.Redis) -> None:
    assert client.head(PLACE).status_code == 404
    first = client.put(PLACE, content=PNG, headers={"content-type": "image/png"})
    assert first.status_code == 201, first.text
    assert first.json() == {"object": "image", "sha256": SHA, "bytes": 12, "format": "png", "kept_s": 3600}
    assert first.headers["location"] == PLACE
    redis_client.expire(keys.image(SHA), 10)
    assert client.put(PLACE, content=PNG).status_code == 200
    assert redis_client.ttl(keys.image(SHA)) > 3000
    redis_client.expire(keys.image(SHA), 10)
    found = client.head(PLACE)
    assert (found.status_code, found.content, found.headers["etag"]) == (200, b"", f'"{SHA}"')
    assert redis_client.ttl(keys.image(SHA)) > 3000
    assert client.get(PLACE).status_code == 405


def test_a_compressed_upload(client: TestClient) -> None:
    response = client.put(PLACE, content=gzip.compress(PNG), headers={"content-encoding": "gzip"})
    assert response.status_code == 201


@pytest.mark.parametrize(("path", "body"), ASKS)
def test_every_shape_asks_by_hash(client: TestClient, backend: FakeBackend, path: str, body: dict[str, Any]) -> None:
    assert client.put(PLACE, content=PNG).status_code == 201
    response = client.post(path, json=body, headers={"prefer": "wait=10"} if path == "/v1/jobs" else {})
    assert response.status_code == 200, response.text
    job = client.get("/v1/jobs").json()["data"][0]
    assert (job["status"], job["usage"]["image_tokens"]) == ("succeeded", 140)


@pytest.mark.parametrize(("path", "body"), ASKS)
def test_a_miss_says_that_it_is_one(
    client: TestClient, redis_client: redis.Redis, path: str, body: dict[str, Any]
) -> None:
    response = client.post(path, json=body)
    assert response.status_code == 404
    assert SHA in response.text
    if path == "/v1/jobs":
        assert (response.json()["code"], response.json()["sha256"]) == ("image_expired", SHA)
    elif path == "/v1/systemone":
        assert response.json()["detail"]["error_type"] == "image_expired"
    else:
        assert response.json()["error"]["code"] == "image_expired"
    assert kept(redis_client) == []


def test_a_miss_among_others_keeps_none_of_them(client: TestClient, redis_client: redis.Redis) -> None:
    inline = {"data_base64": base64.b64encode(PNG + b"2").decode()}
    body = {**BY_HASH, "state": "img new", "assets": {**BY_HASH["assets"], "new": inline}}  # type: ignore[dict-item]
    assert client.post("/v1/jobs", json=body).status_code == 404
    assert kept(redis_client) == []


def test_the_bytes_and_the_hash_ask_the_same(client: TestClient, backend: FakeBackend) -> None:
    inline = {**BY_HASH, "assets": {"img": {"data_base64": base64.b64encode(PNG).decode()}}}
    assert client.post("/v1/systemone", json=inline).status_code == 200
    assert client.post("/v1/systemone", json=BY_HASH).status_code == 200
    assert len(backend.seen) == 1


def test_a_picture_in_use_outlives_its_hour(
    client: TestClient, backend: FakeBackend, redis_client: redis.Redis, eventually: Callable[..., Any]
) -> None:
    backend.hold.set()
    client.put(PLACE, content=PNG)
    job_id = client.post("/v1/jobs", json=BY_HASH).json()["id"]
    assert redis_client.ttl(keys.image(SHA)) == -1
    backend.hold.clear()
    assert client.get(f"/v1/jobs/{job_id}", headers={"prefer": "wait=10"}).json()["status"] == "succeeded"
    assert redis_client.ttl(keys.image(SHA)) > 0


@pytest.mark.parametrize("again", [False, True])
def test_a_picture_that_is_deleted_under_a_live_job_goes_with_the_job(
    client: TestClient,
    backend: FakeBackend,
    redis_client: redis.Redis,
    eventually: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    again: bool,
) -> None:
    """Unknown at once, but the job has its answer; then nothing stays of it, and prep is asked to remove its blobs.

    Its blobs stayed for an hour. `again`: sent anew meanwhile, it stays.
    """
    monkeypatch.setattr(Sweeper, "_remove_blobs", lambda self, at: 0)  # what is asked of prep stays to be seen
    backend.stall.set()
    client.put(PLACE, content=PNG)
    job_id = client.post("/v1/jobs", json=BY_HASH).json()["id"]
    eventually(lambda: backend.seen)
    assert client.delete(PLACE).status_code == 204
    assert client.head(PLACE).status_code == 404
    assert client.post("/v1/jobs", json={**BY_HASH, "state": "another img"}).json()["code"] == "image_expired"
    assert redis_client.hget(keys.image(SHA), "data") == PNG, "its job may have to be prepared again"
    assert redis_client.zscore(keys.FORGET, SHA) is None, "nor do its blobs go under it"
    if again:
        assert client.put(PLACE, content=PNG).status_code == 201
    backend.stall.clear()
    assert client.get(f"/v1/jobs/{job_id}", headers={"prefer": "wait=10"}).json()["status"] == "succeeded"
    assert redis_client.exists(keys.image(SHA)) == again
    assert (redis_client.ttl(keys.image(SHA)) > 0) == again
    assert (redis_client.zscore(keys.FORGET, SHA) is None) == again


def test_a_session_cannot_go_on_without_its_pictures(client: TestClient, backend: FakeBackend) -> None:
    client.put(PLACE, content=PNG)
    turns = f"/v1/sessions/{client.post('/v1/sessions').json()['id']}/turns"
    wait = {"prefer": "wait=10"}
    assert (
        client.post(turns, json={"text": "Look.", "images": [{"sha256": SHA}]}, headers=wait).json()["status"]
        == "succeeded"
    )
    client.delete(PLACE)
    refused = client.post(turns, json={"text": "And now?"})
    assert (refused.status_code, refused.json()["code"]) == (404, "image_expired")
    client.put(PLACE, content=PNG)
    assert client.post(turns, json={"text": "And now?"}, headers=wait).json()["status"] == "succeeded"


def test_a_replay_does_not_need_the_picture_any_more(
    client: TestClient, backend: FakeBackend, redis_client: redis.Redis
) -> None:
    client.put(PLACE, content=PNG)
    headers = {"idempotency-key": "k", "prefer": "wait=10"}
    first = client.post("/v1/jobs", json=BY_HASH, headers=headers)
    redis_client.delete(keys.image(SHA))
    again = client.post("/v1/jobs", json=BY_HASH, headers=headers)
    assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])


@pytest.fixture
def two_callers(settings: GatewaySettings, tmp_path: Path) -> Iterator[TestClient]:
    file = tmp_path / "keys"
    file.write_text("".join(f"{name}:{hashlib.sha256(name.encode()).hexdigest()}\n" for name in ("ann", "bob")))
    with TestClient(create_app(replace(settings, api_keys=file), POLICY)) as found:
        yield found


@pytest.mark.parametrize(("path", "body"), ASKS)
def test_a_picture_of_somebody_else_is_unknown(
    two_callers: TestClient, backend: FakeBackend, path: str, body: dict[str, Any]
) -> None:
    ann, bob = ({"authorization": f"Bearer {name}"} for name in ("ann", "bob"))
    assert two_callers.put(PLACE, content=PNG, headers=ann).status_code == 201
    assert two_callers.head(PLACE, headers=ann).status_code == 200
    assert two_callers.head(PLACE, headers=bob).status_code == 404
    assert two_callers.post(path, json=body, headers=bob).status_code == 404
    assert two_callers.head(PLACE).status_code == 401
    assert two_callers.put(PLACE, content=PNG, headers=bob).status_code == 201
    assert two_callers.head(PLACE, headers=bob).status_code == 200


@pytest.mark.parametrize(
    ("path", "content", "headers", "status", "code", "says"),
    [
        (PLACE, PNG + b"x", {}, 422, "hash_mismatch", "not to"),
        (PLACE, b"", {}, 422, "hash_mismatch", "not to"),
        (f"/v1/images/{hashlib.sha256().hexdigest()}", b"", {}, 422, "invalid_field", "no bytes"),
        (f"/v1/images/{hashlib.sha256(b'MZ').hexdigest()}", b"MZ", {}, 415, "image_unsupported", "no picture"),
        (PLACE, PNG + bytes(1 << 19), {}, 413, "body_too_large", "over 524288 bytes|over 0 MiB"),
        (PLACE, gzip.compress(PNG + bytes(1 << 19)), {"content-encoding": "gzip"}, 413, "body_too_large", "over"),
        (PLACE, b"xx", {"content-encoding": "gzip"}, 400, "malformed", "gzip"),
        (PLACE, PNG, {"content-encoding": "br"}, 415, "unsupported_type", "gzip"),
        (PLACE.upper().replace("/V1/IMAGES", "/v1/images"), PNG, {}, 422, "invalid_field", "64 lower-case"),
        ("/v1/images/short", PNG, {}, 422, "invalid_field", "64 lower-case"),
        (PLACE, PNG, {"origin": "http://evil.example"}, 403, "foreign_origin", "refused"),
        (PLACE, PNG, {"host": "evil.example"}, 421, "unknown_host", "Host"),
    ],
)
def test_a_bad_upload_keeps_nothing(
    client: TestClient,
    redis_client: redis.Redis,
    path: str,
    content: bytes,
    headers: dict[str, str],
    status: int,
    code: str,
    says: str,
) -> None:
    response = client.put(path, content=content, headers=headers)
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert any(word in response.json()["detail"] for word in says.split("|"))
    assert kept(redis_client) == []
    assert client.head("/v1/images/short").status_code == 404


@pytest.mark.parametrize("sha256", ["short", SHA.upper(), 5, ["x"], SHA + "\n"])
def test_a_bad_hash_is_named(client: TestClient, redis_client: redis.Redis, sha256: Any) -> None:
    response = client.post("/v1/jobs", json={**BY_HASH, "assets": {"img": {"sha256": sha256}}})
    assert (response.status_code, response.json()["loc"]) == (422, ["assets", "img", "sha256"])
    part = {"type": "input_image", "sha256": sha256}
    decision = client.post("/v1/decisions", json={**DECISION, "input": [{"role": "user", "content": [part]}]})
    assert (decision.status_code, decision.json()["error"]["param"]) == (422, "input[0].content[0].sha256")
    assert kept(redis_client) == []


def test_a_full_store_takes_no_picture(client: TestClient, redis_client: redis.Redis) -> None:
    redis_client.config_set("maxmemory", 1)
    try:
        full = client.put(PLACE, content=PNG)
    finally:
        redis_client.config_set("maxmemory", 0)
    assert (full.status_code, full.json()["code"]) == (507, "store_full")

"""POST /v1/systemone against the real app, with a scripted back end."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
import zstandard
from starlette.testclient import TestClient

from photocall import keys
from photocall.errors import TABLE
from photocall.jobs import Answered, Refused
from photocall.settings import GatewaySettings
from photocall_gateway.app import create_app
from tests.gateway.conftest import POLICY, served
from tests.gateway.fake_backend import FakeBackend, answered

CONTRACT = Path(__file__).parent / "contract"
TEXT = {"state": "A ticket.", "questions": {"refund": {"type": "noul", "instructions": "Is it a refund?"}}}
Eventually = Callable[..., Any]


def pair(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((CONTRACT / f"{name}.json").read_text())
    return loaded


def shape(value: Any) -> Any:
    """Keys and types of a value, numbers alike."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, int | float):
        return "number"
    return type(value).__name__


OURS = {"presence"}  # beside the keys of a pair: the SDK's types let it pass


@pytest.mark.parametrize(
    "name",
    [
        "01_text_all_types",
        "02_image_inline_base64",
        "03_box_and_image",
        "05_long_choice_and_json_instructions",
        "06_extensions_ignored_by_clients",
    ],
)
def test_contract_pairs(client: TestClient, backend: FakeBackend, name: str) -> None:
    wanted = pair(name)
    response = client.post("/v1/systemone", json=wanted["request"], headers=wanted["request_headers"])
    assert response.status_code == 200, response.text
    answers = response.json()["answers"]
    assert list(answers) == list(wanted["response"]["answers"])
    if name != "06_extensions_ignored_by_clients":  # numbers' probabilities have free keys
        theirs = {name: {key: answer[key] for key in answer if key not in OURS} for name, answer in answers.items()}
        assert shape(theirs) == shape(wanted["response"]["answers"])
    assert set(wanted["response"]) <= set(response.json())
    assert all(isinstance(response.json()["usage"][count], int) for count in wanted["response"]["usage"])
    assert response.headers["x-typesafe-request-id"].startswith("req_")
    stages = dict(part.split(";dur=") for part in response.headers["server-timing"].split(", "))
    assert list(stages) == ["queue", "prepare", "prefill", "readout"]
    assert (stages["prefill"], stages["readout"]) == ("12.5", "1.2")


@pytest.mark.parametrize(("file", "encoding"), [("bin", ""), ("bin.zst", "zstd")])
def test_the_official_clients_raw_multipart_bytes(
    client: TestClient, backend: FakeBackend, file: str, encoding: str
) -> None:
    headers = {"content-type": "multipart/form-data; boundary=B"} | ({"content-encoding": encoding} if encoding else {})
    body = (CONTRACT / f"04_two_images_multipart.{file}").read_bytes()
    response = client.post("/v1/systemone", content=body, headers=headers)
    assert response.status_code == 200, response.text
    wanted = pair("04_two_images_in_instructions_and_criteria")["response"]["answers"]
    assert shape(response.json()["answers"]) == shape(wanted)
    assert response.json()["usage"]["image_tokens"] == 280


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_compressed_bodies(client: TestClient, backend: FakeBackend, encoding: str) -> None:
    raw = json.dumps(TEXT).encode()
    body = gzip.compress(raw) if encoding == "gzip" else zstandard.compress(raw)
    headers = {"content-type": "application/json", "content-encoding": encoding}
    assert client.post("/v1/systemone", content=body, headers=headers).status_code == 200


def test_aliases_and_no_model_at_all(client: TestClient, backend: FakeBackend) -> None:
    for model in (None, "mini", "jev-latest", "jev-preview", "jev-1.14.0", "nimble-latest"):
        name = client.app.state.services.models.name if model == "mini" else model  # type: ignore[attr-defined]
        response = client.post("/v1/systemone", json={**TEXT, "model": name})
        assert response.status_code == 200, (name, response.text)
    refused = client.post("/v1/systemone", json={**TEXT, "model": "jev-2.0"})
    assert refused.status_code == 400
    assert refused.json()["detail"]["error_type"] == "invalid_request"
    assert refused.json()["detail"]["message"].startswith("Unknown model: jev-2.0; this server answers to ")


LATE = [code for code, row in TABLE.items() if row.late]


@pytest.mark.parametrize("code", LATE)
def test_every_late_failure_of_the_engine_has_its_status(client: TestClient, backend: FakeBackend, code: str) -> None:
    backend.respond = lambda ask, record: Refused(code, "why it failed", {"tokens": 9, "limit": 5})
    response = client.post("/v1/systemone", json=TEXT)
    assert response.status_code == TABLE[code].systemone
    detail = response.json()["detail"]
    if response.status_code == 422:
        assert detail == [{"loc": ["body"], "msg": "why it failed", "type": code}]
    else:
        wanted = {"message": "why it failed", "error_type": TABLE[code].error_type, "tokens": 9, "limit": 5}
        assert detail == wanted


def test_an_unreadable_picture_fails_its_request_only(client: TestClient, backend: FakeBackend) -> None:
    request = pair("02_image_inline_base64")["request"]
    backend.prepare = lambda record: Refused("image_undecodable", "cannot decode image 'img-7f3a9c': broken")
    response = client.post("/v1/systemone", json=request)
    assert response.status_code == 422
    assert response.json()["detail"][0]["msg"] == "cannot decode image 'img-7f3a9c': broken"
    backend.prepare = lambda record: None
    assert client.post("/v1/systemone", json=TEXT).status_code == 200


def test_equal_calls_in_flight_share_one_job(http: httpx.Client, backend: FakeBackend) -> None:
    backend.delay_s = 0.5
    with ThreadPoolExecutor(5) as pool:
        calls = [pool.submit(http.post, "/v1/systemone", json=TEXT) for _ in range(4)]
        other = pool.submit(http.post, "/v1/systemone", json={**TEXT, "state": "Another."})
        responses = [call.result() for call in calls]
        assert other.result().status_code == 200
    assert [response.status_code for response in responses] == [200] * 4
    assert len(backend.seen) == 2


@pytest.mark.parametrize("path", ["/v1/systemone", "/v1/decisions"])
def test_an_idempotency_key_joins_and_stands_for_one_body(http: httpx.Client, backend: FakeBackend, path: str) -> None:
    question = {"type": "predicate", "instructions": "Is it a refund?"}
    body = TEXT if path == "/v1/systemone" else {"input": "A ticket.", "questions": [question]}
    field = "state" if path == "/v1/systemone" else "input"
    backend.delay_s = 0.3
    with ThreadPoolExecutor(4) as pool:
        keys_used: tuple[dict[str, str], ...] = (
            {"idempotency-key": "k"},
            {"idempotency-key": "k"},
            {"idempotency-key": "other"},
            {},
        )
        calls = [pool.submit(http.post, path, json=body, headers=headers) for headers in keys_used]
        assert [call.result().status_code for call in calls] == [200] * 4
    assert len(backend.seen) == 1
    mismatch = http.post(path, json={**body, field: "Another."}, headers={"idempotency-key": "k"})
    assert mismatch.status_code == 422
    assert "'k' was used with another body" in mismatch.text
    assert http.post(path, json=body, headers={"idempotency-key": "x" * 256}).status_code == 422
    assert len(backend.seen) == 1


def test_an_answer_is_kept_for_the_retry(http: httpx.Client, backend: FakeBackend) -> None:
    first, second = http.post("/v1/systemone", json=TEXT), http.post("/v1/systemone", json=TEXT)
    assert first.json() == second.json()
    assert len(backend.seen) == 1


def test_a_passing_failure_is_tried_again_and_a_lasting_one_is_not(http: httpx.Client, backend: FakeBackend) -> None:
    backend.respond = lambda ask, record: Refused("internal", "a stumble")
    assert http.post("/v1/systemone", json=TEXT).status_code == 500
    backend.respond = answered
    assert http.post("/v1/systemone", json=TEXT).status_code == 200
    long = {**TEXT, "state": "long"}
    backend.respond = lambda ask, record: Refused("prompt_too_long", "too long", {"tokens": 9, "limit": 5})
    assert http.post("/v1/systemone", json=long).status_code == 400
    backend.respond = answered
    assert http.post("/v1/systemone", json=long).status_code == 400
    assert len(backend.seen) == 3


def test_a_call_is_refused_in_time_and_the_retry_gets_the_answer(
    settings: GatewaySettings, backend: FakeBackend, eventually: Eventually
) -> None:
    backend.hold.set()
    settings = replace(settings, sync_wait_s=0.9)
    with TestClient(create_app(settings, POLICY), base_url="http://localhost") as client:
        started = time.monotonic()
        late = client.post("/v1/systemone", json=TEXT)
        assert 0.3 < time.monotonic() - started < 10.0
        assert late.status_code == 529
        assert late.json()["detail"]["error_type"] == "overloaded"
        assert float(late.headers["retry-after"]) < 8  # the retry must come before the work is given up
        backend.hold.clear()
        eventually(lambda: client.post("/v1/systemone", json=TEXT).status_code == 200)
    assert len(backend.seen) == 1


def statuses(redis_client: redis.Redis) -> list[Any]:
    return [redis_client.hget(key, "status") for key in redis_client.scan_iter(keys.job("*"))]


def test_work_is_given_up_when_its_last_caller_left(
    settings: GatewaySettings, backend: FakeBackend, redis_client: redis.Redis, eventually: Eventually
) -> None:
    backend.hold.set()
    app_settings = replace(settings, sync_wait_s=30.0)
    with served(app_settings, abandoned_after_s=1.5) as address, httpx.Client(base_url=address) as client:
        with pytest.raises(httpx.ReadTimeout):
            client.post("/v1/systemone", json=TEXT, timeout=1.0)
        left_at = time.monotonic()
        assert statuses(redis_client) == [b"queued"]
        eventually(lambda: statuses(redis_client) == [b"cancelled"])
        assert time.monotonic() - left_at > 0.3
        backend.hold.clear()
        assert client.post("/v1/systemone", json=TEXT, timeout=30).status_code == 200


def test_a_pause_between_two_tries_is_not_leaving(
    settings: GatewaySettings, backend: FakeBackend, redis_client: redis.Redis
) -> None:
    backend.hold.set()
    with (
        served(replace(settings, sync_wait_s=30.0), abandoned_after_s=2.0) as address,
        httpx.Client(base_url=address) as client,
    ):
        for _ in range(4):
            with pytest.raises(httpx.ReadTimeout):
                client.post("/v1/systemone", json=TEXT, timeout=0.6)
            time.sleep(0.2)
        assert statuses(redis_client) == [b"queued"]
        releasing = threading.Timer(0.2, backend.hold.clear)
        releasing.start()
        assert client.post("/v1/systemone", json=TEXT, timeout=30).status_code == 200
        releasing.join()
    assert len(backend.seen) == 1


def test_a_kept_answer_takes_no_waiting(
    client: TestClient, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ending the note that somebody waits took 0.2 s, most of the time there was nothing to wait for."""
    answered = client.post("/v1/systemone", json=TEXT)

    async def wait(*_: object) -> None:
        raise AssertionError("waited for a job that has ended")

    monkeypatch.setattr("photocall_gateway.sync_calls.wait_for", wait)
    assert client.post("/v1/systemone", json=TEXT).content == answered.content
    assert len(backend.seen) == 1


def test_a_full_queue_is_529_with_a_time_to_come_back(settings: GatewaySettings, backend: FakeBackend) -> None:
    backend.hold.set()
    bound = replace(POLICY, max_jobs=1)
    with TestClient(create_app(replace(settings, sync_wait_s=0.2), bound), base_url="http://localhost") as client:
        assert client.post("/v1/systemone", json=TEXT).status_code == 529
        full = client.post("/v1/systemone", json={**TEXT, "state": "Another."})
        assert full.status_code == 529
        assert "the queue is full" in full.json()["detail"]["message"]
        assert 0 < float(full.headers["retry-after"]) < 30
        assert int(full.headers["retry-after-ms"]) > 0


def test_nothing_of_the_answer_is_changed_on_the_way(client: TestClient, backend: FakeBackend) -> None:
    answers = {"refund": {"type": "noul", "noul": 0.1234567890123456, "é": "\u2028"}}
    body = {"model": "m", "answers": answers, "usage": {"input_tokens": 1, "output_tokens": 1}}
    backend.respond = lambda ask, record: Answered(body)
    assert client.post("/v1/systemone", json=TEXT).json() == body


def test_models_in_both_shapes(client: TestClient) -> None:
    body = client.get("/v1/models").json()
    wanted = json.loads((CONTRACT / "models_example.json").read_text())
    assert shape(body["models"][0]) == shape(wanted["models"][0])
    assert [model["name"] for model in body["models"]] == [
        client.app.state.services.models.name,  # type: ignore[attr-defined]
        "jev-latest",
        "jev-preview",
        "nimble-latest",
    ]
    assert [model["id"] for model in body["data"]] == [model["name"] for model in body["models"]]

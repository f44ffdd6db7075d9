"""The wire contract over HTTP where no other file has it: every error example provoked, times as clients have them.

The pairs and the raw bytes are in test_systemone.py, the SDK in test_sdk.py, what a body may hold in test_parsing.py,
test_dialects.py and test_bad_input.py.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from starlette.testclient import TestClient
from typesafe_sdk import Noul, TypeSafeClient

from photocall import keys
from photocall.errors import CodedError
from photocall.jobs import Refused
from photocall.settings import GatewaySettings
from photocall_gateway.app import create_app
from tests.gateway.conftest import POLICY, served
from tests.gateway.fake_backend import FakeBackend
from tests.gateway.test_systemone import CONTRACT, TEXT, pair, shape

EXAMPLES: list[dict[str, Any]] = json.loads((CONTRACT / "error_examples.json").read_text())
KEY = "a-key"
Provoke = Callable[[TestClient, FakeBackend], Any]


@pytest.fixture
def guarded(settings: GatewaySettings, tmp_path: Path) -> Iterator[TestClient]:
    """The app with one API key and one place in its queue."""
    file = tmp_path / "keys"
    file.write_text(f"ann:{hashlib.sha256(KEY.encode()).hexdigest()}\n")
    changed = replace(settings, api_keys=file)
    with TestClient(create_app(changed, replace(POLICY, max_jobs=1)), base_url="http://localhost") as found:
        yield found


def post(client: TestClient, body: Any, key: str | None = KEY) -> Any:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    return client.post("/v1/systemone", json=body, headers=headers)


def too_many_tokens(client: TestClient, backend: FakeBackend) -> Any:
    said = "state plus the longest question is 40123 tokens, limit 32768"
    backend.respond = lambda ask, record: Refused("prompt_too_long", said, {"tokens": 40123, "limit": 32768})
    return post(client, TEXT)


def rate_limited(client: TestClient, backend: FakeBackend) -> Any:
    def refuse(request: Any) -> None:
        raise CodedError("rate_limited", "Too many requests", retry_after_s=0.75)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("photocall_gateway.dispatch.Dispatcher.check_model", lambda self, request: refuse(request))
        return post(client, TEXT)


def overloaded(client: TestClient, backend: FakeBackend) -> Any:
    backend.hold.set()
    assert client.post("/v1/jobs", json=TEXT, headers={"authorization": f"Bearer {KEY}"}).status_code == 202
    return post(client, {**TEXT, "state": "Another."})


PICTURE = pair("02_image_inline_base64")["request"]["assets"]["img-7f3a9c"]
PROVOKED: dict[str, Provoke] = {
    "missing_auth": lambda client, backend: post(client, TEXT, None),
    "bad_key": lambda client, backend: post(client, TEXT, "wrong"),
    "unknown_model": lambda client, backend: post(client, {**TEXT, "model": "nope"}),
    "unreferenced_asset": lambda client, backend: post(client, {**TEXT, "assets": {"img-1": PICTURE}}),
    "schema": lambda client, backend: post(client, {**TEXT, "questions": {"urgency": {"type": "score"}}}),
    "too_many_tokens": too_many_tokens,
    "body_too_large": lambda client, backend: post(client, {**TEXT, "state": "x" * (1 << 20)}),
    "rate_limited": rate_limited,
    "overloaded": overloaded,
}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["name"])
def test_every_error_example_is_answered_so(guarded: TestClient, backend: FakeBackend, example: dict[str, Any]) -> None:
    response = PROVOKED[example["name"]](guarded, backend)
    assert response.status_code == example["status"], response.text
    detail, wanted = response.json()["detail"], example["body"]["detail"]
    if example["name"] == "schema":
        assert response.json() == example["body"]
    else:  # beside fields of ours
        assert shape({name: detail[name] for name in wanted}) == shape(wanted)
        assert detail["error_type"] == wanted["error_type"]
    if response.status_code in (429, 529):
        assert 0 < int(response.headers["retry-after"]) < 30
        assert 0 < int(response.headers["retry-after-ms"]) <= 1000 * int(response.headers["retry-after"])
    for name, value in example["headers"].items():
        assert name in response.headers
        if example["name"] == "rate_limited":
            assert response.headers[name] == value
    assert response.headers["x-typesafe-request-id"].startswith("req_")


def test_names_are_the_callers_own_and_come_back_unchanged(client: TestClient, backend: FakeBackend) -> None:
    names = ["a.b_c", "", " ", "größe", "数える", "__proto__", "💥", "q" * 1024, "\x00\n", "a\u2028b"]
    question = {"type": "noul", "instructions": "Is it a refund?"}
    body = {"state": "", "questions": dict.fromkeys(names, question), "temperature": 3}
    response = client.post("/v1/systemone", json=body)
    assert response.status_code == 200, response.text
    assert list(response.json()["answers"]) == names
    assert set(response.json()) == {"model", "answers", "usage"}


@pytest.mark.parametrize("path", ["/v1/systemone", "/v1/decisions", "/v1/models"])
def test_nothing_redirects(client: TestClient, path: str) -> None:
    """A redirect is an error to these clients; a path with a slash behind it is another one."""
    response = client.request("GET" if path == "/v1/models" else "POST", f"{path}/", json={}, follow_redirects=False)
    assert response.status_code == 404


def test_a_hundred_connections_are_kept_and_served(
    settings: GatewaySettings, redis_server: Any, eventually: Callable[..., Any]
) -> None:
    """As many as a client keeps alive, all open at once; then each asks again over the same."""
    policy = replace(POLICY, max_jobs=100, max_jobs_per_owner=100)
    limits = httpx.Limits(max_connections=100, max_keepalive_connections=100)
    with (
        FakeBackend(settings.redis_url, b"test-signing-key", policy) as backend,
        served(replace(settings, sync_wait_s=60.0), policy) as address,
        httpx.Client(base_url=address, trust_env=False, timeout=60, limits=limits) as http,
        ThreadPoolExecutor(100) as pool,
    ):
        backend.hold.set()
        bodies = [{**TEXT, "state": f"ticket {i}"} for i in range(100)]
        calls = [pool.submit(http.post, "/v1/systemone", json=body) for body in bodies]
        eventually(lambda: len(list(backend._redis.scan_iter(keys.job("*"), count=1000))) == 100)
        backend.hold.clear()
        assert {call.result().status_code for call in calls} == {200}
        assert {found.status_code for found in pool.map(lambda b: http.post("/v1/systemone", json=b), bodies)} == {200}
    assert len(backend.seen) == 100


def test_real_times(settings: GatewaySettings, backend: FakeBackend, redis_client: redis.Redis) -> None:
    """Nothing is shortened here. A slow request is refused by 9 s; the SDK, as it comes, asks again and gets the answer
    of the work that went on meanwhile; what its caller left is given up 8 s later, and not before."""
    assert settings.sync_wait_s == 9.0
    backend.hold.set()
    body = {"model": "jev-latest", **TEXT}
    left = {**TEXT, "state": "whose caller leaves"}
    with (
        served(settings) as address,
        httpx.Client(base_url=address, timeout=10, trust_env=False) as http,
        ThreadPoolExecutor(3) as pool,
    ):

        def timed() -> tuple[float, httpx.Response]:
            started = time.monotonic()
            found = http.post("/v1/systemone", json=body)
            return time.monotonic() - started, found

        def official() -> Any:
            with TypeSafeClient(api_key="any", base_url=address) as client:
                return client.system_one(state="A ticket.", questions={"refund": Noul(instructions="Is it a refund?")})

        slow, sdk = pool.submit(timed), pool.submit(official)
        with pytest.raises(httpx.ReadTimeout):
            http.post("/v1/systemone", json=left, timeout=1.0)
        left_at = time.monotonic()

        def given_up() -> float:
            while b"cancelled" not in [redis_client.hget(k, "status") for k in redis_client.scan_iter(keys.job("*"))]:
                assert time.monotonic() < left_at + 12
                time.sleep(0.05)
            return time.monotonic() - left_at

        giving_up = pool.submit(given_up)
        took, refused = slow.result()
        assert (refused.status_code, refused.json()["detail"]["error_type"]) == (529, "overloaded")
        assert 8.0 < took < 9.9, "9 s by the server's clock; a busy machine needs a moment to say so"
        assert 0 < float(refused.headers["retry-after"]) < 8
        assert giving_up.result() >= 8.0
        releasing = threading.Timer(0.5, backend.hold.clear)
        releasing.start()
        assert sdk.result().nouls["refund"].noul == 0.875
        releasing.join()
        assert len(backend.seen) == 1, "three tries and a stranger's cost the engine one job"
        # Kept for a retry within 60 s of its end, and asked anew after that.
        [job] = [k for k in redis_client.scan_iter(keys.job("*")) if redis_client.hget(k, "status") == b"succeeded"]
        for ago, seen in ((55.0, 1), (61.0, 2)):
            redis_client.hset(job, "completed_at", time.time() - ago)
            assert http.post("/v1/systemone", json=body).status_code == 200
            assert len(backend.seen) == seen

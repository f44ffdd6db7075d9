"""Limits of keys: what is refused and told in each dialect, and what all gateways count together."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx
import pytest
import redis
from starlette.testclient import TestClient

from photocall import keys
from photocall.connections import connect_async
from photocall.key_limits import KeyLimits
from photocall.key_uses import KeyUses
from photocall.redis_server import RedisServer
from photocall.settings import GatewaySettings
from photocall_gateway.app import create_app
from photocall_gateway.caller import QUOTA, Caller
from photocall_gateway.turnstile import Taken, Turnstile
from tests.gateway.batch_helper import Caller as BatchCaller
from tests.gateway.batch_helper import jsonl, line
from tests.gateway.conftest import POLICY, served
from tests.gateway.fake_backend import FakeBackend
from tests.gateway.key_helper import bearer, keyed, write
from tests.gateway.test_channels import connected

QUESTIONS = {"q": {"type": "noul", "instructions": "Is it?"}}
ASK = {"state": "text", "questions": QUESTIONS}
ANN = bearer("ann")
Eventually = Callable[..., Any]


def turnstile_of(
    server: RedisServer, call: Callable[[Turnstile, redis.asyncio.Redis], Awaitable[Any]], limits: str
) -> Any:
    async def run() -> Any:
        client = connect_async(server.url)
        try:
            return await call(Turnstile(client, lambda owner: KeyLimits.parse(limits), KeyUses(client)), client)
        finally:
            await client.aclose()

    return asyncio.run(run())


@pytest.fixture
def limited(settings: GatewaySettings, backend: FakeBackend) -> Iterator[Callable[[str], TestClient]]:
    """The app, where ann has these limits and bob has none."""
    opened: list[TestClient] = []

    def start(limits: str) -> TestClient:
        app = create_app(keyed(settings, ann=f"ask,batch:{limits}", bob="ask,batch"), POLICY)
        opened.append(TestClient(app, base_url="http://127.0.0.1:8080"))
        opened[-1].__enter__()
        return opened[-1]

    yield start
    for client in opened:
        client.__exit__(None, None, None)


# --- the bucket -------------------------------------------------------------------------------------------------------


def test_a_bucket_gives_its_burst_then_its_rate(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    """Whoever comes when it was told to is served; a bucket is not kept once it is full."""
    ann = Caller("ann", frozenset({"ask"}))

    async def scenario(turnstile: Turnstile, client: redis.asyncio.Redis) -> list[Taken | None]:
        rate = KeyLimits.parse("rate=1/s,burst=3").rate
        assert rate is not None
        found = [await turnstile._take(ann.id, rate) for _ in range(4)]
        last = found[-1]
        assert last is not None
        await asyncio.sleep(last.next_s)
        return [*found, await turnstile._take(ann.id, rate)]

    found = turnstile_of(redis_server, scenario, "")
    assert [(taken.done, taken.left) for taken in found] == [(True, 2), (True, 1), (True, 0), (False, 0), (True, 0)]
    assert 0 < found[3].next_s <= 1
    assert 0 < redis_client.pttl(keys.bucket("ann")) <= 3000, "it goes when it is full"


def test_a_bucket_whose_limits_change_owes_no_more_than_it_holds(
    redis_server: RedisServer, redis_client: redis.Redis
) -> None:
    """Also where the clock was set back: nobody waits for longer than a whole bucket takes."""
    redis_client.set(keys.bucket("ann"), repr(time.time() + 86_400))

    async def scenario(turnstile: Turnstile, client: redis.asyncio.Redis) -> Taken | None:
        rate = KeyLimits.parse("rate=10/s,burst=5").rate
        assert rate is not None
        return await turnstile._take("ann", rate)

    found = turnstile_of(redis_server, scenario, "")
    assert not found.done
    assert found.next_s <= 0.1


def test_a_full_store_lets_readers_in(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    """A bucket is a write; with no room for any, whoever only reads was refused."""
    redis_client.set(keys.bucket("ann"), repr(time.time() + 1), px=5000)
    redis_client.config_set("maxmemory", 1)

    async def scenario(turnstile: Turnstile, client: redis.asyncio.Redis) -> Taken | None:
        rate = KeyLimits.parse("rate=1/s,burst=5").rate
        assert rate is not None
        return await turnstile._take("ann", rate)

    try:
        found = turnstile_of(redis_server, scenario, "")
    finally:
        redis_client.config_set("maxmemory", 0)
    assert found.done
    assert found.left in (3, 4)


def test_a_store_that_is_away_counts_nobody_and_refuses_nobody() -> None:
    async def scenario() -> None:
        client = connect_async("unix:///nonexistent/redis.sock")
        turnstile = Turnstile(client, lambda owner: KeyLimits.parse("rate=1/h,concurrency=1"), KeyUses(client))
        scope: Any = {}
        for _ in range(3):
            await turnstile.enter(Caller("ann", frozenset()), scope)
        fields = dict(await scope[QUOTA].fields(200))
        assert list(fields) == [b"ratelimit-policy"], "nothing is said that is not known"
        await client.aclose()

    asyncio.run(scenario())


# --- in each dialect --------------------------------------------------------------------------------------------------


def native(body: Any) -> bool:
    return bool(body["code"] == "rate_limited" and body["status"] == 429 and body["violated-policies"] == ["requests"])


def systemone(body: Any) -> bool:
    return bool(body["detail"]["error_type"] == "rate_limit" and "calls" in body["detail"]["message"])


def openai(body: Any) -> bool:
    return bool(body["error"]["type"] == "rate_limit_error" and body["error"]["code"] == "rate_limited")


@pytest.mark.parametrize(
    ("method", "path", "shape"),
    [
        ("POST", "/v1/jobs", native),
        ("GET", "/v1/jobs/job_1", native),
        ("POST", "/v1/sessions", native),
        ("POST", "/v1/systemone", systemone),
        ("GET", "/v1/models", systemone),
        ("POST", "/v1/decisions", openai),
        ("GET", "/v1/batches", openai),
        ("POST", "/v1/files", openai),
    ],
)
def test_a_call_too_many_is_refused_in_the_route_s_own_shape(
    limited: Callable[[str], TestClient], method: str, path: str, shape: Callable[[Any], bool]
) -> None:
    http = limited("rate=2/h")
    for left in (1, 0):
        taken = http.get("/v1/jobs", headers=ANN)
        assert taken.status_code == 200
        assert taken.headers["ratelimit-policy"] == '"requests";q=2;w=3600'
        assert re.fullmatch(rf'"requests";r={left};t=1[78]\d\d', taken.headers["ratelimit"])
    refused = http.request(method, path, headers=ANN, **({"json": {}} if method == "POST" else {}))  # type: ignore[arg-type]
    assert refused.status_code == 429, refused.text
    assert shape(refused.json()), refused.text
    wait_s = int(refused.headers["retry-after"])
    assert 1700 <= wait_s <= 1800
    assert 0 <= wait_s - int(refused.headers["retry-after-ms"]) / 1000 < 1
    assert refused.headers["ratelimit"] == f'"requests";r=0;t={wait_s}'
    assert refused.headers["ratelimit-policy"] == '"requests";q=2;w=3600'
    free = http.get("/v1/jobs", headers=bearer("bob"))
    assert free.status_code == 200
    assert not {"ratelimit", "ratelimit-policy"} & set(free.headers), "a key without limits is told of none"


def test_errors_are_counted_and_told_like_answers_and_strangers_are_neither(
    limited: Callable[[str], TestClient],
) -> None:
    http = limited("rate=3/h,burst=5")
    assert http.get("/v1/jobs/none", headers=ANN).headers["ratelimit"] == '"requests";r=4;t=4800'
    bad = http.post("/v1/systemone", json={}, headers=ANN)
    assert (bad.status_code, bad.headers["ratelimit"]) == (422, '"requests";r=3;t=3600')
    assert bad.headers["ratelimit-policy"] == '"requests";q=3;w=3600;photocall-burst=5'
    assert http.get("/nowhere", headers=ANN).headers["ratelimit"] == '"requests";r=2;t=2400'
    for headers in ({}, bearer("ann2")):
        assert not {"ratelimit", "ratelimit-policy"} & set(http.get("/v1/jobs", headers=headers).headers)
    for path in ("/healthz", "/metrics", "/openapi.json"):
        assert "ratelimit" not in http.get(path, headers=ANN).headers
    assert http.get("/v1/models", headers=ANN).headers["ratelimit"] == '"requests";r=1;t=1200'


def test_jobs_at_once(limited: Callable[[str], TestClient], backend: FakeBackend, eventually: Eventually) -> None:
    """Refused in each dialect while they are unfinished; what joins one that runs adds none; told in every answer."""
    http = limited("concurrency=2")
    backend.stall.set()
    policy = '"jobs";q=2;qu="concurrent-requests"'
    first = http.post("/v1/jobs", json=ASK, headers={**ANN, "idempotency-key": "k"})
    assert (first.status_code, first.headers["ratelimit"]) == (202, '"jobs";r=1')
    second = http.post("/v1/jobs", json={**ASK, "state": "b"}, headers=ANN)
    assert (second.status_code, second.headers["ratelimit"]) == (202, '"jobs";r=0')
    again = http.post("/v1/jobs", json=ASK, headers={**ANN, "idempotency-key": "k"})
    assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])
    refused = http.post("/v1/jobs", json={**ASK, "state": "c"}, headers=ANN)
    assert refused.status_code == 429
    assert refused.json()["violated-policies"] == ["jobs"]
    assert (refused.json()["held"], refused.json()["allowed"], refused.json()["code"]) == (2, 2, "rate_limited")
    assert (refused.headers["ratelimit"], refused.headers["ratelimit-policy"]) == ('"jobs";r=0', policy)
    assert 1 <= int(refused.headers["retry-after"]) <= 20
    one = http.post("/v1/systemone", json={**ASK, "state": "d"}, headers=ANN)
    assert (one.status_code, one.json()["detail"]["error_type"]) == (429, "rate_limit")
    decision = {"input": "x", "questions": [{"type": "predicate", "instructions": "Is it?"}]}
    other = http.post("/v1/decisions", json=decision, headers=ANN)
    assert (other.status_code, other.json()["error"]["type"]) == (429, "rate_limit_error")
    turns = f"/v1/sessions/{http.post('/v1/sessions', headers=ANN).json()['id']}/turns"
    assert http.post(turns, json={"text": "x"}, headers=ANN).json()["code"] == "rate_limited"
    assert http.post("/v1/jobs", json=ASK, headers=bearer("bob")).status_code == 202
    backend.stall.clear()
    eventually(lambda: http.get("/v1/models", headers=ANN).headers["ratelimit"] == '"jobs";r=2')
    assert http.post("/v1/systemone", json={**ASK, "state": "d"}, headers=ANN).status_code == 200


def test_both_limits_and_the_later_of_their_ends(limited: Callable[[str], TestClient], backend: FakeBackend) -> None:
    """Of a refusal for jobs that took the last call, too, nobody is told to come back before there is a call again."""
    http = limited("rate=2/h,concurrency=1")
    backend.hold.set()
    taken = http.post("/v1/jobs", json=ASK, headers=ANN)
    assert taken.headers["ratelimit-policy"] == '"requests";q=2;w=3600, "jobs";q=1;qu="concurrent-requests"'
    assert taken.headers["ratelimit"] == '"requests";r=1;t=1800, "jobs";r=0'
    refused = http.post("/v1/jobs", json={**ASK, "state": "b"}, headers=ANN)
    assert refused.json()["violated-policies"] == ["jobs"]
    assert refused.headers["ratelimit"] == f'"requests";r=0;t={refused.headers["retry-after"]}, "jobs";r=0'
    assert int(refused.headers["retry-after"]) > 1700


def test_a_batch_leaves_its_key_half_of_the_jobs(
    limited: Callable[[str], TestClient], backend: FakeBackend, redis_client: redis.Redis, eventually: Eventually
) -> None:
    """Rows are the key's jobs, and no calls: a batch runs through whatever the rate."""
    http = limited("rate=3/h,concurrency=4")
    backend.hold.set()
    ann = BatchCaller(http, "ann")
    started = ann.start(ann.upload(jsonl(*(line(f"r{i}") for i in range(30)))))
    eventually(lambda: redis_client.hget(keys.DEPTH, "jobs:ann") == b"2")
    time.sleep(0.2)  # as long as it takes the feeder to look again
    assert redis_client.hget(keys.DEPTH, "jobs:ann") == b"2"
    assert http.post("/v1/jobs", json=ASK, headers=ANN).status_code == 202
    backend.hold.clear()
    desk = http.app.state.services.desk  # type: ignore[attr-defined]
    eventually(lambda: http.portal and http.portal.call(desk.batch, "ann", started["id"]).status.terminal)
    assert http.portal is not None
    assert http.portal.call(desk.batch, "ann", started["id"]).completed == 30


def test_a_batch_waits_for_its_key(
    limited: Callable[[str], TestClient], backend: FakeBackend, eventually: Eventually
) -> None:
    http = limited("concurrency=2")
    backend.hold.set()
    for i in range(2):
        assert http.post("/v1/jobs", json={**ASK, "state": f"{i}"}, headers=ANN).status_code == 202
    ann = BatchCaller(http, "ann")
    batch_id = ann.start(ann.upload(jsonl(line("a"), line("b"))))["id"]
    eventually(lambda: ann.batch(batch_id)["paused"] == "rate_limited")
    backend.hold.clear()
    assert ann.ended(batch_id)["request_counts"]["completed"] == 2


def test_a_key_of_one_job_can_run_a_batch(limited: Callable[[str], TestClient], backend: FakeBackend) -> None:
    ended = BatchCaller(limited("concurrency=1"), "ann").run(jsonl(*(line(f"r{i}") for i in range(5))))
    assert ended["request_counts"]["completed"] == 5


def test_a_socket_s_messages_are_counted(settings: GatewaySettings, backend: FakeBackend) -> None:
    """As calls are, the handshake among them; a reply says when to come back, having no headers."""
    with served(keyed(settings, ann="ask:rate=3/h,concurrency=5")) as address:
        with connected(address, additional_headers=ANN) as client:
            opened = client.connection.response
            assert opened is not None
            assert opened.headers["ratelimit"] == '"requests";r=2;t=2400, "jobs";r=5'
            assert client.ask("decide_request", ASK)["status"] == "ok"
            assert client.ask("engine_info_request", {})["status"] == "ok"
            refused = client.ask("decide_request", {**ASK, "state": "b"})
        assert (refused["status"], refused["error"]["code"]) == ("error", "rate_limited")
        assert refused["error"]["violated-policies"] == ["requests"]
        assert 1100 < refused["error"]["retry_after_s"] <= 1200
        with httpx.Client(base_url=address, trust_env=False) as http:
            assert http.get("/v1/jobs", headers=ANN).status_code == 429, "the same bucket"


def test_gateways_count_together_and_follow_the_file(
    settings: GatewaySettings, backend: FakeBackend, eventually: Eventually
) -> None:
    changed = keyed(settings, ann="ask:rate=4/h")
    assert changed.api_keys is not None
    with (
        TestClient(create_app(changed, POLICY)) as one,
        TestClient(create_app(changed, POLICY)) as other,
    ):
        statuses = [http.get("/v1/jobs", headers=ANN).status_code for http in (one, other) * 3]
        assert statuses == [200] * 4 + [429] * 2
        write(changed.api_keys, ann="ask")
        eventually(lambda: all(http.get("/v1/jobs", headers=ANN).status_code == 200 for http in (one, other)), 10)


def test_what_clients_do_with_it(settings: GatewaySettings, backend: FakeBackend) -> None:
    """Our client waits as it is told to, and gets its answers."""
    from photocall.client import Client

    with served(keyed(settings, ann="ask:rate=20/s,burst=2")) as address, Client(address, api_key="ann") as photocall:
        started = time.monotonic()
        for i in range(6):
            assert photocall.ask([], QUESTIONS, state=f"text {i}").status == "succeeded"
        assert time.monotonic() - started > 0.15, "it was slowed down"


def test_no_limit_costs_no_round_trip(
    settings: GatewaySettings, redis_client: redis.Redis, backend: FakeBackend
) -> None:
    """And the use of a key is noted once a minute, however often it calls."""
    with TestClient(create_app(keyed(settings, ann="ask"), POLICY)) as http:
        http.get("/v1/models", headers=ANN)
        before: Any = redis_client.info("commandstats")
        for _ in range(20):
            http.get("/v1/models", headers=ANN)
        after: Any = redis_client.info("commandstats")
    grown = {name for name in after if name in before and after[name]["calls"] - before[name]["calls"] >= 20}
    assert not re.search("set|get|eval", " ".join(grown)), grown
    assert redis_client.get(keys.key_used("ann")) is not None
    assert redis_client.ttl(keys.key_used("ann")) > 86_400

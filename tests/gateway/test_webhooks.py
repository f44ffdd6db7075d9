"""Webhooks from the job's request to a real https target: signed, filtered, retried, logged, and in nobody's way."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any, cast

import pytest
import redis
from starlette.testclient import TestClient

from photocall import keys, webhooks
from photocall.addresses import AddressRules
from photocall.connections import connect
from photocall.jobs import Refused
from photocall.queueing import PrepQueues, WebhookQueue
from photocall.records import Records
from photocall.scripts import run
from photocall.settings import GatewaySettings
from photocall.sweeper import Sweeper
from photocall.webhooks import Delivery
from photocall.wire import Wire
from photocall_gateway import courier as courier_module
from photocall_gateway.app import create_app
from photocall_gateway.courier import Courier
from photocall_gateway.delivery import Sender
from photocall_gateway.sweeping import SweeperThread
from tests.gateway.conftest import KEY, POLICY
from tests.gateway.fake_backend import FakeBackend
from tests.web_server import WebServer, page, web_server

Eventually = Callable[..., Any]
TEXT = {"state": "text", "questions": {"q": {"type": "noul", "instructions": "Is it?"}}}
WIRE = Wire(KEY.encode(), "tests")


@pytest.fixture
def web() -> Iterator[WebServer]:
    with web_server() as found:
        yield found


@pytest.fixture
def heard(web: WebServer) -> list[tuple[dict[str, str], bytes]]:
    """Headers and body of what came to /hook, which answers 204."""
    found: list[tuple[dict[str, str], bytes]] = []

    def hook(request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers["content-length"]))
        found.append(({name.lower(): value for name, value in request.headers.items()}, body))
        page(b"", 204)(request)

    web.pages["/hook"] = hook
    return found


@pytest.fixture
def client(settings: GatewaySettings, monkeypatch: pytest.MonkeyPatch, web: WebServer) -> Iterator[TestClient]:
    """The app, whose outgoing calls find every name at the test's server."""
    monkeypatch.setattr("photocall_gateway.app.Caller", lambda rules, timeout_s, max_bytes: web.caller(timeout_s))
    monkeypatch.setattr("photocall_gateway.app.SweeperThread", lambda sweeper: SweeperThread(sweeper, 0.05))
    monkeypatch.setattr(webhooks, "RETRY_S", (0.1, 0.1))
    with TestClient(create_app(settings, POLICY), base_url="http://127.0.0.1:8080") as found:
        yield found


def submit(client: TestClient, url: str, **fields: Any) -> str:
    response = client.post("/v1/jobs", json={**TEXT, "webhook": {"url": url, **fields}})
    assert response.status_code == 202, response.text
    return str(response.json()["id"])


def settled(client: TestClient, job_id: str, eventually: Eventually, state: str) -> dict[str, Any]:
    def look() -> Any:
        found = client.get(f"/v1/jobs/{job_id}").json()["webhook"]
        return found if found["state"] == state else None

    return cast("dict[str, Any]", eventually(look))


def test_a_job_is_announced_and_signed(
    client: TestClient, backend: FakeBackend, web: WebServer, heard: list[Any], eventually: Eventually
) -> None:
    job_id = submit(client, web.url("/hook", "hooks.example"))
    shown = settled(client, job_id, eventually, "delivered")
    [(headers, body)] = heard
    event = json.loads(body)
    assert event["type"] == "job.succeeded"
    assert event["timestamp"].endswith("+00:00")
    job = client.get(f"/v1/jobs/{job_id}").json()
    assert {**event["data"], "webhook": None} == {**job, "webhook": None}
    assert headers["webhook-id"] == job_id
    assert headers["content-type"] == "application/json"
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 30
    secret = client.get("/v1/webhooks/secret").json()["secret"]
    assert secret.startswith("whsec_")
    signed = f"{job_id}.{headers['webhook-timestamp']}.".encode() + body
    mac = hmac.new(base64.b64decode(secret.removeprefix("whsec_")), signed, hashlib.sha256).digest()
    assert headers["webhook-signature"] == "v1," + base64.b64encode(mac).decode()
    [attempt] = shown["attempts"]
    assert (attempt["status"], attempt["error"]) == (204, None)
    assert attempt["ms"] > 0


def test_the_standards_own_example() -> None:
    """The vector of the Standard Webhooks specification's reference libraries."""
    secret, body = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b'{"test": 2432232314}'
    found = webhooks.signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert found == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_secrets_differ_between_keys() -> None:
    one, other = webhooks.secret_of(b"key", "ann"), webhooks.secret_of(b"key", "bob")
    assert one != other
    assert webhooks.secret_of(b"key", "ann") == one
    assert len(base64.b64decode(one.removeprefix("whsec_"))) == 32


@pytest.mark.parametrize(
    ("events", "told"), [(["job.failed"], True), (["job.succeeded", "job.cancelled"], False), (None, True)]
)
def test_events_filter(
    client: TestClient, backend: FakeBackend, web: WebServer, heard: list[Any], eventually: Eventually,
    events: list[str] | None, told: bool, redis_client: redis.Redis,
) -> None:  # fmt: skip
    backend.respond = lambda ask, record: Refused("unanswerable", "no")
    job_id = submit(client, web.url("/hook"), **({} if events is None else {"events": events}))
    ended = client.get(f"/v1/jobs/{job_id}", headers={"prefer": "wait=10"}).json()
    assert ended["status"] == "failed"
    assert bool(redis_client.exists(keys.webhook(job_id))) is told
    if told:
        settled(client, job_id, eventually, "delivered")
        assert json.loads(heard[0][1])["data"]["error"]["code"] == "unanswerable"
    else:
        assert ended["webhook"] == {"url": web.url("/hook"), "events": events, "state": None, "attempts": []}


def test_every_end_of_a_job_is_announced(
    client: TestClient, backend: FakeBackend, web: WebServer, heard: list[Any], eventually: Eventually
) -> None:
    backend.hold.set()
    job_id = submit(client, web.url("/hook"))
    client.post(f"/v1/jobs/{job_id}/cancel")
    late = client.post("/v1/jobs", json={**TEXT, "deadline_s": 0.1, "webhook": {"url": web.url("/hook")}}).json()["id"]
    eventually(lambda: len(heard) == 2)
    assert {(json.loads(body)["type"], json.loads(body)["data"]["id"]) for _, body in heard} == {
        ("job.cancelled", job_id), ("job.expired", late),
    }  # fmt: skip


def test_a_target_that_fails_is_tried_again_with_the_same_id_and_body(
    client: TestClient, backend: FakeBackend, web: WebServer, heard: list[Any], eventually: Eventually
) -> None:
    good = web.pages["/hook"]

    def unsure(request: BaseHTTPRequestHandler) -> None:
        if len(heard) < 1:
            body = request.rfile.read(int(request.headers["content-length"]))
            heard.append(({name.lower(): value for name, value in request.headers.items()}, body))
            page(b"", 500)(request)
        else:
            good(request)

    web.pages["/hook"] = unsure
    job_id = submit(client, web.url("/hook"))
    shown = settled(client, job_id, eventually, "delivered")
    assert [attempt["status"] for attempt in shown["attempts"]] == [500, 204]
    first, second = heard
    assert first[0]["webhook-id"] == second[0]["webhook-id"]
    assert first[1] == second[1]


@pytest.mark.parametrize(("path", "tries", "status"), [("/none", 3, 404), ("/moved", 3, 302), ("/gone", 1, 410)])
def test_it_is_given_up_after_the_last_attempt(
    client: TestClient, backend: FakeBackend, web: WebServer, heard: list[Any], eventually: Eventually,
    redis_client: redis.Redis, path: str, tries: int, status: int,
) -> None:  # fmt: skip
    web.pages["/moved"] = page(b"", 302, Location="/hook")
    web.pages["/gone"] = page(b"", 410)
    job_id = submit(client, web.url(path))
    shown = settled(client, job_id, eventually, "failed")
    assert [attempt["status"] for attempt in shown["attempts"]] == [status] * tries
    assert heard == []
    eventually(lambda: redis_client.xlen(keys.DEAD) == 1)
    [(_, letter)] = cast(Any, redis_client.xrange(keys.DEAD))
    assert letter[b"from"] == keys.webhook(job_id).encode()
    assert redis_client.zcard(keys.WEBHOOKS) == 0
    assert redis_client.hget(keys.COUNTERS, "webhook_failed") == b"1"


def test_a_dead_target_never_slows_a_job(
    client: TestClient, backend: FakeBackend, web: WebServer, heard: list[Any], eventually: Eventually
) -> None:
    """Twenty deliveries hang; jobs are answered as ever, and another host's webhook is heard meanwhile."""
    released = threading.Event()
    web.pages["/dead"] = lambda request: cast(None, released.wait(20))
    try:
        for _ in range(20):
            submit(client, web.url("/dead", "photos.example"))
        eventually(lambda: len(web.seen) >= courier_module.PER_HOST)
        started = time.monotonic()
        for _ in range(5):
            answer = client.post("/v1/jobs", json=TEXT, headers={"prefer": "wait=10"})
            assert answer.json()["status"] == "succeeded"
        assert time.monotonic() - started < 5.0
        job_id = submit(client, web.url("/hook", "hooks.example"))
        settled(client, job_id, eventually, "delivered")
        assert sum(path == "/dead" for _, _, path in web.seen) == courier_module.PER_HOST
    finally:
        released.set()


@pytest.mark.parametrize(
    ("webhook", "loc"),
    [
        ("https://hooks.example/", ["webhook"]),
        ({}, ["webhook", "url"]),
        ({"url": 5}, ["webhook", "url"]),
        ({"url": "http://hooks.example/"}, ["webhook", "url"]),
        ({"url": "https://user@hooks.example/"}, ["webhook", "url"]),
        ({"url": "https://hooks.example/", "events": []}, ["webhook", "events"]),
        ({"url": "https://hooks.example/", "events": ["job.done"]}, ["webhook", "events"]),
        ({"url": "https://hooks.example/", "events": [["job.failed"]]}, ["webhook", "events"]),
    ],
)
def test_a_bad_webhook(client: TestClient, webhook: Any, loc: list[str]) -> None:
    response = client.post("/v1/jobs", json={**TEXT, "webhook": webhook})
    assert (response.status_code, response.json().get("loc")) == (422, loc)


# --- below: the parts, by hand ----------------------------------------------------------------------------------------


class Hall:
    """Sweeper, queue and courier over one Redis, without an app; `now` is the sweeper's clock."""

    def __init__(self, url: str, web: WebServer, rules: AddressRules | None = None) -> None:
        self.redis = connect(url)
        self.records = Records(self.redis, WIRE)
        self.queue = WebhookQueue(self.redis, WIRE)
        self.sweeper = Sweeper(self.records, PrepQueues(self.redis, WIRE), self.queue)
        caller = web.caller() if rules is None else web.caller(rules=rules)
        self.courier = Courier(self.redis, self.queue, Sender(self.records, caller, b"k").send)

    def owe(self, url: str, delivery_id: str = "batch_1") -> None:
        """As the script does that tells of a batch's end."""
        owed: dict[Any, Any] = {"owner": "ann", "url": url, "event": "batch.completed", "body": b"{}"}
        self.redis.hset(
            keys.webhook(delivery_id), mapping={**owed, "created_at": 1000.0, "attempts": 0, "state": "pending"}
        )
        self.redis.zadd(keys.WEBHOOKS, {delivery_id: 1000.0})

    def read(self, delivery_id: str = "batch_1") -> Delivery:
        raw = cast("dict[bytes, bytes]", self.redis.hgetall(keys.webhook(delivery_id)))
        return Delivery.from_hash(delivery_id, raw)


@pytest.fixture
def hall(redis_client: redis.Redis, redis_server: Any, web: WebServer) -> Iterator[Hall]:
    found = Hall(redis_server.url, web)
    yield found
    found.redis.close()


def test_what_is_owed_for_no_job_is_delivered(hall: Hall, web: WebServer, heard: list[Any]) -> None:
    hall.owe(web.url("/hook"))
    assert hall.sweeper.sweep().delivering == 1
    hall.courier.start()
    until = time.monotonic() + 30
    while hall.read().state != "delivered":
        assert time.monotonic() < until
        time.sleep(0.02)
    hall.courier.stop()
    assert heard[0][1] == b"{}"


def test_an_attempt_that_died_is_made_again(hall: Hall, web: WebServer) -> None:
    """The process is killed with the delivery enqueued, and again with the attempt begun."""
    hall.owe(web.url("/hook"))
    now = 2000.0
    assert hall.sweeper.sweep(now).delivering == 1
    assert hall.queue.take(0.1) == "webhook-batch_1-1"  # and dies
    assert hall.sweeper.sweep(now + 1).delivering == 0, "it is claimed"
    hall.queue.forget("webhook-batch_1-1")
    assert hall.sweeper.sweep(now + webhooks.CLAIM_S + 1).delivering == 1
    assert run(hall.redis, webhooks.begin("batch_1", 1, now + 40)) == 1  # and dies
    assert run(hall.redis, webhooks.begin("batch_1", 1, now + 41)) is None, "one number is begun once"
    assert hall.sweeper.sweep(now + 42).delivering == 0
    assert hall.sweeper.sweep(now + 41 + webhooks.CLAIM_S).delivering == 1
    assert run(hall.redis, webhooks.begin("batch_1", 2, now + 90)) == 2


def test_the_queue_runs_nothing_else(hall: Hall, redis_client: redis.Redis) -> None:
    """A planted function, and an entry without our signature, are refused and counted."""
    queue = hall.queue._queue
    queue.enqueue_call(keys.PREPARE_JOB, args=("j", 1), job_id="planted")
    queue.enqueue_call("os.system", args=("true",), job_id="other")
    redis_client.hset("rq:job:forged", mapping={"data": b"x", "created_at": "2026-01-01T00:00:00.000000Z"})
    redis_client.rpush(queue.key, "forged", "missing")
    for _ in range(4):
        hall.courier._serve_one()
    assert redis_client.hget(keys.COUNTERS, "refused_function") == b"2"
    assert redis_client.hget(keys.COUNTERS, "bad_signature") == b"1"
    assert redis_client.llen(queue.key) == 0


def test_private_addresses_are_not_called(redis_server: Any, web: WebServer, heard: list[Any]) -> None:
    hall = Hall(redis_server.url, web, AddressRules())
    hall.owe(web.url("/hook"))
    outcome = Sender(hall.records, web.caller(rules=AddressRules()), b"k").send(hall.read())
    assert (outcome.heard, outcome.error) == (False, "its name is not at a public address")
    assert web.seen == []
    hall.redis.close()


def test_pauses_grow_and_end() -> None:
    pauses = [webhooks.pause_s(n) for n in range(1, len(webhooks.RETRY_S) + 2)]
    assert pauses[-1] is None
    for pause, base in zip(pauses, webhooks.RETRY_S, strict=False):
        assert pause is not None
        assert 0.8 * base <= pause <= 1.2 * base
    patient = webhooks.pause_s(1, retry_after_s=300)
    assert patient is not None
    assert 240 <= patient <= 360
    longest = webhooks.pause_s(1, retry_after_s=1e6)
    assert longest is not None
    assert longest <= 1.2 * webhooks.MAX_RETRY_AFTER_S


def test_a_deleted_job_owes_nothing(
    client: TestClient, backend: FakeBackend, web: WebServer, redis_client: redis.Redis, eventually: Eventually
) -> None:
    web.pages["/down"] = page(b"", 503, Retry_After="600")
    job_id = submit(client, web.url("/down"))
    eventually(lambda: client.get(f"/v1/jobs/{job_id}").json()["webhook"]["attempts"])
    assert client.delete(f"/v1/jobs/{job_id}").status_code == 204
    assert redis_client.exists(keys.webhook(job_id)) == 0
    assert redis_client.zcard(keys.WEBHOOKS) == 0

"""The native API: /v1/jobs, against the real app with a scripted back end."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import socket
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

from photocall import keys
from photocall.connections import connect_async
from photocall.errors import TABLE
from photocall.jobs import Refused
from photocall.operations import Policy
from photocall.records import AsyncRecords
from photocall.settings import GatewaySettings
from photocall.wire import Wire
from photocall_gateway.app import create_app
from photocall_gateway.job_object import job_object
from tests.gateway.conftest import KEY, POLICY
from tests.gateway.fake_backend import FakeBackend

PNG = b"\x89PNG\r\n\x1a\n" + b"rest"
QUESTIONS = {"q": {"type": "noul", "instructions": "Is it?"}}
TEXT = {"state": "text", "questions": QUESTIONS}
PICTURE = {
    "state": {"photo": "img"},
    "questions": QUESTIONS,
    "assets": {"img": {"type": "image", "data_base64": base64.b64encode(PNG).decode()}},
}
FIELDS = {"id", "object", "status", "created_at", "started_at", "completed_at", "expires_at", "priority", "progress",
          "queue", "usage", "timings", "attempts", "urls", "metadata"}  # fmt: skip
Eventually = Callable[..., Any]


def wait(client: TestClient, job_id: str, seconds: int = 10) -> dict[str, Any]:
    response = client.get(f"/v1/jobs/{job_id}", headers={"prefer": f"wait={seconds}"})
    assert response.status_code == 200
    found: dict[str, Any] = response.json()
    return found


@pytest.mark.parametrize("body", [TEXT, PICTURE], ids=["text", "picture"])
def test_a_job_from_202_to_its_result(client: TestClient, backend: FakeBackend, body: dict[str, Any]) -> None:
    before = time.time()
    response = client.post("/v1/jobs", json={**body, "metadata": {"row": "7"}})
    assert response.status_code == 202
    job = response.json()
    assert set(job) - {"result"} == FIELDS
    assert (job["object"], job["metadata"], job["priority"]) == ("job", {"row": "7"}, "interactive")
    assert response.headers["location"] == job["urls"]["self"] == f"/v1/jobs/{job['id']}"
    assert int(response.headers["retry-after"]) >= 1
    done = wait(client, job["id"])
    assert set(done) == FIELDS | {"result"}
    assert done["status"] == "succeeded"
    assert done["result"]["answers"] == {"q": {"type": "noul", "noul": 0.875}}
    assert done["usage"] == done["result"]["usage"]
    assert done["attempts"] == 1
    assert before - 0.01 <= done["created_at"] <= done["started_at"] <= done["completed_at"] < done["expires_at"]
    assert done["queue"] is None


def test_pictures_as_parts_of_a_form(client: TestClient, backend: FakeBackend) -> None:
    request = json.dumps({"state": "photo", "questions": QUESTIONS})
    response = client.post("/v1/jobs", files={"request": (None, request), "photo": ("a.png", PNG, "image/png")})
    assert response.status_code == 202, response.text
    assert wait(client, response.json()["id"])["usage"]["image_tokens"] == 140


def test_prefer_wait_gives_the_end_at_once(client: TestClient, backend: FakeBackend) -> None:
    response = client.post("/v1/jobs", json=TEXT, headers={"prefer": "respond-async, wait=10"})
    assert response.status_code == 200
    assert response.headers["preference-applied"] == "wait=10"
    assert response.json()["status"] == "succeeded"
    assert response.headers["location"] == response.json()["urls"]["self"]


def test_prefer_wait_is_bounded_and_ends_with_202(settings: GatewaySettings, backend: FakeBackend) -> None:
    backend.hold.set()
    with TestClient(create_app(replace(settings, max_wait_s=0.3), POLICY), base_url="http://localhost") as client:
        started = time.monotonic()
        response = client.post("/v1/jobs", json=TEXT, headers={"prefer": "wait=100"})
        assert 0.25 < time.monotonic() - started < 2
        assert response.status_code == 202
        assert response.headers["preference-applied"] == "wait=0.3"
        assert response.json()["status"] == "queued"


def test_a_waiting_job_says_where_it_stands(client: TestClient, backend: FakeBackend) -> None:
    backend.hold.set()
    ids = [client.post("/v1/jobs", json={**TEXT, "state": str(i)}).json()["id"] for i in range(3)]
    jobs = [client.get(f"/v1/jobs/{job_id}").json() for job_id in ids]
    assert [job["queue"] for job in jobs] == [{"position": i, "eta_s": None} for i in range(3)]
    backend.hold.clear()
    assert [wait(client, job_id)["status"] for job_id in ids] == ["succeeded"] * 3
    backend.hold.set()
    one_more = client.post("/v1/jobs", json={**TEXT, "state": "more"}).json()
    assert one_more["queue"]["position"] == 0
    assert one_more["queue"]["eta_s"] is None or 0 < one_more["queue"]["eta_s"] <= 20  # 3 ended in the last minute


def test_an_etag_is_304_until_the_job_changes(client: TestClient, backend: FakeBackend) -> None:
    backend.hold.set()
    job_id = client.post("/v1/jobs", json=TEXT).json()["id"]
    first = client.get(f"/v1/jobs/{job_id}")
    tag = first.headers["etag"]
    same = client.get(f"/v1/jobs/{job_id}", headers={"if-none-match": f'"other", {tag}'})
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    started = time.monotonic()
    long = client.get(f"/v1/jobs/{job_id}", headers={"if-none-match": tag, "prefer": "wait=1"})
    assert long.status_code == 304
    assert time.monotonic() - started > 0.9
    backend.hold.clear()
    changed = client.get(f"/v1/jobs/{job_id}", headers={"if-none-match": tag, "prefer": "wait=10"})
    assert changed.status_code == 200
    assert changed.headers["etag"] != tag
    done = client.get(f"/v1/jobs/{job_id}", headers={"prefer": "wait=10"})
    assert done.json()["status"] == "succeeded"
    again = client.get(f"/v1/jobs/{job_id}", headers={"if-none-match": done.headers["etag"], "prefer": "wait=10"})
    assert again.status_code == 304  # at once: an ended job does not change any more


def test_idempotency(client: TestClient, backend: FakeBackend) -> None:
    headers = {"idempotency-key": "order-7"}
    first = client.post("/v1/jobs", json=PICTURE, headers=headers)
    again = client.post("/v1/jobs", json=PICTURE, headers=headers)
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json()["id"] == again.json()["id"]
    other = client.post("/v1/jobs", json={**PICTURE, "priority": "batch"}, headers=headers)
    assert other.status_code == 422
    assert other.json()["code"] == "idempotency_mismatch"
    wait(client, first.json()["id"])
    assert client.post("/v1/jobs", json=PICTURE, headers=headers).json()["status"] == "succeeded"
    assert client.post("/v1/jobs", json=PICTURE).json()["id"] != first.json()["id"]
    eventually_seen = {first.json()["id"]}
    assert eventually_seen <= set(backend.seen)


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_a_key_of_no_use_is_refused(client: TestClient, key: str) -> None:
    response = client.post("/v1/jobs", json=TEXT, headers={"idempotency-key": key})
    assert response.status_code == 422
    assert response.json()["loc"] == ["Idempotency-Key"]


def test_409_only_while_the_first_upload_is_being_read(
    http: httpx.Client, backend: FakeBackend, eventually: Eventually, redis_client: redis.Redis
) -> None:
    body = json.dumps(TEXT).encode()
    head = f"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: slow\r\nContent-Length: {len(body)}\r\n"
    head += "Content-Type: application/json\r\nConnection: close\r\n\r\n"
    with socket.create_connection((http.base_url.host, http.base_url.port or 80)) as slow:
        slow.sendall(head.encode() + body[:10])
        eventually(lambda: redis_client.exists(keys.uploading("local", "slow")))
        second = http.post("/v1/jobs", json=TEXT, headers={"idempotency-key": "slow"})
        assert second.status_code == 409
        assert second.json()["code"] == "in_progress"
        assert "retry-after" in second.headers
        assert http.post("/v1/jobs", json=TEXT, headers={"idempotency-key": "other"}).status_code == 202
        slow.sendall(body[10:])
        answer = b"".join(iter(lambda: slow.recv(65536), b""))
    job = json.loads(answer.partition(b"\r\n\r\n")[2])
    third = http.post("/v1/jobs", json=TEXT, headers={"idempotency-key": "slow"})
    assert (third.status_code, third.json()["id"]) == (202, job["id"])


def test_an_upload_that_breaks_off_leaves_nothing(
    http: httpx.Client, redis_client: redis.Redis, eventually: Eventually
) -> None:
    with socket.create_connection((http.base_url.host, http.base_url.port or 80)) as broken:
        head = "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: k\r\nContent-Length: 500\r\n\r\n"
        broken.sendall(head.encode() + b'{"state":')
        eventually(lambda: redis_client.exists(keys.uploading("local", "k")))
    eventually(lambda: not redis_client.exists(keys.uploading("local", "k")))
    assert list(redis_client.scan_iter(keys.job("*"))) == []


def test_cancel_and_delete(
    client: TestClient, backend: FakeBackend, redis_client: redis.Redis, eventually: Eventually
) -> None:
    backend.hold.set()
    job_id = client.post("/v1/jobs", json=TEXT).json()["id"]
    cancelled = client.post(f"/v1/jobs/{job_id}/cancel")
    assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
    assert cancelled.json()["error"]["code"] == "cancelled"
    assert client.post(f"/v1/jobs/{job_id}/cancel").json() == client.get(f"/v1/jobs/{job_id}").json()

    picture = client.post("/v1/jobs", json=PICTURE).json()["id"]
    image = keys.image(hashlib.sha256(PNG).hexdigest())
    assert redis_client.hget(image, "refs") == b"1"
    assert client.delete(f"/v1/jobs/{picture}").status_code == 204
    assert redis_client.exists(image) == 0  # nothing else needed it
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/events")):
        gone = client.request(method, f"/v1/jobs/{picture}{path}")
        assert (gone.status_code, gone.json()["code"]) == (410, "job_gone")
    backend.hold.clear()
    done = client.post("/v1/jobs", json=TEXT, headers={"prefer": "wait=10"}).json()
    assert backend.seen == [done["id"]]
    assert client.post(f"/v1/jobs/{done['id']}/cancel").json()["status"] == "succeeded"


def test_cancelling_a_running_job_tells_its_engine(
    client: TestClient, backend: FakeBackend, eventually: Eventually
) -> None:
    backend.stall.set()
    backend.renewing.clear()
    job_id = client.post("/v1/jobs", json=TEXT).json()["id"]
    eventually(lambda: client.get(f"/v1/jobs/{job_id}").json()["status"] == "running")
    response = client.post(f"/v1/jobs/{job_id}/cancel")
    assert (response.status_code, response.json()["status"]) == (202, "cancelling")
    backend.renewing.set()
    ended = wait(client, job_id)
    assert (ended["status"], ended["error"]["code"]) == ("cancelled", "cancelled")
    eventually(lambda: backend.renewed_lost == 1)  # the renewal ends the job first


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/events")])
def test_an_unknown_job(client: TestClient, method: str, path: str) -> None:
    response = client.request(method, f"/v1/jobs/job_0{path}")
    assert response.status_code == 404
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert (body["code"], body["job_id"], body["title"]) == ("unknown_job", "job_0", "Unknown job")
    assert body["instance"] == response.headers["x-request-id"]


def test_lists(client: TestClient, backend: FakeBackend) -> None:
    done = [
        client.post("/v1/jobs", json={**TEXT, "state": str(i)}, headers={"prefer": "wait=10"}).json()["id"]
        for i in range(3)
    ]
    backend.hold.set()
    waiting = client.post("/v1/jobs", json=TEXT).json()["id"]
    newest_first = [waiting, *reversed(done)]
    everything = client.get("/v1/jobs").json()
    assert [job["id"] for job in everything["data"]] == newest_first
    assert (everything["object"], everything["has_more"], everything["last_id"]) == ("list", False, done[0])
    page = client.get("/v1/jobs", params={"limit": 2}).json()
    assert [job["id"] for job in page["data"]] == newest_first[:2]
    assert page["has_more"] is True
    rest = client.get("/v1/jobs", params={"limit": 2, "after": page["last_id"]}).json()
    assert [job["id"] for job in rest["data"]] == newest_first[2:]
    assert rest["has_more"] is False
    only = client.get("/v1/jobs", params={"status": "queued"}).json()["data"]
    assert [(job["id"], job["queue"]["position"]) for job in only] == [(waiting, 0)]
    assert client.get("/v1/jobs", params={"status": "failed"}).json() == {
        "object": "list", "data": [], "has_more": False, "last_id": None,
    }  # fmt: skip


def test_a_page_goes_on_behind_a_job_that_is_gone(client: TestClient, backend: FakeBackend) -> None:
    """Deleted between two pages, and with others made meanwhile: nothing is skipped and nothing comes twice."""
    backend.hold.set()
    ids = [client.post("/v1/jobs", json={**TEXT, "state": str(i)}).json()["id"] for i in range(5)]
    page = client.get("/v1/jobs", params={"limit": 2}).json()
    assert [job["id"] for job in page["data"]] == [ids[4], ids[3]]
    client.delete(f"/v1/jobs/{page['last_id']}")
    client.post("/v1/jobs", json={**TEXT, "state": "newer"})
    rest = client.get("/v1/jobs", params={"limit": 10, "after": page["last_id"]}).json()
    assert [job["id"] for job in rest["data"]] == [ids[2], ids[1], ids[0]]


def test_jobs_of_the_same_instant_stand_in_the_order_of_their_ids(
    client: TestClient, backend: FakeBackend, redis_client: redis.Redis
) -> None:
    backend.hold.set()
    ids = [client.post("/v1/jobs", json={**TEXT, "state": str(i)}).json()["id"] for i in range(4)]
    redis_client.zadd(keys.index("local"), dict.fromkeys(ids, 1000.25))
    found: list[str] = []
    after: dict[str, str] = {}
    for _ in range(4):
        page = client.get("/v1/jobs", params={"limit": 1, **after}).json()
        found.append(page["data"][0]["id"])
        after = {"after": page["last_id"]}
    assert found == sorted(ids, reverse=True)
    assert page["has_more"] is False


def test_lists_by_metadata(client: TestClient, backend: FakeBackend) -> None:
    backend.hold.set()
    ids = [
        client.post("/v1/jobs", json={**TEXT, "metadata": {"row": str(i % 2), "run": "a"}}).json()["id"]
        for i in range(4)
    ]
    odd = client.get("/v1/jobs", params={"metadata[row]": "1"}).json()["data"]
    assert [job["id"] for job in odd] == [ids[3], ids[1]]
    both = client.get("/v1/jobs", params={"metadata[row]": "1", "metadata[run]": "b"}).json()["data"]
    assert both == []
    queued = client.get("/v1/jobs", params={"metadata[run]": "a", "status": "queued", "limit": "1"}).json()
    assert ([job["id"] for job in queued["data"]], queued["has_more"]) == ([ids[3]], True)


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ({"status": "done"}, 422, "invalid_field"),
        ({"limit": "0"}, 422, "invalid_field"),
        ({"limit": "101"}, 422, "invalid_field"),
        ({"limit": "ten"}, 422, "invalid_field"),
        ({"limit": "9" * 5000}, 422, "invalid_field"),
        ({"limit": "\u0663"}, 422, "invalid_field"),
        ({"after": "job_0"}, 404, "unknown_job"),
    ],
)
def test_a_bad_list(client: TestClient, query: dict[str, str], status: int, code: str) -> None:
    response = client.get("/v1/jobs", params=query)
    assert (response.status_code, response.json()["code"]) == (status, code)


@pytest.fixture
def two_callers(settings: GatewaySettings, backend: FakeBackend, tmp_path: Path) -> Iterator[TestClient]:
    file = tmp_path / "keys"
    file.write_text("".join(f"{n}:{hashlib.sha256(n.encode()).hexdigest()}\n" for n in ("ann", "bob")))
    with TestClient(create_app(replace(settings, api_keys=file), POLICY)) as client:
        yield client


def test_another_callers_job_is_unknown(two_callers: TestClient) -> None:
    ann, bob = ({"authorization": f"Bearer {name}"} for name in ("ann", "bob"))
    job_id = two_callers.post("/v1/jobs", json=TEXT, headers={**ann, "idempotency-key": "k"}).json()["id"]
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/events")):
        assert two_callers.request(method, f"/v1/jobs/{job_id}{path}", headers=bob).status_code == 404
    assert two_callers.get("/v1/jobs", headers=bob).json()["data"] == []
    assert [job["id"] for job in two_callers.get("/v1/jobs", headers=ann).json()["data"]] == [job_id]
    other = two_callers.post("/v1/jobs", json=TEXT, headers={**bob, "idempotency-key": "k"})
    assert other.json()["id"] != job_id
    assert two_callers.get(f"/v1/jobs/{job_id}").status_code == TABLE["missing_key"].native


def test_late_failures_stand_in_the_job(client: TestClient, backend: FakeBackend) -> None:
    backend.prepare = lambda record: Refused("image_undecodable", "cannot decode image 'img': broken", {"asset": "img"})
    failed = client.post("/v1/jobs", json=PICTURE, headers={"prefer": "wait=10"}).json()
    assert failed["status"] == "failed"
    assert failed["error"] == {
        "code": "image_undecodable", "message": "cannot decode image 'img': broken", "asset": "img",
    }  # fmt: skip
    assert "result" not in failed
    backend.respond = lambda ask, record: Refused("prompt_too_long", "9 tokens, limit 5", {"tokens": 9, "limit": 5})
    long = client.post("/v1/jobs", json=TEXT, headers={"prefer": "wait=10"}).json()
    assert long["error"] == {"code": "prompt_too_long", "message": "9 tokens, limit 5", "tokens": 9, "limit": 5}


def test_a_deadline_ends_a_job_as_expired(client: TestClient, backend: FakeBackend) -> None:
    backend.hold.set()
    job = client.post("/v1/jobs", json={**TEXT, "deadline_s": 0.3}).json()
    ended = wait(client, job["id"])
    assert (ended["status"], ended["error"]["code"]) == ("expired", "deadline_exceeded")


def test_expired_work_costs_the_engine_nothing(
    client: TestClient, backend: FakeBackend, eventually: Eventually
) -> None:
    backend.hold.set()
    late = client.post("/v1/jobs", json={**TEXT, "deadline_s": 0.2}).json()["id"]
    in_time = client.post("/v1/jobs", json={**TEXT, "state": "in time"}).json()["id"]
    time.sleep(0.3)
    backend.hold.clear()
    assert wait(client, in_time)["status"] == "succeeded"
    assert wait(client, late)["status"] == "expired"
    assert backend.seen == [in_time]


def test_deleting_spares_what_others_need(
    client: TestClient, backend: FakeBackend, redis_client: redis.Redis, eventually: Eventually
) -> None:
    sha256 = hashlib.sha256(PNG).hexdigest()
    image = keys.image(sha256)
    done = client.post("/v1/jobs", json=PICTURE, headers={"prefer": "wait=10"}).json()["id"]
    backend.hold.set()
    live = client.post("/v1/jobs", json={**PICTURE, "priority": "batch"}).json()["id"]
    client.delete(f"/v1/jobs/{done}")
    assert redis_client.exists(image) == 1, "a live job needs it"
    redis_client.hset(image, "owner:bob", 1)
    client.delete(f"/v1/jobs/{live}")
    assert redis_client.exists(image) == 1, "bob has sent it too"
    redis_client.hdel(image, "owner:bob")
    client.put(f"/v1/images/{sha256}", content=PNG)
    kept = client.post("/v1/jobs", json=PICTURE).json()["id"]
    client.delete(f"/v1/jobs/{kept}")
    assert redis_client.exists(image) == 1, "it was put for itself"
    assert redis_client.zcard(keys.FORGET) == 0
    assert client.delete(f"/v1/images/{sha256}").status_code == 204
    assert redis_client.exists(image) == 0
    assert redis_client.zrange(keys.FORGET, 0, -1) == [sha256.encode()]
    assert client.delete(f"/v1/images/{sha256}").status_code == 404


def test_an_entry_whose_job_was_deleted_stops_no_other(
    client: TestClient, backend: FakeBackend, redis_client: redis.Redis
) -> None:
    """The scripted back end's own part: a deletion between its two reads must not end its thread."""
    redis_client.rpush("rq:queue:prep", "deleted-meanwhile")
    assert client.post("/v1/jobs", json=PICTURE, headers={"prefer": "wait=10"}).json()["status"] == "succeeded"


def test_a_picture_dropped_while_it_is_needed_goes_with_the_job(
    client: TestClient, backend: FakeBackend, redis_client: redis.Redis
) -> None:
    image = keys.image(hashlib.sha256(PNG).hexdigest())
    backend.hold.set()
    job_id = client.post("/v1/jobs", json=PICTURE).json()["id"]
    assert client.delete(f"/v1/images/{hashlib.sha256(PNG).hexdigest()}").status_code == 204
    assert redis_client.hexists(image, "data")
    backend.hold.clear()
    assert wait(client, job_id)["status"] == "succeeded"
    assert redis_client.exists(image) == 0


def test_batch_work_takes_the_other_lane(client: TestClient, backend: FakeBackend, redis_client: redis.Redis) -> None:
    backend.hold.set()
    client.post("/v1/jobs", json={**TEXT, "priority": "batch"})
    assert redis_client.xlen(keys.engine_stream("batch")) == 1
    assert redis_client.xlen(keys.engine_stream("interactive")) == 0
    backend.hold.clear()
    job = client.post("/v1/jobs", json={**PICTURE, "priority": "batch"}, headers={"prefer": "wait=10"}).json()
    assert (job["status"], job["priority"]) == ("succeeded", "batch")


def test_a_full_queue_and_a_full_store(
    settings: GatewaySettings, backend: FakeBackend, redis_client: redis.Redis
) -> None:
    backend.hold.set()
    with TestClient(create_app(settings, Policy(max_jobs=1)), base_url="http://localhost") as client:
        assert client.post("/v1/jobs", json=TEXT).status_code == 202
        full = client.post("/v1/jobs", json=PICTURE)
        assert (full.status_code, full.json()["code"], full.json()["allowed"]) == (429, "queue_full", 1)
        assert 0 < int(full.headers["retry-after"]) <= 20
        used = int(redis_client.info("memory")["used_memory"])
        redis_client.config_set("maxmemory", used)
        stuffed = client.post("/v1/jobs", json=TEXT)
        assert (stuffed.status_code, stuffed.json()["code"]) == (507, "store_full")
    assert len(list(redis_client.scan_iter(keys.job("*")))) == 1


def test_a_store_that_is_full_to_the_brim(client: TestClient, redis_client: redis.Redis) -> None:
    """Above Redis' own bound the first write fails, which is not the accept's: it was taken for a defect of ours."""
    assert client.post("/v1/jobs", json=PICTURE).status_code == 202  # so that its picture is there already
    redis_client.config_set("maxmemory", 1)
    try:
        again = client.post("/v1/jobs", json=PICTURE)
        marked = client.post("/v1/jobs", json=TEXT, headers={"idempotency-key": "new"})
        synchronous = client.post("/v1/systemone", json=PICTURE)
    finally:
        redis_client.config_set("maxmemory", 0)
    assert [(r.status_code, r.json()["code"]) for r in (again, marked)] == [(507, "store_full")] * 2
    assert (synchronous.status_code, synchronous.json()["detail"]["error_type"]) == (529, "overloaded")
    assert all(int(r.headers["retry-after"]) > 0 for r in (again, marked, synchronous))


def test_many_callers_wait_on_one_reader(
    http: httpx.Client, backend: FakeBackend, redis_client: redis.Redis, eventually: Eventually
) -> None:
    backend.hold.set()
    job_id = http.post("/v1/jobs", json=TEXT).json()["id"]
    with ThreadPoolExecutor(30) as pool:
        calls = [pool.submit(http.get, f"/v1/jobs/{job_id}", headers={"prefer": "wait=15"}) for _ in range(30)]
        eventually(lambda: "photocall_waiting_calls 30.0" in http.get("/metrics").text)
        assert redis_client.pubsub_numsub(keys.WAKE) == [(keys.WAKE.encode(), 1)]
        backend.hold.clear()
        assert [call.result().json()["status"] for call in calls] == ["succeeded"] * 30


def test_many_read_one_job_while_it_ends_and_none_sees_it_go_back(http: httpx.Client, backend: FakeBackend) -> None:
    """Reads share round trips: each still sees all that had happened when it was asked for."""
    backend.hold.set()
    job_id = http.post("/v1/jobs", json=TEXT).json()["id"]

    def poll(_: int) -> list[str]:
        seen: list[str] = []
        with httpx.Client(base_url=http.base_url, trust_env=False, timeout=20) as own:
            while not seen or seen[-1] != "succeeded":
                seen.append(own.get(f"/v1/jobs/{job_id}").json()["status"])
            seen.append(own.get(f"/v1/jobs/{job_id}").json()["status"])
        return seen

    with ThreadPoolExecutor(8) as pool:
        polling = pool.map(poll, range(8))
        backend.hold.clear()
        assert http.get(f"/v1/jobs/{job_id}", headers={"prefer": "wait=10"}).json()["status"] == "succeeded"
        assert http.get(f"/v1/jobs/{job_id}").json()["status"] == "succeeded"  # at once, though others read it too
        order = ["queued", "preparing", "running", "succeeded"]
        for seen in polling:
            assert [order.index(status) for status in seen] == sorted(order.index(status) for status in seen)


def test_a_job_is_shown_the_same_by_a_read_that_leaves_out_what_is_large(
    client: TestClient, backend: FakeBackend, redis_client: redis.Redis, eventually: Callable[..., Any]
) -> None:
    async def both(job_id: str) -> list[dict[str, Any]]:
        own = connect_async(redis_url)
        records = AsyncRecords(own, Wire(KEY.encode(), "test"))
        found = [job_object(record) for record in (await records.get(job_id), await records.look(job_id))]
        await own.aclose()
        return found

    redis_url = client.app.state.services.settings.redis_url  # type: ignore[attr-defined]
    body = {**PICTURE, "metadata": {"row": "7"}}
    backend.hold.set()
    waiting = client.post("/v1/jobs", json=body).json()["id"]
    eventually(lambda: client.get(f"/v1/jobs/{waiting}").json()["status"] == "preparing")
    whole, part = asyncio.run(both(waiting))
    assert whole == part
    backend.hold.clear()
    wait(client, waiting)
    whole, part = asyncio.run(both(waiting))
    assert whole == part
    assert part["result"]["answers"]["q"]["noul"] == 0.875

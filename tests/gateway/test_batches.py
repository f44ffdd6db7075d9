"""Batches: OpenAI's objects and errors, equal rows, failures that show, cancel, expiry, retries, growing results."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import redis
from starlette.testclient import TestClient

from photocall import keys
from photocall.asks import Ask
from photocall.jobs import JobRecord, Outcome, Refused
from photocall.settings import GatewaySettings
from photocall_gateway.app import create_app
from photocall_gateway.batches.batch import Head
from photocall_gateway.batches.places import Places, new_hex
from photocall_gateway.batches.shelf import BatchShelf
from tests.gateway.batch_helper import QUESTIONS, Caller, jsonl, line
from tests.gateway.conftest import POLICY, served
from tests.gateway.fake_backend import FakeBackend, answered

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def caller(client: TestClient) -> Caller:
    return Caller(client)


def test_every_row_is_answered_once_and_the_object_is_openais(caller: Caller, backend: FakeBackend) -> None:
    batch = caller.run(jsonl(*(line(f"row-{i}") for i in range(60))), metadata={"night": "run"})
    assert batch["status"] == "completed", batch
    assert batch["request_counts"] == {"total": 60, "completed": 60, "failed": 0}
    assert batch["errors"] is None
    assert batch["error_file_id"] is None
    assert batch["metadata"] == {"night": "run"}
    assert batch["usage"]["total_tokens"] == 60 * 43
    assert batch["created_at"] <= batch["in_progress_at"] <= batch["finalizing_at"] <= batch["completed_at"]
    done, failed = caller.results(batch)
    assert done.keys() == {f"row-{i}" for i in range(60)}
    assert not failed
    assert len(backend.seen) == 60
    row = done["row-7"]
    assert row["error"] is None
    assert row["response"]["status_code"] == 200
    assert row["response"]["body"]["answers"]["full"] == {"type": "noul", "noul": 0.875}


def test_nothing_of_a_batch_stays_in_redis(
    caller: Caller, backend: FakeBackend, redis_client: redis.Redis, eventually: Callable[..., Any]
) -> None:
    """A row whose line is written leaves no record, event, tombstone or picture behind."""
    bodies = [
        {"state": "see [image 1]", "questions": QUESTIONS, "images": [base64.b64encode(PNG + bytes([i])).decode()]}
        for i in range(20)
    ]
    batch = caller.run(jsonl(*(line(f"row-{i}", body) for i, body in enumerate(bodies))))
    assert batch["request_counts"]["completed"] == 20
    per_row = ("job:", "events:", "gone:", "idempotency:", "image:")

    def left() -> list[Any]:
        return [key for kind in per_row for key in cast(Any, redis_client.keys(f"{keys.PREFIX}{kind}*"))]

    eventually(lambda: not left())
    eventually(lambda: not redis_client.exists(keys.batch(batch["id"])))


@pytest.mark.parametrize(
    ("data", "code", "at"),
    [
        (b'{"custom_id": "a"\n', "invalid_json_line", 1),
        (b"\xff\xfe\n", "invalid_json_line", 1),
        (jsonl(line("a"), line("b"), line("a")), "duplicate_custom_id", 3),
        (jsonl(line("a"), line("b", url="/v1/decisions")), "url_mismatch", 2),
        (jsonl(line("a", {"model": "photocall-mini"}), line("b", {"model": "jev-latest"})), "model_mismatch", 2),
        (jsonl(line("a", {"model": "gpt-9"})), "model_not_found", None),
        (b"", "empty_file", None),
        (b"\n\n", "empty_file", None),
        (jsonl(line("a", method="GET")), "invalid_method", 1),
        (jsonl(line(""), line("b")), "invalid_request", 1),
        (b"x" * (1 << 21), "invalid_json_line", 1),
    ],
)
def test_an_input_that_cannot_be_run_fails_whole(caller: Caller, data: bytes, code: str, at: int | None) -> None:
    batch = caller.run(data)
    assert batch["status"] == "failed"
    assert batch["failed_at"] is not None
    assert batch["request_counts"] == {"total": 0, "completed": 0, "failed": 0}
    error = batch["errors"]["data"][0]
    assert (error["code"], error["line"]) == (code, at)
    assert batch["output_file_id"] is None


def test_a_row_fails_as_its_route_would_refuse_it(caller: Caller, backend: FakeBackend) -> None:
    def respond(ask: Ask, record: JobRecord) -> Outcome:
        return Refused("prompt_too_long", "too long") if ask.state == "long" else answered(ask, record)

    backend.respond = respond
    rows = [line("good"), line("bad", {"state": "x"}), line("long", {"state": "long", "questions": QUESTIONS})]
    batch = caller.run(jsonl(*rows))
    assert batch["status"] == "completed"
    assert batch["request_counts"] == {"total": 3, "completed": 1, "failed": 2}
    done, failed = caller.results(batch)
    assert done.keys() == {"good"}
    alone = caller.post("/v1/systemone", {"state": "x"})
    assert failed["bad"]["response"]["status_code"] == alone.status_code == 422
    assert failed["bad"]["response"]["body"] == alone.json()
    assert failed["long"]["response"]["status_code"] == 400
    assert failed["long"]["response"]["body"]["detail"]["error_type"] == "max_tokens_exceeded"


def test_a_batch_whose_rows_all_failed_does_not_look_like_success(caller: Caller, backend: FakeBackend) -> None:
    backend.respond = lambda ask, record: Refused("internal", "a stumble")
    batch = caller.run(jsonl(line("a"), line("b")))
    assert batch["status"] == "failed"
    assert batch["request_counts"] == {"total": 2, "completed": 0, "failed": 2}
    assert batch["errors"]["data"][0]["code"] == "all_rows_failed"
    assert batch["output_file_id"] is None
    assert len(caller.lines(batch["error_file_id"])) == 2


def test_equal_rows_are_answered_once(caller: Caller, backend: FakeBackend) -> None:
    same = {"state": "the same", "questions": QUESTIONS}
    rows = [line(f"same-{i}", same) for i in range(700)]  # more than are written at once
    rows.insert(300, line("other", {"state": "another", "questions": QUESTIONS}))
    batch = caller.run(jsonl(*rows))
    assert batch["request_counts"] == {"total": 701, "completed": 701, "failed": 0}
    assert len(backend.seen) == 2
    assert batch["usage"]["input_tokens"] == 2 * 42  # what was not computed costs nothing
    done, _ = caller.results(batch)
    assert done["same-650"]["response"]["body"] == done["same-0"]["response"]["body"]
    assert done["same-650"]["id"] != done["same-0"]["id"]


def test_failed_rows_are_run_again_and_no_others(caller: Caller, backend: FakeBackend) -> None:
    backend.respond = lambda ask, record: (
        answered(ask, record) if ask.state == "good" else Refused("internal", "a stumble")
    )
    bad = {"state": "bad", "questions": QUESTIONS}
    rows = [line("good", {"state": "good", "questions": QUESTIONS}), line("bad-1", bad), line("bad-2", bad)]
    file_id = caller.upload(jsonl(*rows))
    first = caller.ended(caller.start(file_id)["id"])
    assert first["request_counts"] == {"total": 3, "completed": 1, "failed": 2}
    assert caller.http.delete(f"/v1/files/{file_id}").status_code == 200  # the batch has the bytes for itself
    backend.respond = answered
    backend.seen.clear()
    second = caller.post(f"/v1/batches/{first['id']}/retry-failed").json()
    assert second["retry_of"] == first["id"]
    second = caller.ended(second["id"])
    assert second["status"] == "completed"
    assert second["request_counts"] == {"total": 2, "completed": 2, "failed": 0}
    assert caller.results(second)[0].keys() == {"bad-1", "bad-2"}
    assert len(backend.seen) == 1  # equal rows still are
    again = caller.post(f"/v1/batches/{second['id']}/retry-failed")
    assert (again.status_code, again.json()["error"]["code"]) == (409, "batch_state")


def test_cancel_keeps_what_is_answered_and_says_what_is_not(
    caller: Caller, backend: FakeBackend, eventually: Callable[..., Any], redis_client: redis.Redis
) -> None:
    backend.delay_s = 0.05
    started = caller.start(caller.upload(jsonl(*(line(f"row-{i}") for i in range(400)))))
    eventually(lambda: caller.batch(started["id"])["request_counts"]["completed"] > 3)
    cancelling = caller.post(f"/v1/batches/{started['id']}/cancel").json()
    assert cancelling["status"] == "cancelling"
    assert cancelling["cancelling_at"] is not None
    batch = caller.ended(started["id"])
    assert batch["status"] == "cancelled"
    done, failed = caller.results(batch)
    assert 3 < len(done) < 400
    assert done.keys() | failed.keys() == {f"row-{i}" for i in range(400)}
    assert {row["error"]["code"] for row in failed.values()} == {"batch_cancelled"}
    assert batch["request_counts"] == {"total": 400, "completed": len(done), "failed": len(failed)}
    assert caller.post(f"/v1/batches/{started['id']}/cancel").status_code == 409
    assert len(backend.seen) < 100  # what was in flight is not worked on either
    assert caller.post(f"/v1/batches/{started['id']}/retry-failed").json()["request_counts"]["total"] == len(failed)


def test_a_batch_expires_with_its_window(caller: Caller, backend: FakeBackend) -> None:
    backend.hold.set()
    batch = caller.ended(caller.start(caller.upload(jsonl(line("a"), line("b"))), completion_window="1s")["id"])
    assert batch["status"] == "expired"
    assert batch["expired_at"] >= batch["expires_at"] == batch["created_at"] + 1
    assert {row["error"]["code"] for row in caller.lines(batch["error_file_id"])} == {"batch_expired"}


def test_results_are_read_while_it_runs_and_resumed(
    caller: Caller, backend: FakeBackend, eventually: Callable[..., Any]
) -> None:
    backend.delay_s = 0.05  # it is far from done when it is held
    started = caller.start(caller.upload(jsonl(*(line(f"row-{i}") for i in range(120)))))
    running = eventually(lambda: (b := caller.batch(started["id"]))["output_file_id"] and b)
    backend.hold.set()
    assert running["status"] == "in_progress"
    path = f"/v1/files/{running['output_file_id']}/content"
    first = caller.get(path)
    assert first.headers["x-photocall-growing"] == "true"
    assert first.content.endswith(b"\n")  # only whole lines, however far it is
    lines = first.content.splitlines()
    backend.delay_s = 0.0
    backend.hold.clear()
    batch = caller.ended(started["id"])
    rest = caller.get(f"{path}?after={len(lines)}")
    ranged = caller.get(path, range=f"bytes={len(first.content)}-")
    assert ranged.status_code == 206
    assert ranged.content == rest.content
    whole = caller.get(path).content
    assert first.content + rest.content == whole
    assert len(whole.splitlines()) == batch["request_counts"]["completed"] == 120
    assert ranged.headers["content-range"] == f"bytes {len(first.content)}-{len(whole) - 1}/{len(whole)}"
    assert caller.get(path, range="bytes=-10").content == whole[-10:]
    assert caller.get(path, range=f"bytes={len(whole)}-").status_code == 416
    assert caller.get(f"{path}?after=121").status_code == 416
    assert caller.get(f"{path}?after=120").content == b""
    assert caller.get(f"{path}?after=7&limit=5").content.splitlines() == whole.splitlines()[7:12]
    assert caller.get(f"{path}?limit=500").content == whole
    assert caller.get(f"{path}?after=119&limit=2").content.splitlines() == whole.splitlines()[119:]
    assert caller.get(f"{path}?limit=0").json()["error"]["param"] == "limit"
    assert caller.get(f"/v1/files/{batch['input_file_id']}/content?limit=1").json()["error"]["param"] == "limit"


def test_the_other_two_shapes(caller: Caller, backend: FakeBackend) -> None:
    question = {
        "type": "choice",
        "name": "which",
        "instructions": "Which?",
        "choices": [{"value": "a"}, {"value": True}],
    }
    body = {"model": "photocall-mini", "input": "A shelf", "questions": [question]}
    batch = caller.run(
        jsonl(line("d", body, url="/v1/decisions"), line("e", {"input": 3}, url="/v1/decisions")), "/v1/decisions"
    )
    assert batch["model"] == "photocall-mini"
    done, failed = caller.results(batch)
    assert done["d"]["response"]["body"] == caller.post("/v1/decisions", body).json()
    assert failed["e"]["response"]["body"] == caller.post("/v1/decisions", {"input": 3}).json()
    native = {"state": "s", "questions": QUESTIONS, "metadata": {"mine": "1"}, "deadline_s": 60}
    batch = caller.run(jsonl(line("j", native, url="/v1/jobs"), line("k", {"state": 1}, url="/v1/jobs")), "/v1/jobs")
    done, failed = caller.results(batch)
    job = done["j"]["response"]["body"]
    assert (job["object"], job["status"], job["priority"], job["metadata"]) == (
        "job",
        "succeeded",
        "batch",
        {"mine": "1"},
    )
    assert job["result"]["answers"]["full"]["noul"] == 0.875
    problem = failed["k"]["response"]["body"]
    assert (failed["k"]["response"]["status_code"], problem["code"]) == (422, "invalid_field")


def test_a_batch_waits_while_others_fill_the_queue_and_leaves_them_half(
    caller: Caller, backend: FakeBackend, eventually: Callable[..., Any]
) -> None:
    backend.hold.set()
    for i in range(POLICY.max_jobs // 2 - 4):
        assert caller.post("/v1/jobs", {"state": f"other {i}", "questions": QUESTIONS}).status_code == 202
    started = caller.start(caller.upload(jsonl(*(line(f"row-{i}") for i in range(100)))))
    for _ in range(30):
        assert len(caller.get("/v1/jobs?limit=100").json()["data"]) <= POLICY.max_jobs // 2
        time.sleep(0.03)
    eventually(lambda: len(caller.get("/v1/jobs?limit=100").json()["data"]) > POLICY.max_jobs // 2 - 4)  # not starved
    backend.hold.clear()
    assert caller.ended(started["id"])["request_counts"]["completed"] == 100


def test_a_full_store_is_waited_out(
    caller: Caller, backend: FakeBackend, redis_client: redis.Redis, eventually: Callable[..., Any]
) -> None:
    used = int(cast(Any, redis_client.info("memory"))["used_memory"])
    redis_client.config_set("maxmemory", int(used / 0.8))
    redis_client.set("filler", b"x" * 100_000)
    started = caller.start(caller.upload(jsonl(*(line(f"row-{i}") for i in range(10)))))
    eventually(lambda: caller.batch(started["id"])["paused"] == "store_full")
    assert caller.batch(started["id"])["request_counts"]["failed"] == 0
    redis_client.config_set("maxmemory", 0)
    batch = caller.ended(started["id"])
    assert (batch["status"], batch["paused"]) == ("completed", None)


def test_a_job_that_vanishes_is_asked_again(
    caller: Caller, backend: FakeBackend, redis_client: redis.Redis, eventually: Callable[..., Any]
) -> None:
    backend.hold.set()
    started = caller.start(caller.upload(jsonl(line("a"))))
    [job] = eventually(lambda: caller.http.get("/v1/jobs").json()["data"])
    assert caller.http.delete(f"/v1/jobs/{job['id']}").status_code == 204
    backend.hold.clear()
    assert caller.ended(started["id"])["request_counts"] == {"total": 1, "completed": 1, "failed": 0}


def test_a_dry_run_costs_nothing_and_goes_by_what_was_measured(
    caller: Caller, backend: FakeBackend, redis_client: redis.Redis, settings: GatewaySettings
) -> None:
    rows = [line(f"row-{i}") for i in range(30)] + [line("twin", line("row-0")["body"]), line("bad", {"state": "x"})]
    file_id = caller.upload(jsonl(*rows))
    body = {"input_file_id": file_id, "endpoint": "/v1/systemone", "completion_window": "24h"}
    guess = caller.post("/v1/batches?dry_run=true", body).json()
    assert (guess["object"], guess["rows"], guess["distinct_rows"]) == ("batch.estimate", 32, 31)
    assert guess["measured"] is False
    assert 0 < guess["refused_share"] < 0.2
    measured = {"rows_per_s": 2.0, "tokens_per_char": 0.5, "tokens_per_picture": 140.0, "output_tokens_per_row": 3.0}
    redis_client.set(keys.BATCH_PACE, json.dumps(measured))
    found = caller.post("/v1/batches?dry_run=true", body).json()
    assert (found["measured"], found["seconds"], found["output_tokens"]) == (True, 15.5, 93)
    assert found["input_tokens"] == pytest.approx(guess["input_tokens"] / 0.3 * 0.5, rel=0.01)
    assert not backend.seen
    assert caller.http.get("/v1/batches").json()["data"] == []
    assert not list(settings.data.glob(".dry-run-*"))
    broken = caller.upload(jsonl(line("a"), line("a")))
    errors = caller.post("/v1/batches?dry_run=true", {**body, "input_file_id": broken}).json()["errors"]
    assert errors["data"][0]["code"] == "duplicate_custom_id"


def test_lists_are_paged(caller: Caller, backend: FakeBackend) -> None:
    file_id = caller.upload(jsonl(line("a")))
    made = [caller.start(file_id)["id"] for _ in range(5)]
    for batch_id in made:
        caller.ended(batch_id)
    page = caller.get("/v1/batches?limit=2").json()
    assert page["has_more"] is True
    assert [batch["id"] for batch in page["data"]] == made[:-3:-1]
    rest = caller.get(f"/v1/batches?limit=5&after={page['last_id']}").json()
    assert [batch["id"] for batch in rest["data"]] == made[2::-1]
    assert rest["has_more"] is False
    assert caller.get("/v1/batches?after=batch_nothing").status_code == 404
    assert caller.get("/v1/batches?limit=0").status_code == 422


def test_another_keys_files_and_batches_are_unknown(
    settings: GatewaySettings, backend: FakeBackend, tmp_path: Path
) -> None:
    import hashlib
    from dataclasses import replace

    file = tmp_path / "keys"
    file.write_text("".join(f"{name}:{hashlib.sha256(name.encode()).hexdigest()}\n" for name in ("ann", "bob")))
    with TestClient(create_app(replace(settings, api_keys=file), POLICY), base_url="http://127.0.0.1:8080") as http:
        ann, bob = Caller(http, "ann"), Caller(http, "bob")
        file_id = ann.upload(jsonl(line("a")))
        batch = ann.ended(ann.start(file_id)["id"])
        for path in (
            f"/v1/files/{file_id}",
            f"/v1/files/{file_id}/content",
            f"/v1/files/{batch['output_file_id']}",
            f"/v1/files/{batch['output_file_id']}/content",
            f"/v1/batches/{batch['id']}",
        ):
            assert ann.get(path).status_code == 200
            assert bob.get(path).status_code == 404
        assert bob.post(f"/v1/batches/{batch['id']}/cancel").status_code == 404
        assert bob.post(f"/v1/batches/{batch['id']}/retry-failed").status_code == 404
        stolen = bob.post("/v1/batches", {"input_file_id": file_id, "endpoint": "/v1/systemone"})
        assert (stolen.status_code, stolen.json()["error"]["code"]) == (404, "unknown_file")
        assert http.delete(f"/v1/files/{file_id}", headers=bob.headers).status_code == 404
        assert bob.get("/v1/files").json()["data"] == []
        assert bob.get("/v1/batches").json()["data"] == []
        assert len(ann.get("/v1/files").json()["data"]) == 2


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"endpoint": "/v1/chat/completions", "input_file_id": "x"}, 422),
        ({"endpoint": "/v1/systemone"}, 422),
        ({"endpoint": "/v1/systemone", "input_file_id": "file-../../etc/passwd"}, 404),
        ({"endpoint": "/v1/systemone", "input_file_id": 7}, 422),
        ({"endpoint": "/v1/systemone", "input_file_id": "x", "completion_window": "90d"}, 422),
        (
            {"endpoint": "/v1/systemone", "input_folder": "pictures", "request": {"state": "", "questions": QUESTIONS}},
            422,
        ),
        ({"endpoint": "/v1/systemone", "input_file_id": "x", "request": {"questions": {}}}, 422),
        ({"endpoint": "/v1/systemone", "input_file_id": "x", "metadata": {"a": 1}}, 422),
    ],
)
def test_a_batch_that_cannot_be_made_is_refused_in_openais_shape(caller: Caller, body: Any, status: int) -> None:
    found = caller.post("/v1/batches", body)
    assert found.status_code == status, found.text
    assert found.json()["error"]["code"] in ("invalid_field", "unknown_file")


def test_an_idempotency_key_is_one_batch_and_one_body(
    caller: Caller, backend: FakeBackend, settings: GatewaySettings
) -> None:
    backend.respond = lambda ask, record: Refused("internal", "a stumble")
    body = {"input_file_id": caller.upload(jsonl(line("a"))), "endpoint": "/v1/systemone", "metadata": {"n": "1"}}
    keyed = {"idempotency-key": "k", **caller.headers}

    def post(path: str, sent: Any) -> Any:
        return caller.http.post(path, json=sent, headers=keyed)

    refused = post("/v1/batches", {**body, "input_file_id": f"file-{'0' * 32}"})
    assert refused.status_code == 404, "and the key is free for the corrected body"
    first, again = post("/v1/batches", body), post("/v1/batches", dict(reversed(body.items())))
    assert first.json()["id"] == again.json()["id"]
    assert len(caller.get("/v1/batches").json()["data"]) == 1
    other = post("/v1/batches", {**body, "metadata": {"n": "2"}})
    assert (other.status_code, other.json()["error"]["code"]) == (422, "idempotency_mismatch")
    caller.ended(first.json()["id"])
    caller.http.delete(f"/v1/batches/{first.json()['id']}")  # as if the gateway had died before it was made
    assert post("/v1/batches", body).json()["id"] == first.json()["id"]
    ended = caller.ended(first.json()["id"])
    assert post(f"/v1/batches/{ended['id']}/retry-failed", {}).status_code == 422, "the key stands for another body"
    keyed["idempotency-key"] = "retry"
    retries = {post(f"/v1/batches/{ended['id']}/retry-failed", {}).json()["id"] for _ in range(3)}
    assert len(retries) == 1
    assert not list(settings.data.rglob(".batch_*"))


def test_a_damaged_batch_stands_in_nobodys_way(
    caller: Caller, backend: FakeBackend, settings: GatewaySettings, caplog: pytest.LogCaptureFixture
) -> None:
    """One ledger that could not be read kept every later batch from being run, and the list from being read."""
    backend.hold.set()
    broken = caller.start(caller.upload(jsonl(line("a"))))["id"]
    caller.post(f"/v1/batches/{broken}/cancel")
    caller.ended(broken)
    places = Places(settings.data)
    directory = places.batch("local", broken)
    for name in ("ledger.sqlite-wal", "ledger.sqlite-shm"):
        (directory / name).unlink(missing_ok=True)
    (directory / "ledger.sqlite").write_bytes(b"no database at all" * 100)
    places.marker("local", broken).touch()
    backend.hold.clear()
    batch = caller.run(jsonl(line("b")))
    assert batch["status"] == "completed"
    found = caller.get(f"/v1/batches/{broken}")
    assert (found.status_code, found.json()["error"]["code"]) == (500, "batch_damaged")
    assert [shown["id"] for shown in caller.get("/v1/batches").json()["data"]] == [batch["id"]]
    assert caller.get("/v1/files").status_code == 200
    assert sum("cannot be read" in record.message for record in caplog.records) == 1, "said once, not each second"
    BatchShelf(places, 10**6).sweep(directory.parent, time.time())
    assert directory.exists()
    assert caller.http.delete(f"/v1/batches/{broken}").status_code == 200
    assert not directory.exists()
    assert not places.marker("local", broken).exists()


def test_two_who_make_one_batch_at_once_make_one(settings: GatewaySettings, tmp_path: Path) -> None:
    """The one that comes second finds the first's, and takes nothing of it away."""
    places = Places(tmp_path / "state")
    places.make()
    shelf = BatchShelf(places, 60)
    source = tmp_path / "rows"
    source.write_bytes(jsonl(line("a")))
    head = Head(f"batch_{new_hex()}", "ann", "/v1/systemone", "jsonl", "file-x", "24h", 1, 2)
    assert shelf.create(head, source) == shelf.create(head, source)
    assert places.marker("ann", head.id).exists()
    assert [path.name for path in places.batches("ann").iterdir()] == [head.id]


def test_a_gateway_that_stops_hands_its_batches_back_at_once(
    settings: GatewaySettings, backend: FakeBackend, redis_client: redis.Redis, eventually: Callable[..., Any]
) -> None:
    """Not only when its lease has run out: the next gateway goes on within a second or two, and nothing runs twice."""
    backend.delay_s = 0.02
    with served(settings) as address, httpx.Client(base_url=address, trust_env=False) as http:
        caller = Caller(http)
        started = caller.start(caller.upload(jsonl(*(line(f"row-{i}") for i in range(60)))))
        eventually(lambda: caller.batch(started["id"])["request_counts"]["completed"] >= 5)
        backend.hold.set()  # it is not done before the gateway has stopped
    held = redis_client.hget(keys.batch(started["id"]), "until")
    assert float(cast(Any, held)) <= time.time()
    backend.hold.clear()
    with served(settings) as address, httpx.Client(base_url=address, trust_env=False) as http:
        caller = Caller(http)
        batch = caller.ended(started["id"])
        assert batch["request_counts"] == {"total": 60, "completed": 60, "failed": 0}
        caller.results(batch)
    assert len(backend.seen) == len(set(backend.seen)) == 60

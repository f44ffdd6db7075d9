"""What is heard of a batch: events that resume and outlive a gateway, its webhook, a full disk; and its deletion."""

from __future__ import annotations

import errno
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import redis
from starlette.testclient import TestClient

from photocall import keys
from photocall.jobs import Refused
from photocall.settings import GatewaySettings
from photocall_gateway import events as events_file
from photocall_gateway.app import create_app
from photocall_gateway.batches import book, ledger
from photocall_gateway.batches.batch import BatchStatus
from photocall_gateway.batches.feeder import Feeder
from photocall_gateway.batches.leases import BatchLeases
from photocall_gateway.batches.news import BatchNews
from photocall_gateway.batches.places import ERRORS, OUTPUT, Places
from photocall_gateway.sweeping import SweeperThread
from tests.gateway.batch_helper import QUESTIONS, Caller, jsonl, line
from tests.gateway.conftest import POLICY, served
from tests.gateway.fake_backend import FakeBackend
from tests.gateway.test_events import parse
from tests.web_server import WebServer, page, web_server

Eventually = Callable[..., Any]
LOCAL = "local"


@pytest.fixture
def caller(client: TestClient) -> Caller:
    return Caller(client)


@pytest.fixture
def web() -> Iterator[WebServer]:
    with web_server() as found:
        yield found


@pytest.fixture
def heard(web: WebServer) -> list[dict[str, Any]]:
    """What came to /hook."""
    found: list[dict[str, Any]] = []

    def hook(request: BaseHTTPRequestHandler) -> None:
        found.append(json.loads(request.rfile.read(int(request.headers["content-length"]))))
        page(b"", 204)(request)

    web.pages["/hook"] = hook
    return found


@pytest.fixture
def calling(settings: GatewaySettings, monkeypatch: pytest.MonkeyPatch, web: WebServer) -> Iterator[Caller]:
    """The app, whose outgoing calls find every name at the test's server."""
    monkeypatch.setattr("photocall_gateway.app.Caller", lambda rules, timeout_s, max_bytes: web.caller(timeout_s))
    monkeypatch.setattr("photocall_gateway.app.SweeperThread", lambda sweeper: SweeperThread(sweeper, 0.05))
    with TestClient(create_app(settings, POLICY), base_url="http://127.0.0.1:8080") as found:
        yield Caller(found)


def rows(count: int) -> bytes:
    return jsonl(*(line(f"row-{i}") for i in range(count)))


def events(caller: Caller, batch_id: str, last: str | None = None) -> list[dict[str, Any]]:
    """All events of a batch that has ended, behind `last`."""
    found = caller.get(f"/v1/batches/{batch_id}/events", **({} if last is None else {"last-event-id": last}))
    assert found.status_code == 200, found.text
    return parse(found.text)


# --- events -------------------------------------------------------------------------------------------------------


def test_the_stream_ends_with_the_batch(caller: Caller, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end is told of by a wake, not found out by looking again after a while."""
    monkeypatch.setattr(events_file, "REREAD_S", 600.0)
    backend.delay_s = 0.05
    started = caller.start(caller.upload(rows(20)))
    whole = events(caller, started["id"])
    assert whole[-1]["data"]["status"] == "completed"


def test_events_from_the_beginning_to_the_end_and_from_any_of_them(caller: Caller, backend: FakeBackend) -> None:
    batch = caller.run(rows(20))
    whole = events(caller, batch["id"])
    assert {event["event"] for event in whole} == {"batch_progress"}
    statuses = [event["data"]["status"] for event in whole]
    assert list(dict.fromkeys(statuses)) == ["validating", "in_progress", "finalizing", "completed"]
    last = whole[-1]["data"]
    counts = {"total": 20, "completed": 20, "failed": 0}
    assert last == {"batch_id": batch["id"], "status": "completed", "paused": "", **counts}
    assert statuses.count("completed") == 1
    for i, event in enumerate(whole):
        assert events(caller, batch["id"], event["id"]) == whole[i + 1 :]


def test_events_come_while_it_runs(http: httpx.Client, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book, "TELL_S", 0.0)
    backend.hold.set()
    caller = Caller(http)
    started = caller.start(caller.upload(rows(40)))
    assert started["urls"]["events"] == f"/v1/batches/{started['id']}/events"
    with http.stream("GET", started["urls"]["events"]) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = response.iter_lines()
        told = (json.loads(text[6:]) for text in lines if text.startswith("data: "))
        assert next(data for data in told if data["status"] == "in_progress")["total"] == 40
        backend.delay_s = 0.05
        backend.hold.clear()
        counts = [data["completed"] for data in told]
    assert counts == sorted(counts)
    assert len(set(counts)) > 3, "counted on the way"
    assert counts[-1] == 40


def test_when_its_events_are_gone_there_is_a_snapshot(
    caller: Caller, backend: FakeBackend, redis_client: redis.Redis, eventually: Eventually
) -> None:
    batch = caller.run(rows(2))
    last = events(caller, batch["id"])[-1]["id"]
    assert redis_client.ttl(keys.batch_events(batch["id"])) in range(POLICY.job_ttl_s + 1)
    redis_client.delete(keys.batch_events(batch["id"]))
    for after in (None, last):
        [shown] = events(caller, batch["id"], after)
        assert (shown["event"], shown["data"]) == ("snapshot", caller.batch(batch["id"]))


def test_the_end_is_told_by_the_next_gateway_once(
    settings: GatewaySettings, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, eventually: Eventually,
    redis_client: redis.Redis,
) -> None:  # fmt: skip
    """Killed between the end of the batch and telling it, or between that and noting so: the marker stands for it."""
    with TestClient(create_app(settings, POLICY), base_url="http://127.0.0.1:8080") as first:
        batch = Caller(first).run(rows(3), webhook={"url": "https://hooks.example/"})
        whole = events(Caller(first), batch["id"])
    marker = Places(settings.data).marker(LOCAL, batch["id"])
    for told in (False, True):
        if told:
            redis_client.hset(keys.batch(batch["id"]), mapping={"fence": 7, "told": 1})
        else:
            redis_client.delete(keys.batch_events(batch["id"]), keys.webhook(batch["id"]))
        marker.touch()
        with TestClient(create_app(settings, POLICY), base_url="http://127.0.0.1:8080") as second:
            eventually(lambda: not marker.exists())
            found = events(Caller(second), batch["id"])
        assert [event["data"] for event in found] == [whole[-1]["data"]]
        assert redis_client.hget(keys.webhook(batch["id"]), "event") == b"batch.completed"


def test_a_batch_is_followed_by_its_owner_only(client: TestClient, backend: FakeBackend, caller: Caller) -> None:
    batch = caller.run(rows(1))
    assert caller.get("/v1/batches/batch_000000000000000000000000/events").status_code == 404
    bad = caller.get(f"/v1/batches/{batch['id']}/events", **{"last-event-id": "x"})
    assert (bad.status_code, bad.json()["error"]["param"]) == (422, "Last-Event-ID")
    desk = client.app.state.services.desk  # type: ignore[attr-defined]
    assert client.portal is not None
    with pytest.raises(Exception, match="No such Batch"):
        client.portal.call(desk.batch, "somebody else", batch["id"])


# --- webhooks -----------------------------------------------------------------------------------------------------


def test_the_end_of_a_batch_is_sent_to_its_webhook(
    calling: Caller, backend: FakeBackend, web: WebServer, heard: list[dict[str, Any]], eventually: Eventually
) -> None:
    webhook = {"url": web.url("/hook", "hooks.example"), "events": ["batch.completed", "batch.cancelled"]}
    batch = calling.run(rows(3), webhook=webhook)
    eventually(lambda: calling.batch(batch["id"])["webhook"]["state"] == "delivered")
    [event] = heard
    assert event["type"] == "batch.completed"
    assert {**event["data"], "webhook": None} == {**batch, "webhook": None}
    shown = calling.batch(batch["id"])["webhook"]
    assert (shown["url"], shown["events"]) == (webhook["url"], webhook["events"])
    assert [attempt["status"] for attempt in shown["attempts"]] == [204]


def test_every_end_has_its_event(
    calling: Caller, backend: FakeBackend, web: WebServer, heard: list[dict[str, Any]], eventually: Eventually
) -> None:
    webhook = {"url": web.url("/hook", "hooks.example")}
    backend.respond = lambda ask, record: Refused("internal", "a stumble")
    failed = calling.run(rows(1), webhook=webhook)
    backend.hold.set()
    expired = calling.run(rows(2), webhook=webhook, completion_window="1s")
    cancelled = calling.start(calling.upload(rows(2)), webhook=webhook)
    calling.post(f"/v1/batches/{cancelled['id']}/cancel")
    silent = calling.run(b"", webhook={**webhook, "events": ["batch.completed"]})
    eventually(lambda: len(heard) == 3)
    assert {(event["type"], event["data"]["id"]) for event in heard} == {
        ("batch.failed", failed["id"]), ("batch.expired", expired["id"]), ("batch.cancelled", cancelled["id"]),
    }  # fmt: skip
    assert calling.batch(silent["id"])["webhook"]["state"] is None


@pytest.mark.parametrize(
    ("webhook", "param"),
    [
        ("https://hooks.example", "webhook"),
        ({"url": "http://hooks.example"}, "webhook.url"),
        ({"url": "https://hooks.example", "events": ["job.failed"]}, "webhook.events"),
    ],
)
def test_a_bad_webhook(caller: Caller, webhook: Any, param: str) -> None:
    file_id = caller.upload(rows(1))
    found = caller.post("/v1/batches", {"input_file_id": file_id, "endpoint": "/v1/systemone", "webhook": webhook})
    assert (found.status_code, found.json()["error"]["param"]) == (422, param)


# --- deletion -----------------------------------------------------------------------------------------------------


def test_a_deleted_batch_leaves_nothing(
    caller: Caller,
    backend: FakeBackend,
    settings: GatewaySettings,
    redis_client: redis.Redis,
    eventually: Callable[..., Any],
) -> None:
    hook = {"url": "https://hooks.example/"}
    kept, gone = caller.run(rows(2)), caller.run(rows(2), webhook=hook)
    eventually(lambda: not any(settings.data.rglob("live/*")))  # what there is to tell of their ends has been told
    deleted = caller.http.delete(f"/v1/batches/{gone['id']}")
    assert (deleted.status_code, deleted.json()) == (200, {"id": gone["id"], "object": "batch", "deleted": True})
    for path in (
        f"/v1/batches/{gone['id']}",
        f"/v1/batches/{gone['id']}/events",
        f"/v1/files/{gone['output_file_id']}",
        f"/v1/files/{gone['output_file_id']}/content",
    ):
        assert caller.get(path).status_code == 404
    assert caller.http.delete(f"/v1/batches/{gone['id']}").status_code == 404
    assert not [path for path in settings.data.rglob("*") if gone["id"] in path.name]
    assert not [key for key in cast(Any, redis_client.keys("*")) if gone["id"].encode() in key]
    assert redis_client.zscore(keys.WEBHOOKS, gone["id"]) is None
    assert [batch["id"] for batch in caller.get("/v1/batches").json()["data"]] == [kept["id"]]
    # A list goes on behind a batch that is gone, and the input is a file of its own.
    assert [batch["id"] for batch in caller.get(f"/v1/batches?after={gone['id']}").json()["data"]] == [kept["id"]]
    assert caller.get(f"/v1/files/{gone['input_file_id']}").status_code == 200


@pytest.mark.parametrize("later", [False, True])
def test_a_batch_deleted_as_its_end_is_told_owes_nothing(
    settings: GatewaySettings,
    backend: FakeBackend,
    monkeypatch: pytest.MonkeyPatch,
    redis_client: redis.Redis,
    eventually: Eventually,
    later: bool,
) -> None:
    """Between the end in the ledger and the telling of it; `later`: by a gateway that has just taken the batch."""
    tell_end, take = BatchNews.tell_end, BatchLeases.take
    hook = {"url": "https://hooks.example/"}
    told: list[bool] = []
    with TestClient(create_app(settings, POLICY), base_url="http://127.0.0.1:8080") as client:
        desk = client.app.state.services.desk  # type: ignore[attr-defined]

        async def deleted_and_told(self: BatchNews, batch: Any, fence: int) -> bool:
            await desk.delete_batch(LOCAL, batch.head.id)
            told.append(await tell_end(self, batch, fence))
            return told[-1]

        async def deleted_and_taken(self: BatchLeases, batch_id: str, fence_before: int) -> int | None:
            await desk.delete_batch(LOCAL, batch_id)
            fence = await take(self, batch_id, fence_before)
            told.append(False)  # only now: what it wrote is there, and the keeper has yet to take it back
            return fence

        caller = Caller(client)
        if later:
            batch = caller.run(rows(1), webhook=hook)
            marker = Places(settings.data).marker(LOCAL, batch["id"])
            eventually(lambda: not marker.exists())
            monkeypatch.setattr(BatchLeases, "take", deleted_and_taken)
            marker.touch()
        else:
            monkeypatch.setattr(BatchNews, "tell_end", deleted_and_told)
            batch = caller.start(caller.upload(rows(1)), webhook=hook)
        eventually(lambda: told)
        eventually(lambda: not any(settings.data.rglob(f"*{batch['id']}*")))
        eventually(lambda: not [key for key in cast(Any, redis_client.keys("*")) if batch["id"].encode() in key])
        assert redis_client.zscore(keys.WEBHOOKS, batch["id"]) is None
    assert told == [False]
    assert not [key for key in cast(Any, redis_client.keys("*")) if batch["id"].encode() in key]


def test_of_two_that_delete_a_batch_one_is_too_late(
    caller: Caller, backend: FakeBackend, settings: GatewaySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = caller.run(rows(1))
    rename = Path.rename

    def late(self: Path, target: Path) -> Path:
        monkeypatch.undo()
        shutil.rmtree(self)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", late)
    assert caller.http.delete(f"/v1/batches/{gone['id']}").status_code == 404


def test_a_batch_that_runs_is_not_deleted(caller: Caller, backend: FakeBackend) -> None:
    backend.hold.set()
    started = caller.start(caller.upload(rows(2)))
    refused = caller.http.delete(f"/v1/batches/{started['id']}")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "batch_state")
    assert "cancel it, and wait for its end" in refused.json()["error"]["message"]
    caller.post(f"/v1/batches/{started['id']}/cancel")
    caller.ended(started["id"])
    assert caller.http.delete(f"/v1/batches/{started['id']}").status_code == 200


# --- a full disk --------------------------------------------------------------------------------------------------


class FullDisk:
    """While `full`, result files take nothing, and the ledger no more pages: SQLite itself says that it is full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        self.refused = 0
        write_at, write = ledger._write_at, ledger.Ledger._write

        def write_results(path: Path, offset: int, data: bytes) -> None:
            if self.full and path.name in (OUTPUT, ERRORS):
                write_at(path, offset, data[: len(data) // 2])  # as much as still fits
                self.refused += 1
                raise OSError(28, "No space left on device")
            write_at(path, offset, data)

        def begin(found: ledger.Ledger, check: bool = True) -> Any:
            found._db.execute(f"PRAGMA max_page_count = {1 if self.full else 1 << 30}")
            return write(found, check)

        monkeypatch.setattr(book, "DISK_PAUSE_S", 0.05)
        monkeypatch.setattr(ledger, "_write_at", write_results)
        monkeypatch.setattr(ledger.Ledger, "_write", begin)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FullDisk:
    return FullDisk(monkeypatch)


def test_a_disk_that_fills_up_pauses_the_batch_and_loses_nothing(
    caller: Caller, backend: FakeBackend, disk: FullDisk, eventually: Eventually
) -> None:
    backend.delay_s = 0.02
    started = caller.start(caller.upload(rows(60)))
    eventually(lambda: caller.batch(started["id"])["request_counts"]["completed"] > 3)
    disk.full = True
    eventually(lambda: disk.refused > 3)
    paused = eventually(lambda: (b := caller.batch(started["id"]))["paused"] == "disk_full" and b)
    assert paused["status"] == "in_progress"
    read = caller.lines(paused["output_file_id"])
    assert len(read) == paused["request_counts"]["completed"], "what is there stays whole and readable"
    disk.full = False
    batch = caller.ended(started["id"])
    assert batch["request_counts"] == {"total": 60, "completed": 60, "failed": 0}
    assert batch["paused"] is None
    assert caller.results(batch)[0].keys() == {f"row-{i}" for i in range(60)}
    assert len(backend.seen) == len(set(backend.seen)) == 60, "no row was asked twice"
    assert "disk_full" in [event["data"]["paused"] for event in events(caller, batch["id"])]


def test_an_input_that_cannot_be_read_is_not_the_store_s_fault(
    caller: Caller, backend: FakeBackend, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book, "DISK_PAUSE_S", 0.05)
    broken = True
    feed = Feeder.feed

    async def fails(self: Feeder) -> None:
        if broken:
            raise OSError(errno.EIO, "the folder is gone")
        await feed(self)

    monkeypatch.setattr(Feeder, "feed", fails)
    started = caller.start(caller.upload(rows(3)))
    eventually(lambda: caller.batch(started["id"])["paused"] == "disk_error")
    broken = False
    assert caller.ended(started["id"])["request_counts"] == {"total": 3, "completed": 3, "failed": 0}


def test_a_disk_that_is_full_from_the_beginning(
    caller: Caller, backend: FakeBackend, disk: FullDisk, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger cannot even note why it waits: Redis does."""
    add_rows = ledger.Ledger.add_rows

    def fail_once(found: ledger.Ledger, new: Any) -> list[ledger.Row]:
        disk.full = True
        return add_rows(found, new)

    monkeypatch.setattr(ledger.Ledger, "add_rows", fail_once)
    same = {"state": "the same", "questions": QUESTIONS}
    started = caller.start(caller.upload(jsonl(*(line(f"row-{i}", same) for i in range(2500)))))
    paused = eventually(lambda: (b := caller.batch(started["id"]))["paused"] and b)
    assert (paused["status"], paused["paused"]) == ("validating", "disk_full")
    monkeypatch.setattr(ledger.Ledger, "add_rows", add_rows)
    disk.full = False
    batch = caller.ended(started["id"])
    assert batch["status"] == "completed"
    assert batch["request_counts"]["total"] == 2500, "read from the beginning, not from where it broke off"


def test_a_wish_that_cannot_be_written_is_refused_clearly(
    caller: Caller, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend.hold.set()
    file_id = caller.upload(rows(1))
    started = caller.start(file_id)

    def full(*_: object) -> None:
        db = sqlite3.connect(":memory:")
        db.execute("PRAGMA max_page_count = 1")
        db.execute("CREATE TABLE t (x)")

    monkeypatch.setattr(ledger.Ledger, "ask_cancel", full)
    monkeypatch.setattr(ledger.Ledger, "create", full)
    body = {"input_file_id": file_id, "endpoint": "/v1/systemone"}
    for path, sent in ((f"/v1/batches/{started['id']}/cancel", {}), ("/v1/batches", body)):
        found = caller.post(path, sent)
        assert (found.status_code, found.json()["error"]["code"]) == (507, "disk_full")


def test_a_gateway_leaves_a_batch_whose_disk_is_full(
    settings: GatewaySettings, backend: FakeBackend, disk: FullDisk, eventually: Eventually
) -> None:
    with served(settings) as address, httpx.Client(base_url=address, trust_env=False) as http:
        caller = Caller(http)
        backend.hold.set()
        started = caller.start(caller.upload(rows(30)))
        eventually(lambda: caller.batch(started["id"])["status"] == "in_progress")
        disk.full = True
        backend.hold.clear()
        eventually(lambda: disk.refused)
    disk.full = False
    with served(settings) as address, httpx.Client(base_url=address, trust_env=False) as http:
        batch = Caller(http).ended(started["id"])
        assert batch["status"] == BatchStatus.COMPLETED
        assert Caller(http).results(batch)[0].keys() == {f"row-{i}" for i in range(30)}

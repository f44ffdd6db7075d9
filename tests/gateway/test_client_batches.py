"""Batches in the client, sync and async, against the real app behind a real port."""

from __future__ import annotations

import asyncio
import io
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from photocall.asks import Ask
from photocall.client import AsyncClient, Batch, Client, JobFailed, NotAnswered, NotFound, RequestRefused
from photocall.client import batch_flows as flows
from photocall.client.flows import Call, call
from photocall.jobs import JobRecord, Outcome, Refused
from photocall.settings import GatewaySettings
from tests.gateway.conftest import served
from tests.gateway.fake_backend import FakeBackend, answered
from tests.gateway.key_helper import keyed

PNG = b"\x89PNG\r\n\x1a\n"
QUESTIONS = {"full": {"type": "noul", "instructions": "Is it full?"}}
PARCEL = {"state": "A parcel: [image 1]", "questions": QUESTIONS}


@pytest.fixture
def photocall(address: str) -> Iterator[Client]:
    with Client(address) as found:
        yield found


def requests(count: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Ids and bodies, made as they are written."""
    for i in range(count):
        yield f"row-{i}", {"state": f"shelf {i}, 日本", "questions": QUESTIONS}


def names(photocall: Client, batch: Batch, **how: Any) -> list[str]:
    return [row.custom_id for row in photocall.batches.results(batch.id, **how)]


def test_requests_are_answered_and_deleted(photocall: Client, backend: FakeBackend) -> None:
    batch = photocall.batches.create(requests(5), metadata={"night": "run"})
    assert batch.fields["metadata"] == {"night": "run"}
    ended = photocall.batches.wait(batch.id, timeout_s=30)
    assert (ended.status, ended.ended, ended.counts) == ("completed", True, {"total": 5, "completed": 5, "failed": 0})
    rows = list(photocall.batches.results(batch.id))
    assert [row.place for row in rows] == [1, 2, 3, 4, 5]
    assert {row.custom_id for row in rows} == {f"row-{i}" for i in range(5)}
    assert rows[0].error is None
    assert rows[0].body is not None
    assert rows[0].body["answers"]["full"] == {"type": "noul", "noul": 0.875}
    assert (rows[0].ok, rows[0]["full"].probability, rows[0].problem) == (True, 0.875, None)
    photocall.batches.delete(batch.id)
    with pytest.raises(RequestRefused, match="No such Batch") as refused:
        photocall.batches.get(batch.id)
    assert (refused.value.status, refused.value.code) == (404, "unknown_batch")


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_pictures(photocall: Client, backend: FakeBackend, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "parcels"
    (folder / "monday").mkdir(parents=True)
    for name in ("a.png", "monday/b.png", ".hidden.png"):
        (folder / name).write_bytes(PNG + name.encode())
    (folder / "link.png").symlink_to(folder / "a.png")
    source = folder
    if kind == "zip":
        source = tmp_path / "parcels.zip"
        with zipfile.ZipFile(source, "w") as archive:
            for name in ("a.png", "monday/b.png"):
                archive.write(folder / name, name)
    batch = photocall.batches.create(source, PARCEL)
    assert photocall.batches.wait(batch.id, timeout_s=30).status == "completed"
    assert sorted(names(photocall, batch)) == ["a.png", "monday/b.png"]


def test_a_folder_without_a_file_is_nothing_to_send(photocall: Client, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no file in this folder"):
        photocall.batches.create(tmp_path, PARCEL)


def test_results_are_read_while_it_runs_and_resumed_from_a_row(
    photocall: Client, backend: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flows, "PAGE_LINES", 7)
    file = tmp_path / "rows.jsonl"
    lines = ({"custom_id": name, "method": "POST", "url": "/v1/systemone", "body": body} for name, body in requests(60))
    file.write_text("\n".join(map(json.dumps, lines)))
    backend.delay_s = 0.02
    batch = photocall.batches.create(file)
    results = photocall.batches.results(batch.id)
    first = [next(results) for _ in range(10)]
    assert not photocall.batches.get(batch.id).ended
    there = names(photocall, batch, follow=False)
    assert [row.custom_id for row in first] == there[:10]
    backend.delay_s = 0.0
    rest = list(photocall.batches.results(batch.id, after=first[-1].place))
    assert rest[0].place == 11
    assert {row.custom_id for row in (*first, *rest)} == {f"row-{i}" for i in range(60)}
    assert len(first) + len(rest) == 60
    assert [row.custom_id for row in results] == [row.custom_id for row in rest], "the first reader goes on, too"


def test_failed_rows_say_why_and_are_run_again(photocall: Client, backend: FakeBackend) -> None:
    def respond(ask: Ask, record: JobRecord) -> Outcome:
        return Refused("internal", "a stumble") if "shelf 1" in str(ask.state) else answered(ask, record)

    backend.respond = respond
    batch = photocall.batches.wait(photocall.batches.create(requests(3)).id, timeout_s=30)
    [failed] = photocall.batches.results(batch.id, failed=True)
    assert (failed.custom_id, failed.line["response"]["status_code"]) == ("row-1", 500)
    assert failed.body is not None
    assert failed.problem is not None
    assert (failed.ok, failed.problem["message"]) == (False, "a stumble")
    with pytest.raises(JobFailed, match="job row-1 failed: a stumble"):
        _ = failed["full"]
    backend.respond = answered
    again = photocall.batches.wait(photocall.batches.retry_failed(batch.id).id, timeout_s=30)
    assert again.fields["retry_of"] == batch.id
    assert names(photocall, again) == ["row-1"]
    with pytest.raises(RequestRefused, match="No row of this batch has failed") as refused:
        photocall.batches.retry_failed(again.id)
    assert refused.value.code == "batch_state"


def test_cancel_and_not_ended_in_time(photocall: Client, backend: FakeBackend) -> None:
    backend.hold.set()
    batch = photocall.batches.create(requests(3))
    with pytest.raises(NotAnswered) as late:
        photocall.batches.wait(batch.id, timeout_s=0.2)
    assert late.value.job_id == batch.id
    photocall.batches.cancel(batch.id)
    assert photocall.batches.wait(batch.id, timeout_s=30).status == "cancelled"
    rows = list(photocall.batches.results(batch.id, failed=True))
    assert {(row.body, (row.error or {})["code"]) for row in rows} == {(None, "batch_cancelled")}
    assert list(photocall.batches.results(batch.id)) == []


def test_a_lost_answer_begins_no_second_batch(address: str, backend: FakeBackend) -> None:
    """The server has made it, and the connection breaks before the client hears."""
    lost: list[str] = []

    class Breaking(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            found = super().handle_request(request)
            if request.url.path == "/v1/batches" and not lost:
                lost.append(json.loads(found.read())["id"])
                raise httpx.ReadError("broken")
            return found

    with Client(address, transport=Breaking()) as photocall:
        assert [photocall.batches.create(requests(1)).id] == lost


def test_the_same_source_under_one_key_is_one_file_and_one_batch(photocall: Client, backend: FakeBackend) -> None:
    """It was uploaded anew, and the batch of another file refused under the key."""
    first, again = (photocall.batches.create(requests(2), idempotency_key="night") for _ in range(2))
    assert (first.id, first.fields["input_file_id"]) == (again.id, again.fields["input_file_id"])
    assert len(photocall._run(call(Call("GET", "/v1/files?purpose=batch"))).body["data"]) == 1
    with pytest.raises(RequestRefused) as other:
        photocall.batches.create(requests(3), idempotency_key="night")
    assert other.value.code == "idempotency_mismatch"


def test_under_an_api_key(settings: GatewaySettings, backend: FakeBackend, tmp_path: Path) -> None:
    """Of a folder, twice under one key of one's own: one upload and one batch, and nobody else's."""
    (tmp_path / "parcels").mkdir()
    (tmp_path / "parcels" / "a.png").write_bytes(PNG)
    both = keyed(settings, ann="ask,batch", bob="ask,batch")
    with served(both) as address, Client(address, "ann") as ann, Client(address, "bob") as bob:
        first, again = (ann.batches.create(tmp_path / "parcels", PARCEL, idempotency_key="k") for _ in range(2))
        assert (first.id, first.fields["input_file_id"]) == (again.id, again.fields["input_file_id"])
        assert ann.batches.wait(first.id, timeout_s=30).status == "completed"
        assert [row["full"].yes for row in ann.batches.results(first.id)] == [True]
        other = bob.batches.create(tmp_path / "parcels", PARCEL, idempotency_key="k")
        assert [batch.id for batch in bob.batches.list()] == [other.id] != [first.id]
        with pytest.raises(NotFound):
            bob.batches.get(first.id)


class Deaf(httpx.HTTPTransport):
    """The server does what it is asked to at one path, and the connection breaks before the client hears, once."""

    def __init__(self, method: str, ending: str, meanwhile: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.method, self.ending, self.meanwhile = method, ending, meanwhile
        self.lost = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        found = super().handle_request(request)
        if not self.lost and request.method == self.method and request.url.path.endswith(self.ending):
            self.lost += 1
            found.read()
            self.meanwhile()
            raise httpx.ReadError("broken")
        return found


def test_a_lost_upload_is_no_second_file(address: str, backend: FakeBackend) -> None:
    with Client(address, transport=Deaf("POST", "/v1/files")) as photocall:
        photocall.batches.create(requests(1))
        assert len(photocall._run(call(Call("GET", "/v1/files?purpose=batch"))).body["data"]) == 1


def test_an_end_that_was_asked_for_without_an_answer_is_found(
    photocall: Client, address: str, backend: FakeBackend
) -> None:
    backend.hold.set()
    batch = photocall.batches.create(requests(2))
    deaf = Deaf("POST", "/cancel", lambda: photocall.batches.wait(batch.id, 30))
    with Client(address, transport=deaf) as other:
        assert other.batches.cancel(batch.id).status == "cancelled"
        with pytest.raises(RequestRefused, match="cannot be cancelled"):
            other.batches.cancel(batch.id)
    deaf = Deaf("DELETE", batch.id)
    with Client(address, transport=deaf) as other:
        other.batches.delete(batch.id)
        assert deaf.lost == 1
        with pytest.raises(RequestRefused, match="No such Batch"):
            other.batches.delete(batch.id)


def test_async(address: str, backend: FakeBackend, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)

    async def scenario() -> None:
        async with AsyncClient(address) as photocall:
            made = await asyncio.gather(
                photocall.batches.create(requests(4)), photocall.batches.create(tmp_path, PARCEL)
            )
            for batch, count in zip(made, (4, 1), strict=True):
                assert len([row async for row in photocall.batches.results(batch.id)]) == count
                assert (await photocall.batches.wait(batch.id)).status == "completed"
            backend.hold.set()
            batch = await photocall.batches.create(requests(1))
            await photocall.batches.cancel(batch.id)
            assert (await photocall.batches.wait(batch.id, timeout_s=30)).status == "cancelled"
            backend.hold.clear()
            again = await photocall.batches.retry_failed(batch.id)
            assert (await photocall.batches.wait(again.id)).counts["completed"] == 1
            assert (await photocall.batches.get(again.id)).ended
            await photocall.batches.delete(again.id)

    asyncio.run(scenario())


def test_what_is_sent_is_a_form_with_the_file(tmp_path: Path) -> None:
    """By its name, so that the server shows it as the caller knows it."""
    sent: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.read())
        return httpx.Response(200, json={"id": "x", "status": "completed"})

    file = tmp_path / "parcels of monday.zip"
    file.write_bytes(io.BytesIO(b"PK").getvalue())
    with Client("http://photocall.example", transport=httpx.MockTransport(answer)) as photocall:
        photocall.batches.create(file, PARCEL, endpoint="/v1/jobs", completion_window="7d")
    assert b'filename="parcels of monday.zip"' in sent[0]
    assert json.loads(sent[1]) == {
        "input_file_id": "x", "endpoint": "/v1/jobs", "completion_window": "7d", "request": PARCEL,
    }  # fmt: skip


def test_waiting_grows_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    answers = [{"id": "b", "status": "in_progress"}] * 9 + [{"id": "b", "status": "completed"}]
    monkeypatch.setattr("photocall.client.sync_client.time.sleep", pauses.append)
    left: Callable[[], dict[str, Any]] = iter(answers).__next__
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json=left()))
    with Client("http://photocall.example", transport=transport) as photocall:
        assert photocall.batches.wait("b").ended
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]

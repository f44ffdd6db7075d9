"""The client's stream of events, over connections that break, and its other calls about jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace

import httpx
import pytest

from photocall.client import AsyncClient, Client, ClientError, Event, NotFound, RequestRefused, Unreachable, errors
from photocall.client.event_stream import EventStream
from photocall.local import free_port
from tests.gateway.fake_backend import FakeBackend

QUESTIONS = {"q": "Is it?"}


@pytest.fixture
def photocall(address: str) -> Iterator[Client]:
    with Client(address) as found:
        yield found


def test_a_job_is_seen_from_its_start_to_its_end(photocall: Client, backend: FakeBackend) -> None:
    events = list(photocall.stream(None, QUESTIONS, state="text"))
    kinds = [event.kind for event in events]
    assert kinds[-1] == "ended"
    assert {"status", "result"} <= set(kinds[:-1])
    job = events[-1].job
    assert job is not None
    assert job["q"].yes
    ids = [event.id for event in events[:-1]]
    assert len(set(ids)) == len(ids), "none comes twice"
    behind = [event.id for event in photocall.events(job, after=ids[0])]
    assert behind == [*ids[1:], None]


class Cutting(httpx.HTTPTransport):
    """Its first streams of events end in the middle of the second event, and the connection breaks."""

    def __init__(self, cuts: int) -> None:
        super().__init__()
        self.cuts = cuts
        self.asked: list[str | None] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        found = super().handle_request(request)
        if not request.url.path.endswith("/events"):
            return found
        self.asked.append(request.headers.get("last-event-id"))
        if len(self.asked) > self.cuts:
            return found
        assert isinstance(found.stream, httpx.SyncByteStream)
        inner: httpx.SyncByteStream = found.stream

        class Cut(httpx.SyncByteStream):
            def __iter__(self) -> Iterator[bytes]:
                start = b""
                for piece in inner:
                    start += piece
                    if start.count(b"\n\n") > 1:
                        break
                yield start[: start.index(b"\n\n") + 20]
                raise httpx.ReadError("broken")

            def close(self) -> None:
                inner.close()

        return httpx.Response(found.status_code, headers=found.headers, stream=Cut())


def test_a_broken_connection_is_gone_on_with(
    address: str, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("photocall.client.sync_client.time", SimpleNamespace(sleep=lambda seconds: None))
    transport = Cutting(2)
    with Client(address, transport=transport) as photocall:
        job = photocall.wait(photocall.submit(None, QUESTIONS, state="text"), timeout_s=20)
        events = list(photocall.events(job))
        whole = list(photocall.events(job))
    assert [(event.id, event.kind) for event in events] == [(event.id, event.kind) for event in whole]
    assert transport.asked[:3] == [None, whole[0].id, whole[1].id]


def test_events_in_pieces_and_comments() -> None:
    stream = EventStream("job_1", None)
    sent = 'id: 1-0\nevent: stream\ndata: {"question": "q", "text": "zwölf"}\n\n'
    sent += ": still here\n\nevent: snapshot\ndata: {}\n\n"
    found = [event for byte in sent.encode() for event in stream.feed(bytes([byte]))]
    assert found == [Event("stream", {"question": "q", "text": "zwölf"}, "1-0"), Event("snapshot", {})]
    assert [event.text for event in found] == ["zwölf", ""]
    assert stream.headers["last-event-id"] == "1-0"


def test_events_of_no_job(photocall: Client) -> None:
    with pytest.raises(NotFound) as refused:
        list(photocall.events("job_0"))
    assert refused.value.code == "unknown_job"


def test_jobs_are_listed_cancelled_and_deleted(photocall: Client, backend: FakeBackend) -> None:
    backend.hold.set()
    first, second = (photocall.submit(None, QUESTIONS, state=state) for state in ("one", "two"))
    assert [job.id for job in photocall.jobs()] == [second.id, first.id]
    assert [job.id for job in photocall.jobs(after=second.id, limit=1)] == [first.id]
    photocall.cancel(first)
    assert photocall.wait(first, timeout_s=20).status == "cancelled"
    assert [job.id for job in photocall.jobs("cancelled")] == [first.id]
    photocall.delete(second.id)
    with pytest.raises(NotFound):
        photocall.get(second)
    assert "photocall-mini" in photocall.models()


def test_async(address: str, backend: FakeBackend) -> None:
    async def scenario() -> None:
        async with AsyncClient(address) as photocall:
            kinds = [event.kind async for event in photocall.stream(None, QUESTIONS, state="text")]
            assert kinds[-1] == "ended"
            assert "result" in kinds
            (job,) = await photocall.jobs()
            assert (await photocall.cancel(job)).status == "succeeded"
            seen: list[str] = []
            await photocall.ask(None, QUESTIONS, state="more", on_progress=lambda job: seen.append(job.status))
            assert seen[-1] == "succeeded"
            await photocall.delete(job)
            with pytest.raises(NotFound):
                await photocall.get(job)
            assert "photocall-mini" in await photocall.models()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "InvalidRequest"), (422, "InvalidRequest"), (401, "AccessRefused"), (403, "AccessRefused"),
     (404, "NotFound"), (410, "NotFound"), (429, "Busy"), (503, "Busy"), (409, "RequestRefused"),
     (500, "RequestRefused")],
)  # fmt: skip
def test_each_refusal_has_its_exception(status: int, kind: str) -> None:
    body = {"code": "c", "detail": "no", "loc": ["questions", 0]}
    transport = httpx.MockTransport(lambda request: httpx.Response(status, json=body, headers={"retry-after": "99"}))
    with Client("http://photocall.example", transport=transport) as photocall, pytest.raises(ClientError) as refused:
        photocall.get("job_1")
    assert type(refused.value) is getattr(errors, kind)
    assert isinstance(refused.value, RequestRefused)
    assert (refused.value.code, refused.value.message, refused.value.loc) == ("c", "no", ("questions", 0))
    assert str(refused.value) == f"{status} c: no (at questions.0)"


def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("photocall.client.sync_client.time", SimpleNamespace(sleep=lambda seconds: None))
    address = f"http://127.0.0.1:{free_port('127.0.0.1')}"
    with Client(address) as photocall:
        for call in (photocall.models, lambda: list(photocall.events("job_1"))):
            with pytest.raises(Unreachable, match=f"^no answer from {address}.*is a photocall running there") as lost:
                call()
            assert lost.value.status == 0


def test_whom_it_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's key is the environment's server's: it is not sent to a URL that a program names."""
    monkeypatch.setenv("PHOTOCALL_URL", "http://photos.example:1234/")
    monkeypatch.setenv("PHOTOCALL_API_KEY", "hush")
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(200, json={"data": []})

    for url, key in ((None, None), (None, "mine"), ("http://other.example", None), ("http://other.example", "mine")):
        with Client(url, key, transport=httpx.MockTransport(answer)) as photocall:
            photocall.models()
    assert [(str(request.url.host), request.headers.get("authorization")) for request in sent] == [
        ("photos.example", "Bearer hush"),
        ("photos.example", "Bearer mine"),
        ("other.example", None),
        ("other.example", "Bearer mine"),
    ]

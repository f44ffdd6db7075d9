"""The client, sync and async, against the real app behind a real port; pauses and errors also against a script."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from photocall import keys
from photocall.client import AsyncClient, Client, Image, JobFailed, NotAnswered, Picture, RequestRefused
from photocall.jobs import Refused
from tests.gateway.fake_backend import FakeBackend

PNG = b"\x89PNG\r\n\x1a\n" + b"rest"
SHA = hashlib.sha256(PNG).hexdigest()
QUESTIONS = {"q": {"type": "noul", "instructions": "Is it?"}}


@pytest.fixture
def photocall(address: str) -> Iterator[Client]:
    with Client(address) as found:
        yield found


def test_ask_by_bytes_and_by_path(photocall: Client, backend: FakeBackend, tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    file.write_bytes(PNG)
    for image in (PNG, file, str(file), SHA):
        job = photocall.ask({"photo": image}, QUESTIONS, timeout_s=20, metadata={"row": "1"})
        assert job["q"].fields == {"type": "noul", "noul": 0.875}
        assert (job.answer.value, job["q"].probability) == (True, 0.875)
        assert job.fields["metadata"] == {"row": "1"}
    assert photocall.ask(None, QUESTIONS, state="text", timeout_s=20).status == "succeeded"


def test_pages_of_one_file(photocall: Client, backend: FakeBackend, tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    file.write_bytes(PNG)
    sent: list[httpx.Request] = []
    photocall._http.event_hooks = {"request": [sent.append]}
    images: dict[str, Image] = {"one": file, "two": Picture(file, page=2, dpi=200), "small": Picture(PNG, budget=70)}
    assert photocall.ask(images, QUESTIONS, state="one two small", timeout_s=20).status == "succeeded"
    assert [request.method for request in sent[:3]] == ["HEAD", "PUT", "POST"], "the file goes once"
    named = {"type": "image", "sha256": SHA}
    assert json.loads(sent[2].content)["assets"] == {
        "one": named,
        "two": {**named, "page": 2, "dpi": 200},
        "small": {**named, "budget": 70},
    }


def test_a_picture_is_uploaded_once(photocall: Client, backend: FakeBackend, redis_client: redis.Redis) -> None:
    sent: list[tuple[str, str]] = []
    photocall._http.event_hooks = {"request": [lambda request: sent.append((request.method, request.url.path))]}
    for state in ("photo one", "photo two"):
        photocall.submit({"photo": PNG}, QUESTIONS, state=state)
    picture = f"/v1/images/{SHA}"
    assert sent == [("HEAD", picture), ("PUT", picture), ("POST", "/v1/jobs"), ("HEAD", picture), ("POST", "/v1/jobs")]


def test_a_picture_that_is_forgotten_meanwhile_is_sent_again(
    photocall: Client, backend: FakeBackend, redis_client: redis.Redis
) -> None:
    """Between the look and the question."""
    forgotten: list[Any] = []

    def forget(request: httpx.Request) -> None:
        if request.method == "POST" and not forgotten:
            forgotten.append(redis_client.delete(keys.image(SHA)))

    photocall._http.event_hooks = {"request": [forget]}
    assert photocall.ask({"photo": PNG}, QUESTIONS, timeout_s=20).answers
    assert forgotten == [1]


def test_a_job_that_fails(photocall: Client, backend: FakeBackend) -> None:
    backend.respond = lambda ask, record: Refused("unanswerable", "no such thing", {"question": "q"})
    with pytest.raises(JobFailed) as failed:
        photocall.ask(None, QUESTIONS, state="text", timeout_s=20)
    assert (failed.value.code, failed.value.error["question"]) == ("unanswerable", "q")
    assert "no such thing" in str(failed.value)
    job = photocall.submit(None, QUESTIONS, state="text again")
    ended = photocall.wait(job.id, timeout_s=20)
    assert (ended.status, photocall.get(job.id).status) == ("failed", "failed")
    with pytest.raises(JobFailed):
        _ = ended.answers


def test_a_request_that_is_refused(photocall: Client) -> None:
    with pytest.raises(RequestRefused) as refused:
        photocall.submit(None, {"q": {"type": "noul"}}, state="text")
    assert (refused.value.status, refused.value.code) == (422, "invalid_field")
    assert refused.value.problem["loc"][:2] == ["questions", "q"]
    with pytest.raises(RequestRefused) as unknown:
        photocall.get("job_0")
    assert unknown.value.code == "unknown_job"


def test_not_answered_in_time(photocall: Client, backend: FakeBackend) -> None:
    backend.hold.set()
    with pytest.raises(NotAnswered) as late:
        photocall.ask(None, QUESTIONS, state="text", timeout_s=0.3)
    backend.hold.clear()
    assert photocall.wait(late.value.job_id, timeout_s=20).status == "succeeded"


def test_the_same_key_is_the_same_job(photocall: Client, backend: FakeBackend) -> None:
    one, two = (photocall.submit(None, QUESTIONS, state="text", idempotency_key="k") for _ in range(2))
    assert one.id == two.id


def test_async(address: str, backend: FakeBackend) -> None:
    async def both() -> list[str]:
        async with AsyncClient(address) as photocall:
            jobs = await asyncio.gather(
                *(photocall.ask({"photo": PNG}, QUESTIONS, state=f"photo {i}", timeout_s=20) for i in range(3))
            )
            first = await photocall.submit(None, QUESTIONS, state="text")
            assert (await photocall.wait(first.id, timeout_s=20)).id == (await photocall.get(first.id)).id == first.id
            return [job.status for job in jobs]

    assert asyncio.run(both()) == ["succeeded"] * 3


class Script(httpx.MockTransport):
    """Answers one after another; an exception is raised."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []

        def answer(request: httpx.Request) -> httpx.Response:
            self.requests.append(request)
            found = self.answers.pop(0)
            if isinstance(found, Exception):
                raise found
            return found

        super().__init__(answer)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr("photocall.client.sync_client.time.sleep", found.append)
    return found


def accepted() -> httpx.Response:
    return httpx.Response(202, json={"id": "job_1", "status": "queued"})


def scripted(*answers: httpx.Response | Exception) -> tuple[Client, Script]:
    script = Script(*answers)
    return Client("http://photocall.example", "secret", transport=script), script


def test_retry_after_is_honoured(pauses: list[float]) -> None:
    full = httpx.Response(429, json={"code": "queue_full"}, headers={"retry-after": "3", "retry-after-ms": "2500"})
    client, script = scripted(
        full, httpx.Response(503, headers={"retry-after": "7"}), httpx.ConnectError("x"), accepted()
    )
    assert client.submit(None, QUESTIONS, state="s").id == "job_1"
    assert pauses == [2.5, 7.0, 2.0]
    keys_sent = {request.headers["idempotency-key"] for request in script.requests}
    assert len(keys_sent) == 1, "a repeat must be the same job"
    assert {request.headers["authorization"] for request in script.requests} == {"Bearer secret"}
    assert json.loads(script.requests[0].content) == {"state": "s", "questions": QUESTIONS}


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 413, 422, 500])
def test_what_does_not_help_is_not_repeated(pauses: list[float], status: int) -> None:
    client, _ = scripted(httpx.Response(status, text="<html>"))
    with pytest.raises(RequestRefused) as refused:
        client.submit(None, QUESTIONS, state="s")
    assert (refused.value.status, refused.value.code, pauses) == (status, "", [])


def test_a_pause_of_more_than_a_minute_is_told_instead_of_made(pauses: list[float]) -> None:
    """A key with 2 calls an hour slept for half of one."""
    limited = httpx.Response(429, json={"code": "rate_limited"}, headers={"retry-after": "1800"})
    client, _ = scripted(limited)
    with pytest.raises(RequestRefused) as refused:
        client.submit(None, QUESTIONS, state="s")
    assert (refused.value.code, refused.value.retry_after_s, pauses) == ("rate_limited", 1800.0, [])


def test_it_gives_up_in_the_end(pauses: list[float]) -> None:
    client, _ = scripted(*[httpx.Response(503, json={"code": "draining", "detail": "leaving"})] * 5)
    with pytest.raises(RequestRefused, match="503 draining: leaving"):
        client.submit(None, QUESTIONS, state="s")
    assert pauses == [0.5, 1.0, 2.0, 4.0]


def test_a_server_that_forgets_at_once_is_not_argued_with(pauses: list[float]) -> None:
    expired = httpx.Response(404, json={"code": "image_expired", "sha256": SHA})
    stored, head = httpx.Response(200, json={}), httpx.Response(200)
    client, script = scripted(head, expired, stored, expired, stored, expired)
    with pytest.raises(RequestRefused) as refused:
        client.submit({"photo": PNG}, QUESTIONS)
    assert refused.value.code == "image_expired"
    assert script.answers == []


def test_somebody_elses_hash_is_not_sent(pauses: list[float]) -> None:
    """A picture named by hash only cannot be uploaded again: the error is the caller's."""
    client, script = scripted(httpx.Response(404, json={"code": "image_expired", "sha256": SHA}))
    with pytest.raises(RequestRefused):
        client.submit({"photo": SHA}, QUESTIONS)
    assert len(script.requests) == 1


def test_a_url_stands_in_the_body(pauses: list[float]) -> None:
    client, script = scripted(accepted())
    client.submit({"photo": "https://photos.example/x"}, QUESTIONS, priority="batch", deadline_s=None)
    body: dict[str, Any] = json.loads(script.requests[0].content)
    assert body["assets"] == {"photo": {"type": "image", "url": "https://photos.example/x"}}
    assert body["priority"] == "batch"
    assert "deadline_s" not in body

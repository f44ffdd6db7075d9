"""What is shared is shared within one API key: joins, answers and pictures of one caller are nobody else's."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from photocall.jobs import Outcome
from photocall.settings import GatewaySettings
from photocall_gateway.app import create_app
from tests.gateway.batch_helper import Caller, jsonl, line
from tests.gateway.conftest import POLICY
from tests.gateway.fake_backend import FakeBackend, answered

PNG = b"\x89PNG\r\n\x1a\n" + b"one picture"
SHA = hashlib.sha256(PNG).hexdigest()
ASK = {"state": "the same for all", "questions": {"q": {"type": "noul", "instructions": "Is it?"}}}
ANN, BOB = ({"authorization": f"Bearer {name}"} for name in ("ann", "bob"))


@pytest.fixture
def client(settings: GatewaySettings, tmp_path: Path) -> Iterator[TestClient]:
    """A gateway that two keys may call."""
    file = tmp_path / "keys"
    file.write_text("".join(f"{name}:{hashlib.sha256(name.encode()).hexdigest()}\n" for name in ("ann", "bob")))
    with TestClient(create_app(replace(settings, api_keys=file), POLICY)) as found:
        yield found


def counting(backend: FakeBackend, until: threading.Event | None = None) -> list[str]:
    """The owner of every job that is answered, once `until` is set."""
    owners: list[str] = []

    def respond(ask: Any, record: Any) -> Outcome:
        if until is not None:
            until.wait(30)
        owners.append(record.owner)
        return answered(ask, record)

    backend.respond = respond
    return owners


def test_an_answer_is_used_again_for_its_own_key_alone(client: TestClient, backend: FakeBackend) -> None:
    owners = counting(backend)
    for who in (ANN, ANN, BOB, BOB, ANN):
        assert client.post("/v1/systemone", json=ASK, headers=who).status_code == 200
    assert owners == ["ann", "bob"]


def test_equal_calls_join_within_one_key_alone(client: TestClient, backend: FakeBackend) -> None:
    let_go = threading.Event()
    owners = counting(backend, let_go)
    statuses: list[int] = []

    def call(who: dict[str, str]) -> None:
        statuses.append(client.post("/v1/systemone", json=ASK, headers=who).status_code)

    calls = [threading.Thread(target=call, args=(who,)) for who in (ANN, BOB) * 3]
    for thread in calls:
        thread.start()
    let_go.set()
    for thread in calls:
        thread.join()
    assert statuses == [200] * 6
    assert sorted(owners) == ["ann", "bob"]


def test_equal_rows_are_run_once_for_each_key(client: TestClient, backend: FakeBackend) -> None:
    owners = counting(backend)
    rows = jsonl(*(line(str(n), ASK) for n in range(3)))
    for name in ("ann", "bob"):
        answers, failures = (caller := Caller(client, name)).results(caller.run(rows))
        assert (len(answers), failures) == (3, {})
    assert owners == ["ann", "bob"]


def test_a_picture_of_another_key_is_as_unknown_as_none(client: TestClient, backend: FakeBackend) -> None:
    place = f"/v1/images/{SHA}"
    assert client.put(place, content=PNG, headers=ANN).status_code == 201
    asked = {**ASK, "state": "img", "assets": {"img": {"sha256": SHA}}}
    never = {**ASK, "state": "img", "assets": {"img": {"sha256": "0" * 64}}}
    assert client.head(place, headers=BOB).status_code == 404
    for shown in ("seen.png", "report"):
        assert client.get(f"{place}/{shown}", headers=BOB).status_code == 404
    for path in ("/v1/systemone", "/v1/jobs"):
        theirs, nobodys = (client.post(path, json=body, headers=BOB) for body in (asked, never))
        assert theirs.status_code == nobodys.status_code == 404
        assert theirs.text.replace(SHA, "0" * 64)[:80] == nobodys.text[:80], "it tells that somebody else has it"
    assert client.put(place, content=PNG, headers=BOB).status_code == 201, "it is as new to this key"
    assert client.post("/v1/systemone", json=asked, headers=BOB).status_code == 200
    assert client.put(place, content=PNG + b"x", headers=BOB).status_code == 422


def test_what_one_key_asked_is_unknown_to_another(
    client: TestClient, backend: FakeBackend, eventually: Callable[..., Any]
) -> None:
    job = client.post("/v1/jobs", json=ASK, headers={**ANN, "idempotency-key": "k"}).json()["id"]
    session = client.post("/v1/sessions", json={"state": "talk"}, headers=ANN).json()["id"]
    ann = Caller(client, "ann")
    file = ann.upload(jsonl(line("a")))
    batch = ann.start(file)["id"]
    ann.ended(batch)
    for path in (f"jobs/{job}", f"jobs/{job}/events", f"sessions/{session}", f"files/{file}", f"batches/{batch}"):
        assert client.get(f"/v1/{path}", headers=BOB).status_code == 404, path
    assert client.delete(f"/v1/jobs/{job}", headers=BOB).status_code == 404
    other = client.post("/v1/jobs", json=ASK, headers={**BOB, "idempotency-key": "k"}).json()["id"]
    assert other != job, "an idempotency key is a caller's own"
    assert client.get(f"/v1/jobs/{job}", headers=ANN).status_code == 200

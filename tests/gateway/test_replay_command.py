"""`photocall replay` and `photocall drift` against a gateway over HTTP; the engine behind it may change its mind."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import httpx
import pytest

from photocall.asks import Ask
from photocall.cli import main
from photocall.client import Client
from photocall.jobs import Answered, JobRecord, Outcome, Refused
from tests.gateway.batch_helper import Caller, jsonl, line
from tests.gateway.fake_backend import FakeBackend

EXACT = (0.1 + 0.2, 1 / 3, 5e-324, 1 - 2**-53)
QUESTIONS = {"kind": {"type": "choice", "criteria": list("abcd")}, "full": {"type": "noul", "instructions": "?"}}


class Engine:
    """Answers with `shares`, and says that it is `model`."""

    def __init__(self) -> None:
        self.shares = list(EXACT)
        self.model = "first"

    def __call__(self, ask: Ask, record: JobRecord) -> Outcome:
        shares = dict(zip("abcd", self.shares, strict=True))
        kind = {"type": "choice", "choice": "d", "confidence": 0.5, "probabilities": shares}
        told = {"job": record.job_id, "model_sha256": self.model, "pictures": {}, "truncation": {}}
        answers = {"kind": kind, "full": {"type": "noul", "noul": 1 / 3}}
        body = {"model": "m", "answers": answers, "usage": {"input_tokens": 1, "output_tokens": 1}}
        return Answered({**body, "provenance": told} if ask.provenance else body)


@pytest.fixture
def engine(backend: FakeBackend) -> Engine:
    backend.respond = Engine()
    return backend.respond


@pytest.fixture
def job(engine: Engine, http: httpx.Client, address: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("PHOTOCALL_URL", address)
    monkeypatch.delenv("PHOTOCALL_API_KEY", raising=False)
    body = {"state": "text", "questions": QUESTIONS, "provenance": True}
    found: dict[str, Any] = http.post("/v1/jobs", json=body, headers={"prefer": "wait=10"}).json()
    return found


def bits(value: float) -> bytes:
    return struct.pack("<d", value)


def test_no_float_is_rounded_between_the_engine_and_the_caller(job: dict[str, Any]) -> None:
    found = job["result"]["answers"]["kind"]["probabilities"]
    assert [bits(found[label]) for label in "abcd"] == [bits(value) for value in EXACT]


def test_the_same_bits(job: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", job["id"]]) == 0
    assert capsys.readouterr().out.splitlines() == ["same     kind", "same     full"]
    assert main(["replay", job["id"], "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["job"] == job["id"] != found["replay"]
    assert found["same"] is True
    assert found["made_differently"] == {}
    assert found["questions"]["full"] == {"same": True, "largest_change": 0.0, "said": False}


def test_one_bit_is_seen(job: dict[str, Any], engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    engine.shares[3] = 1 - 2**-52
    assert main(["replay", job["id"]]) == 1
    differs, same = capsys.readouterr().out.splitlines()
    assert same == "same     full"
    assert differs.startswith("differs  kind: d 0.9999999999999999 became 0.9999999999999998, a change of 1.1")
    assert main(["replay", job["id"], "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["questions"]["kind"]
    assert (found["of"], found["before"], found["after"]) == ("d", 1 - 2**-53, 1 - 2**-52)


def test_another_model_is_no_replay(job: dict[str, Any], engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    engine.model = "second"
    assert main(["replay", job["id"]]) == 2
    assert "made differently: model_sha256 was 'first', is 'second'" in capsys.readouterr().out
    assert main(["replay", job["id"], "--json"]) == 2
    made = json.loads(capsys.readouterr().out)["made_differently"]
    assert made == {"model_sha256": {"job": "first", "replay": "second"}}


def test_what_cannot_be_replayed(
    job: dict[str, Any],
    http: httpx.Client,
    backend: FakeBackend,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert main(["replay", "job_0"]) == 2
    assert "job_0" in capsys.readouterr().err
    backend.respond = lambda ask, record: Refused("internal", "the device is gone")
    assert main(["replay", job["id"]]) == 2
    assert "the device is gone" in capsys.readouterr().err
    http.delete(f"/v1/jobs/{job['id']}")
    assert main(["replay", job["id"]]) == 2
    assert "expired or was deleted" in capsys.readouterr().err
    monkeypatch.setenv("PHOTOCALL_URL", "nowhere")
    assert main(["replay", job["id"]]) == 2
    assert "PHOTOCALL_URL" in capsys.readouterr().err


def test_the_client_replays_and_shows_what_an_answer_comes_from(job: dict[str, Any], address: str) -> None:
    with Client(address) as client:
        again = client.replay(job["id"])
        assert again.provenance is not None
        assert again.provenance["job"] == again.id != job["id"]
        assert again.fields["result"]["answers"] == job["result"]["answers"]
        assert client.ask([], {"full": QUESTIONS["full"]}, state="text").provenance is None


def test_rows_of_a_batch_have_it_too(engine: Engine, http: httpx.Client) -> None:
    body = {"state": "text", "questions": QUESTIONS}
    rows = [line("told", {**body, "provenance": True}), line("plain", body)]
    caller = Caller(http)
    for endpoint in ("/v1/systemone", "/v1/jobs"):
        batch = caller.run(jsonl(*({**row, "url": endpoint} for row in rows)), endpoint)
        answers, failures = caller.results(batch)
        assert not failures
        shown = {name: row["response"]["body"] for name, row in answers.items()}
        results = {name: body["result"] if endpoint == "/v1/jobs" else body for name, body in shown.items()}
        assert results["told"]["provenance"]["model_sha256"] == "first"
        assert "provenance" not in results["plain"], "an equal row without it does not get another's"


@pytest.mark.parametrize("content", ["not json", "[]", "{}", '{"q": 1}', '{"q": {}}'])
def test_questions_that_are_none(job: dict[str, Any], tmp_path: Path, content: str) -> None:
    picture, questions = tmp_path / "p.png", tmp_path / "q.json"
    picture.write_bytes(b"x")
    questions.write_text(content)
    assert main(["drift", str(picture), "--questions", str(questions)]) == 2


def test_a_file_that_is_no_picture(job: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.png").write_bytes(b"no picture")
    assert main(["drift", str(tmp_path / "p.png")]) == 2
    assert str(tmp_path / "p.png") in capsys.readouterr().err
    assert main(["drift", str(tmp_path / "missing.png")]) == 2

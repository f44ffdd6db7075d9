"""What is asked under a stored calibration: looked up once, when a request is accepted, whichever way it comes."""

from __future__ import annotations

import pytest
import redis
from starlette.testclient import TestClient

from photocall.asks import Ask
from photocall.jobs import Answered, JobRecord, Outcome
from photocall.recalibration import Recalibration
from photocall_engine.recalibrated import recalibrated
from tests.gateway.batch_helper import Caller, jsonl, line
from tests.gateway.fake_backend import FakeBackend, answer, answered
from tests.gateway.test_batch_pictures import zipped
from tests.gateway.test_images_route import PNG

WAIT = {"prefer": "wait=10"}
OWN = {"questions": {"ok": {"temperature": 2.0, "bias": 0.5}, "kind": {"temperature": 3.0}, "x": {"temperature": 4.0}}}
QUESTIONS = {
    "ok": {"type": "noul", "instructions": "Is it?"},
    "kind": {"type": "choice", "criteria": ["a", "b"]},
    "many": {"type": "number", "instructions": "How many?"},
}
ASK = {"state": "x", "questions": QUESTIONS}
DECISION = {
    "input": "x",
    "questions": [
        {"type": "predicate", "name": "other", "instructions": "Was it?"},
        {"type": "predicate", "name": "ok", "instructions": "Is it?"},
        {"type": "choice", "name": "kind", "choices": [{"value": True}, {"value": "true"}]},
        {"type": "score", "levels": [{"label": "low"}, {"label": "high"}]},
    ],
}


def correcting(ask: Ask, record: JobRecord) -> Outcome:
    """As the engine does."""
    made = answered(ask, record)
    assert isinstance(made, Answered)
    answers = {q.name: recalibrated(q, answer(q), ask.calibration) for q in ask.questions}
    return Answered({**made.body, "answers": answers}, made.timings)


@pytest.fixture
def backend(backend: FakeBackend) -> FakeBackend:
    backend.respond = correcting
    return backend


@pytest.fixture
def stored(client: TestClient, backend: FakeBackend) -> str:
    return str(client.post("/v1/calibrations", json={"calibration": OWN}).json()["id"])


def test_one_that_is_named_is_one_that_is_sent_whole(client: TestClient, stored: str) -> None:
    """The same answers and the same id in them, in a job, a turn and a synchronous call."""
    whole = client.post("/v1/jobs", json={**ASK, "calibration": OWN}, headers=WAIT).json()["result"]["answers"]
    assert (whole["ok"]["calibration"], whole["kind"]["calibration"]) == (stored, stored)
    assert whole["ok"]["probabilities_raw"] == {"true": 0.875, "false": 0.125}
    assert whole["ok"]["noul"] != 0.875
    assert "calibration" not in whole["many"]
    session = client.post("/v1/sessions").json()["urls"]["turns"]
    named = {**ASK, "calibration": stored}
    for path in ("/v1/jobs", session, "/v1/systemone"):
        found = client.post(path, json=named, headers=WAIT).json()
        assert found.get("result", found)["answers"] == whole, path


def test_the_decisions_shape_goes_by_its_own_names(client: TestClient, stored: str) -> None:
    found = client.post("/v1/decisions", json={**DECISION, "calibration": stored}).json()["answers"]
    plain = client.post("/v1/decisions", json=DECISION).json()["answers"]
    other, ok, kind, nameless = found
    assert (other, nameless) == (plain[0], plain[3])
    assert ok["calibration"] == kind["calibration"] == stored
    assert ok["probabilities_raw"] == [{"value": True, "probability": 0.875}, {"value": False, "probability": 0.125}]
    assert kind["probabilities_raw"] == plain[2]["probabilities"]
    assert [one["value"] for one in kind["probabilities"]] == [True, "true"]
    assert 0.5 < kind["probabilities"][0]["probability"] < 0.8


def test_a_decision_can_be_a_label(client: TestClient, backend: FakeBackend) -> None:
    """Answers of that shape as they came, and fitted again from what was read and not from what was corrected."""
    _, ok, kind, _ = client.post("/v1/decisions", json={**DECISION, "calibration": OWN}).json()["answers"]
    given = [{"question": "ok", "answer": ok, "label": i % 4 == 0} for i in range(60)]
    given += [{"question": "kind", "answer": kind, "label": [True, "true"][i % 2]} for i in range(60)]
    made = client.post("/v1/calibrations", json={"labels": given}).json()
    assert made["reports"]["ok"]["bins"]["before"][0][0] == pytest.approx(0.875)
    assert made["reports"]["kind"]["bins"]["before"][0][0] == pytest.approx(0.8)
    assert set(made["questions"]) == {"ok", "kind"}
    wrong = client.post("/v1/calibrations", json={"labels": [{"question": "kind", "answer": kind, "label": "yes"}]})
    assert wrong.json()["loc"] == ["labels", 0, "label"]


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/systemone", "/v1/decisions", "turns"])
def test_one_that_is_not_there_is_refused_by_name(client: TestClient, stored: str, path: str) -> None:
    """Deleted or never stored; nothing of the request is kept."""
    place = client.post("/v1/sessions").json()["urls"]["turns"] if path == "turns" else path
    body = {**(DECISION if path == "/v1/decisions" else ASK), "calibration": stored}
    assert client.post(place, json=body, headers=WAIT).status_code == 200
    assert client.delete(f"/v1/calibrations/{stored}").status_code == 204
    for name in (stored, "cal_" + "0" * 24, "x" * 80):
        refused = client.post(place, json={**body, "calibration": name})
        assert refused.status_code == 404, name
        assert name in refused.text
        assert "calibration" in refused.text
    jobs = client.get("/v1/jobs").json()["data"]
    assert [job["status"] for job in jobs] == ["succeeded"]


def test_an_accepted_job_does_not_miss_one_that_is_deleted(
    client: TestClient, backend: FakeBackend, stored: str
) -> None:
    """Nor does the caller who sends the same again under its key: it is the same job."""
    backend.hold.set()
    named = {**ASK, "calibration": stored}
    key = {"idempotency-key": "k"}
    job = client.post("/v1/jobs", json=named, headers=key).json()
    client.delete(f"/v1/calibrations/{stored}")
    again = client.post("/v1/jobs", json=named, headers=key)
    assert (again.status_code, again.json()["id"]) == (202, job["id"])
    assert client.post("/v1/jobs", json={**named, "state": "y"}, headers=key).status_code == 422
    assert client.post("/v1/jobs", json=named, headers={"idempotency-key": "l"}).status_code == 404
    backend.hold.clear()
    found = client.get(f"/v1/jobs/{job['id']}", headers=WAIT).json()
    assert found["result"]["answers"]["ok"]["calibration"] == stored


def test_a_record_holds_what_concerns_its_questions(client: TestClient, backend: FakeBackend, stored: str) -> None:
    asked: list[Recalibration | None] = []

    def note(ask: Ask, record: JobRecord) -> Outcome:
        asked.append(ask.calibration)
        return correcting(ask, record)

    backend.respond = note
    body = {**ASK, "calibration": stored}
    client.post("/v1/jobs", json=body, headers=WAIT)
    few = {"many": QUESTIONS["many"]}
    client.post("/v1/jobs", json={**body, "questions": few}, headers=WAIT)
    first, second = asked
    assert first is not None
    assert (set(first.questions), first.id) == ({"ok", "kind"}, stored)
    assert second is None


def test_a_row_of_a_batch_names_one_and_fails_alone(client: TestClient, stored: str) -> None:
    gone = "cal_" + "0" * 24
    rows = [line(str(i), {**ASK, "calibration": name}) for i, name in enumerate((stored, gone, None))]
    caller = Caller(client)
    batch = caller.run(jsonl(*rows))
    done, failed = caller.results(batch)
    assert batch["request_counts"] == {"total": 3, "completed": 2, "failed": 1}
    assert done["0"]["response"]["body"]["answers"]["ok"]["calibration"] == stored
    assert "calibration" not in done["2"]["response"]["body"]["answers"]["ok"]
    assert failed["1"]["response"]["status_code"] == 404
    assert gone in str(failed["1"]["response"]["body"])


def test_a_batch_of_pictures_takes_its_calibration_along(client: TestClient, backend: FakeBackend, stored: str) -> None:
    """One question set for all rows: it is looked up once, when the batch is made."""
    caller = Caller(client)
    request = {**ASK, "calibration": "cal_" + "0" * 24}
    body = {"endpoint": "/v1/systemone", "input_file_id": caller.upload(zipped({"a.png": PNG}), "a.zip")}
    for path in ("/v1/batches", "/v1/batches?dry_run=true"):
        refused = caller.post(path, {**body, "request": request})
        assert refused.status_code == 404
        assert request["calibration"] in refused.text
    backend.hold.set()
    batch = caller.post("/v1/batches", {**body, "request": {**ASK, "calibration": stored}}).json()
    client.delete(f"/v1/calibrations/{stored}")
    backend.hold.clear()
    done, failed = caller.results(caller.ended(batch["id"]))
    assert failed == {}
    assert [row["response"]["body"]["answers"]["ok"]["calibration"] for row in done.values()] == [stored]


def test_a_store_that_is_away_is_no_unknown_calibration(
    client: TestClient, stored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise redis.ConnectionError("away")

    monkeypatch.setattr("photocall.calibrations.run_async", away)
    assert client.post("/v1/jobs", json={**ASK, "calibration": stored}).status_code == 503

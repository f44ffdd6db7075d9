"""/v1/calibrations: fitted, kept, listed, drawn, forgotten. What is asked under one: test_calibrated.py."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import redis
from starlette.testclient import TestClient

from photocall import calibrations, keys, recalibration
from photocall.calibrations import MAX_BYTES
from photocall.cli import main
from photocall.invalid import InvalidField
from photocall.settings import GatewaySettings
from photocall_gateway import calibration_intake
from photocall_gateway.app import create_app
from photocall_gateway.calibration_intake import read_calibration
from photocall_gateway.openapi_calibrations import MAX_LABELS
from photocall_gateway.routes import calibrations as routes
from tests.gateway.conftest import POLICY
from tests.shared.test_calibrating import labels

SVG = "{http://www.w3.org/2000/svg}"


def correction(temperature: float) -> dict[str, Any]:
    return {"calibration": {"questions": {"ok": {"temperature": temperature}}}}


def ids(client: TestClient, query: str = "") -> list[str]:
    return [one["id"] for one in client.get(f"/v1/calibrations{query}").json()["data"]]


def test_a_calibration_from_its_fit_to_its_end(client: TestClient) -> None:
    response = client.post("/v1/calibrations", json={"labels": labels(200), "metadata": {"for": "parcels"}})
    made = response.json()
    assert response.status_code == 201, made
    assert response.headers["location"] == made["urls"]["self"] == f"/v1/calibrations/{made['id']}"
    assert made["object"] == "calibration"
    assert set(made["questions"]) == {"ok", "kind"}
    assert made["refused"] == {"few": "1 labelled answers, at least 50 are needed"}
    assert made["expires_at"] == pytest.approx(time.time() + 90 * 86_400, abs=60)
    told = {name: {k: v for k, v in report.items() if k != "svg"} for name, report in made["reports"].items()}
    found = client.get(made["urls"]["self"]).json()
    once = ("reports", "refused", "expires_at")
    assert {k: v for k, v in found.items() if k not in once} == {k: v for k, v in made.items() if k not in once}
    assert found["reports"] == told
    assert found["reports"]["ok"]["after"]["nll"] < found["reports"]["ok"]["before"]["nll"]
    (listed,) = client.get("/v1/calibrations").json()["data"]
    assert listed == {name: value for name, value in found.items() if name != "reports"} | {
        "expires_at": pytest.approx(found["expires_at"], abs=60)
    }
    assert client.delete(made["urls"]["self"]).status_code == 204
    for gone in (client.get(made["urls"]["self"]), client.delete(made["urls"]["self"])):
        assert (gone.status_code, gone.json()["code"]) == (404, "unknown_calibration")
        assert made["id"] in gone.json()["detail"]
    assert ids(client) == []


def test_its_diagrams_are_drawn_from_what_is_kept(client: TestClient) -> None:
    made = client.post("/v1/calibrations", json={"labels": labels(200)}).json()
    both = client.get(made["urls"]["diagram"])
    assert both.headers["content-type"] == "image/svg+xml"
    assert "sandbox" in both.headers["content-security-policy"]
    drawn = ElementTree.fromstring(both.text).findall(f"{SVG}g/{SVG}svg")
    assert [one.findtext(f"{SVG}text") for one in drawn] == list(made["reports"])
    one = client.get(made["urls"]["diagram"], params={"of": "kind"}).text
    assert made["reports"]["kind"]["svg"] in one
    assert made["reports"]["ok"]["svg"] not in one
    assert client.get(made["urls"]["diagram"], params={"of": "few"}).json()["loc"] == ["of"]
    bare = client.post("/v1/calibrations", json=correction(2)).json()
    assert client.get(bare["urls"]["diagram"]).status_code == 404


def test_what_was_fitted_elsewhere_is_kept_as_if_it_had_been_fitted_here(
    client: TestClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command takes any number of labels; its output is a body's `calibration`."""
    (tmp_path / "labels.jsonl").write_text("\n".join(map(json.dumps, labels(200))))
    assert main(["calibrate", str(tmp_path / "labels.jsonl")]) == 0
    fitted = json.loads(capsys.readouterr().out)
    here = client.post("/v1/calibrations", json={"labels": labels(200)}).json()
    sent = client.post("/v1/calibrations", json={"calibration": fitted})
    assert sent.status_code == 201
    assert ids(client) == [here["id"]] == [sent.json()["id"]] == [fitted["id"]]
    assert sent.json()["reports"] == here["reports"]


def test_nothing_is_kept_that_is_not_to_be_or_corrects_nothing(client: TestClient) -> None:
    asked = client.post("/v1/calibrations", json={"labels": labels(200), "store": False})
    assert asked.status_code == 200
    assert asked.json()["questions"]
    right = [{"question": "q", "answer": {"type": "noul", "noul": 0.5}, "label": i % 2 == 0} for i in range(60)]
    honest = client.post("/v1/calibrations", json={"labels": right})
    assert honest.status_code == 200
    assert honest.json()["id"] is None
    assert "q" in honest.json()["reports"]
    assert [answer.json()["expires_at"] for answer in (asked, honest)] == [None, None]
    assert client.get("/v1/calibrations").json()["data"] == []
    body = {"state": "x", "questions": {"q": {"type": "noul", "instructions": "?"}}, "calibration": honest.json()["id"]}
    assert client.post("/v1/jobs", json=body).status_code == 202, "the id of nothing is none, which a job takes"


def test_lists_are_paged_and_go_on_without_those_that_ended(client: TestClient, redis_client: redis.Redis) -> None:
    made = [client.post("/v1/calibrations", json=correction(t)).json()["id"] for t in (1.5, 2, 3, 4)][::-1]
    assert ids(client) == made
    page = client.get("/v1/calibrations?limit=2").json()
    assert (page["has_more"], page["last_id"]) == (True, made[1])
    assert ids(client, f"?after={made[1]}") == made[2:]
    redis_client.delete(keys.calibration("local", made[2]))  # as when its time ends
    assert ids(client) == [made[0], made[1], made[3]]
    assert ids(client, f"?after={made[2]}") == made[3:]
    assert client.get("/v1/calibrations?after=cal_0").status_code == 404


def test_a_key_has_so_many_and_no_more(settings: GatewaySettings, redis_client: redis.Redis) -> None:
    app = create_app(replace(settings, max_calibrations_per_key=2), POLICY)
    with TestClient(app, base_url="http://127.0.0.1:8080") as client:
        first, second = (client.post("/v1/calibrations", json=correction(t)).json()["id"] for t in (2, 3))
        full = client.post("/v1/calibrations", json=correction(4))
        assert (full.status_code, full.json()["code"]) == (409, "calibrations_full")
        assert (full.json()["held"], full.json()["allowed"]) == (2, 2)
        assert client.post("/v1/calibrations", json=correction(3)).status_code == 201, "it is there already"
        redis_client.delete(keys.calibration("local", first))  # as when its time ends
        third = client.post("/v1/calibrations", json=correction(4)).json()["id"]
        assert set(ids(client)) == {second, third}


def test_all_of_it_has_a_time_to_live(client: TestClient, redis_client: redis.Redis) -> None:
    """Names as well; a use begins it anew, and a longer one of another is not cut short."""
    name = client.post("/v1/calibrations", json=correction(2)).json()["id"]
    own, names = keys.calibration("local", name), keys.calibrations("local")
    longest = 90 * 86_400
    assert [round(redis_client.ttl(key) / longest, 3) for key in (own, names)] == [1, 1]
    redis_client.expire(own, 100)
    redis_client.expire(names, 2 * longest)
    body = {"state": "x", "questions": {"ok": {"type": "noul", "instructions": "?"}}, "calibration": name}
    assert client.get(f"/v1/calibrations/{name}").json()["expires_at"] < time.time() + 101, "looking is no use"
    assert client.post("/v1/jobs", json=body).status_code == 202
    assert redis_client.ttl(own) > longest - 100
    assert redis_client.ttl(names) > longest + 100


def report(**changed: Any) -> dict[str, Any]:
    figures = {"accuracy": 0.5, "brier": 0.5, "ece": 0.5, "nll": 0.5}
    points = {"before": [[0.5, 0.5, 10]], "after": []}
    return {"count": 10, "before": figures, "after": figures, "bins": points, **changed}


@pytest.mark.parametrize(
    ("body", "loc"),
    [
        ({}, ["labels"]),
        ({"labels": labels(200)[:10]}, ["labels"]),
        ({"labels": [5]}, ["labels", 0]),
        ({"labels": [{}] * (MAX_LABELS + 1)}, ["labels"]),
        ({"labels": labels(60), "by": "name"}, ["by"]),
        ({"labels": [{"answer": {"probabilities": {str(i): 0 for i in range(MAX_LABELS * 11)}}}]}, ["labels"]),
        ({"labels": [{"answer": {"probabilities_raw": [{}] * (MAX_LABELS * 11)}}]}, ["labels"]),
        ({"labels": labels(60), "store": "no"}, ["store"]),
        ({"labels": labels(60), "metadata": {"a": 1}}, ["metadata", "a"]),
        ({"labels": labels(60), **correction(2)}, ["calibration"]),
        ({"calibration": "cal_1"}, ["calibration"]),
        ({"calibration": {}}, ["calibration"]),
        (correction(0), ["calibration", "questions", "ok", "temperature"]),
    ],
)
def test_what_cannot_be_taken_is_named(body: Any, loc: list[str | int]) -> None:
    with pytest.raises(InvalidField) as caught:
        read_calibration(body)
    assert list(caught.value.loc) == loc


@pytest.mark.parametrize(
    ("reports", "loc"),
    [
        (5, []),
        ({"q": 5}, ["q"]),
        ({"q": report(count=0)}, ["q", "count"]),
        ({"q": report(before={"accuracy": 0.5})}, ["q", "before", "brier"]),
        ({"q": report(after=None)}, ["q", "after"]),
        ({"q": report(bins={})}, ["q", "bins", "before"]),
        ({"q": report(bins={"before": [[0.5, 0.5]], "after": []})}, ["q", "bins", "before", 0]),
        ({"q": report(bins={"before": [["<script>", 0, 1]], "after": []})}, ["q", "bins", "before", 0]),
        ({"q": report(bins={"before": [[1.5, 0, 1]], "after": []})}, ["q", "bins", "before", 0]),
        ({"q": report(bins={"before": [], "after": [[0, 0, 1]] * 16})}, ["q", "bins", "after"]),
    ],
)
def test_reports_that_are_none_are_named(reports: Any, loc: list[str | int]) -> None:
    """They are drawn, so nothing is kept of them that is no number."""
    with pytest.raises(InvalidField) as caught:
        read_calibration({"calibration": {**correction(2)["calibration"], "reports": reports}})
    assert list(caught.value.loc) == ["calibration", "reports", *loc]


def test_what_cannot_be_taken_is_422(client: TestClient) -> None:
    refused = client.post("/v1/calibrations", json={"labels": labels(200)[:10]})
    assert (refused.status_code, refused.json()["loc"]) == (422, ["labels"])
    assert "at least 50" in refused.json()["detail"]
    assert ids(client) == []


def test_a_calibration_has_a_largest_size(client: TestClient) -> None:
    names = {f"{i} {'x' * 100}": {"temperature": 2} for i in range(950)}
    refused = client.post("/v1/calibrations", json={"calibration": {"questions": names}})
    assert (refused.status_code, refused.json()["limit"]) == (413, MAX_BYTES)
    assert ids(client) == []


def test_as_many_questions_as_may_be_are_stored_without_reports(client: TestClient) -> None:
    names = {f"question {i:03}": {"temperature": 1.5, "bias": 0.25} for i in range(recalibration.MAX_QUESTIONS)}
    made = client.post("/v1/calibrations", json={"calibration": {"questions": names}})
    assert made.status_code == 201, made.text
    assert len(made.json()["questions"]) == recalibration.MAX_QUESTIONS


def test_nothing_that_grows_with_a_calibration_is_done_on_the_event_loop(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one key with many names keeps all others waiting."""
    threads: dict[str, set[str]] = {}

    def watch(place: Any, name: str) -> None:
        work = getattr(place, name)

        def watched(*args: Any, **named: Any) -> Any:
            threads.setdefault(name, set()).add(threading.current_thread().name.rpartition("_")[0])
            return work(*args, **named)

        monkeypatch.setattr(place, name, watched)

    watch(calibrations, "parse_recalibration")
    watch(calibrations, "pack")
    watch(routes, "report_diagram")
    watch(routes, "_shown")
    watch(calibration_intake, "report_diagram")
    hashed = sha256_calls(monkeypatch)
    made = client.post("/v1/calibrations", json={"labels": labels(200)}).json()
    assert set(hashed) == {"calibrate"}
    hashed.clear()
    for place in ("/v1/calibrations", made["urls"]["self"], made["urls"]["diagram"]):
        assert client.get(place).status_code == 200
    body = {"state": "x", "questions": {"ok": {"type": "noul", "instructions": "?"}}, "calibration": made["id"]}
    assert client.post("/v1/jobs", json=body).status_code == 202
    assert not hashed, "its id is the name that it is kept under"
    assert threads == {
        "pack": {"calibrations"},
        "parse_recalibration": {"calibrations"},
        "report_diagram": {"calibrate"},
        "_shown": {"calibrate", "calibrations-shown"},
    }


def sha256_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """In which threads ids are made."""
    seen: list[str] = []

    class Watched:
        @staticmethod
        def sha256(data: bytes) -> Any:
            seen.append(threading.current_thread().name.rpartition("_")[0])
            return hashlib.sha256(data)

    monkeypatch.setattr(recalibration, "hashlib", Watched)
    return seen


def test_a_page_reads_no_more_than_it_shows(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [client.post("/v1/calibrations", json=correction(1 + t / 10)).json()["id"] for t in range(1, 16)][::-1]
    parsed: list[str] = []
    parse = calibrations._applied

    def watched(name: str, packed: bytes) -> recalibration.Recalibration:
        parsed.append(name)
        return parse(name, packed)

    monkeypatch.setattr(calibrations, "_applied", watched)
    assert ids(client, "?limit=1") == made[:1]
    assert parsed == made[:2], "one, and one more to know whether there are more"
    assert ids(client, "?limit=14") == made[:14], "more than are read at once"

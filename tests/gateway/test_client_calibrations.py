"""Calibrations in the client, sync and async, and the command that keeps one, against the real app on a real port."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from photocall import choice, yes_no
from photocall.cli import main
from photocall.client import AsyncClient, Client, RequestRefused
from photocall.client import calibration_flows as flows
from photocall.client.flows import Reply
from tests.gateway.fake_backend import FakeBackend
from tests.gateway.test_images_route import PNG
from tests.shared.test_calibrating import labels


def test_a_calibration_from_its_fit_to_its_end(address: str, backend: FakeBackend) -> None:
    with Client(address) as client:
        made = client.calibrations.create(labels(100), by="type", metadata={"for": "parcels"})
        assert set(made["types"]) == {"noul", "choice"}
        listed = client.calibrations.list()
        assert [one["id"] for one in listed] == [made["id"]]
        assert listed[0]["metadata"] == {"for": "parcels"}
        assert set(client.calibrations.get(made["id"])["reports"]) == {"noul", "choice"}
        whole, one = client.calibrations.diagram(made["id"]), client.calibrations.diagram(made["id"], "noul")
        assert whole.startswith("<svg")
        assert len(one) < len(whole)
        client.calibrations.delete(made["id"])
        with pytest.raises(RequestRefused) as refused:
            client.calibrations.get(made["id"])
        assert refused.value.code == "unknown_calibration"


def test_the_same_with_coroutines(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flows, "PAGE", 2)

    async def made() -> tuple[list[str], list[str], str]:
        async with AsyncClient(address) as client:
            calibrations = client.calibrations
            first = await calibrations.create(labels(100))
            more = [await calibrations.keep({"types": {"noul": {"temperature": t}}}) for t in (2, 3, 4)]
            assert (await calibrations.get(first["id"]))["id"] == first["id"]
            diagram = await calibrations.diagram(first["id"], "ok")
            await calibrations.delete(more[0]["id"])
            left = [one["id"] for one in await calibrations.list()]
            return left, [more[2]["id"], more[1]["id"], first["id"]], diagram

    left, wanted, diagram = asyncio.run(made())
    assert left == wanted, "all pages"
    assert "ok" in diagram


def test_answers_of_the_client_are_labels(address: str, backend: FakeBackend) -> None:
    with Client(address) as client:
        job = client.ask(PNG, {"ok": yes_no("Is it?"), "kind": choice("Which?", ["a", "b"])})
        pairs: list[Any] = [(job["ok"], i % 4 == 0) for i in range(60)]
        made = client.calibrations.create(pairs + [(job["kind"], "ab"[i % 2]) for i in range(60)])
        again = client.ask(PNG, {"ok": yes_no("Is it?")}, calibration=made["id"])
    assert set(made["questions"]) == {"ok", "kind"}
    assert again.succeeded


def test_a_delete_after_a_lost_answer_finds_the_end_that_it_asked_for() -> None:
    gone = Reply(404, {}, {"code": "unknown_calibration"})
    deleting = flows.delete("cal_1")
    next(deleting)
    deleting.send(Reply(0, {}, None))  # no answer came; then a pause
    next(deleting)
    with pytest.raises(StopIteration):
        deleting.send(gone)
    deleting = flows.delete("cal_1")
    next(deleting)
    with pytest.raises(RequestRefused):
        deleting.send(gone)


def said(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, str, str]:
    status = main(["calibrate", *map(str, arguments)])
    out, err = capsys.readouterr()
    return status, out, err


def test_the_command_keeps_it_and_prints_its_id(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHOTOCALL_URL", address)
    file = tmp_path / "labels.jsonl"
    file.write_text("\n".join(map(json.dumps, labels(1001))))  # more than the server would fit
    status, out, err = said(capsys, file, "--store")
    assert status == 0, err
    assert "ece" in err
    with Client(address) as client:
        kept = client.calibrations.get(out.strip())
        assert kept["reports"]["ok"]["count"] == 1001
        plain = json.loads(said(capsys, file)[1])
        assert plain["id"] == kept["id"]
        for temperature in range(2, 101):
            client.calibrations.keep({"types": {"noul": {"temperature": temperature}}})
    assert said(capsys, file, "--store") == (0, out, err), "it is there already"
    assert json.loads(said(capsys, file, "--store", "--json")[1]) == {"id": kept["id"]}
    file.write_text("\n".join(map(json.dumps, labels(100))))
    status, out, err = said(capsys, file, "--store")
    assert (status, out) == (2, "")
    assert "100 calibrations" in err.splitlines()[-1]
    honest = [{"question": "q", "answer": {"type": "noul", "noul": 0.5}, "label": i % 2 == 0} for i in range(60)]
    file.write_text("\n".join(map(json.dumps, honest)))
    status, out, err = said(capsys, file, "--store")
    assert (status, out) == (1, "")
    assert "nothing to keep" in err
    status, out, _ = said(capsys, file, "--store", "--json")
    assert (status, json.loads(out)) == (1, {"id": None})

"""`client.batch`: every kind of source, rows as they come, tables, interruption; against the real app."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from photocall.asks import Ask
from photocall.client import (
    AsyncClient,
    BatchFailed,
    Client,
    Columns,
    InvalidRequest,
    Job,
    to_pandas,
    to_rows,
)
from photocall.client.batch_items import EVERY_COLUMN, given, split
from photocall.client.progress import Progress
from photocall.jobs import JobRecord, Outcome, Refused
from tests.gateway.fake_backend import FakeBackend, answered

PNG = b"\x89PNG\r\n\x1a\n"
QUESTIONS = {"full": "Is it full?", "bottles": "How many bottles? -> number"}


@pytest.fixture
def photocall(address: str) -> Iterator[Client]:
    with Client(address) as found:
        yield found


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    """Three pictures in a folder, one of them below."""
    folder = tmp_path / "shots"
    (folder / "monday").mkdir(parents=True)
    for name in ("a.png", "b.png", "monday/c.png"):
        (folder / name).write_bytes(PNG + name.encode())
    return folder


@pytest.fixture
def stumbling(backend: FakeBackend) -> FakeBackend:
    """Refuses what is about "bad"."""

    def respond(ask: Ask, record: JobRecord) -> Outcome:
        return Refused("unanswerable", "a stumble") if "bad" in str(ask.state) else answered(ask, record)

    backend.respond = respond
    return backend


def test_a_folder(photocall: Client, backend: FakeBackend, shots: Path) -> None:
    run = photocall.batch(shots, QUESTIONS, order="auto", metadata={"night": "run"})
    rows = list(run)
    assert sorted(row.custom_id for row in rows) == ["a.png", "b.png", "monday/c.png"]
    assert all(row["full"].yes and row["bottles"].number == 2 for row in rows)
    assert (run.status, run.counts["completed"], run.batch.fields["metadata"]) == ("completed", 3, {"night": "run"})
    assert [row.custom_id for row in run] == [row.custom_id for row in rows], "as often as wanted"
    again = photocall.resume(run.id)
    assert [row["id"] for row in again.to_rows()] == ["a.png", "b.png", "monday/c.png"]
    assert repr(again) == f"<batch {run.id} completed: 3 of 3 answered, 0 failed>"


def test_a_frame_comes_back_by_its_index(photocall: Client, stumbling: FakeBackend, shots: Path) -> None:
    frame = pd.DataFrame(
        {"file": [str(shots / "b.png"), shots / "a.png", None], "city": ["Bonn", "Köln", "bad"]}, index=[30, 10, 20]
    )
    run = photocall.batch(frame, QUESTIONS, state="From {city}.", columns=Columns(image="file"), progress=False)
    found = frame.join(run.to_pandas())
    assert list(found.index) == [30, 10, 20]
    assert list(found["full"]) == [True, True, None]
    assert (found["error"].isna().tolist(), found.loc[20, "error"]) == ([True, True, False], "unanswerable")
    assert found.loc[30, "full_probability"] == 0.875
    assert found.loc[10, ["bottles", "bottles_low", "bottles_high", "bottles_status"]].tolist() == [2, 2, 2, "answered"]
    (failed,) = run.failed()
    assert (failed.custom_id, failed.number) == ("20", 3)
    stumbling.respond = answered
    again = run.retry_failed()
    assert [row["full"].yes for row in again] == [True]
    assert again.batch.fields["retry_of"] == run.id


def test_a_table_of_arrow_and_back(photocall: Client, backend: FakeBackend) -> None:
    table = pa.table({"id": ["x", "y"], "image": [PNG + b"x", PNG + b"y"]})
    found = photocall.batch(table, {"where": "Where? -> box", **QUESTIONS}, columns=Columns(id="id")).to_arrow()
    assert found.column("id").to_pylist() == ["x", "y"]
    assert found.column("where").to_pylist()[0] == {"left": 0.125, "top": 0.25, "right": 0.5, "bottom": 0.75}
    assert found.column("full_probability").type == pa.float64()


def test_cells_of_a_frame_are_json() -> None:
    frame = pd.DataFrame({"n": [1, 2], "price": [1.5, None], "name": ["x", None]})
    assert [body["state"] for body in bodies(frame).values()] == [
        {"n": 1, "price": 1.5, "name": "x"},
        {"n": 2, "price": None, "name": None},
    ]
    json.dumps(bodies(frame))


def bodies(
    source: Any, questions: Any = "Is it?", state: Any = None, columns: Columns = EVERY_COLUMN
) -> dict[str, Any]:
    """What a source becomes, by id."""
    made = given(source, questions, state, columns, {})
    assert not isinstance(made.source, Path)
    return dict(made.source)


def test_other_sources(shots: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shots)
    assert list(bodies("**/*.png")) == ["a.png", "b.png", "monday/c.png"]
    pixels = np.zeros((2, 3), np.uint8)
    found = bodies([shots / "a.png", PNG, pixels, "https://photos.example/x", "a.png", "a.png"])
    assert list(found) == [str(shots / "a.png"), "2", "3", "https://photos.example/x", "a.png", "a.png (6)"]
    assert found["2"] == {
        "state": "[image 1]",
        "questions": {"answer": {"type": "noul", "instructions": "Is it?"}},
        "images": [{"data_base64": base64.b64encode(PNG).decode()}],
    }
    assert found["https://photos.example/x"]["images"] == [{"url": "https://photos.example/x"}]
    assert list(bodies({"north": PNG, 7: PNG})) == ["north", "7"]
    rows = [{"image": "a.png", "city": "Bonn"}, {"city": "Köln"}]
    assert [body["state"] for body in bodies(rows).values()] == ["[image 1]", {"city": "Köln"}]
    states = bodies(rows, state={"from": ["{city}", "[image 1]"], "n": 1})
    assert [body["state"] for body in states.values()] == [
        {"from": ["Bonn", "[image 1]"], "n": 1},
        {"from": ["Köln", "[image 1]"], "n": 1},
    ]
    assert [body["state"] for body in bodies(rows, state=lambda row: row["city"]).values()] == ["Bonn", "Köln"]


def test_files_of_rows(shots: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures in them are found beside them."""
    file = shots / "rows.jsonl"
    file.write_text('{"image": "monday/c.png", "sku": "7"}\n\n{"image": "a.png", "sku": "8"}\n')
    found = bodies(file, columns=Columns(id="sku"))
    assert [len(body["images"]) for body in found.values()] == [1, 1]
    assert list(found) == ["7", "8"]
    file.write_text('{"custom_id": "1", "method": "POST", "url": "/v1/decisions", "body": {}}\n')
    made = given(str(file), None, None, EVERY_COLUMN, {})
    assert (made.source, made.endpoint, made.request) == (file, "/v1/decisions", None)
    file.write_text("[1]\n")
    with pytest.raises(ValueError, match=r"rows\.jsonl, line 1: expected an object"):
        bodies(file)
    archive = shots / "shots.zip"
    archive.write_bytes(b"PK")
    made = given(archive, "Is it?", "A shelf: [image 1]", EVERY_COLUMN, {"budget": 70})
    assert (made.source, made.request and made.request["state"], made.request and made.request["budget"]) == (
        archive, "A shelf: [image 1]", 70,
    )  # fmt: skip


def test_what_is_no_batch(shots: Path) -> None:
    for source, questions, error, told in (
        (shots / "none", "Is it?", FileNotFoundError, "no such file or folder"),
        ("*.nothing", "Is it?", ValueError, "no file is called so"),
        ([], "Is it?", ValueError, "nothing in this batch"),
        (7, "Is it?", TypeError, "int is no batch"),
        (PNG, "Is it?", TypeError, "bytes is no batch"),
        ([PNG], None, ValueError, "no questions"),
        (shots, None, ValueError, "no questions"),
        (shots, {"a": 3}, TypeError, "question 'a' is a int"),
    ):
        with pytest.raises(error, match=told):
            given(source, questions, None, EVERY_COLUMN, {})
    with pytest.raises(FileNotFoundError) as missing:
        bodies([PNG, shots / "none.png"])
    assert missing.value.__notes__ == [f"in row {str(shots / 'none.png')!r} of the batch"]
    with pytest.raises(KeyError):
        bodies([{"picture": PNG}], columns=Columns(image="photo"))
    assert split({"metadata": 1, "budget": 2, "webhook": 3}) == ({"metadata": 1, "webhook": 3}, {"budget": 2})


def test_an_input_that_cannot_be_run_says_why(photocall: Client, backend: FakeBackend) -> None:
    run = photocall.batch([{"id": "x", "n": 1}, {"id": "x", "n": 2}], QUESTIONS, columns=Columns(id="id"))
    for wait in (run.wait, lambda: list(run)):
        with pytest.raises(BatchFailed, match="line 2") as failed:
            wait()
        assert failed.value.code == "duplicate_custom_id"
    with pytest.raises(InvalidRequest, match="criteria"):
        photocall.batch(Path(__file__).parent, {"q": {"type": "choice"}})


def test_the_same_key_is_the_same_batch(photocall: Client, backend: FakeBackend, shots: Path) -> None:
    first, again = (photocall.batch(shots, QUESTIONS, key="night-1") for _ in range(2))
    assert first.id == again.id
    assert again.wait().status == "completed"


@pytest.mark.parametrize("how", ["rows", "wait"])
def test_ctrl_c_ends_the_batch(
    photocall: Client, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    backend.hold.set()
    run = photocall.batch([{"n": n} for n in range(3)], QUESTIONS)

    running = run._run

    def interrupted(flow: Any) -> Any:
        """As somebody would who sees it wait."""
        if flow.__name__ == "rest":
            raise KeyboardInterrupt
        return running(flow)

    monkeypatch.setattr(run, "_run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(run) if how == "rows" else run.wait()
    assert photocall.batches.wait(run.id, timeout_s=30).status == "cancelled"


def test_a_block_that_ends_early_ends_the_batch(photocall: Client, backend: FakeBackend) -> None:
    backend.hold.set()
    with pytest.raises(ZeroDivisionError), photocall.batch([{"n": 1}], QUESTIONS) as run:
        _ = 1 / 0
    assert photocall.batches.wait(run.id, timeout_s=30).status == "cancelled"
    backend.hold.clear()
    with photocall.batch([{"n": 2}], QUESTIONS) as run:
        pass
    assert run.wait().status == "completed", "one that is only left goes on"


def test_the_bar_shows_what_is_answered(
    photocall: Client, stumbling: FakeBackend, capsys: pytest.CaptureFixture[str]
) -> None:
    run = photocall.batch([{"n": "bad"}, {"n": 1}, {"n": 2}], QUESTIONS, progress=True)
    assert run.wait().counts == {"total": 3, "completed": 2, "failed": 1}
    shown = capsys.readouterr().err
    assert "3/3" in shown
    assert "failed=1" in shown
    list(photocall.batch([{"n": 1}], QUESTIONS))
    assert capsys.readouterr().err == "", "nobody looks on"


def test_a_bar_without_tqdm(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(ImportError, match="pip install tqdm"):
        Progress(True)


def test_jobs_are_a_table_too(photocall: Client, stumbling: FakeBackend) -> None:
    jobs = [photocall.submit(None, {"which": "Which? -> a, b", **QUESTIONS}, state=state) for state in ("good", "bad")]
    ended = [photocall.wait(job, timeout_s=20) for job in jobs]
    frame = to_pandas(ended, probabilities=True)
    assert frame.loc[0, "which_p_a"] == 0.8
    assert frame.loc[1, "error"] == "unanswerable"
    assert list(frame.columns)[:4] == ["id", "which", "which_probability", "which_confidence"]
    (row,) = to_rows([Job({**ended[0].fields})])
    assert row["bottles"] == 2


def test_async(address: str, stumbling: FakeBackend, shots: Path) -> None:
    async def scenario() -> None:
        async with AsyncClient(address) as photocall:
            run = await photocall.batch(shots, QUESTIONS, key="k")
            assert len([row async for row in run]) == 3
            again = await photocall.batch(shots, QUESTIONS, key="k")
            assert ((await again.wait()).status, again.id) == ("completed", run.id)
            frame = await (await photocall.resume(run.id)).to_pandas()
            assert list(frame.index) == ["a.png", "b.png", "monday/c.png"]
            assert [row["full"] for row in await run.to_rows()] == [True] * 3
            assert (await run.to_arrow()).num_rows == 3
            mixed = await photocall.batch([{"n": "bad"}, {"n": 1}], QUESTIONS)
            assert [row.number for row in await mixed.failed()] == [1]
            assert (await (await mixed.retry_failed()).wait()).status == "failed"
            stumbling.hold.set()
            with pytest.raises(ZeroDivisionError):
                async with await photocall.batch([{"n": 3}], QUESTIONS) as run:
                    _ = 1 / 0
            assert (await photocall.batches.wait(run.id, timeout_s=30)).status == "cancelled"

    asyncio.run(scenario())

"""Commands that call a server, against the real app behind a real port: what they print, and what they write."""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from photocall.asks import Ask
from photocall.cli import follower, main
from photocall.client import Client
from photocall.client.errors import refused as refusal
from photocall.client.sync_batches import Batches
from photocall.jobs import JobRecord, Outcome, Refused
from photocall.settings import GatewaySettings
from tests.gateway.conftest import served
from tests.gateway.fake_backend import FakeBackend, answered
from tests.gateway.key_helper import keyed
from tests.small_disk import mounted

PNG = b"\x89PNG\r\n\x1a\n"
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs `photocall ...` here: status, output and errors."""
    monkeypatch.setenv("PHOTOCALL_URL", address)
    monkeypatch.delenv("PHOTOCALL_API_KEY", raising=False)

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        status = main([str(word) for word in arguments])
        out, err = capsys.readouterr()
        return status, out, err

    return run


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for name in ("a.png", "b.png", "c.png"):
        (folder / name).write_bytes(PNG + name.encode())
    return folder


def left(running: subprocess.Popen[bytes]) -> bool:
    """It has ended; until then Ctrl-C again: one right behind the first counts as the same press."""
    if running.poll() is None:
        running.send_signal(signal.SIGINT)
    return running.poll() is not None


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def requests(file: Path, count: int) -> Path:
    question = {"full": {"type": "noul", "instructions": "Is it full?"}}
    with file.open("w") as out:
        for number in range(count):
            body = {"state": f"shelf {number}", "questions": question}
            row = {"custom_id": f"r{number}", "method": "POST", "url": "/v1/systemone", "body": body}
            out.write(json.dumps(row) + "\n")
    return file


def test_ask(command: Command, backend: FakeBackend, pictures: Path) -> None:
    a, b = pictures / "a.png", pictures / "b.png"
    asked = ("-q", "Which?", "--choices", "red,blue", "-q", "Is it?", "--name", "so")
    status, out, err = command("ask", a, b, *asked)
    assert (status, err) == (0, "")
    assert [line.split() for line in out.splitlines()] == [
        ["PICTURE", "QUESTION", "ANSWER", "PROBABILITY"],
        [str(a), "q1", "red", "0.80"],
        [str(a), "so", "yes", "0.88"],
        [str(b), "q1", "red", "0.80"],
        [str(b), "so", "yes", "0.88"],
    ]
    status, out, _ = command("ask", "--together", a, b, *asked, "--json")
    assert status == 0
    [both] = lines(out)
    assert both["image"] == f"{a}, {b}"
    assert both["answers"]["so"] == {"type": "noul", "noul": 0.875}
    assert both["job"].startswith("job_")
    assert command("ask", "--state", "It rains", "-q", "Is it wet?")[0] == 0


def test_ask_goes_on_behind_a_picture_that_cannot_be_asked(
    command: Command, backend: FakeBackend, pictures: Path
) -> None:
    def refuse(record: JobRecord) -> Refused | None:
        return Refused("image_undecodable", "it is damaged") if record.metadata == {} and refused.pop() else None

    refused = [False, True]
    backend.prepare = refuse
    status, out, err = command("ask", pictures / "a.png", "/nowhere.png", pictures / "b.png", "-q", "?", "--json")
    assert status == 1
    assert [("answers" in found, found.get("error")) for found in lines(out)] == [
        (False, f"job {backend_job(err)} failed: it is damaged"),
        (False, "/nowhere.png: there is no such file: check the path"),
        (True, None),
    ]
    assert err.count("\n") == 2


def backend_job(err: str) -> str:
    return err.partition(": job ")[2].split()[0]


def test_jobs(command: Command, backend: FakeBackend, address: str) -> None:
    backend.hold.set()
    with Client(address) as photocall:
        ids = [
            photocall.submit(state=f"text {n}", questions={"q": {"type": "noul", "instructions": "?"}}, images={}).id
            for n in range(3)
        ]
    status, out, _ = command("jobs", "ls", "--json", "--limit", "2")
    assert [job["id"] for job in lines(out)] == ids[:0:-1]
    status, out, _ = command("jobs", "ls")
    assert [line.split()[:2] for line in out.splitlines()[1:]] == [[job_id, "queued"] for job_id in reversed(ids)]
    status, out, _ = command("jobs", "cancel", ids[0])
    assert (status, out.splitlines()[1].split()[:2]) == (0, [ids[0], "cancelled"])
    backend.hold.clear()
    status, out, err = command("jobs", "watch", *ids[1:])
    assert (status, err) == (0, "")
    ended = [line for line in out.splitlines() if "succeeded" in line]
    assert len(ended) == 2
    assert all("1 answered" in line for line in ended)
    status, out, _ = command("jobs", "watch", ids[0], "--json")
    assert (status, [job["status"] for job in lines(out)]) == (1, ["cancelled"])
    assert command("jobs", "watch")[:2] == (0, ""), "nothing is unfinished"
    status, out, _ = command("jobs", "get", ids[1])
    assert lines(out)[0]["result"]["answers"]["q"]["noul"] == 0.875
    status, _, err = command("jobs", "cancel", "keys")
    assert (status, err) == (
        2,
        "photocall jobs cancel: unknown job 'keys': check the id, and that PHOTOCALL_API_KEY is the key it was"
        " made with\n",
    )


def test_bench(command: Command, backend: FakeBackend, pictures: Path) -> None:
    backend.announce()
    status, out, err = command("bench", "--seconds", "1", "--warm-up", "0.2", "--callers", "2", "--json")
    assert status == 0, err
    [found] = lines(out)
    assert found["server"] == ["photocall-mini on cpu"]
    assert found["answered"] == round(found["pictures_per_s"]) > 0
    assert found["p50_ms"] > 0
    assert len(set(backend.seen)) >= found["answered"], "each call is a job of its own: none is answered from memory"
    backend.respond = lambda ask, record: Refused("internal", "it hurts")
    status, out, _ = command("bench", pictures / "a.png", "--seconds", "0.5", "--warm-up", "0", "--callers", "1")
    assert status == 1
    assert "refused  " in out
    assert "internal" in out


def test_doctor_looks_at_the_server(
    command: Command, backend: FakeBackend, settings: GatewaySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, out, _ = command("doctor", "--only", "server")
    assert (status, "lacks a prep worker, an engine that is ready" in out) == (1, True)
    backend.announce()
    status, out, _ = command("doctor", "--only", "server")
    assert (status, out.startswith("ok    server")) == (0, True)
    with served(keyed(settings, ann="ask")) as address:
        monkeypatch.setenv("PHOTOCALL_URL", address)
        assert "does not take the key" in command("doctor", "--only", "server")[1]


def test_models(command: Command) -> None:
    assert lines(command("models", "--json")[1])[0]["name"] == "photocall-mini"
    assert command("models")[1].startswith("NAME")


def test_keys(
    settings: GatewaySettings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = requests(tmp_path / "rows.jsonl", 1)
    monkeypatch.delenv("PHOTOCALL_API_KEY", raising=False)
    with served(keyed(settings, ann="ask", bob="ask,batch:rate=1/h")) as address:
        monkeypatch.setenv("PHOTOCALL_URL", address)

        def said(*arguments: str) -> str:
            assert main(arguments) == 2
            out, err = capsys.readouterr()
            assert (out, err.count("\n")) == ("", 1)
            return err

        assert "set PHOTOCALL_API_KEY to a key of this server" in said("jobs", "ls")
        monkeypatch.setenv("PHOTOCALL_API_KEY", "nobody")
        assert "set PHOTOCALL_API_KEY to a key of this server" in said("jobs", "ls")
        monkeypatch.setenv("PHOTOCALL_API_KEY", "ann")
        assert main(["jobs", "ls"]) == 0
        capsys.readouterr()
        assert "a key that has the scope" in said("batch", "ls")
        assert "a key that has the scope" in said("batch", "run", "-i", str(rows), "-o", str(tmp_path / "out.jsonl"))
        monkeypatch.setenv("PHOTOCALL_API_KEY", "bob")
        assert main(["jobs", "ls"]) == 0
        capsys.readouterr()
        assert "try again in" in said("jobs", "ls")


def test_a_batch_of_a_folder(command: Command, backend: FakeBackend, pictures: Path, tmp_path: Path) -> None:
    out_file = tmp_path / "out.jsonl"
    run = ("batch", "run", "-i", pictures, "-o", out_file, "-q", "Is it full?")
    status, out, err = command(*run)
    assert (status, err) == (0, "")
    assert out == f"{out_file}: completed; 3 rows answered now, none left\n"
    rows = {row["custom_id"]: row for row in lines(out_file.read_text())}
    assert set(rows) == {"a.png", "b.png", "c.png"}
    assert rows["a.png"]["response"]["body"]["answers"]["q1"] == {"type": "noul", "noul": 0.875}
    seen = len(backend.seen)
    assert "everything is answered already" in command(*run)[1]
    assert len(backend.seen) == seen
    assert not (tmp_path / "out.errors.jsonl").exists()
    (pictures / "d.png").write_bytes(PNG)
    status, _, err = command(*run)
    assert (status, "is of other rows or questions" in err) == (2, True)
    status, _, err = command(*run[:4], "-o", pictures / "a.png", "-q", "?")
    assert (status, "is there already" in err) == (2, True)
    status, _, err = command("batch", "run", "-i", pictures, "-o", tmp_path / "new.jsonl")
    assert (status, "pictures need a question" in err) == (2, True)


def test_the_same_command_asks_again_what_was_not_answered(
    command: Command, backend: FakeBackend, tmp_path: Path
) -> None:
    out_file, failures = tmp_path / "out.jsonl", tmp_path / "out.errors.jsonl"

    def respond(ask: Ask, record: JobRecord) -> Outcome:
        return Refused("internal", "it hurts") if ask.state == "shelf 1" else answered(ask, record)

    backend.respond = respond
    run = ("batch", "run", "-i", requests(tmp_path / "rows.jsonl", 3), "-o", out_file, "--json")
    status, out, _ = command(*run)
    [first] = lines(out)
    assert (status, first["unanswered"], first["failures"]) == (1, 1, str(failures))
    assert [row["custom_id"] for row in lines(failures.read_text())] == ["r1"]
    backend.respond = answered
    status, out, err = command(*run)
    [second] = lines(out)
    assert (status, second["unanswered"], second["failures"]) == (0, 0, None)
    assert second["batch"] != first["batch"]
    assert "asking the 1 rows again" in err
    assert sorted(row["custom_id"] for row in lines(out_file.read_text())) == ["r0", "r1", "r2"]
    assert not failures.exists()
    status, out, _ = command("batch", "get", first["batch"], "--results")
    assert {row["custom_id"] for row in lines(out)} == {"r0", "r2"}
    status, out, _ = command("batch", "get", first["batch"], "--failures", "--wait")
    assert (status, [row["custom_id"] for row in lines(out)]) == (1, ["r1"])
    assert command("batch", "get", second["batch"], "--wait")[0] == 0
    status, out, _ = command("batch", "ls", "--json")
    assert [batch["id"] for batch in lines(out)] == [second["batch"], first["batch"]]
    status, out, _ = command("batch", "ls")
    assert [line.split()[1] for line in out.splitlines()[1:]] == ["completed", "completed"]
    status, out, _ = command("batch", "retry-failed", first["batch"], "--json")
    assert lines(out)[0]["retry_of"] == first["batch"]


def test_rows_that_cannot_be_run_can_be_corrected(command: Command, backend: FakeBackend, tmp_path: Path) -> None:
    rows, out_file = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    rows.write_text('{"custom_id"\n')
    status, out, err = command("batch", "run", "-i", rows, "-o", out_file)
    assert (status, out) == (2, "")
    assert err == (
        f"photocall batch run: {rows} cannot be run: line 1: This line is not parseable as valid JSON: correct it\n"
    )
    rows.write_text('{"image": "none.png"}\n')
    status, out, err = command("batch", "run", "-i", rows, "-o", out_file, "-q", "Is it?")
    assert (status, "line 1: none.png: No such file" in err) == (2, True)
    assert command("batch", "run", "-i", requests(rows, 2), "-o", out_file)[0] == 0
    assert len(lines(out_file.read_text())) == 2


def test_rows_on_standard_input(
    command: Command, backend: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with requests(tmp_path / "rows.jsonl", 2).open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        out_file = tmp_path / "out.jsonl"
        assert command("batch", "run", "-i", "-", "-o", out_file)[0] == 0
    assert len(lines(out_file.read_text())) == 2
    assert sorted(path.name for path in tmp_path.glob("out*")) == ["out.jsonl", "out.jsonl.photocall"]


def piped(patched: pytest.MonkeyPatch, rows: bytes) -> None:
    patched.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(rows)))


def test_other_rows_on_standard_input_are_not_taken_for_the_same(
    command: Command, backend: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were not read: everything was answered already, whatever was piped in."""
    two = requests(tmp_path / "rows.jsonl", 2).read_bytes()
    run = ("batch", "run", "-i", "-", "-o", tmp_path / "out.jsonl")
    piped(monkeypatch, b"")
    status, _, err = command(*run)
    assert (status, "there are no rows on standard input" in err) == (2, True)
    assert not list(tmp_path.glob("out*"))
    piped(monkeypatch, two)
    assert command(*run)[0] == 0
    for again in (two, b""):
        piped(monkeypatch, again)
        status, out, _ = command(*run)
        assert (status, "everything is answered already" in out) == (0, True)
    piped(monkeypatch, requests(tmp_path / "rows.jsonl", 3).read_bytes())
    status, _, err = command(*run)
    assert (status, "is of other rows or questions" in err) == (2, True)
    assert len(backend.seen) == 2


@pytest.mark.parametrize("again", ["the same", "nothing", "others"])
def test_rows_on_standard_input_outlast_a_kill(
    again: str, command: Command, backend: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object, **__: object) -> None:
        raise Killed

    two = requests(tmp_path / "rows.jsonl", 2).read_bytes()
    run = ("batch", "run", "-i", "-", "-o", tmp_path / "out.jsonl")
    with monkeypatch.context() as patched:
        patched.setattr("photocall.cli.batch_run.replace", killed)  # the batch has begun; its id is not written
        piped(patched, two)
        with pytest.raises(Killed):
            command(*run)
    others = requests(tmp_path / "rows.jsonl", 3).read_bytes()
    piped(monkeypatch, {"the same": two, "nothing": b"", "others": others}[again])
    status, _, err = command(*run)
    assert (status, "is of other rows or questions" in err) == ((2, True) if again == "others" else (0, False)), err
    assert len(lines(command("batch", "ls", "--json")[1])) == 1
    assert (tmp_path / "out.jsonl.input").exists() == (again == "others")


@pytest.mark.parametrize(
    ("status", "repeated", "kept"),
    [
        *((status, False, False) for status in (401, 422, 507)),
        *((status, False, True) for status in (0, 409, 500)),
        (422, True, True),
    ],
)
def test_rows_that_the_server_refused_are_not_those_of_the_next_run(
    status: int,
    repeated: bool,
    kept: bool,
    command: Command,
    backend: FakeBackend,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The corrected rows were not read, and the refused ones uploaded again."""

    def refuse(*_: object, **__: object) -> None:
        raise refusal(status, {"detail": "no"}, repeated)

    run = ("batch", "run", "-i", "-", "-o", tmp_path / "out.jsonl")
    with monkeypatch.context() as patched:
        patched.setattr(Batches, "create", refuse)
        piped(patched, requests(tmp_path / "rows.jsonl", 1).read_bytes())
        assert command(*run)[0] == 2
    left = {"out.jsonl.photocall", "out.jsonl.input"} if kept else set()
    assert {path.name for path in tmp_path.glob("out*")} == left
    piped(monkeypatch, requests(tmp_path / "rows.jsonl", 2).read_bytes())
    assert command(*run)[0] == (2 if kept else 0)
    assert len(backend.seen) == (0 if kept else 2)


def test_a_run_that_was_killed_goes_on(
    command: Command, backend: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each commit in turn: no row is asked twice, and none is written twice."""
    rows, out_file = requests(tmp_path / "rows.jsonl", 6), tmp_path / "out.jsonl"
    monkeypatch.setattr(follower, "COMMIT_LINES", 2)

    class Killed(BaseException):
        pass

    commit = follower.Follower._commit
    for when in range(2):

        def killed(self: Any, when: int = when, **fields: Any) -> None:
            if when == 0:  # nothing is counted, but some of it is on the disk
                self._answers.commit()
                raise Killed
            commit(self, **fields)
            raise Killed

        monkeypatch.setattr(follower.Follower, "_commit", killed)
        with pytest.raises(Killed):
            command("batch", "run", "-i", rows, "-o", out_file)
    monkeypatch.setattr(follower.Follower, "_commit", commit)
    assert command("batch", "run", "-i", rows, "-o", out_file)[0] == 0
    assert sorted(row["custom_id"] for row in lines(out_file.read_text())) == [f"r{n}" for n in range(6)]
    assert len(backend.seen) == 6
    assert len(lines(command("batch", "ls", "--json")[1])) == 1


def test_a_run_killed_before_it_knew_that_it_had_begun(
    command: Command, backend: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    rows, out_file = requests(tmp_path / "rows.jsonl", 2), tmp_path / "out.jsonl"
    with monkeypatch.context() as patched:

        def killed(*_: object, **__: object) -> None:
            raise Killed

        patched.setattr("photocall.cli.batch_run.replace", killed)  # the batch has begun; its id is not written
        with pytest.raises(Killed):
            command("batch", "run", "-i", rows, "-o", out_file)
    assert command("batch", "run", "-i", rows, "-o", out_file)[0] == 0
    assert len(lines(command("batch", "ls", "--json")[1])) == 1
    assert len(lines(out_file.read_text())) == 2


def test_a_full_disk_is_said_and_nothing_is_lost(command: Command, backend: FakeBackend, tmp_path: Path) -> None:
    rows = requests(tmp_path / "rows.jsonl", 40)
    with mounted(tmp_path / "disk", "256k") as disk:
        run = ("batch", "run", "-i", rows, "-o", disk / "out.jsonl")
        with (disk / "filler").open("wb", buffering=0) as filler:
            filler.write(bytes(256 * 1024 - 16 * 1024))
        status, _, err = command(*run)
        assert (status, err.count("\n")) == (2, 1)
        assert "the disk is full: free some room, and run the same command again" in err
        (disk / "filler").unlink()
        status, _, err = command(*run)
        assert (status, err) == (0, "")
        found = [row["custom_id"] for row in lines((disk / "out.jsonl").read_text())]
        assert sorted(found) == sorted(f"r{n}" for n in range(40))
    assert len(backend.seen) == 40


def test_an_answer_that_takes_too_long(command: Command, backend: FakeBackend) -> None:
    backend.hold.set()
    status, out, err = command("ask", "--state", "It rains", "-q", "Is it wet?", "--timeout", "0.2")
    assert (status, out) == (1, "")
    assert re.search(r"has not ended within 0\.2 s, and runs on: `photocall jobs watch job_\w+` follows it$", err)


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_cancels_and_twice_leaves(
    presses: int, address: str, backend: FakeBackend, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    count = itertools.count(1)

    def respond(ask: Ask, record: JobRecord) -> Outcome:
        if next(count) == 4:  # whichever row comes fourth: they come in any order
            backend.hold.set()
        return answered(ask, record)

    backend.respond = respond
    rows, out_file, told = requests(tmp_path / "rows.jsonl", 6), tmp_path / "out.jsonl", tmp_path / "told"
    command = [sys.executable, "-m", "photocall.cli", "batch", "run", "-i", str(rows), "-o", str(out_file)]
    environ = os.environ | {"PHOTOCALL_URL": address}
    with told.open("wb") as err, subprocess.Popen(command, env=environ, stdout=err, stderr=err) as running:
        eventually(lambda: out_file.exists() and backend.hold.is_set())
        running.send_signal(signal.SIGINT)
        eventually(lambda: "Ctrl-C again" in told.read_text())
        if presses == 2:
            eventually(lambda: left(running))
        assert running.wait(30) == 1
    with Client(address) as photocall:
        [batch] = [photocall.batches.get(json.loads(Path(f"{out_file}.photocall").read_text())["batch_id"])]
        written = {row["custom_id"] for row in lines(out_file.read_text())}
        if presses == 2:
            assert "runs on: `photocall batch get batch_" in told.read_text()
            assert batch.status == "in_progress"
        else:
            assert batch.status == "cancelled"
            assert len(written) == batch.counts["completed"] < 6
            assert "the same command asks these again" in told.read_text()
        backend.hold.clear()
        backend.respond = answered
        again = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=60)
    assert again.returncode == 0, again.stderr
    found = [row["custom_id"] for row in lines(out_file.read_text())]
    assert sorted(found) == [f"r{n}" for n in range(6)]
    assert written < set(found)

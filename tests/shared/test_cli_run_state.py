"""How far a `photocall batch run` is: what is kept beside its output, and lines that are there whole or not at all."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from photocall.cli.batch_rows import is_lines, pictured
from photocall.cli.errors import Unable, explained
from photocall.cli.result_file import ResultFile
from photocall.cli.run_state import KEY_S, Place, RunState, failures_file, fingerprint, state_file
from tests.small_disk import mounted


def test_a_state_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = state_file(tmp_path / "out.jsonl")
    assert RunState.read(file) is None
    state = replace(RunState.begin("f"), batch_id="batch_1", unanswered=2, answers=Place(3, 30), failures=Place(2, 9))
    state.write(file)
    assert RunState.read(file) == state
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl.photocall"]
    again = state.again()
    assert again.key != state.key
    assert (again.batch_id, again.retry_of, again.unanswered) == (None, "batch_1", None)
    assert (again.answers, again.failures) == (Place(0, 30), Place())
    assert not again.lost
    later = again.key_at + KEY_S + 1
    monkeypatch.setattr("photocall.cli.run_state.time.time", lambda: later)
    assert again.lost
    assert not state.lost, "a batch that is known to have begun is found by its id"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"version": 1}', '{"version": 2}', '{"version": 1, "x": 1}'])
def test_a_state_that_cannot_be_read_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "s"
    file.write_text(text)
    with pytest.raises(Unable, match="to begin anew"):
        RunState.read(file)


def test_another_input_is_another_run(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    (folder / "a.png").write_bytes(b"a")
    asked = {"q": 1}
    first = fingerprint(folder, asked)
    assert fingerprint(folder, asked) == first
    assert fingerprint(folder, {"q": 2}) != first
    os.utime(folder / "a.png", ns=(1, 1))
    changed = fingerprint(folder, asked)
    (folder / "b.png").write_bytes(b"b")
    assert len({first, changed, fingerprint(folder, asked), fingerprint(None, asked)}) == 4
    assert failures_file(Path("x/out.jsonl")) == Path("x/out.errors.jsonl")


def test_lines_that_were_not_counted_are_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    written = ResultFile(path, Place())
    assert written.commit() == Place()
    assert not path.exists(), "no line, no file"
    for number in range(2):
        written.add({"row": number, "é": "日"})
    assert written.dirty == 2
    place = written.commit()
    assert place == Place(2, path.stat().st_size)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"row": 2}\n{"ro')
    after = ResultFile(path, place)
    after.add({"row": 2})
    assert after.commit().lines == 3
    assert [json.loads(line)["row"] for line in path.read_text().splitlines()] == [0, 1, 2]
    ResultFile(path, Place())
    assert not path.exists()
    path.write_bytes(b"x")
    with pytest.raises(Unable, match="has lost lines"):
        ResultFile(path, place)


def test_a_full_disk_loses_no_line(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "64k") as disk:
        path = disk / "out.jsonl"
        lines = ResultFile(path, Place())
        lines.add({"row": 0})
        place = lines.commit()
        lines.add({"row": "x" * 100_000})
        with pytest.raises(OSError, match="No space") as full:
            lines.commit()
        assert full.value.errno == errno.ENOSPC
        assert explained(full.value) == (
            2, f"{path}: the disk is full: free some room, and run the same command again",
        )  # fmt: skip
        again = ResultFile(path, place)
        again.add({"row": 1})
        assert again.commit().lines == 2
        assert [json.loads(line)["row"] for line in path.read_text().splitlines()] == [0, 1]


def test_rows_that_name_pictures(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"PNG")
    rows = tmp_path / "rows.jsonl"
    named = [{"image": "a.png"}, {"image": "https://x.example/b.png", "id": 7, "state": "A door"}, {"image": "0" * 64}]
    rows.write_text("\n".join(map(json.dumps, named)) + "\n\n")
    assert is_lines(rows)
    request = {"state": "[image 1]", "questions": {}}
    found = dict(pictured(rows, request))
    assert list(found) == ["a.png", "7", "0" * 64]
    assets = [body["assets"]["[image 1]"] for body in found.values()]
    assert assets == [
        {"type": "image", "data_base64": "UE5H"},
        {"type": "image", "url": "https://x.example/b.png"},
        {"type": "image", "sha256": "0" * 64},
    ]
    assert found["7"]["state"] == "[image 1]\nA door"
    for bad, words in (("{", "is no JSON"), ('{"x": 1}', "names no picture"), ('{"image": "b.png"}', "b.png: No such")):
        rows.write_text(f'{{"image": "a.png"}}\n{bad}\n')
        with pytest.raises(Unable, match=f"line 2.*{words}"):
            list(pictured(rows, request))

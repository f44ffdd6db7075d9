"""Batches of pictures under one question set: zip, tar and folder; what is unsafe in them; what is large in them."""

from __future__ import annotations

import base64
import io
import os
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from photocall.asks import Ask
from photocall.jobs import JobRecord, Outcome
from photocall.settings import GatewaySettings
from photocall_gateway.app import create_app
from photocall_gateway.batches import inputs, picture_inputs, zip_index
from photocall_gateway.batches.inputs import InputRefused
from photocall_gateway.batches.picture_inputs import FolderInput, TarInput, ZipInput
from tests.gateway.batch_helper import QUESTIONS, Caller
from tests.gateway.conftest import POLICY
from tests.gateway.fake_backend import FakeBackend, answered

PNG = b"\x89PNG\r\n\x1a\n"
REQUEST = {"state": "A shelf: [image 1]", "questions": QUESTIONS}
MAX_BYTES = 1 << 19  # of a picture, in the settings of these tests
FILES = {"a.png": PNG + b"a", "deep/er/b.png": PNG + b"b", "twin.png": PNG + b"a", "note.txt": b"no picture"}


def zipped(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def tarred(files: dict[str, bytes], mode: Any = "w") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """What the operator serves, with a secret beside it."""
    (tmp_path / "secret.png").write_bytes(PNG + b"secret")
    made = tmp_path / "root"
    for name, data in FILES.items():
        path = made / "shelves" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return made


@pytest.fixture
def caller(settings: GatewaySettings, root: Path) -> Iterator[Caller]:
    app = create_app(replace(settings, batch_root=root), POLICY)
    with TestClient(app, base_url="http://127.0.0.1:8080") as client:
        yield Caller(client)


@pytest.mark.parametrize("kind", ["deflated", "stored", "tar", "tar.gz", "folder"])
def test_one_row_per_picture(caller: Caller, backend: FakeBackend, kind: str) -> None:
    asked: list[Ask] = []

    def respond(ask: Ask, record: JobRecord) -> Outcome:
        asked.append(ask)
        return answered(ask, record)

    backend.respond = respond
    if kind == "folder":
        body = {"input_folder": "shelves", "endpoint": "/v1/systemone", "request": REQUEST}
        batch = caller.ended(caller.post("/v1/batches", body).json()["id"])
        assert batch["folder"] == "shelves"
    else:
        hidden = {"__MACOSX/a.png": b"junk", ".DS_Store": b"junk", "deep/.hidden": b"junk"}
        data = {
            "deflated": lambda: zipped({**FILES, **hidden, "deep/": b""}),
            "stored": lambda: zipped(FILES, zipfile.ZIP_STORED),
            "tar": lambda: tarred({**hidden, **FILES}),
            "tar.gz": lambda: tarred(FILES, "w:gz"),
        }[kind]()
        batch = caller.run(data, request=REQUEST)
    assert batch["status"] == "completed", batch
    assert batch["request_counts"] == {"total": 4, "completed": 3, "failed": 1}
    done, failed = caller.results(batch)
    assert done.keys() == {"a.png", "deep/er/b.png", "twin.png"}
    assert failed["note.txt"]["response"]["status_code"] == 415
    assert len(asked) == 2  # equal pictures are asked about once
    assert all(ask.state == "A shelf: [image 1]" and len(ask.images) == 1 for ask in asked)


def test_decisions_about_pictures(caller: Caller, backend: FakeBackend) -> None:
    question = {"type": "predicate", "name": "full", "instructions": "Is it full?"}
    request = {"input": "A shelf.", "questions": [question]}
    batch = caller.run(zipped({"a.png": PNG + b"a"}), "/v1/decisions", request=request)
    done, _ = caller.results(batch)
    assert done["a.png"]["response"]["body"]["answers"][0]["probability"] == 0.875
    shown = {"type": "input_image", "image_url": f"data:;base64,{base64.b64encode(PNG + b'a').decode()}"}
    messages = [{"role": "user", "content": "A shelf."}, {"role": "user", "content": [shown]}]
    alone = caller.post("/v1/decisions", {**request, "input": messages})
    assert alone.json() == done["a.png"]["response"]["body"]


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, target
        archive.addfile(member)
    return out.getvalue()


def zip_link(name: str, target: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        member = zipfile.ZipInfo(name)
        member.create_system, member.external_attr = 3, 0o120777 << 16
        archive.writestr(member, target)
    return out.getvalue()


def overlapping() -> bytes:
    """Many entries over the same bytes: a small file that unpacks to whatever one likes."""
    data = bytearray(zipped({f"{i:03}.png": PNG + bytes(40_000) for i in range(200)}, zipfile.ZIP_STORED))
    source = io.BytesIO(data)
    first = next(zip_index.entries(source, len(data)))
    at = data.find(b"PK\x01\x02")
    head, tail = bytes(data[: first.compressed + 100]), bytearray(data[at:])
    place = 0
    while (place := tail.find(b"PK\x01\x02", place)) >= 0:
        tail[place + 42 : place + 46] = bytes(4)
        place += 4
    end = tail.rfind(b"PK\x05\x06")
    tail[end + 16 : end + 20] = len(head).to_bytes(4, "little")
    return head + bytes(tail)


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: zipped({"../../etc/passwd": PNG}), "unsafe_path"),
        (lambda: zipped({"/etc/passwd": PNG}), "unsafe_path"),
        (lambda: zipped({"a\\..\\..\\b.png": PNG}), "unsafe_path"),
        (lambda: zipped({"C:/b.png": PNG}), "unsafe_path"),
        (lambda: zip_link("a.png", b"/etc/passwd"), "unsafe_member"),
        (overlapping, "archive_too_large"),
        (lambda: zipped({"a.png": PNG, "./a.png": PNG}), "duplicate_custom_id"),
        (lambda: zipped({}), "empty_file"),
        (lambda: zipped(FILES)[:-30], "invalid_archive"),
        (lambda: b"PK\x03\x04" + os.urandom(1000), "invalid_archive"),
        (lambda: tarred({"../up.png": PNG}), "unsafe_path"),
        (lambda: tarred({"/abs.png": PNG}), "unsafe_path"),
        (lambda: link("a.png", "/etc/passwd"), "unsafe_member"),
        (lambda: link("a.png", "b.png", tarfile.LNKTYPE), "unsafe_member"),
        (lambda: link("a.png", "", tarfile.FIFOTYPE), "unsafe_member"),
        (lambda: tarred({"a.png": PNG})[:600], "invalid_archive"),
        (lambda: b"\x1f\x8b" + os.urandom(1000), "invalid_archive"),
        (lambda: tarred(FILES, "w:gz")[:-20], "invalid_archive"),
    ],
)
def test_an_unsafe_or_broken_archive_is_refused_whole(caller: Caller, make: Callable[[], bytes], code: str) -> None:
    batch = caller.run(make(), request=REQUEST)
    assert batch["status"] == "failed"
    assert batch["errors"]["data"][0]["code"] == code, batch["errors"]


def test_a_picture_that_is_damaged_or_too_large_fails_alone(caller: Caller, backend: FakeBackend) -> None:
    broken = bytearray(zipped({"a.png": PNG + b"a", "b.png": PNG + b"bb", "c.png": PNG + bytes(MAX_BYTES)}, 0))
    at = broken.find(PNG + b"bb")
    broken[at + 9] ^= 1
    done, failed = caller.results(caller.run(bytes(broken), request=REQUEST))
    assert done.keys() == {"a.png"}
    assert {name: row["response"]["status_code"] for name, row in failed.items()} == {"b.png": 422, "c.png": 413}


def test_what_expands_beyond_reason_is_refused_unread(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(inputs, "MIN_EXPANDED_BYTES", 1 << 20)
    bomb = {f"{i}.png": PNG + bytes(200_000) for i in range(20)}
    (tmp_path / "bomb.zip").write_bytes(zipped(bomb))
    (tmp_path / "bomb.tgz").write_bytes(tarred(bomb, "w:gz"))
    for found in (
        ZipInput(tmp_path / "bomb.zip", "/v1/systemone", REQUEST, MAX_BYTES),
        TarInput(tmp_path / "bomb.tgz", tmp_path / "plain.tar", "/v1/systemone", REQUEST, MAX_BYTES),
    ):
        with pytest.raises(InputRefused, match="expands to over"):
            list(found.scan())
    assert not (tmp_path / "plain.tar").exists()


def test_a_header_of_any_size_is_not_read_into_memory(tmp_path: Path) -> None:
    """Python's tarfile reads an extended header whole, whatever its length says."""
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, picture_inputs.MAX_HEADER_BYTES * 2
    (tmp_path / "x.tar").write_bytes(header.tobuf() + bytes(header.size + 10240))
    found = TarInput(tmp_path / "x.tar", tmp_path / "plain.tar", "/v1/systemone", REQUEST, MAX_BYTES)
    with pytest.raises(InputRefused, match="header of over"):
        list(found.scan())


def test_zip64_and_foreign_names(tmp_path: Path) -> None:
    path = tmp_path / "wide.zip"
    with zipfile.ZipFile(path, "w") as archive, archive.open("größe.png", "w", force_zip64=True) as member:
        member.write(PNG + b"x")
    found = ZipInput(path, "/v1/systemone", REQUEST, MAX_BYTES)
    [row] = found.scan()
    assert row.custom_id == "größe.png"
    assert found.picture(row) == PNG + b"x"


def test_many_entries_cost_no_memory(tmp_path: Path) -> None:
    """The index is read entry by entry, and gives what Python's own reader gives."""
    names = [f"{i:05}.png" for i in range(3000)]
    data = zipped(dict.fromkeys(names, PNG), zipfile.ZIP_STORED)
    found = zip_index.entries(io.BytesIO(data), len(data))
    assert next(found).name == names[0]
    assert [entry.name for entry in found] == names[1:]


@pytest.mark.parametrize("folder", ["../", "shelves/../..", "/etc", "nothing", "out", "shelves/a.png", "a\0b"])
def test_no_folder_beyond_the_root(caller: Caller, root: Path, folder: str) -> None:
    (root / "out").symlink_to(root.parent)
    found = caller.post("/v1/batches", {"input_folder": folder, "endpoint": "/v1/systemone", "request": REQUEST})
    assert found.status_code == 422
    assert found.json()["error"]["param"] == "input_folder"


def test_links_in_a_folder_are_left_out_and_never_followed_later(root: Path) -> None:
    shelf = root / "shelves"
    (shelf / "link.png").symlink_to(root.parent / "secret.png")
    (shelf / "linked").symlink_to(root.parent)
    os.mkfifo(shelf / "pipe.png")
    found = FolderInput(root, "shelves", "/v1/systemone", REQUEST, MAX_BYTES)
    rows = {row.custom_id: row for row in found.scan()}
    assert rows.keys() == FILES.keys()
    (shelf / "a.png").unlink()
    (shelf / "a.png").symlink_to(root.parent / "secret.png")  # between the scan and the row's turn
    with pytest.raises(Exception, match="not there any more"):
        found.picture(rows["a.png"])


def test_folders_are_served_only_where_the_operator_says_so(settings: GatewaySettings) -> None:
    with TestClient(create_app(settings, POLICY), base_url="http://127.0.0.1:8080") as client:
        body = {"input_folder": "shelves", "endpoint": "/v1/systemone", "request": REQUEST}
        found = client.post("/v1/batches", json=body)
    assert found.status_code == 422
    assert "PHOTOCALL_BATCH_ROOT is not set" in found.json()["error"]["message"]


@pytest.mark.parametrize("extra", [{}, {"request": {"state": "x"}}, {"request": {**REQUEST, "assets": {"a": {}}}}])
def test_pictures_need_a_request_that_can_be_asked(caller: Caller, extra: dict[str, Any]) -> None:
    file_id = caller.upload(zipped(FILES))
    found = caller.post("/v1/batches", {"input_file_id": file_id, "endpoint": "/v1/systemone", **extra})
    assert found.status_code == 422
    assert found.json()["error"]["param"].startswith("request")

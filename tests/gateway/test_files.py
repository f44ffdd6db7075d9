"""Files: uploads straight to the disk, within bounds; lists, deletion, expiry; nothing left of what was refused."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import httpx
import pytest
from starlette.testclient import TestClient

from photocall.settings import DAY_S, GatewaySettings
from photocall_gateway.app import create_app
from photocall_gateway.batches.files import FileShelf, StoredFile
from photocall_gateway.batches.places import Places, tag
from photocall_gateway.routes import files
from tests.gateway.batch_helper import Caller, jsonl, line
from tests.gateway.conftest import POLICY


@pytest.fixture
def caller(settings: GatewaySettings) -> Iterator[Caller]:
    small = replace(settings, max_file_bytes=1 << 20, max_files_per_key=3)
    with TestClient(create_app(small, POLICY), base_url="http://127.0.0.1:8080") as client:
        yield Caller(client)


def stored(data: Path) -> list[Path]:
    return [path for path in (data / "files").rglob("*") if path.is_file()]


def test_a_file_comes_back_as_it_was(caller: Caller) -> None:
    data = os.urandom(700_000)
    file_id = caller.upload(data, "größe.bin")
    shown = caller.get(f"/v1/files/{file_id}").json()
    assert shown["bytes"] == len(data)
    assert (shown["object"], shown["purpose"], shown["filename"], shown["status"]) == (
        "file",
        "batch",
        "größe.bin",
        "processed",
    )
    assert shown["expires_at"] == shown["created_at"] + 30 * DAY_S
    found = caller.get(f"/v1/files/{file_id}/content")
    assert found.content == data
    part = caller.get(f"/v1/files/{file_id}/content", range="bytes=5-9")
    assert (part.status_code, part.content) == (206, data[5:10])
    assert part.headers["content-range"] == f"bytes 5-9/{len(data)}"
    assert caller.get(f"/v1/files/{file_id}/content?after=1").status_code == 422


def test_lists_and_deletion(caller: Caller, settings: GatewaySettings) -> None:
    made = []
    for i in range(3):
        made.append(caller.upload(b"x" * i))
        time.sleep(0.002)
    assert [shown["id"] for shown in caller.get("/v1/files").json()["data"]] == made[::-1]
    page = caller.get("/v1/files?order=asc&limit=2").json()
    assert [shown["id"] for shown in page["data"]] == made[:2]
    assert page["has_more"] is True
    rest = caller.get(f"/v1/files?order=asc&limit=2&after={page['last_id']}").json()
    assert ([shown["id"] for shown in rest["data"]], rest["has_more"]) == (made[2:], False)
    assert caller.get("/v1/files?purpose=batch_output").json()["data"] == []
    caller.http.delete(f"/v1/files/{made.pop(1)}")
    for order, left in (("asc", made[1:]), ("desc", made[:1])):  # a list goes on behind a file that is gone
        behind = caller.get(f"/v1/files?order={order}&after={page['last_id']}").json()["data"]
        assert [shown["id"] for shown in behind] == left
    assert caller.get("/v1/files?after=file-none").status_code == 404
    for file_id in made:
        gone = caller.http.delete(f"/v1/files/{file_id}")
        assert gone.json() == {"id": file_id, "object": "file", "deleted": True}
        assert caller.http.delete(f"/v1/files/{file_id}").status_code == 404
        assert caller.get(f"/v1/files/{file_id}/content").status_code == 404
    assert not stored(settings.data)


def test_bounds_are_said_and_nothing_stays(
    caller: Caller, settings: GatewaySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sent(data: bytes, **fields: str) -> tuple[int, Any]:
        found = caller.http.post("/v1/files", files={"file": ("x", data)}, data={"purpose": "batch", **fields})
        return found.status_code, found.json()["error"]["code"] if found.status_code != 200 else None

    assert sent(b"x" * (1 << 20)) == (200, None)
    assert sent(b"x" * ((1 << 20) + 1)) == (413, "body_too_large")
    assert sent(b"x" * (3 << 20)) == (413, "body_too_large")  # by its announced length already
    assert sent(b"x", purpose="fine-tune") == (422, "invalid_field")
    assert sent(b"x", **{"expires_after[seconds]": "5"}) == (422, "invalid_field")
    assert sent(b"x", other="y" * 2000) == (400, "malformed")
    assert len(stored(settings.data)) == 2  # the one that was kept, and its description
    assert sent(b"x") == sent(b"x") == (200, None)
    assert sent(b"x") == (409, "too_many_files")

    class Usage(NamedTuple):
        free: int

    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(settings.min_free_bytes - 1))
    caller.http.delete(f"/v1/files/{caller.get('/v1/files').json()['data'][0]['id']}")
    assert sent(b"x") == (507, "disk_full")


def test_a_disk_that_fills_up_meanwhile(caller: Caller, settings: GatewaySettings) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))  # a write fails, as on a full disk
    try:
        found = caller.http.post("/v1/files", files={"file": ("x", b"x" * 600_000)}, data={"purpose": "batch"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (found.status_code, found.json()["error"]["code"]) == (507, "disk_full")
    assert not stored(settings.data)


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"{}", "application/json", 415),
        (b"", "multipart/form-data", 415),
        (b"--b\r\nnonsense", "multipart/form-data; boundary=b", 400),
        (b'--b\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--b--\r\n',
         "multipart/form-data; boundary=b", 400),
        (b'--b\r\ncontent-disposition: form-data; name="file"\r\n\r\nhalf', "multipart/form-data; boundary=b", 400),
    ],
)  # fmt: skip
def test_what_is_no_upload(caller: Caller, settings: GatewaySettings, content: bytes, kind: str, status: int) -> None:
    found = caller.http.post("/v1/files", content=content, headers={"content-type": kind})
    assert found.status_code == status, found.text
    assert set(found.json()["error"]) == {"message", "type", "param", "code"}
    assert not stored(settings.data)


def test_a_caller_that_leaves_leaves_nothing(http: httpx.Client, settings: GatewaySettings) -> None:
    def half() -> Iterator[bytes]:
        yield b'--b\r\ncontent-disposition: form-data; name="file"\r\n\r\n' + b"x" * 100_000
        raise OSError("the caller's line is cut")

    with pytest.raises(OSError, match="cut"):
        http.post("/v1/files", content=half(), headers={"content-type": "multipart/form-data; boundary=b"})
    until = time.monotonic() + 30
    while stored(settings.data):
        assert time.monotonic() < until
        time.sleep(0.02)


def test_expired_files_and_crashed_uploads_are_swept(tmp_path: Path) -> None:
    places = Places(tmp_path)
    places.make()
    shelf = FileShelf(places, max_files=10, min_free_bytes=0, ttl_s=100)
    kept: list[StoredFile] = []
    for _ in range(2):
        part = shelf.begin("ann")
        part.write_bytes(b"x")
        kept.append(shelf.keep("ann", part, "x", "batch", None if kept else 3600))
    crashed = shelf.begin("ann")
    crashed.write_bytes(b"half")
    os.utime(crashed, (time.time() - 2 * DAY_S,) * 2)
    shelf.sweep(places.files("ann"), time.time() + 200)
    assert [found.id for found in shelf.listing("ann")] == [kept[0].id]
    assert not crashed.exists()


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize("file_id", ["%00", "a" * 300, "..", "%2e%2e", "file-" + "0" * 24 + "%00", "file-%0a", "%ff"])
def test_what_no_id_looks_like_is_unknown(caller: Caller, method: str, file_id: str) -> None:
    """It became a path: a NUL or a long name was a defect of ours."""
    assert caller.http.request(method, f"/v1/files/{file_id}").status_code == 404
    for path in (f"/v1/files/{file_id}/content", f"/v1/batches/{file_id}", f"/v1/batches/{file_id}/events"):
        assert caller.get(path).status_code == 404


def test_no_id_leads_to_another_keys_files(settings: GatewaySettings, backend: Any, tmp_path: Path) -> None:
    """`../<their directory>/file-...` as an input was read, as if it were the caller's own."""
    file = tmp_path / "keys"
    file.write_text("".join(f"{name}:{hashlib.sha256(name.encode()).hexdigest()}\n" for name in ("ann", "bob")))
    with TestClient(create_app(replace(settings, api_keys=file), POLICY), base_url="http://127.0.0.1:8080") as http:
        ann, bob = Caller(http, "ann"), Caller(http, "bob")
        theirs = f"../{tag('ann')}/{ann.upload(jsonl(line('a')))}"
        for file_id in (theirs, "\0", "a" * 5000, "file-" + "0" * 24 + "\n"):
            found = bob.post("/v1/batches", {"input_file_id": file_id, "endpoint": "/v1/systemone"})
            assert (found.status_code, found.json()["error"]["code"]) == (404, "unknown_file")


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"id": "x"}', b"\xff"])
def test_a_damaged_description_harms_no_other_file(caller: Caller, settings: GatewaySettings, damage: bytes) -> None:
    broken, whole = caller.upload(b"a"), caller.upload(b"b")
    [path] = settings.data.rglob(f"{broken}.json")
    path.write_bytes(damage)
    assert [shown["id"] for shown in caller.get("/v1/files").json()["data"]] == [whole]
    assert caller.get(f"/v1/files/{broken}").status_code == 404


def test_a_result_is_deleted_only_when_it_is_whole(caller: Caller, backend: Any) -> None:
    batch = caller.run(jsonl(line("a")))
    path = f"/v1/files/{batch['output_file_id']}"
    assert caller.get("/v1/files?purpose=batch_output").json()["data"][0]["id"] == batch["output_file_id"]
    assert caller.http.delete(path).status_code == 200
    assert caller.get(path).status_code == 404


def test_a_reader_that_leaves_at_once_leaves_no_file_open(tmp_path: Path) -> None:
    """Whenever it leaves: nothing is opened for it that it does not hold."""
    path = tmp_path / "results"
    path.write_bytes(b"line\n" * 9)
    opened: list[Any] = []

    class Seen(type(path)):  # type: ignore[misc]
        def open(self, *args: Any, **kwargs: Any) -> Any:
            opened.append(super().open(*args, **kwargs))
            return opened[-1]

    async def read_and_leave() -> None:
        pieces = files._pieces(Seen(path), 0, 45)
        reader = asyncio.ensure_future(anext(pieces))
        await asyncio.sleep(0)
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
        await cast(Any, pieces).aclose()

    asyncio.run(read_and_leave())
    assert [source.closed for source in opened] == [True]

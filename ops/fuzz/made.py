"""The seeds that a person would think of: `python -m ops.fuzz.made` writes them. The others were found by fuzzing."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import time
import zipfile
from collections.abc import Iterator
from typing import Any

import msgpack
import pillow_heif
import zstandard
from PIL import Image

from ops.fuzz.seeds import directory
from photocall.messages import VERSION, Header, Prepared, StreamText
from photocall.wire import SIGNATURE_BYTES, Wire

HEADER = Header(msg_id="0", session="s", username="u", date="", msg_type="x", version=VERSION)
pillow_heif.register_heif_opener()  # Pillow writes none itself
BODY = slice(SIGNATURE_BYTES, None)  # the target signs it


def made() -> Iterator[tuple[str, bytes]]:
    """Target and bytes of every seed that a person would think of."""
    wire = Wire(b"k", "seeds")
    for message in (Prepared("j", 1, [{"sha256": "0"}]), StreamText("j", "q", 0, "text")):
        yield "wire", wire.encode(message, HEADER, {"a": 1}, [b"b"], {**HEADER, "msg_type": message.msg_type})[BODY]
    yield "wire", msgpack.packb([{"version": "2.0"}, {}, {}, {}, [msgpack.Timestamp(1)]])
    picture = _picture("PNG")
    asset = {"img": {"type": "image", "data_base64": "iVBORw0KGgo="}}
    question = {"type": "choice", "instructions": "Which?", "criteria": {"red": "as blood", "green": None}}
    asks: list[dict[str, Any]] = [
        {"state": {"a": "img", "n": [1, 2.5, None, True]}, "questions": {"q": question}, "assets": asset},
        {"state": "x", "questions": {"n": {"type": "number", "instructions": "?", "min": 0, "max": 9, "step": 0.5}}},
        {"state": "x", "questions": {"t": {"type": "text", "instructions": "?", "max_tokens": 4}}, "budget": 70},
        {"state": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}],
         "questions": {"b": {"type": "box", "instructions": "?"}}, "priority": "batch", "metadata": {"a": "b"},
         "webhook": {"url": "https://example.com/h", "events": ["succeeded"]}},
        {"state": "x", "images": ["iVBORw0KGgo="], "questions": {"s": {"type": "score", "criteria": ["low", "high"]}}},
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": "x"},
                                                {"type": "input_image", "image_url": "data:;base64,iVBORw0KGgo="}]}],
         "questions": [{"type": "choice", "name": "c", "instructions": "?", "choices": [{"value": True}]},
                       {"type": "score", "levels": [{"label": "a"}, {"label": "b", "description": "c"}]}]},
        {"text": "hello", "max_tokens": 3, "remember": False},
        {"endpoint": "/v1/jobs", "input_file_id": "file-1", "completion_window": "24h"},
        {"endpoint": "/v1/systemone", "input_folder": "a/b", "request": {"state": "x", "questions": {"q": question}}},
    ]  # fmt: skip
    for ask in asks:
        body = json.dumps(ask).encode()
        yield "request", body
        yield "json_body", body
        yield "compressed", gzip.compress(body, mtime=0)
        yield "compressed", zstandard.compress(body)
    lines = [
        {"custom_id": str(n), "method": "POST", "url": url, "body": ask}
        for n, (url, ask) in enumerate(zip(["/v1/systemone"] * 5 + ["/v1/decisions"], asks, strict=False))
    ]
    yield "rows", b"\n".join(json.dumps(line).encode() for line in lines)
    yield "rows", _zip(picture)
    tar = _tar(picture)
    yield "rows", tar
    yield "rows", gzip.compress(tar, mtime=0)
    form = json.dumps({**asks[0], "assets": {"img": {"part": "img"}}}).encode()
    yield "form", _form(("request", form), ("img", picture))
    yield "form", _form(("purpose", b"batch"), ("file", b"line"))
    for name, options in (
        ("JPEG", {}), ("JPEG", {"progressive": True}), ("PNG", {}), ("WEBP", {}), ("WEBP", {"lossless": True}),
        ("GIF", {}), ("TIFF", {}), ("TIFF", {"compression": "tiff_lzw"}), ("BMP", {}), ("HEIF", {}), ("AVIF", {}),
        ("MPO", {}), ("ICO", {"sizes": [(16, 16)], "bitmap_format": "bmp"}),
        ("PDF", {"creationDate": time.gmtime(0), "modDate": time.gmtime(0)}),
    ):  # fmt: skip
        yield "picture", _picture(name, **options)
    header = {"msg_id": "1", "msg_type": "decide_request", "session": "s", "username": "u", "date": "", "version": "1"}
    parts = {
        "channel": "shell",
        "header": header,
        "parent_header": {},
        "metadata": {},
        "content": asks[1],
        "buffers": [],
    }
    yield "frame", json.dumps(parts).encode()
    yield "words", b"https://example.com:8443/a?b=c"
    yield "words", b"http://[::1%25lo]/"
    yield "words", b"1790000000000-1"


def write_made() -> int:
    """Write the made ones under the hash of what they hold; how many are new."""
    new = 0
    for target, data in made():
        path = directory(target) / hashlib.sha1(data, usedforsecurity=False).hexdigest()
        path.parent.mkdir(parents=True, exist_ok=True)
        new += not path.exists()
        path.write_bytes(data)
    return new


def _picture(name: str, **options: object) -> bytes:
    image = Image.new("RGB", (24, 16), (200, 30, 30))
    image.paste((30, 40, 200), (3, 3, 12, 9))
    out = io.BytesIO()
    image.save(out, name, **options)
    return out.getvalue()


def _zip(picture: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        for name, method in (("a.png", zipfile.ZIP_DEFLATED), ("b/c.png", zipfile.ZIP_STORED)):
            made.writestr(zipfile.ZipInfo(name), picture, method)
    return out.getvalue()


def _tar(picture: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as made:
        for name in ("a.png", "b/" + "ü" * 120 + ".png"):
            about = tarfile.TarInfo(name)
            about.size = len(picture)
            made.addfile(about, io.BytesIO(picture))
    return out.getvalue()[: 8 * 512]


def _form(*parts: tuple[str, bytes]) -> bytes:
    body = b""
    for name, data in parts:
        head = f'content-disposition: form-data; name="{name}"; filename="{name}"'
        body += f"--B\r\n{head}\r\ncontent-type: application/json\r\n\r\n".encode() + data + b"\r\n"
    return body + b"--B--\r\n"


if __name__ == "__main__":
    print(write_made(), "new seeds")

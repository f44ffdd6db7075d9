"""The targets: bytes into each parser of what strangers send. It answers, or refuses with a type of the project's.

A target returns in both cases; whatever else it raises is a defect. A refusal is also written down as every HTTP shape
would send it, since an error that cannot be told is a defect too. Limits are small, so that small files meet them.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import io
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from photocall.addresses import BadUrl, parse_url
from photocall.errors import BadSignature, MalformedMessage, PhotocallError, UnknownVersion
from photocall.questions import InvalidField
from photocall.wire import Wire
from photocall_gateway.batches import row_shapes
from photocall_gateway.batches.batch import BatchError
from photocall_gateway.batches.creation import read_new_batch
from photocall_gateway.batches.inputs import Input, InputRefused, kind_of
from photocall_gateway.batches.jsonl_input import JsonlInput
from photocall_gateway.batches.picture_inputs import TarInput, ZipInput
from photocall_gateway.batches.upload import receive
from photocall_gateway.body import Body, Limits
from photocall_gateway.compression import decompress
from photocall_gateway.decisions import parse_decisions
from photocall_gateway.events import checked_id
from photocall_gateway.frames import BadFrame, read_frame
from photocall_gateway.json_body import load_json
from photocall_gateway.parsing import parse_job, parse_systemone, parse_turn
from photocall_gateway.problems import as_coded, in_shape
from photocall_prep.prepare import ImagePrep
from photocall_prep.refusal import ImageRefused

KEY = b"a key for fuzzing"
FORM = "multipart/form-data; boundary=B"
MAX_ROWS = 200  # of an archive or a file of lines that are read
LIMITS = Limits(1 << 20, 100_000, 1 << 18, 8, fetch_urls=True, plain_http=True)
TEMPLATE: dict[str, Any] = {"state": "[image 1]", "questions": {"q": {"type": "noul", "instructions": "?"}}}
ENDPOINTS = ("/v1/systemone", "/v1/decisions", "/v1/jobs")

_WIRE = Wire(KEY, "fuzz")


@dataclass(frozen=True)
class _PictureLimits:
    max_image_bytes: int = 1 << 20
    max_pixels: int = 1 << 20
    max_frames: int = 16


_PREP = ImagePrep(_PictureLimits())


def wire(data: bytes) -> None:
    """A message between processes, with our signature: what a defect or a newer process may have sent."""
    for message in (data, hmac.new(KEY, data, hashlib.sha256).digest() + data):
        try:
            _WIRE.decode(message)
        except (BadSignature, MalformedMessage, UnknownVersion) as error:
            str(error).encode()


def json_body(data: bytes) -> None:
    """Any JSON."""
    _or_refused(lambda: load_json(data))


def request(data: bytes) -> None:
    """A request body in JSON, in each shape."""
    body = Body(data, "application/json", "")
    _or_refused(lambda: parse_systemone(body, LIMITS))
    _or_refused(lambda: parse_decisions(body, LIMITS))
    _or_refused(lambda: parse_job(body, LIMITS, 3600.0))
    _or_refused(lambda: parse_turn(body, LIMITS, 3600.0))
    _or_refused(lambda: _new_batch(data))


def form(data: bytes) -> None:
    """A multipart body: a job's, and a file's that is uploaded."""
    _or_refused(lambda: parse_job(Body(data, FORM, ""), LIMITS, 3600.0))
    with tempfile.TemporaryDirectory(prefix="photocall-fuzz-") as folder:
        _or_refused(lambda: asyncio.run(receive(_pieces(data), FORM, Path(folder, "file"), 1 << 16)))


def compressed(data: bytes) -> None:
    """A compressed body."""
    for encoding in ("gzip", "zstd"):
        _or_refused(lambda encoding=encoding: decompress(data, encoding, 1 << 20))  # type: ignore[misc]


def rows(data: bytes) -> None:
    """A batch's input: lines, a zip or a tar, by its content; each row read and parsed as its endpoint would."""
    with tempfile.TemporaryDirectory(prefix="photocall-fuzz-") as folder:
        path = Path(folder, "input")
        path.write_bytes(data)
        for endpoint in ENDPOINTS[: 3 if kind_of(path) == "jsonl" else 1]:
            _read_rows(_input(path, endpoint), endpoint)


def picture(data: bytes) -> None:
    """A picture file, to its patches."""
    try:
        _PREP.prepare(data, 70)
    except ImageRefused as refused:
        json.dumps({"code": refused.code, "reason": refused.reason}).encode()


def frame(data: bytes) -> None:
    """A frame of a channel. A WebSocket has checked that it is UTF-8."""
    try:
        read_frame(data.decode("utf-8", "ignore"))
    except BadFrame as bad:
        json.dumps([bad.message, bad.header]).encode()


def words(data: bytes) -> None:
    """Short texts that are taken apart: URLs, event ids."""
    text = data.decode("latin-1")
    _or_refused(lambda: checked_id(text, ("last_event_id",)))
    for plain_http in (False, True):
        try:
            str(parse_url(text, plain_http)).encode("ascii")
        except BadUrl as bad:
            str(bad).encode()


TARGETS: Mapping[str, Callable[[bytes], None]] = {
    target.__name__: target for target in (wire, json_body, request, form, compressed, rows, picture, frame, words)
}


def _or_refused(parse: Callable[[], object]) -> None:
    """Parse; what is refused is written down in every shape."""
    try:
        parse()
    except (PhotocallError, InvalidField) as error:
        found = as_coded(error) if isinstance(error, InvalidField) else error
        for path in ENDPOINTS:
            status, _, body = in_shape(path, "req_1", found, error)
            assert 400 <= status < 500, found.code
            json.dumps(body, ensure_ascii=False).encode()


def _new_batch(data: bytes) -> None:
    raw = load_json(data)
    if isinstance(raw, dict):
        read_new_batch(raw, LIMITS)


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    source = io.BytesIO(data)
    while piece := source.read(700):
        yield piece


def _input(path: Path, endpoint: str) -> Input:
    kind = kind_of(path)
    if kind == "zip":
        return ZipInput(path, endpoint, TEMPLATE, LIMITS.max_image_bytes)
    if kind == "tar":
        return TarInput(path, path.with_name("plain"), endpoint, TEMPLATE, LIMITS.max_image_bytes)
    return JsonlInput(path, endpoint, 1 << 16)


def _read_rows(source: Input, endpoint: str) -> None:
    try:
        for number, row in enumerate(source.scan()):
            if number == MAX_ROWS:
                return
            if isinstance(row, BatchError):
                json.dumps([row.code, row.message]).encode()
                continue
            row.custom_id.encode()
            try:
                row_shapes.parse(endpoint, source.body(row), LIMITS)
            except (PhotocallError, InvalidField) as error:
                row_shapes.refused(endpoint, "batch_1", row.number, row.custom_id, error)
    except InputRefused as refused:
        json.dumps([refused.error.code, refused.error.message]).encode()

"""JsonlInput: a batch as lines of `{custom_id, method, url, body}`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from photocall.errors import CodedError
from photocall_gateway.batches.batch import BatchError
from photocall_gateway.batches.inputs import MAX_CUSTOM_ID_CHARS, Input
from photocall_gateway.batches.ledger import Row
from photocall_gateway.json_body import load_json


class JsonlInput(Input):
    """`max_line_bytes` bounds what is in memory at once."""

    def __init__(self, path: Path, endpoint: str, max_line_bytes: int) -> None:
        self._path = path
        self._endpoint = endpoint
        self._limit = max_line_bytes

    def scan(self) -> Iterator[Row | BatchError]:
        number = line_number = 0
        with self._path.open("rb") as source:
            while True:
                start = source.tell()
                line = source.readline(self._limit + 1)
                if not line:
                    return
                line_number += 1
                if len(line) > self._limit:
                    while line and not line.endswith(b"\n"):
                        line = source.readline(self._limit)
                    yield BatchError("invalid_json_line", f"Over {self._limit} bytes", line=line_number)
                    continue
                if not line.strip():
                    continue
                try:
                    custom_id, body = self._checked(line, line_number)
                except _Wrong as wrong:
                    yield wrong.error
                    continue
                number += 1
                digest = hashlib.sha256(json.dumps(body, ensure_ascii=False).encode()).digest()
                yield Row(number, custom_id, start, len(line), str(line_number), digest)

    def body(self, row: Row) -> bytes:
        with self._path.open("rb") as source:
            source.seek(row.start)
            line = load_json(source.read(row.length))
        if not isinstance(line, dict):
            raise CodedError("malformed", "The line has changed since it was checked")
        return json.dumps(line.get("body"), ensure_ascii=False).encode()

    def _checked(self, data: bytes, at: int) -> tuple[str, dict[str, Any]]:
        try:
            line = load_json(data)
        except CodedError as error:
            raise _Wrong("invalid_json_line", "This line is not parseable as valid JSON.", None, at) from error
        if not isinstance(line, dict):
            raise _Wrong("invalid_json_line", "This line is no JSON object.", None, at)
        custom_id, body = line.get("custom_id"), line.get("body")
        if not isinstance(custom_id, str) or not 1 <= len(custom_id) <= MAX_CUSTOM_ID_CHARS:
            msg = f"Expected a string of 1 to {MAX_CUSTOM_ID_CHARS} characters"
            raise _Wrong("invalid_request", msg, "custom_id", at)
        if line.get("method") != "POST":
            raise _Wrong("invalid_method", "Expected 'POST'", "method", at)
        if line.get("url") != self._endpoint:
            msg = "The URL provided for this request does not match the batch endpoint."
            raise _Wrong("url_mismatch", msg, "url", at)
        if not isinstance(body, dict):
            raise _Wrong("invalid_request", "Expected an object", "body", at)
        self._same_model(body.get("model"), at)
        return custom_id, body

    def _same_model(self, model: object, at: int) -> None:
        if not isinstance(model, str):
            return  # the served one, or a fault that its own row will tell
        if self.model is not None and model != self.model:
            msg = "The provided model differs from that of the rows before it."
            raise _Wrong("model_mismatch", msg, "body.model", at)
        self.model = model


class _Wrong(Exception):
    def __init__(self, code: str, message: str, param: str | None, line: int) -> None:
        super().__init__(message)
        self.error = BatchError(code, message, param, line)

"""A caller of the batch API in tests: uploads, starts, waits, reads."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
from starlette.testclient import TestClient

QUESTIONS = {"full": {"type": "noul", "instructions": "Is it full?"}}
ENDED = ("completed", "failed", "expired", "cancelled")


def line(custom_id: str, body: dict[str, Any] | None = None, **changed: Any) -> dict[str, Any]:
    """One row of an input."""
    body = {"state": f"shelf {custom_id}", "questions": QUESTIONS} if body is None else body
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/systemone", "body": body, **changed}


def jsonl(*lines: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(item).encode() + b"\n" for item in lines)


class Caller:
    """Over httpx's client, or Starlette's, which does the same."""

    def __init__(self, http: httpx.Client | TestClient, key: str | None = None) -> None:
        self.http = http
        self.headers = {} if key is None else {"authorization": f"Bearer {key}"}

    def upload(self, data: bytes, name: str = "rows.jsonl", **fields: str) -> str:
        found = self.http.post(
            "/v1/files", files={"file": (name, data)}, data={"purpose": "batch", **fields}, headers=self.headers
        )
        assert found.status_code == 200, found.text
        return str(found.json()["id"])

    def post(self, path: str, body: Any = None) -> Any:
        return self.http.post(path, json=body if body is not None else {}, headers=self.headers)

    def get(self, path: str, **headers: str) -> Any:
        return self.http.get(path, headers={**self.headers, **headers})

    def start(self, file_id: str, endpoint: str = "/v1/systemone", **fields: Any) -> dict[str, Any]:
        body = {"input_file_id": file_id, "endpoint": endpoint, "completion_window": "24h", **fields}
        found = self.post("/v1/batches", body)
        assert found.status_code == 200, found.text
        return dict(found.json())

    def run(self, data: bytes, endpoint: str = "/v1/systemone", **fields: Any) -> dict[str, Any]:
        """The batch of these bytes, once it has ended."""
        return self.ended(self.start(self.upload(data), endpoint, **fields)["id"])

    def batch(self, batch_id: str) -> dict[str, Any]:
        return dict(self.get(f"/v1/batches/{batch_id}").json())

    def ended(self, batch_id: str, within_s: float = 60.0) -> dict[str, Any]:
        until = time.monotonic() + within_s
        while (found := self.batch(batch_id))["status"] not in ENDED:
            assert time.monotonic() < until, found
            time.sleep(0.03)
        return found

    def lines(self, file_id: str | None) -> list[dict[str, Any]]:
        if file_id is None:
            return []
        found = self.get(f"/v1/files/{file_id}/content")
        assert found.status_code == 200, found.text
        return [json.loads(row) for row in found.content.splitlines()]

    def results(self, batch: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Answers and failures by custom_id; each row at most once."""
        found = []
        for file_id in (batch["output_file_id"], batch["error_file_id"]):
            lines = self.lines(file_id)
            named = {row["custom_id"]: row for row in lines}
            assert len(named) == len(lines)
            found.append(named)
        assert not found[0].keys() & found[1].keys()
        return found[0], found[1]

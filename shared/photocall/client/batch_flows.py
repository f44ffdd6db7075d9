"""What the client does about batches, call by call, without doing it; see flows.py."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from photocall.client.answer import Answer
from photocall.client.answers import Answers
from photocall.client.errors import JobFailed, NotAnswered, RequestRefused, problem_of
from photocall.client.flows import Call, Flow, Pause, call, listed
from photocall.client.shown import Shown

UPLOAD_READ_S = 600.0  # a large file is put on the server's disk before it answers
FIRST_LOOK_S, LAST_LOOK_S = 0.1, 5.0
PAGE_LINES = 500


@dataclass(frozen=True, slots=True, repr=False)
class Batch(Shown):
    """A batch object, as the server shows it."""

    ENDS: ClassVar[tuple[str, ...]] = ("completed", "failed", "expired", "cancelled")

    @property
    def counts(self) -> dict[str, int]:
        """Rows: `total`, `completed`, `failed`."""
        return dict(self.fields["request_counts"])

    @property
    def errors(self) -> list[dict[str, Any]]:
        """What is wrong with its input, where that cannot be run: `code`, `message`, `line`."""
        found = (self.fields.get("errors") or {}).get("data") or []
        return [dict(error) for error in found if error["code"] != "all_rows_failed"]  # whose rows say why


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a batch's results. `place` counts lines from 1: results resume behind it."""

    place: int
    line: Mapping[str, Any]

    @property
    def custom_id(self) -> str:
        return str(self.line["custom_id"])

    @property
    def id(self) -> str:
        """The same, as a job has one."""
        return self.custom_id

    @property
    def number(self) -> int:
        """Its place in the input, from 1."""
        return int(str(self.line["id"]).rpartition("-")[2])

    @property
    def ok(self) -> bool:
        """It was answered."""
        return self.error is None and (self.line["response"] or {}).get("status_code", 0) < 400

    @property
    def answers(self) -> Answers:
        """The answers by question. Raises JobFailed for a row without any."""
        body = self.body or {}
        answers = (body.get("result") or body).get("answers") if self.ok else None
        if answers is None:
            raise JobFailed({"id": self.custom_id, "status": "failed", "error": self.problem})
        return Answers(answers)

    def __getitem__(self, question: str) -> Answer:
        return self.answers[question]

    @property
    def problem(self) -> dict[str, Any] | None:
        """Why there is no answer: `code` and `message`; None where there is one."""
        if self.ok:
            return None
        if self.error is not None:
            return self.error
        found = problem_of(self.body)
        return {**found, "message": found.get("detail")}

    @property
    def body(self) -> dict[str, Any] | None:
        """What the route answered; None for a row that was not run, whose `error` says why."""
        response = self.line["response"]
        return None if response is None else dict(response["body"])

    @property
    def error(self) -> dict[str, Any] | None:
        return None if self.line["error"] is None else dict(self.line["error"])


def create(file: Path, endpoint: str, request: Mapping[str, Any] | None, fields: Mapping[str, Any]) -> Flow[Batch]:
    """Upload a file and begin a batch of it, both under one key. Raises RequestRefused."""
    headers = {"idempotency-key": str(fields.get("idempotency_key") or secrets.token_hex(16))}
    uploading = Call("POST", "/v1/files", file=file, headers=headers, read_s=UPLOAD_READ_S)
    uploaded = (yield from call(uploading)).body
    body = {"input_file_id": uploaded["id"], "endpoint": endpoint}
    body |= {name: value for name, value in fields.items() if value is not None and name != "idempotency_key"}
    body |= {} if request is None else {"request": dict(request)}
    return Batch((yield from call(Call("POST", "/v1/batches", body, headers=headers))).body)


def batches(after: str | None, limit: int) -> Flow[list[Batch]]:
    """The caller's batches, newest first."""
    return [Batch(each) for each in (yield from listed("/v1/batches", after=after, limit=limit))]


def get(batch_id: str) -> Flow[Batch]:
    return Batch((yield from call(Call("GET", f"/v1/batches/{batch_id}"))).body)


def wait(batch_id: str, timeout_s: float | None) -> Flow[Batch]:
    """The batch once it has ended, however. Raises NotAnswered."""
    started, pause_s = time.monotonic(), FIRST_LOOK_S
    while not (batch := (yield from get(batch_id))).ended:
        left_s = LAST_LOOK_S if timeout_s is None else timeout_s - (time.monotonic() - started)
        if left_s <= 0:
            raise NotAnswered(batch_id, timeout_s or 0.0)
        yield Pause(min(pause_s, left_s))
        pause_s = min(2 * pause_s, LAST_LOOK_S)
    return batch


@dataclass(frozen=True, slots=True)
class News:
    """A batch as it is, and rows that were not there before: answered ones first, then those that failed."""

    batch: Batch
    answered: list[Row]
    failed: list[Row]


def news(batch_id: str, answered: int, failed: int) -> Flow[News]:
    """What is behind so many answered and failed rows. No row of a batch that has ended: these were all."""
    batch = yield from get(batch_id)  # before its lines: if it had ended, there will be no more
    first = yield from _lines(batch.fields["output_file_id"], answered)
    return News(batch, first, (yield from _lines(batch.fields["error_file_id"], failed)))


def rest(seconds: float) -> Flow[None]:
    """Let some time pass."""
    yield Pause(seconds)


def _lines(file_id: str | None, after: int) -> Flow[list[Row]]:
    if file_id is None:
        return []
    content = (yield from call(Call("GET", f"/v1/files/{file_id}/content?after={after}&limit={PAGE_LINES}"))).content
    return [Row(place, json.loads(line)) for place, line in enumerate(content.splitlines(), after + 1)]


def page(batch_id: str, after: int, failed: bool, follow: bool) -> Flow[list[Row]]:
    """Some rows of the results behind the first `after`, once there are any; none: there are no more.

    With `follow`, none means that the batch has ended, too.
    """
    pause_s = FIRST_LOOK_S
    while True:
        batch = yield from get(batch_id)  # before its lines: if it had ended, these are the last
        file_id = batch.fields["error_file_id" if failed else "output_file_id"]
        if rows := (yield from _lines(file_id, after)):
            return rows
        if batch.ended or not follow:
            return []
        yield Pause(pause_s)
        pause_s = min(2 * pause_s, LAST_LOOK_S)


def cancel(batch_id: str) -> Flow[Batch]:
    """End it early. One that a try without an answer has ended is given as it is."""
    try:
        return Batch((yield from call(Call("POST", f"/v1/batches/{batch_id}/cancel"))).body)
    except RequestRefused as error:
        if not (error.repeated and error.code == "batch_state"):
            raise
    return (yield from get(batch_id))


def retry_failed(batch_id: str, key: str | None) -> Flow[Batch]:
    """Begin another batch, of the rows that this one did not answer."""
    headers = {"idempotency-key": key or secrets.token_hex(16)}
    return Batch((yield from call(Call("POST", f"/v1/batches/{batch_id}/retry-failed", headers=headers))).body)


def delete(batch_id: str) -> Flow[None]:
    """Take it away. One that a try without an answer has taken away is gone, as was wanted."""
    try:
        yield from call(Call("DELETE", f"/v1/batches/{batch_id}"))
    except RequestRefused as error:
        if not (error.repeated and error.code == "unknown_batch"):
            raise

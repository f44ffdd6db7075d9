"""Failures as responses: problem documents, and System One's bodies as its clients know them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import BusyLoadingError, ResponseError
from starlette.responses import Response

from photocall.errors import TABLE, CodedError
from photocall.questions import InvalidField
from photocall_gateway.problems import response_to

EXAMPLES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "contract" / "error_examples.json").read_text())


def systemone(error: Exception) -> Response:
    return response_to({"type": "http", "path": "/v1/systemone"}, error)


def native(error: Exception) -> Response:
    return response_to({"type": "http", "path": "/v1/jobs", "photocall.request_id": "req_1"}, error)


def body(response: Response) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(bytes(response.body))
    return loaded


RAISED: dict[str, Exception] = {
    "missing_auth": CodedError("missing_key", "Missing API key"),
    "bad_key": CodedError("bad_key", "Invalid API key"),
    "unknown_model": CodedError("unknown_model", "Unknown model: nope"),
    "unreferenced_asset": CodedError("unreferenced_asset", "Asset 'img-1' is not referenced in the request"),
    "schema": InvalidField(("questions", "urgency", "score", "criteria"), "Field required", "missing"),
    "too_many_tokens": CodedError(
        "prompt_too_long", "state plus the longest question is 40123 tokens, limit 32768", tokens=40123, limit=32768
    ),
    "body_too_large": CodedError("body_too_large", "Request body is over 32 MiB"),
    "rate_limited": CodedError("rate_limited", "Too many requests", retry_after_s=0.75),
    "overloaded": CodedError("queue_full", "Queue is full", retry_after_s=2),
}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["name"])
def test_system_ones_error_examples(example: dict[str, Any]) -> None:
    response = systemone(RAISED[example["name"]])
    assert response.status_code == example["status"]
    assert body(response) == example["body"]
    for name, value in example["headers"].items():
        assert response.headers[name] == value


def test_a_problem_document_names_code_field_and_numbers() -> None:
    response = native(InvalidField(("questions", "q", "type"), "Unknown question type 'x'", "union_tag_invalid"))
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"
    assert body(response) == {
        "type": "urn:photocall:error:invalid_field",
        "title": "A field cannot be taken",
        "status": 422,
        "detail": "questions.q.type: Unknown question type 'x'",
        "code": "invalid_field",
        "loc": ["questions", "q", "type"],
        "field_error": "union_tag_invalid",
        "instance": "req_1",
    }
    tokens = native(CodedError("prompt_too_long", "too long", tokens=9, limit=5))
    assert (tokens.status_code, body(tokens)["tokens"], body(tokens)["limit"]) == (422, 9, 5)


@pytest.mark.parametrize("code", list(TABLE))
def test_every_row_of_the_table_has_both_shapes(code: str) -> None:
    error = CodedError(code, "why", number=7)
    document = native(error)
    assert document.status_code == TABLE[code].native == body(document)["status"]
    assert (body(document)["code"], body(document)["detail"]) == (code, "why")
    answer = systemone(error)
    assert answer.status_code == TABLE[code].systemone
    detail = body(answer)["detail"]
    if answer.status_code == 422:
        assert detail == [{"loc": ["body"], "msg": "why", "type": code}]
    else:
        assert detail == {"message": "why", "error_type": TABLE[code].error_type, "number": 7}


@pytest.mark.parametrize("code", [code for code, row in TABLE.items() if row.systemone in (429, 529)])
def test_a_refusal_for_load_says_when_to_come_back(code: str) -> None:
    response = systemone(CodedError(code, "later"))
    assert 0 < float(response.headers["retry-after"]) < 30  # 30 s or more and the official client gives up
    assert int(response.headers["retry-after-ms"]) > 0


def test_redis_away_is_unavailable_and_a_defect_tells_nothing() -> None:
    away = native(BusyLoadingError("loading"))
    assert (away.status_code, away.headers["retry-after"]) == (503, "2")
    for error in (ResponseError("secret"), ValueError("secret")):
        assert native(error).status_code == 500
        assert "secret" not in bytes(native(error).body).decode()

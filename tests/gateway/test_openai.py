"""The official `openai` package, unchanged, against a real server on a loopback port."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import pytest

from photocall.jobs import Refused
from tests.gateway.fake_backend import FakeBackend

openai: Any = pytest.importorskip("openai")
if not hasattr(openai.OpenAI, "decisions"):
    pytest.skip("this version of openai has no decisions", allow_module_level=True)

PNG = b"\x89PNG\r\n\x1a\n" + b"rest"
QUESTIONS = [
    {"type": "predicate", "name": "restock", "instructions": "Does the shelf need restocking?"},
    {"type": "choice", "instructions": "Which?", "choices": [{"value": "a"}, {"value": False, "description": "none"}]},
    {"type": "score", "instructions": "How full?", "levels": [{"label": "empty"}, {"label": "full"}]},
]


def test_text_and_a_picture(address: str, backend: FakeBackend) -> None:
    url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    parts = [
        {"type": "input_text", "text": "A shelf."},
        {"type": "input_image", "image_url": url},
        {"type": "input_json", "data": {"aisle": 4}},
    ]
    with openai.OpenAI(api_key="any", base_url=f"{address}/v1", max_retries=0) as client:
        for given in ("A shelf.", [{"role": "user", "content": parts}]):
            found = client.decisions.create(model="photocall-mini", input=given, questions=QUESTIONS)
            predicate, choice, score = found.answers
            assert (predicate.type, predicate.name, predicate.probability) == ("predicate", "restock", 0.875)
            assert (choice.name, choice.choice) == (None, "a")
            assert [(p.value, p.probability) for p in choice.probabilities] == [("a", 0.8), (False, 0.2)]
            assert [(p.value, p.label, p.probability) for p in score.probabilities] == [(0, "empty", 1), (1, "full", 0)]
            assert found.usage.total_tokens == found.usage.input_tokens + found.usage.output_tokens
            assert found._request_id.startswith("req_")


def test_a_batch_from_upload_to_results(address: str, backend: FakeBackend) -> None:
    body = {"input": "A shelf.", "questions": QUESTIONS[:1]}
    rows = [
        {"custom_id": name, "method": "POST", "url": "/v1/decisions", "body": {**body, "input": name}}
        for name in ("a", "b", "c")
    ]
    rows.append({"custom_id": "bad", "method": "POST", "url": "/v1/decisions", "body": {}})
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    with openai.OpenAI(api_key="any", base_url=f"{address}/v1", max_retries=0) as client:
        file = client.files.create(file=("rows.jsonl", data), purpose="batch")
        assert (file.object, file.bytes, file.purpose) == ("file", len(data), "batch")
        batch = client.batches.create(input_file_id=file.id, endpoint="/v1/decisions", completion_window="24h")
        assert (batch.object, batch.input_file_id) == ("batch", file.id)
        until = time.monotonic() + 60
        while batch.status not in ("completed", "failed"):
            assert time.monotonic() < until
            time.sleep(0.05)
            batch = client.batches.retrieve(batch.id)
        assert batch.status == "completed"
        assert (batch.request_counts.total, batch.request_counts.completed, batch.request_counts.failed) == (4, 3, 1)
        assert batch.usage.total_tokens == batch.usage.input_tokens + batch.usage.output_tokens
        lines = [json.loads(row) for row in client.files.content(batch.output_file_id).text.splitlines()]
        assert {row["custom_id"] for row in lines} == {"a", "b", "c"}
        assert lines[0]["response"]["body"]["answers"][0]["probability"] == 0.875
        [wrong] = [json.loads(row) for row in client.files.content(batch.error_file_id).text.splitlines()]
        assert wrong["response"]["body"]["error"]["param"] == "input"
        assert [found.id for found in client.batches.list()] == [batch.id]
        assert {found.id for found in client.files.list()} == {file.id, batch.output_file_id, batch.error_file_id}
        with pytest.raises(openai.ConflictError, match="cannot be cancelled"):
            client.batches.cancel(batch.id)
        backend.hold.set()
        other = client.batches.create(input_file_id=file.id, endpoint="/v1/decisions", completion_window="24h")
        assert client.batches.cancel(other.id).status == "cancelling"
        assert client.files.delete(file.id).deleted is True
        with pytest.raises(openai.NotFoundError):
            client.files.retrieve(file.id)
        while client.batches.retrieve(other.id).status != "cancelled":
            assert time.monotonic() < until
            time.sleep(0.05)


def test_errors_are_its_own(address: str, backend: FakeBackend) -> None:
    with openai.OpenAI(api_key="any", base_url=f"{address}/v1", max_retries=0) as client:
        with pytest.raises(openai.UnprocessableEntityError) as refused:
            client.decisions.create(model="photocall-mini", input="x", questions=[{"type": "box"}])
        assert (refused.value.param, refused.value.code) == ("questions[0].type", "invalid_field")
        with pytest.raises(openai.BadRequestError, match="Unknown model: gpt-9"):
            client.decisions.create(model="gpt-9", input="x", questions=QUESTIONS)
        backend.respond = lambda ask, record: Refused("internal", "a stumble")
        with pytest.raises(openai.InternalServerError, match="a stumble"):
            client.decisions.create(model="photocall-mini", input="y", questions=QUESTIONS)

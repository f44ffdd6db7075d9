"""The official `openai` package, unchanged, against a real server on a loopback port."""

from __future__ import annotations

import base64
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

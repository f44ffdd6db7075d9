"""POST /v1/decisions: its requests, its answers in its own shape, and every fault with the field it names."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import pytest
import redis
from starlette.testclient import TestClient

from photocall.asks import Ask
from photocall.errors import TABLE, CodedError
from photocall.jobs import Answered, JobRecord, Outcome, Refused
from photocall.questions import Choice, InvalidField, Noul, Score
from photocall.settings import GatewaySettings
from photocall_gateway.app import create_app
from photocall_gateway.body import Body, Limits
from photocall_gateway.decisions import parse_decisions
from photocall_gateway.parsing import ParsedRequest
from photocall_gateway.problems import response_to
from tests.gateway.conftest import POLICY
from tests.gateway.fake_backend import FakeBackend, answered
from tests.gateway.test_bad_input import kept

LIMITS = Limits(max_decompressed_bytes=1 << 20, max_text_chars=20_000, max_image_bytes=5000, max_images=2)
PNG = b"\x89PNG\r\n\x1a\n" + b"rest"
PREDICATE = {"type": "predicate", "instructions": "Is it a refund?"}
CHOICE = {"type": "choice", "name": "team", "choices": [{"value": "billing", "description": "Money"}, {"value": True}]}
SCORE = {
    "type": "score",
    "name": "urgency",
    "instructions": "How urgent?",
    "levels": [{"label": "low", "description": "can wait"}, {"label": "high"}],
}
TEXT = {"model": "jev-latest", "input": "A ticket.", "questions": [PREDICATE, CHOICE, SCORE]}


def data_url(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def parsed(value: Any) -> ParsedRequest:
    return parse_decisions(Body(json.dumps(value).encode(), "application/json", ""), LIMITS)


def asked(question: Any) -> dict[str, Any]:
    return {"input": "x", "questions": [question]}


def said(*parts: Any) -> dict[str, Any]:
    return {"input": [{"role": "user", "content": list(parts)}], "questions": [PREDICATE]}


def image(data: bytes = PNG) -> dict[str, str]:
    return {"type": "input_image", "image_url": data_url(data), "detail": "high"}


def test_questions_of_every_type() -> None:
    ask = parsed(TEXT).ask
    assert (ask.model, ask.state) == ("jev-latest", "A ticket.")
    predicate, choice, score = ask.questions
    assert predicate == Noul("0", "Is it a refund?")
    assert isinstance(choice, Choice)
    assert [(option.label, option.description) for option in choice.options] == [("billing", "Money"), ("true", None)]
    assert score == Score("2", "How urgent?", ("low: can wait", "high"))


def test_a_single_message_is_its_text_with_the_pictures_in_their_places() -> None:
    request = parsed(said({"type": "input_text", "text": "Before"}, image(), {"type": "input_text", "text": "After"}))
    (key,) = request.ask.assets
    assert request.ask.state == f"Before\n{key}\nAfter"
    assert request.images == {request.ask.assets[key]: PNG}


def test_json_and_several_messages_keep_their_structure() -> None:
    order = {"type": "input_json", "data": {"order": 104}}
    assert parsed(said(order)).ask.state == {"order": 104}
    text = {"type": "input_text", "text": "See the order."}
    assert parsed(said(text, order)).ask.state == ["See the order.", {"order": 104}]
    messages = [{"role": "system", "content": "Be strict."}, {"type": "message", "role": "user", "content": [text]}]
    assert parsed({"input": messages, "questions": [PREDICATE]}).ask.state == [
        {"role": "system", "content": "Be strict."},
        {"role": "user", "content": "See the order."},
    ]


def test_instructions_may_hold_a_picture() -> None:
    question = {"type": "predicate", "instructions": [{"type": "input_text", "text": "Is it this one?"}, image()]}
    request = parsed(asked(question))
    (key,) = request.ask.assets
    assert request.ask.questions[0].instructions == f"Is it this one?\n{key}"


def test_a_word_of_the_text_does_not_stand_for_a_picture_by_chance() -> None:
    request = parsed(said({"type": "input_text", "text": "<input_image:1>"}, image()))
    (key,) = request.ask.assets
    assert str(request.ask.state).count(key) == 1


def test_equal_requests_hash_alike_and_what_only_shows_in_the_answer_counts_too() -> None:
    assert parsed(TEXT).hash == parsed({**TEXT, "safety_identifier": "x"}).hash
    others = [
        {**TEXT, "input": "Another."},
        {**TEXT, "questions": [{**PREDICATE, "name": "n"}, CHOICE, SCORE]},
        {**TEXT, "questions": [PREDICATE, {**CHOICE, "choices": [{"value": "billing"}, {"value": "true"}]}, SCORE]},
    ]
    assert len({parsed(TEXT).hash, *(parsed(other).hash for other in others)}) == 4


OVER = [{"value": str(i)} for i in range(256)]
LEVEL = {"label": "x"}
FAULTS: list[tuple[str, Any, str | None, str]] = [
    ("a list", [], None, "JSON object"),
    ("no input", {"questions": [PREDICATE]}, "input", "Field required"),
    ("null input", {"input": None, "questions": [PREDICATE]}, "input", "Field required"),
    ("number as input", {"input": 5, "questions": [PREDICATE]}, "input", "string or a list"),
    ("no messages", {"input": [], "questions": [PREDICATE]}, "input", "At least one message"),
    ("text as message", {"input": ["x"], "questions": [PREDICATE]}, "input[0]", "Expected a message"),
    ("no role", {"input": [{"content": "x"}], "questions": [PREDICATE]}, "input[0].role", "Field required"),
    ("tool role", {"input": [{"role": "tool", "content": "x"}], "questions": [PREDICATE]}, "input[0].role", "one of"),
    ("a function call", {"input": [{"type": "function_call"}], "questions": [PREDICATE]}, "input[0].type", "messages"),
    ("no content", {"input": [{"role": "user"}], "questions": [PREDICATE]}, "input[0].content", "Field required"),
    ("no parts", said(), "input[0].content", "At least one part"),
    ("too many parts", said(*[image()] * 1000), "input", "At most 1000"),
    ("text as part", said("x"), "input[0].content[0]", "part with a type"),
    ("unknown part", said({"type": "input_audio"}), "input[0].content[0].type", "Expected input_text"),
    ("number as text", said({"type": "input_text", "text": 5}), "input[0].content[0].text", "a string"),
    ("number as JSON", said({"type": "input_json", "data": 5}), "input[0].content[0].data", "object or an array"),
    ("a file", said({"type": "input_image", "file_id": "f"}), "input[0].content[0].image_url", "Field required"),
    ("a path", said({"type": "input_image", "path": "/etc/passwd"}), "input[0].content[0].image_url", "required"),
    ("file URL", said({"type": "input_image", "image_url": "file:///etc/passwd"}), "input[0].content[0].image_url",
     "data URL"),
    ("URL", said({"type": "input_image", "image_url": "https://x/y.png"}), "input[0].content[0].image_url",
     "not fetched"),
    ("bad base64", said({"type": "input_image", "image_url": "data:image/png;base64,***"}),
     "input[0].content[0].image_url", "base64"),
    ("empty picture", said(image(b"")), "input[0].content[0].image_url", "no bytes"),
    ("three pictures", said(*[image(PNG + bytes([i])) for i in range(3)]), "input", "At most 2 pictures, got 3"),
    ("number as model", {**TEXT, "model": 5}, "model", "a string"),
    ("no questions", {"input": "x"}, "questions", "Field required"),
    ("object of questions", {"input": "x", "questions": {}}, "questions", "a list of questions"),
    ("empty questions", {"input": "x", "questions": []}, "questions", "At least one question"),
    ("201 questions", {"input": "x", "questions": [PREDICATE] * 201}, "questions", "At most 200 questions, got 201"),
    ("text as question", asked("x"), "questions[0]", "object with a type"),
    ("no type", asked({"instructions": "x"}), "questions[0].type", "Field required"),
    ("unknown type", asked({"type": "box"}), "questions[0].type", "predicate, choice or score"),
    ("number as name", asked({**PREDICATE, "name": 5}), "questions[0].name", "a string"),
    ("long name", asked({**PREDICATE, "name": "x" * 257}), "questions[0].name", "at most 256"),
    ("no instructions", asked({"type": "predicate"}), "questions[0].instructions", "Field required"),
    ("no choices", asked({"type": "choice"}), "questions[0].choices", "Field required"),
    ("0 choices", asked({"type": "choice", "choices": []}), "questions[0].choices", "At least one choice"),
    ("256 choices", asked({"type": "choice", "choices": OVER}), "questions[0].choices", "At most 255 choices, got 256"),
    ("text as choice", asked({"type": "choice", "choices": ["a"]}), "questions[0].choices[0]", "with a value"),
    ("number as value", asked({"type": "choice", "choices": [{"value": 1}]}), "questions[0].choices[0].value",
     "string or a boolean"),
    ("value twice", asked({"type": "choice", "choices": [{"value": "a"}, {"value": "a"}]}),
     "questions[0].choices[1].value", "twice"),
    ("boolean twice", asked({"type": "choice", "choices": [{"value": True}, {"value": True}]}),
     "questions[0].choices[1].value", "twice"),
    ("number as description", asked({"type": "choice", "choices": [{"value": "a", "description": 1}]}),
     "questions[0].choices[0].description", "a string"),
    ("no levels", asked({"type": "score"}), "questions[0].levels", "Field required"),
    ("1 level", asked({"type": "score", "levels": [LEVEL]}), "questions[0].levels", "At least 2 levels"),
    ("11 levels", asked({"type": "score", "levels": [LEVEL] * 11}), "questions[0].levels", "At most 10 levels, got 11"),
    ("level without label", asked({"type": "score", "levels": [LEVEL, {}]}), "questions[0].levels[1].label",
     "Field required"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "param", "says"), FAULTS, ids=[fault[0] for fault in FAULTS])
def test_a_wrong_field_is_named(name: str, value: Any, param: str | None, says: str) -> None:
    with pytest.raises(InvalidField) as caught:
        parsed(value)
    response = response_to({"path": "/v1/decisions"}, caught.value)
    error = json.loads(bytes(response.body))["error"]
    assert (response.status_code, error["param"], error["code"]) == (422, param, "invalid_field")
    assert error["type"] == "invalid_request_error"
    assert says in error["message"]


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (said(image(b"MZ program")), "image_unsupported"),
        (said(image(PNG + bytes(5000))), "image_too_large"),
        ({"input": "x" * 20_001, "questions": [PREDICATE]}, "prompt_too_long"),
    ],
)
def test_other_refusals(value: Any, code: str) -> None:
    with pytest.raises(CodedError) as caught:
        parsed(value)
    assert caught.value.code == code


def test_a_request_is_answered_in_order_in_its_own_shape(client: TestClient, backend: FakeBackend) -> None:
    response = client.post("/v1/decisions", json=TEXT)
    assert response.status_code == 200, response.text
    assert response.json() == {
        "model": "photocall-mini",
        "answers": [
            {"type": "predicate", "name": None, "probability": 0.875},
            {
                "type": "choice",
                "name": "team",
                "choice": "billing",
                "confidence": 0.75,
                "probabilities": [{"value": "billing", "probability": 0.8}, {"value": True, "probability": 0.2}],
            },
            {
                "type": "score",
                "name": "urgency",
                "score": 0.0,
                "confidence": 1.0,
                "probabilities": [
                    {"value": 0, "label": "low", "probability": 1.0},
                    {"value": 1, "label": "high", "probability": 0.0},
                ],
            },
        ],
        "usage": {
            "input_tokens": 42,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 3,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 45,
        },
    }
    assert response.headers["x-request-id"].startswith("req_")
    assert response.headers["server-timing"].startswith("queue;dur=")


def test_the_text_true_and_the_boolean_are_two_values(client: TestClient, backend: FakeBackend) -> None:
    values = [True, "true", "true (boolean)", False, "false"]
    question = {"type": "choice", "choices": [{"value": value} for value in values]}
    answer = client.post("/v1/decisions", json=asked(question)).json()["answers"][0]
    assert answer["choice"] is True
    assert [(type(p["value"]), p["value"]) for p in answer["probabilities"]] == [(type(v), v) for v in values]


def test_pictures_reach_prep(client: TestClient, backend: FakeBackend) -> None:
    response = client.post("/v1/decisions", json=said(image(), image(PNG + b"2")))
    assert response.status_code == 200, response.text


def test_a_question_without_an_answer_is_a_refusal_and_the_others_stand(
    client: TestClient, backend: FakeBackend
) -> None:
    def without_the_first(ask: Ask, record: JobRecord) -> Outcome:
        outcome = answered(ask, record)
        assert isinstance(outcome, Answered)
        del outcome.body["answers"]["0"]
        return outcome

    backend.respond = without_the_first
    answers = client.post("/v1/decisions", json=asked({**PREDICATE, "name": "n"}) | {"input": "y"}).json()["answers"]
    assert answers == [{"type": "refusal", "name": "n"}]
    both = {"input": "z", "questions": [PREDICATE, PREDICATE]}
    answers = client.post("/v1/decisions", json=both).json()["answers"]
    assert [answer["type"] for answer in answers] == ["refusal", "predicate"]


def test_a_refused_question_says_why_and_the_others_stand(client: TestClient, backend: FakeBackend) -> None:
    """As the engine writes it: one question that cannot be asked has a code and a message in its place."""

    def refuse_the_second(ask: Ask, record: JobRecord) -> Outcome:
        assert ask.by_question
        outcome = answered(ask, record)
        assert isinstance(outcome, Answered)
        why = {"code": "prompt_too_long", "message": "9000 tokens, limit 4096"}
        outcome.body["answers"]["1"] = {"type": "refusal", **why}
        return outcome

    backend.respond = refuse_the_second
    body = {"input": "x", "questions": [PREDICATE, {**CHOICE, "name": "team"}, SCORE]}
    response = client.post("/v1/decisions", json=body)
    assert response.status_code == 200
    first, second, third = response.json()["answers"]
    assert second == {
        "type": "refusal", "name": "team", "code": "prompt_too_long", "message": "9000 tokens, limit 4096",
    }  # fmt: skip
    assert (first["type"], first["probability"], third["type"]) == ("predicate", 0.875, "score")


@pytest.mark.parametrize("count", [("questions", 200), ("choices", 255), ("levels", 2), ("levels", 10)])
def test_the_bounds_themselves_are_taken(client: TestClient, backend: FakeBackend, count: tuple[str, int]) -> None:
    kind, number = count
    questions: list[dict[str, Any]] = [{**PREDICATE, "name": f"q{i}"} for i in range(number)]
    if kind == "choices":
        questions = [{"type": "choice", "choices": [{"value": f"v{i}"} for i in range(number)]}]
    elif kind == "levels":
        questions = [{"type": "score", "levels": [{"label": f"l{i}"} for i in range(number)]}]
    answers = client.post("/v1/decisions", json={"input": "x", "questions": questions}).json()["answers"]
    if kind == "questions":
        assert [answer["name"] for answer in answers] == [f"q{i}" for i in range(number)]
    else:
        assert len(answers[0]["probabilities"]) == number


LATE = [code for code, row in TABLE.items() if row.late]


@pytest.mark.parametrize("code", LATE)
def test_every_late_failure_has_its_status(client: TestClient, backend: FakeBackend, code: str) -> None:
    backend.respond = lambda ask, record: Refused(code, "why it failed", {"tokens": 9})
    response = client.post("/v1/decisions", json=TEXT)
    row = TABLE[code]
    assert response.status_code == row.decisions
    error = {"message": "why it failed", "type": row.decisions_type, "param": None, "code": code}
    assert response.json() == {"error": error}


def test_equal_calls_in_flight_share_one_job(http: httpx.Client, backend: FakeBackend) -> None:
    backend.delay_s = 0.5
    other = {**TEXT, "questions": [{**PREDICATE, "name": "another"}]}
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(http.post, "/v1/decisions", json=body) for body in (TEXT, TEXT, TEXT, other)]
        responses = [call.result() for call in calls]
    assert [response.status_code for response in responses] == [200] * 4
    assert responses[0].json() == responses[1].json()
    assert responses[3].json()["answers"][0]["name"] == "another"
    assert len(backend.seen) == 2


def test_a_call_is_refused_in_time_and_the_retry_gets_the_answer(
    settings: GatewaySettings, backend: FakeBackend, eventually: Callable[..., Any]
) -> None:
    backend.hold.set()
    app = create_app(replace(settings, sync_wait_s=0.9), POLICY)
    with TestClient(app, base_url="http://localhost") as client:
        started = time.monotonic()
        late = client.post("/v1/decisions", json=TEXT)
        assert 0.3 < time.monotonic() - started < 10.0
        assert (late.status_code, late.json()["error"]["code"]) == (503, "overloaded")
        assert 0 < float(late.headers["retry-after"]) < 8
        backend.hold.clear()
        eventually(lambda: client.post("/v1/decisions", json=TEXT).status_code == 200)
    assert len(backend.seen) == 1


def test_the_job_shows_the_answer_in_the_shape_that_asked(client: TestClient, backend: FakeBackend) -> None:
    answer = client.post("/v1/decisions", json=TEXT).json()
    (job,) = client.get("/v1/jobs").json()["data"]
    assert job["result"] == answer


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (b"", {}, 400, "malformed"),
        (b"{", {}, 400, "malformed"),
        (b"[]", {}, 422, "invalid_field"),
        (b"{}", {"content-type": "text/plain"}, 415, "unsupported_type"),
        (b"x" * (2 << 20), {}, 413, "body_too_large"),
        (b"{}", {"host": "evil.example"}, 421, "unknown_host"),
        (b"{}", {"origin": "http://evil.example"}, 403, "foreign_origin"),
        (json.dumps({**TEXT, "model": "gpt-9"}).encode(), {}, 400, "unknown_model"),
        (json.dumps(said(image(), image(b"MZ program"))).encode(), {}, 415, "image_unsupported"),
    ],
)
def test_bad_input_keeps_nothing(
    client: TestClient, redis_client: redis.Redis, body: bytes, headers: dict[str, str], status: int, code: str
) -> None:
    response = client.post("/v1/decisions", content=body, headers={"content-type": "application/json", **headers})
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    assert kept(redis_client) == []


def test_no_refusal_repeats_a_picture(client: TestClient) -> None:
    url = data_url(b"secret-secret" * 9)
    damaged = {"type": "input_image", "image_url": url + "*"}
    bodies = [said(image(b"secret-secret" * 9)), said(damaged), said({"type": url}), asked({"type": url})]
    for value in [*bodies, {**TEXT, "model": url}, {"input": {"x": url}}]:
        response = client.post("/v1/decisions", json=value)
        assert 400 <= response.status_code < 500
        assert url[30:60] not in response.text

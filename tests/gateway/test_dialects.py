"""Pictures as other clients send them: lists with markers in the text, and parts inside the state."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
import redis
from starlette.testclient import TestClient

from photocall.errors import CodedError
from photocall.questions import InvalidField
from photocall_gateway.body import Body, Limits
from photocall_gateway.parsing import ParsedRequest, parse_job, parse_systemone
from tests.gateway.fake_backend import FakeBackend
from tests.gateway.test_bad_input import kept

LIMITS = Limits(max_decompressed_bytes=1 << 20, max_text_chars=20_000, max_image_bytes=5000, max_images=8)
PNG = b"\x89PNG\r\n\x1a\n"
ONE, TWO = PNG + b"one", PNG + b"two"
QUESTION = {"q": {"type": "noul", "instructions": "Is it?"}}


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def data_url(data: bytes) -> str:
    return f"data:image/png;base64,{b64(data)}"


def parsed(state: Any, **fields: Any) -> ParsedRequest:
    body = json.dumps({"state": state, "questions": QUESTION, **fields}).encode()
    request = parse_systemone(Body(body, "application/json", ""), LIMITS)
    job = parse_job(Body(body, "application/json", ""), LIMITS, 10)[0]
    assert replace(job.ask, by_question=False) == request.ask  # a job refuses by question, this shape whole
    return request


def shown(request: ParsedRequest) -> dict[str, bytes]:
    """Asset key -> the bytes behind it."""
    return {key: request.images[sha] for key, sha in request.ask.assets.items()}


@pytest.mark.parametrize(
    ("field", "first", "second", "zeroth"),
    [("images", "[image 1]", "[image 2]", "[image 0]"), ("media", "<image:1>", "<image:2>", "<image:0>")],
)
def test_a_list_is_named_by_markers_from_one_or_from_zero(field: str, first: str, second: str, zeroth: str) -> None:
    pictures = [b64(ONE), data_url(TWO)]
    request = parsed({"a": first, "b": f"see {second}"}, **{field: pictures})
    assert shown(request) == {first: ONE, second: TWO}
    assert request.ask.state == {"a": first, "b": f"see {second}"}
    assert shown(parsed(f"{zeroth} {first}", **{field: pictures})) == {zeroth: ONE, first: TWO}


def test_a_marker_in_a_question_counts() -> None:
    question = {"q": {"type": "choice", "instructions": "Is it [image 1]?", "criteria": {"a": "[image 2]", "b": None}}}
    request = parsed("text", images=[b64(ONE), b64(TWO)], questions=question)
    assert request.ask.state == "text"
    assert shown(request) == {"[image 1]": ONE, "[image 2]": TWO}


@pytest.mark.parametrize(
    ("state", "wanted"),
    [
        ("text", "[image 1]\ntext"),
        ("", "[image 1]\n"),
        ({"a": 1}, ["[image 1]", {"a": 1}]),
        (["a", "b"], ["[image 1]", "a", "b"]),
        ("see [image 2]", "[image 1]\nsee [image 2]"),
    ],
)
def test_a_picture_that_nothing_names_stands_before_the_state(state: Any, wanted: Any) -> None:
    pictures = [b64(ONE), b64(TWO)] if "[image 2]" in state else [b64(ONE)]
    request = parsed(state, images=pictures)
    assert request.ask.state == wanted
    assert list(request.ask.assets) == ["[image 1]", "[image 2]"][: len(pictures)]


@pytest.mark.parametrize(
    "entry",
    [
        b64(ONE),
        data_url(ONE),
        {"data": b64(ONE)},
        {"type": "image", "data_base64": b64(ONE), "path": "/etc/passwd"},
        {"url": data_url(ONE)},
        {"type": "image_url", "image_url": {"url": data_url(ONE)}},
        {"type": "input_image", "image_url": data_url(ONE)},
    ],
)
def test_entries_of_a_list(entry: Any) -> None:
    assert shown(parsed("<image:1>", media=[entry])) == {"<image:1>": ONE}


def test_picture_parts_of_a_conversation() -> None:
    text = {"type": "text", "text": "What is this?"}
    content = [text, {"type": "image_url", "image_url": {"url": data_url(ONE), "detail": "low"}}]
    request = parsed([{"role": "user", "content": content}, {"type": "image_url", "image_url": data_url(TWO)}])
    first, second = request.ask.assets
    assert request.ask.state == [{"role": "user", "content": [text, first]}, second]
    assert shown(request) == {first: ONE, second: TWO}
    assert hashlib.sha256(ONE).hexdigest()[:12] in first


def test_an_object_outside_an_array_is_no_part() -> None:
    state = {"type": "image_url", "image_url": "https://example.com/x.png"}
    assert parsed(state).ask.state == state


def test_all_ways_at_once() -> None:
    part = {"type": "image_url", "image_url": data_url(PNG + b"3")}
    request = parsed(
        ["key", part, "[image 1]", "<image:1>"],
        assets={"key": {"data_base64": b64(PNG + b"4")}},
        images=[b64(ONE)],
        media=[b64(TWO)],
    )
    assert sorted(shown(request).values()) == sorted([ONE, TWO, PNG + b"3", PNG + b"4"])


def test_empty_lists_are_none() -> None:
    assert parsed("text", images=[], media=None).ask.assets == {}


PART = {"type": "image_url"}
FAULTS: list[tuple[str, dict[str, Any], tuple[str | int, ...], str]] = [
    ("a text as list", {"images": b64(ONE)}, ("images",), "list of pictures"),
    ("a number", {"images": [5]}, ("images", 0), "base64 or a data URL"),
    ("bad base64", {"images": ["***"]}, ("images", 0), "base64"),
    ("empty", {"images": [""]}, ("images", 0), "no bytes"),
    ("65 pictures", {"images": [b64(ONE)] * 65}, ("images",), "At most 64 pictures, got 65"),
    ("a URL", {"images": ["https://example.com/x.png"]}, ("images", 0), "not fetched"),
    ("a plain URL", {"media": ["HTTP://example.com/x.png"]}, ("media", 0), "not fetched"),
    ("a file URL", {"media": ["file:///etc/passwd"]}, ("media", 0), "data URL"),
    ("a URL in an object", {"media": [{"url": "http://localhost/"}]}, ("media", 0, "url"), "not fetched"),
    ("a path", {"media": [{"type": "image", "path": "/etc/passwd"}]}, ("media", 0, "path"), "not read"),
    ("a path as text", {"media": ["/etc/passwd"]}, ("media", 0), "no bytes|base64"),
    ("nothing", {"media": [{"type": "image"}]}, ("media", 0, "data_base64"), "required"),
    ("a video", {"media": [{"type": "video", "data": b64(ONE)}]}, ("media", 0, "type"), "'image'"),
    ("a part without a URL", {"state": [PART]}, ("state", 0, "image_url"), "required"),
    ("a part with a number", {"state": [{**PART, "image_url": 5}]}, ("state", 0, "image_url"), "data URL"),
    ("a part with a URL", {"state": {"a": [{**PART, "image_url": {"url": "https://example.com/x"}}]}},
     ("state", "a", 0, "image_url", "url"), "not fetched"),
    ("a part with a path", {"state": [{**PART, "path": "/etc/passwd"}]}, ("state", 0, "image_url"), "required"),
    ("129 parts", {"state": [{**PART, "image_url": data_url(ONE)}] * 129}, ("state", 128, "image_url"), "At most 128"),
    ("two of one name", {"state": "[image 1]", "images": [b64(ONE)],
     "assets": {"[image 1]": {"data_base64": b64(TWO)}}}, ("assets", "[image 1]"), "has this name"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "fields", "loc", "says"), FAULTS, ids=[fault[0] for fault in FAULTS])
def test_a_wrong_picture_is_named(name: str, fields: dict[str, Any], loc: tuple[str | int, ...], says: str) -> None:
    with pytest.raises(InvalidField, match=says) as caught:
        parsed(**{"state": "text", **fields})
    assert caught.value.loc == loc


@pytest.mark.parametrize(
    ("data", "code", "says"),
    [(b"MZ program", "image_unsupported", r"images\[0\] is no"), (ONE + bytes(5000), "image_too_large", "5011 bytes")],
)
def test_other_refusals(data: bytes, code: str, says: str) -> None:
    with pytest.raises(CodedError, match=says) as caught:
        parsed("text", images=[b64(data)])
    assert (caught.value.code, caught.value.data["asset"]) == (code, "images[0]")


def test_through_both_routes(client: TestClient, backend: FakeBackend) -> None:
    body = {"state": "[image 1] and", "questions": QUESTION, "images": [b64(ONE)], "media": [data_url(TWO)]}
    response = client.post("/v1/systemone", json=body)
    assert response.status_code == 200, response.text
    assert response.json()["usage"]["image_tokens"] == 280
    assert client.post("/v1/jobs", json=body, headers={"prefer": "wait=10"}).json()["status"] == "succeeded"


def test_a_refused_url_keeps_nothing(client: TestClient, redis_client: redis.Redis) -> None:
    body = {"state": "text", "questions": QUESTION, "images": [b64(ONE), "https://example.com/x.png"]}
    refused = client.post("/v1/systemone", json=body)
    assert refused.status_code == 422
    assert refused.json()["detail"][0]["loc"] == ["body", "images", 1]
    native = client.post("/v1/jobs", json=body, headers={"idempotency-key": "k"})
    assert (native.status_code, native.json()["loc"]) == (422, ["images", 1])
    assert kept(redis_client) == []

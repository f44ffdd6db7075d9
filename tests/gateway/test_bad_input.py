"""Bad input, through the whole gateway: its status on both routes, the field named, nothing kept of it."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import redis
import zstandard
from starlette.testclient import TestClient

from photocall import keys
from photocall.settings import GatewaySettings
from tests.gateway.fake_backend import FakeBackend

PNG = b"\x89PNG\r\n\x1a\n" + b"rest"
QUESTION = {"q": {"type": "noul", "instructions": "Is it?"}}
JSON = {"content-type": "application/json"}
FORM = {"content-type": "multipart/form-data; boundary=B"}


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def ask(**fields: Any) -> bytes:
    return json.dumps({"state": "img", "questions": QUESTION, **fields}).encode()


def asked(question: Any) -> bytes:
    return ask(questions={"q": question})


def asset(entry: Any) -> bytes:
    return ask(assets={"img": entry})


def form(*parts: tuple[str, bytes]) -> bytes:
    body = b"".join(
        f'--B\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'.encode() + data + b"\r\n"
        for name, data in parts
    )
    return body + b"--B--\r\n"


@dataclass(frozen=True)
class Bad:
    """A request that is refused: `native` and `systemone` are its statuses, `says` stands in both bodies."""

    name: str
    body: bytes
    native: int
    systemone: int
    says: str
    loc: list[Any] | None = None
    headers: dict[str, str] = field(default_factory=lambda: JSON)


OPTIONS_256 = dict.fromkeys(map(str, range(256)))
CASES = [
    Bad("empty body", b"", 400, 400, "empty"),
    Bad("blank body", b"  \n", 400, 400, "empty"),
    Bad("not JSON", b"state=img", 400, 400, "not valid JSON"),
    Bad("cut JSON", ask()[:-3], 400, 400, "not valid JSON"),
    Bad("not UTF-8", b'{"state": "\xff"}', 400, 400, "UTF-8"),
    Bad("nested too deep", b"[" * 5000, 400, 400, "nests deeper"),
    Bad("a list", b"[]", 422, 422, "JSON object", []),
    Bad("other content type", ask(), 415, 415, "application/json", headers={"content-type": "text/plain"}),
    Bad("other encoding", ask(), 415, 415, "gzip, zstd", headers={**JSON, "content-encoding": "br"}),
    Bad("damaged gzip", b"xx" + ask(), 400, 400, "not valid gzip", headers={**JSON, "content-encoding": "gzip"}),
    Bad("cut gzip", gzip.compress(ask())[:-9], 400, 400, "valid gzip", headers={**JSON, "content-encoding": "gzip"}),
    Bad("damaged zstd", ask(), 400, 400, "not valid zstd", headers={**JSON, "content-encoding": "zstd"}),
    Bad("gzip bomb", gzip.compress(bytes(1 << 25)), 413, 413, "when decompressed",
        headers={**JSON, "content-encoding": "gzip"}),
    Bad("zstd bomb", zstandard.compress(bytes(1 << 27)), 413, 413, "when decompressed",
        headers={**JSON, "content-encoding": "zstd"}),
    Bad("too large", ask(state="x" * (1 << 20)), 413, 413, "over 1 MiB"),
    Bad("no state", json.dumps({"questions": QUESTION}).encode(), 422, 422, "Field required", ["state"]),
    Bad("null state", ask(state=None), 422, 422, "string, an object or an array", ["state"]),
    Bad("number as state", ask(state=5), 422, 422, "string, an object or an array", ["state"]),
    Bad("no questions", json.dumps({"state": ""}).encode(), 422, 422, "Field required", ["questions"]),
    Bad("empty questions", ask(questions={}), 422, 422, "At least one question", ["questions"]),
    Bad("list of questions", ask(questions=[]), 422, 422, "Expected an object", ["questions"]),
    Bad("text as question", asked("Is it?"), 422, 422, "Expected an object", ["questions", "q"]),
    Bad("no type", asked({"instructions": "?"}), 422, 422, "Field required", ["questions", "q", "type"]),
    Bad("unknown type", asked({"type": "rank"}), 422, 422, "'rank'", ["questions", "q", "type"]),
    Bad("box", asked({"type": "box"}), 422, 422, "A box needs a picture", ["questions", "q", "box"]),
    Bad("0 options", asked({"type": "choice", "criteria": {}}), 422, 422, "At least one option",
        ["questions", "q", "choice", "criteria"]),
    Bad("256 options", asked({"type": "choice", "criteria": OPTIONS_256}), 422, 422, "At most 255 options, got 256",
        ["questions", "q", "choice", "criteria"]),
    Bad("no criteria", asked({"type": "score"}), 422, 422, "Field required", ["questions", "q", "score", "criteria"]),
    Bad("number as label", asked({"type": "choice", "criteria": ["a", 2]}), 422, 422, "must be a string",
        ["questions", "q", "choice", "criteria", 1]),
    Bad("wrong bound", asked({"type": "number", "instructions": "n", "min": "low"}), 422, 422, "Expected a number",
        ["questions", "q", "number", "min"]),
    Bad("number as model", ask(model=3), 422, 422, "Expected a string", ["model"]),
    Bad("unknown model", ask(model="gpt-9"), 422, 400, "Unknown model: gpt-9"),
    Bad("text that fits no model", ask(state="x " * 500_001), 422, 400, "characters, limit 1000000"),
    Bad("no assets in assets", ask(assets={}), 422, 422, "At least one asset", ["assets"]),
    Bad("unreferenced asset", ask(state="other", assets={"img": {"data_base64": b64(PNG)}}), 422, 400,
        "Asset 'img' is not referenced in the request"),
    Bad("asset without data", asset({"type": "image"}), 422, 422, "Field required", ["assets", "img", "data_base64"]),
    Bad("asset with a path", asset({"type": "image", "path": "/etc/passwd"}), 422, 422, "Field required",
        ["assets", "img", "data_base64"]),
    Bad("bad base64", asset({"data_base64": "****"}), 422, 422, "base64", ["assets", "img", "data_base64"]),
    Bad("empty picture", asset({"data_base64": ""}), 422, 422, "no bytes", ["assets", "img"]),
    Bad("no picture", asset({"data_base64": b64(b"MZ\x90 program")}), 415, 415, "Asset 'img' is no picture"),
    Bad("picture too large", asset({"data_base64": b64(PNG + bytes(1 << 19))}), 413, 413, "'img' has 524300 bytes"),
    Bad("a URL in a list", ask(images=["https://example.com/x.png"]), 422, 422, "not fetched", ["images", 0]),
    Bad("a path in a list", ask(media=[{"path": "/etc/passwd"}]), 422, 422, "not read", ["media", 0, "path"]),
    Bad("a URL in the state", ask(state=[{"type": "image_url", "image_url": {"url": "http://localhost/x"}}]), 422, 422,
        "not fetched", ["state", 0, "image_url", "url"]),
    Bad("missing part", form(("request", asset({"part": "p"}))), 422, 422, "no such part", ["assets", "img", "part"],
        headers=FORM),
    Bad("cut form", form(("request", ask()))[:-8], 400, 400, "last boundary", headers=FORM),
    Bad("form without request", form(("photo", PNG)), 400, 400, "'request'", headers=FORM),
    Bad("form without boundary", form(("request", ask())), 400, 400, "boundary",
        headers={"content-type": "multipart/form-data"}),
]  # fmt: skip


def kept(redis_client: redis.Redis) -> list[bytes]:
    """Everything a request may leave behind."""
    return [
        key
        for pattern in (keys.job("*"), keys.image("*"), keys.PREFIX + "idempotency:*", keys.PREFIX + "uploading:*")
        for key in redis_client.scan_iter(pattern)
    ]


@pytest.fixture(scope="module")
def shared(redis_process: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One app for the whole table: what one bad request leaves behind would spoil the next."""
    from photocall_gateway.app import create_app

    settings = GatewaySettings(
        redis_url=redis_process.url,
        signing_key_hex="k",
        data=tmp_path_factory.mktemp("data"),
        max_body_bytes=1 << 20,
        max_decompressed_bytes=2 << 20,
        max_image_bytes=1 << 19,
    )
    with TestClient(create_app(settings), base_url="http://localhost") as client:
        yield client


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bad_input_on_both_routes(shared: TestClient, redis_client: redis.Redis, case: Bad) -> None:
    native = shared.post("/v1/jobs", content=case.body, headers={**case.headers, "idempotency-key": "k"})
    assert native.status_code == case.native == native.json()["status"]
    assert native.headers["content-type"] == "application/problem+json"
    assert case.says in native.json()["detail"]
    assert native.json().get("loc") == (["model"] if case.name == "unknown model" else case.loc)
    answer = shared.post("/v1/systemone", content=case.body, headers=case.headers)
    assert answer.status_code == case.systemone
    detail = answer.json()["detail"]
    if case.systemone == 422:
        assert detail[0]["loc"] == ["body", *(case.loc or [])]
        assert case.says in detail[0]["msg"]
    else:
        assert case.says in detail["message"]
        assert set(detail) >= {"message", "error_type"}
    assert kept(redis_client) == []


@pytest.mark.parametrize("announced", [True, False])
def test_the_sender_of_a_body_over_the_limit_sees_its_413(
    http: httpx.Client, redis_client: redis.Redis, announced: bool
) -> None:
    content: Any = bytes(8 << 20) if announced else (bytes(1 << 16) for _ in range(128))
    response = http.post("/v1/jobs", content=content, headers=JSON)
    assert (response.status_code, response.json()["limit"]) == (413, 1 << 20)
    assert kept(redis_client) == []


@pytest.mark.parametrize("picture", [PNG + b"secret-secret", b"\xff\xd8\xff secret-secret"])
def test_no_refusal_repeats_a_picture(client: TestClient, picture: bytes) -> None:
    text = b64(picture * 4)
    bodies = [
        asset({"data_base64": text + "*"}),
        asset({"data_base64": [text]}),
        asset(text),
        ask(state={"no": "key"}, assets={"img": {"data_base64": text}}),
        ask(assets=text),
        ask(state="img", questions={"q": {"type": text}}, assets={"img": {"data_base64": text}}),
        asset({"data_base64": text, "type": text}),
        ask(model=text),
    ]
    for body in bodies:
        for route in ("/v1/jobs", "/v1/systemone"):
            response = client.post(route, content=body, headers=JSON)
            assert 400 <= response.status_code < 500
            assert "c2VjcmV0" not in response.text
            assert text[:60] not in response.text


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/nothing", 404), ("PUT", "/v1/jobs", 405), ("GET", "/v1/systemone", 405), ("POST", "/healthz", 405)],
)
def test_unknown_routes_and_methods(client: TestClient, method: str, path: str, status: int) -> None:
    response = client.request(method, path)
    assert response.status_code == status
    if path != "/v1/systemone":
        assert response.json()["status"] == status
    else:
        assert response.json()["detail"]["error_type"] == "invalid_request"
    if status == 405:
        allowed = {"/v1/jobs": "GET, HEAD, POST", "/v1/systemone": "POST", "/healthz": "GET, HEAD"}[path]
        assert response.headers["allow"] == allowed, "it named the methods of the path's first route only"
        assert f"Only {allowed} here" in response.text
    else:
        assert "/openapi.json" in response.text


def test_after_all_that_a_good_request_is_answered(client: TestClient, backend: FakeBackend) -> None:
    for case in CASES[:10]:
        client.post("/v1/jobs", content=case.body, headers=case.headers)
    assert client.post("/v1/systemone", content=asset({"data_base64": b64(PNG)}), headers=JSON).status_code == 200


def test_callers_from_the_web_are_refused(client: TestClient, redis_client: redis.Redis) -> None:
    rebound = client.post("/v1/jobs", content=ask(), headers={**JSON, "host": "evil.example"})
    assert (rebound.status_code, rebound.json()["code"]) == (421, "unknown_host")
    foreign = client.post("/v1/systemone", content=ask(), headers={**JSON, "origin": "http://evil.example"})
    assert foreign.status_code == 403
    assert "access-control-allow-origin" not in foreign.headers
    preflight = client.options("/v1/jobs", headers={"origin": "http://evil.example"})
    assert preflight.status_code == 405
    assert not [name for name in preflight.headers if name.startswith("access-control")]
    assert kept(redis_client) == []

"""Pictures by URL at the gateway: every shape takes them where they are switched on, and shows what prep refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from starlette.testclient import TestClient

from photocall.asks import Ask
from photocall.jobs import JobRecord, Refused
from photocall.settings import GatewaySettings
from photocall.wire import unpack
from photocall_gateway.app import create_app
from tests.gateway.conftest import POLICY
from tests.gateway.fake_backend import FakeBackend

URL = "https://photos.example/x.png"
QUESTION = {"q": {"type": "noul", "instructions": "Is it?"}}


def decision(url: str) -> dict[str, Any]:
    said = [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]
    return {"input": said, "questions": [{"type": "predicate", "instructions": "Is it?"}]}


def asks(url: str) -> list[tuple[str, dict[str, Any], list[str | int]]]:
    """Route, body, and where the URL stands in it."""
    part = {"type": "image_url", "image_url": {"url": url}}
    by_asset = {"state": "img", "questions": QUESTION, "assets": {"img": {"type": "image", "url": url}}}
    return [
        ("/v1/jobs", by_asset, ["assets", "img", "url"]),
        ("/v1/systemone", by_asset, ["assets", "img", "url"]),
        ("/v1/systemone", {"state": "[image 1]", "questions": QUESTION, "images": [url]}, ["images", 0]),
        ("/v1/systemone", {"state": "", "questions": QUESTION, "media": [{"url": url}]}, ["media", 0, "url"]),
        ("/v1/systemone", {"state": [part], "questions": QUESTION}, ["state", 0, "image_url", "url"]),
        ("/v1/decisions", decision(url), ["input", 0, "content", 0, "image_url"]),
    ]


@pytest.fixture
def fetching(settings: GatewaySettings) -> Iterator[TestClient]:
    with TestClient(create_app(replace(settings, fetch_urls=True), POLICY), base_url="http://localhost") as found:
        yield found


@pytest.mark.parametrize(("path", "body", "loc"), asks(URL))
def test_every_shape_takes_a_url_to_prep(
    fetching: TestClient, backend: FakeBackend, path: str, body: dict[str, Any], loc: list[Any]
) -> None:
    urls: list[tuple[str, ...]] = []

    def prepare(record: JobRecord) -> None:
        urls.append(Ask.from_content(unpack(record.ask)).urls)

    backend.prepare = prepare
    response = fetching.post(path, json=body, headers={"prefer": "wait=10"} if path == "/v1/jobs" else {})
    assert response.status_code == 200, response.text
    assert urls == [(URL,)]


@pytest.mark.parametrize(("path", "body", "loc"), asks(URL))
def test_off_by_default(client: TestClient, path: str, body: dict[str, Any], loc: list[Any]) -> None:
    refused(client, path, body, loc, "URLs are not fetched")


@pytest.mark.parametrize(("path", "body", "loc"), asks("http://photos.example/x.png"))
def test_plain_http_is_refused(fetching: TestClient, path: str, body: dict[str, Any], loc: list[Any]) -> None:
    refused(fetching, path, body, loc, "Only https URLs")


def refused(client: TestClient, path: str, body: dict[str, Any], loc: list[Any], says: str) -> None:
    response = client.post(path, json=body)
    assert response.status_code == 422
    found = response.json()
    if path == "/v1/jobs":
        assert found["loc"] == loc
        assert says in found["detail"]
    elif path == "/v1/systemone":
        assert found["detail"][0]["loc"] == ["body", *loc]
        assert says in found["detail"][0]["msg"]
    else:
        assert found["error"]["param"] == "input[0].content[0].image_url"
        assert says in found["error"]["message"]


@pytest.mark.parametrize("url", ["https://u:p@photos.example/", "https://photos.example/" + "x" * 2048, "https:///x"])
def test_a_url_that_cannot_be_called(fetching: TestClient, url: str) -> None:
    body = {"state": "img", "questions": QUESTION, "assets": {"img": {"url": url}}}
    assert fetching.post("/v1/jobs", json=body).json()["loc"] == ["assets", "img", "url"]


@pytest.mark.parametrize("code", ["image_unreachable", "image_url_refused"])
@pytest.mark.parametrize(("path", "body", "loc"), asks(URL)[1:2] + asks(URL)[-1:])
def test_what_prep_refuses_is_the_callers_fault(
    fetching: TestClient, backend: FakeBackend, path: str, body: dict[str, Any], loc: list[Any], code: str
) -> None:
    """A 5xx would make these clients send the same URL twice more."""
    backend.prepare = lambda record: Refused(code, "cannot fetch image img: status 404", {"asset": "img"})
    response = fetching.post(path, json=body)
    assert response.status_code == 422
    assert "cannot fetch image img: status 404" in response.text


def test_urls_count_as_pictures(fetching: TestClient) -> None:
    assets = {f"img{i:03}": {"url": f"{URL}?{i}"} for i in range(33)}
    response = fetching.post("/v1/jobs", json={"state": " ".join(assets), "questions": QUESTION, "assets": assets})
    assert (response.status_code, response.json()["loc"]) == (422, ["assets"])


def test_equal_urls_share_their_work(fetching: TestClient, backend: FakeBackend) -> None:
    body = asks(URL)[1][1]
    assert [fetching.post("/v1/systemone", json=body).status_code for _ in range(2)] == [200, 200]
    assert len(backend.seen) == 1

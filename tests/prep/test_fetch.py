"""Pictures by URL: the redirects, the refusals, and a job whose picture is fetched; over a real TLS server."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from photocall import keys
from photocall.addresses import AddressRules
from photocall.asks import Ask
from photocall.jobs import JobStatus
from photocall.wire import unpack
from photocall_prep.fetch import Fetcher
from photocall_prep.refusal import ImageRefused
from tests.prep.pictures import encoded, noise, scene
from tests.prep.workshop import Workshop
from tests.web_server import WebServer, page, web_server

PHOTO = encoded(scene(64, 48), "PNG")
SHA = hashlib.sha256(PHOTO).hexdigest()


@pytest.fixture
def web() -> Iterator[WebServer]:
    with web_server() as found:
        found.pages["/photo"] = page(PHOTO, Content_Type="text/html")  # what it says of itself is not read
        yield found


@pytest.fixture
def shop(redis_client: redis.Redis, tmp_path: Path) -> Workshop:
    return Workshop(redis_client, tmp_path / "blobs")


def refused(fetcher: Fetcher, url: str) -> ImageRefused:
    with pytest.raises(ImageRefused) as found:
        fetcher.fetch(url)
    return found.value


def test_a_picture_behind_three_redirects(web: WebServer) -> None:
    web.pages["/1"] = page(b"", 301, Location="/2")
    web.pages["/2"] = page(b"", 302, Location=web.url("/3", "hooks.example"))
    web.pages["/3"] = page(b"", 307, Location="photo")
    assert Fetcher(web.caller()).fetch(web.url("/1")) == PHOTO
    assert [(host.partition(":")[0], path) for _, host, path in web.seen] == [
        ("photos.example", "/1"), ("photos.example", "/2"), ("hooks.example", "/3"), ("hooks.example", "/photo"),
    ]  # fmt: skip


def test_redirects_without_end(web: WebServer) -> None:
    web.pages["/"] = page(b"", 302, Location="/")
    found = refused(Fetcher(web.caller()), web.url("/"))
    assert (found.code, found.reason) == ("image_unreachable", "it redirects more than 3 times")
    assert len(web.seen) == 4


@pytest.mark.parametrize(
    "target",
    ["https://169.254.169.254/latest/meta-data/", "https://[::1]/", "https://10.0.0.1/x", "http://10.0.0.1/x",
     "file:///etc/passwd", "https://user:word@photos.example/"],
)  # fmt: skip
def test_every_hop_is_checked(web: WebServer, target: str) -> None:
    web.pages["/"] = page(b"", 302, Location=target)
    assert refused(Fetcher(web.caller()), web.url("/")).code == "image_url_refused"
    assert len(web.seen) == 1


def test_plain_http_reaches_allowed_networks_only(web: WebServer) -> None:
    with web_server(plain=True) as inside:
        inside.pages["/photo"] = page(PHOTO)
        url = f"http://photos.example:{inside.port}/photo"
        assert Fetcher(inside.caller()).fetch(url) == PHOTO
        assert refused(Fetcher(inside.caller(rules=AddressRules())), url).code == "image_url_refused"


@pytest.mark.parametrize(
    ("status", "body", "headers", "code", "reason"),
    [
        (404, b"no", {}, "image_unreachable", "status 404"),
        (204, b"", {}, "image_unreachable", "status 204"),
        (200, b"", {}, "image_unreachable", "without a body"),
        (200, b"<html>", {"Content_Type": "image/png"}, "image_unsupported", "not one of"),
        (200, PHOTO, {"Content_Encoding": "gzip"}, "image_unreachable", "compressed"),
        (200, encoded(noise(200, 200), "BMP"), {}, "image_too_large", "more than 100000 bytes"),
    ],
)
def test_what_is_no_picture(
    web: WebServer, status: int, body: bytes, headers: dict[str, str], code: str, reason: str
) -> None:
    web.pages["/x"] = page(body, status, **headers)
    found = refused(Fetcher(web.caller(max_bytes=100_000)), web.url("/x"))
    assert found.code == code
    assert reason in found.reason


def test_the_time_is_that_of_all_hops(web: WebServer) -> None:
    def slow(request: object) -> None:
        time.sleep(0.3)
        page(b"", 302, Location="/slow")(request)  # type: ignore[arg-type]

    web.pages["/slow"] = slow
    found = refused(Fetcher(web.caller(timeout_s=0.7)), web.url("/slow"))
    assert (found.code, found.reason.partition(": ")[2]) == ("image_unreachable", "it did not answer in time")


def test_a_job_with_a_picture_by_url(shop: Workshop, web: WebServer) -> None:
    url = web.url("/photo")
    job_id = shop.accept("j1", {"sent": encoded(noise(50, 50), "PNG")}, urls={"a": url, "b": url})
    before = shop.records.get(job_id)
    shop.preparer(fetcher=Fetcher(web.caller())).prepare(job_id)
    record = shop.records.get(job_id)
    ask = Ask.from_content(unpack(record.ask))
    assert (record.stage, ask.urls, ask.assets["a"], ask.assets["b"]) == ("running", (), SHA, SHA)
    assert record.images == ask.images == (before.images[0], SHA)
    [message] = shop.engine_messages()
    assert [image["sha256"] for image in message.images] == list(record.images)
    assert len(web.seen) == 1, "one URL is fetched once"
    assert shop.redis.hget(keys.image(SHA), "refs") == b"1"
    assert shop.redis.ttl(keys.image(SHA)) == -1
    assert shop.images.owned(SHA, "local")
    assert record.body_bytes == before.body_bytes + len(PHOTO)
    assert shop.redis.hget(keys.DEPTH, "bytes") == str(record.body_bytes).encode()
    shop.records.cancel(job_id)
    assert shop.redis.hget(keys.DEPTH, "bytes") is None
    assert shop.redis.hget(keys.image(SHA), "refs") == b"0"


def test_a_picture_is_not_fetched_again_by_the_next_holder(shop: Workshop, web: WebServer) -> None:
    job_id = shop.accept("j1", {}, urls={"a": web.url("/photo")})
    preparer = shop.preparer(fetcher=Fetcher(web.caller()), stopping=lambda: bool(web.seen))
    preparer.prepare(job_id)  # told to stop while it fetched
    assert shop.records.get(job_id).status == JobStatus.QUEUED
    again = shop.preparer(fetcher=Fetcher(web.caller()))
    again.prepare(job_id)
    assert shop.records.get(job_id).stage == "running"
    fetched = len(web.seen)
    lease = shop.records.lease(job_id, "running")
    assert lease is not None
    shop.records.hand_back(lease, "preparing")
    again.prepare(job_id)
    assert shop.records.get(job_id).stage == "running"
    assert len(web.seen) == fetched


def test_a_refusal_stands_in_the_job(shop: Workshop, web: WebServer) -> None:
    job_id = shop.accept("j1", {}, urls={"the photo": web.url("/none")})
    shop.preparer(fetcher=Fetcher(web.caller())).prepare(job_id)
    error = shop.records.get(job_id).error
    assert error == {
        "code": "image_unreachable",
        "message": "cannot fetch image the photo: it was answered with status 404",
        "asset": "the photo",
        "loc": ["assets", "the photo"],
    }


def test_where_urls_are_not_fetched_none_is(shop: Workshop, web: WebServer) -> None:
    job_id = shop.accept("j1", {}, urls={"a": web.url("/photo")})
    shop.preparer().prepare(job_id)
    error = shop.records.get(job_id).error
    assert error is not None
    assert error["code"] == "image_url_refused"
    assert web.seen == []


def test_a_full_store_is_waited_for(shop: Workshop, web: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("photocall_prep.jobs.FULL_STORE_WAIT_S", 0.05)
    job_id = shop.accept("j1", {}, urls={"a": web.url("/photo")})
    puts = []

    def put(sha256: str, data: bytes, owner: str) -> None:
        puts.append(sha256)
        shop.redis.config_set("maxmemory", 1 if len(puts) < 3 else 0)
        type(shop.images).put(shop.images, sha256, data, owner)

    shop.images.put = put  # type: ignore[method-assign]
    shop.preparer(fetcher=Fetcher(web.caller())).prepare(job_id)
    assert puts == [SHA] * 3
    assert shop.records.get(job_id).stage == "running"

"""One outgoing exchange: pinned to an address, checked by name, bounded in time and bytes; over a real TLS server."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler

import pytest

from photocall.addresses import AddressRules, RefusedAddress, parse_url
from photocall.outbound import AnswerTooLarge, OutboundError
from tests.web_server import WebServer, page, web_server


@pytest.fixture
def web() -> Iterator[WebServer]:
    with web_server() as found:
        yield found


def test_the_name_is_kept_and_the_address_is_ours(web: WebServer) -> None:
    web.pages["/x?y=1"] = page(b"hello", 200, X_Thing="1")
    answer = web.caller().exchange("POST", parse_url(web.url("/x?y=1")), {"X-Sent": "1"}, b"body")
    assert (answer.status, answer.body, answer.headers["x-thing"]) == (200, b"hello", "1")
    assert web.seen == [("POST", f"photos.example:{web.port}", "/x?y=1")]


def test_a_redirect_is_not_followed(web: WebServer) -> None:
    web.pages["/"] = page(b"", 302, Location="/other")
    assert web.caller().exchange("GET", parse_url(web.url("/")), {}).status == 302
    assert len(web.seen) == 1


def test_nothing_is_sent_to_an_address_that_is_refused(web: WebServer) -> None:
    with pytest.raises(RefusedAddress):
        web.caller(rules=AddressRules()).exchange("GET", parse_url(web.url("/")), {})
    assert web.seen == []


def test_the_name_is_resolved_once(web: WebServer) -> None:
    """A resolver that answers differently the second time is not asked a second time."""
    answers = [["127.0.0.1"], ["169.254.169.254"]]
    web.pages["/"] = page(b"x")
    caller = replace(web.caller(), resolve=lambda host, port: answers.pop(0))
    assert caller.exchange("GET", parse_url(web.url("/")), {}).status == 200
    assert len(answers) == 1


def test_a_certificate_for_another_name(web: WebServer) -> None:
    with pytest.raises(OutboundError, match="certificate"):
        web.caller().exchange("GET", parse_url(web.url("/", "other.example")), {})
    assert web.seen == []


def test_a_certificate_of_an_unknown_authority(web: WebServer) -> None:
    with pytest.raises(OutboundError, match="certificate"):
        replace(web.caller(), tls=ssl.create_default_context()).exchange("GET", parse_url(web.url("/")), {})


@pytest.mark.parametrize("announced", [True, False])
def test_too_many_bytes(web: WebServer, announced: bool) -> None:
    def unannounced(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        for _ in range(100):
            request.wfile.write(bytes(1000))

    web.pages["/"] = page(bytes(100_000)) if announced else unannounced
    with pytest.raises(AnswerTooLarge):
        web.caller(max_bytes=5000).exchange("GET", parse_url(web.url("/")), {})


@pytest.mark.parametrize("when", ["before the head", "in the head", "in the body"])
def test_a_slow_sender_is_cut_off(web: WebServer, when: str) -> None:
    """Each byte is within a socket's timeout; all of them together are not within ours."""
    left = threading.Event()

    def slow(request: BaseHTTPRequestHandler) -> None:
        if when == "in the body":
            request.send_response(200)
            request.end_headers()
        elif when == "in the head":
            request.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
        for _ in range(400):
            if left.wait(0.05):
                return
            if when != "before the head":
                request.wfile.write(b"x")

    web.pages["/"] = slow
    started = time.monotonic()
    try:
        with pytest.raises(OutboundError, match="in time"):
            web.caller(timeout_s=0.4).exchange("GET", parse_url(web.url("/")), {})
    finally:
        left.set()
    assert time.monotonic() - started < 10.0


def test_a_slow_resolver_is_cut_off(web: WebServer) -> None:
    woken = threading.Event()

    def slow(host: str, port: int) -> list[str]:
        woken.wait(60)
        return ["127.0.0.1"]

    with pytest.raises(OutboundError, match="not resolved in time"):
        replace(web.caller(timeout_s=0.2), resolve=slow).exchange("GET", parse_url(web.url("/")), {})
    woken.set()


def test_a_broken_off_answer(web: WebServer) -> None:
    def short(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("content-length", "100")
        request.end_headers()
        request.wfile.write(b"only this")

    web.pages["/"] = short
    with pytest.raises(OutboundError):
        web.caller().exchange("GET", parse_url(web.url("/")), {})


def test_nobody_there_and_no_http(web: WebServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(OutboundError, match="refused the connection"):
        web.caller().exchange("GET", parse_url(f"https://photos.example:{port}/"), {})

    def other(request: BaseHTTPRequestHandler) -> None:
        request.wfile.write(b"SSH-2.0-x\r\n")

    web.pages["/"] = other
    with pytest.raises(OutboundError, match="does not speak HTTP"):
        web.caller().exchange("GET", parse_url(web.url("/")), {})

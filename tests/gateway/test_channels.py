"""/v1/channels against a real server, with the `websockets` client: requests, events, replay, and what is refused."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from photocall.connections import connect as connect_redis
from photocall.jobs import JobRecord, Lease
from photocall.messages import StreamText
from photocall.records import Records
from photocall.settings import GatewaySettings
from photocall.wire import Wire
from photocall_gateway import channels as channels_module
from photocall_gateway import frames
from photocall_gateway.frames import BadFrame, read_frame
from tests.gateway.batch_helper import Caller, jsonl, line
from tests.gateway.conftest import served
from tests.gateway.fake_backend import FakeBackend, answered
from tests.gateway.key_helper import bearer, keyed, write
from tests.gateway.test_sessions import frame as picture_turn

QUESTIONS = {"q": {"type": "noul", "instructions": "Is it?"}}
TEXT = {"state": "text", "questions": QUESTIONS}
DOCUMENT = (Path(__file__).parents[2] / "docs" / "channels.md").read_text()
Eventually = Callable[..., Any]


class Client:
    """One connection, as a client would write it."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.seen: list[dict[str, Any]] = []

    def send(self, msg_type: str, content: dict[str, Any], msg_id: str = "m1", **more: Any) -> None:
        channel = frames.REQUESTS.get(msg_type, ("shell",))[0]
        header = {"msg_id": msg_id, "msg_type": msg_type, "session": "mine", "username": "me"}
        self.connection.send(json.dumps({"channel": channel, "header": header, "content": content, **more}))

    def receive(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.connection.recv(timeout=30))
        assert set(found) == set(frames.PARTS)
        self.seen.append(found)
        return found

    def until(self, msg_type: str) -> dict[str, Any]:
        while (found := self.receive())["header"]["msg_type"] != msg_type:
            pass
        return found

    def ask(self, msg_type: str, content: dict[str, Any], **more: Any) -> dict[str, Any]:
        """Send, and wait for the reply; its content."""
        self.send(msg_type, content, **more)
        reply = self.until(msg_type.removesuffix("_request") + "_reply")
        assert reply["channel"] == frames.REQUESTS[msg_type][0]
        return dict(reply["content"])


@contextmanager
def connected(address: str, **more: Any) -> Iterator[Client]:
    with connect(address.replace("http", "ws") + "/v1/channels", proxy=None, **more) as connection:
        yield Client(connection)


@pytest.fixture
def client(address: str, backend: FakeBackend) -> Iterator[Client]:
    with connected(address) as found:
        yield found


def test_a_job_with_its_events_and_then_its_reply(client: Client, http: httpx.Client) -> None:
    reply = client.ask("decide_request", TEXT, msg_id="a1")
    assert (reply["status"], reply["job"]["status"]) == ("ok", "succeeded")
    assert reply["job"]["result"]["answers"]["q"]["noul"] == 0.875
    kinds = [message["header"]["msg_type"] for message in client.seen]
    assert (kinds[0], kinds[-3:]) == ("accepted", ["result", "status", "decide_reply"])
    assert all(message["parent_header"]["msg_id"] == "a1" for message in client.seen)
    job_id = reply["job"]["id"]
    events = [message for message in client.seen if "event_id" in message["metadata"]]
    assert {message["channel"] for message in events} == {"iopub"}
    assert {message["metadata"]["subject"] for message in events} == {job_id}
    text = http.get(f"/v1/jobs/{job_id}/events").text
    assert re.findall(r"^id: (.*)$", text, re.M) == [message["metadata"]["event_id"] for message in events]


def test_turns_of_a_session(client: Client, http: httpx.Client) -> None:
    session = http.post("/v1/sessions").json()["id"]
    first = client.ask("turn_request", {"session_id": session, **picture_turn()})
    second = client.ask("turn_request", {"session_id": session, "text": "And?"})
    assert [reply["job"]["status"] for reply in (first, second)] == ["succeeded"] * 2
    assert "prepared" in {message["header"]["msg_type"] for message in client.seen}
    assert http.get(f"/v1/sessions/{session}").json()["turns"]["remembered"] == 2


def test_many_requests_at_once_get_each_its_own_reply(client: Client) -> None:
    for number in range(10):
        client.send("decide_request", {**TEXT, "state": f"text {number}"}, msg_id=f"m{number}")
    replies: dict[str, str] = {}
    while len(replies) < 10:
        message = client.until("decide_reply")
        replies[message["parent_header"]["msg_id"]] = message["content"]["job"]["id"]
    assert len(set(replies.values())) == 10
    for message in client.seen:
        if "subject" in message["metadata"]:
            assert replies[message["parent_header"]["msg_id"]] == message["metadata"]["subject"]


def test_control_does_not_wait_behind_shell(client: Client, backend: FakeBackend, eventually: Eventually) -> None:
    backend.stall.set()
    client.send("decide_request", TEXT, msg_id="slow")
    job_id = client.until("accepted")["content"]["job_id"]
    eventually(lambda: backend.seen)
    assert client.ask("interrupt_request", {"job_id": job_id}, msg_id="stop")["job"]["status"].startswith("cancel")
    assert client.until("decide_reply")["content"]["job"]["status"] == "cancelled"


def test_interrupt_of_a_session(client: Client, http: httpx.Client, backend: FakeBackend) -> None:
    backend.hold.set()
    session = http.post("/v1/sessions").json()["id"]
    turn = http.post(f"/v1/sessions/{session}/turns", json={"text": "x"}).json()["id"]
    assert client.ask("interrupt_request", {"session_id": session})["interrupted"] == [turn]
    bad = client.ask("interrupt_request", {"session_id": session, "waiting": "all"})
    assert (bad["status"], bad["error"]["loc"]) == ("error", ["waiting"])


def test_replay_after_a_lost_connection(address: str, http: httpx.Client, backend: FakeBackend) -> None:
    session = http.post("/v1/sessions").json()["id"]
    with connected(address) as first:
        assert first.ask("subscribe_request", {"session_id": session})["status"] == "ok"
        first.ask("turn_request", {"session_id": session, "text": "One."})
        about = [m for m in first.seen if m["metadata"].get("subject") == session]
        while not any(m["header"]["msg_type"] == "result" for m in about):
            if (found := first.receive())["metadata"].get("subject") == session:
                about.append(found)
        last = about[-1]["metadata"]["event_id"]
    missed = http.post(f"/v1/sessions/{session}/turns", json={"text": "Two."}, headers={"prefer": "wait=10"}).json()
    with connected(address) as second:
        second.ask("subscribe_request", {"session_id": session, "last_event_id": last})
        result = second.until("result")
    assert result["content"]["job_id"] == missed["id"]
    subject = [message for message in first.seen + second.seen if message["metadata"].get("subject") == session]
    ids = [message["metadata"]["event_id"] for message in subject]
    assert len(ids) == len(set(ids))  # nothing came twice


def test_subscribe_to_a_job_and_away_again(client: Client, http: httpx.Client, backend: FakeBackend) -> None:
    backend.hold.set()
    job_id = http.post("/v1/jobs", json=TEXT).json()["id"]
    client.ask("subscribe_request", {"job_id": job_id})
    assert client.ask("unsubscribe_request", {"job_id": job_id})["subscribed"] is True
    assert client.ask("unsubscribe_request", {"job_id": job_id})["subscribed"] is False
    backend.hold.clear()
    http.get(f"/v1/jobs/{job_id}", headers={"prefer": "wait=10"})
    client.ask("engine_info_request", {})
    assert "result" not in {message["header"]["msg_type"] for message in client.seen}
    client.ask("subscribe_request", {"job_id": job_id})
    assert client.until("result")["content"]["job_id"] == job_id


def test_a_batch_is_followed_and_cancelled(client: Client, http: httpx.Client, backend: FakeBackend) -> None:
    backend.hold.set()
    caller = Caller(http)
    batch_id = caller.start(caller.upload(jsonl(line("a"), line("b"))))["id"]
    client.ask("subscribe_request", {"batch_id": batch_id})
    assert client.until("batch_progress")["content"]["batch_id"] == batch_id
    assert client.ask("interrupt_request", {"batch_id": batch_id})["batch"]["status"] == "cancelling"
    while (last := client.until("batch_progress"))["content"]["status"] != "cancelled":
        assert last["metadata"]["subject"] == batch_id
    client.ask("engine_info_request", {})
    assert client.ask("unsubscribe_request", {"batch_id": batch_id})["subscribed"] is False, "it ended by itself"
    again = client.ask("subscribe_request", {"batch_id": batch_id, "last_event_id": last["metadata"]["event_id"]})
    assert again["status"] == "ok"
    assert client.ask("interrupt_request", {"batch_id": batch_id})["error"]["code"] == "batch_state"


def test_a_snapshot_where_events_are_missing(
    client: Client, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = http.post("/v1/jobs", json=TEXT, headers={"prefer": "wait=10"}).json()["id"]

    async def lost(*_: object) -> bool:
        return True

    monkeypatch.setattr("photocall.streams.AsyncEvents.lost", lost)
    client.ask("subscribe_request", {"job_id": job_id, "last_event_id": "1-0"})
    snapshot = client.until("snapshot")
    assert snapshot["content"]["result"]["answers"]["q"]["noul"] == 0.875
    assert "event_id" not in snapshot["metadata"]


def test_engine_info(client: Client, backend: FakeBackend) -> None:
    backend.announce()
    info = client.ask("engine_info_request", {})
    assert info["protocol_version"] == frames.VERSION
    assert info["engines"][0]["model"] == "photocall-mini"


def test_the_same_key_is_one_job(client: Client) -> None:
    jobs = [client.ask("decide_request", TEXT, metadata={"idempotency_key": "k"})["job"]["id"] for _ in range(2)]
    assert jobs[0] == jobs[1]
    created = [m["content"]["created"] for m in client.seen if m["header"]["msg_type"] == "accepted"]
    assert created == [True, False]


@pytest.mark.parametrize(
    ("msg_type", "content", "code"),
    [
        ("decide_request", {}, "invalid_field"),
        ("decide_request", {**TEXT, "model": "unknown"}, "unknown_model"),
        ("turn_request", {"text": "x"}, "invalid_field"),
        ("turn_request", {"session_id": "ses_none", "text": "x"}, "unknown_session"),
        ("subscribe_request", {}, "invalid_field"),
        ("subscribe_request", {"job_id": "none"}, "unknown_job"),
        ("subscribe_request", {"job_id": 3}, "invalid_field"),
        ("subscribe_request", {"batch_id": "batch_none"}, "unknown_batch"),
        ("subscribe_request", {"job_id": "x", "last_event_id": "never"}, "invalid_field"),
        ("interrupt_request", {}, "invalid_field"),
        ("interrupt_request", {"job_id": "none"}, "unknown_job"),
    ],
)
def test_a_request_that_cannot_be_met(client: Client, msg_type: str, content: dict[str, Any], code: str) -> None:
    reply = client.ask(msg_type, content)
    assert (reply["status"], reply["error"]["code"]) == ("error", code)
    assert client.ask("engine_info_request", {})["status"] == "ok"


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "[]", "{}", '{"header": 1}', '{"header": {"msg_type": "decide_request"}}',
        '{"header": {"msg_id": "", "msg_type": "decide_request"}}',
        '{"channel": "shell", "header": {"msg_id": "a", "msg_type": "launch_request"}}',
        '{"channel": "shell", "header": {"msg_id": "a", "msg_type": "interrupt_request"}}',
        '{"channel": "shell", "header": {"msg_id": "a", "msg_type": "decide_request"}, "content": []}',
        '{"channel": "shell", "header": {"msg_id": "a", "msg_type": "decide_request"}, "buffers": ["x"]}',
        '{"channel": "shell", "header": {"msg_id": "a", "msg_type": "decide_request"}, "content": {"a": NaN}}',
    ],
)  # fmt: skip
def test_a_frame_that_is_none(client: Client, text: str) -> None:
    client.connection.send(text)
    found = client.receive()
    assert (found["header"]["msg_type"], found["content"]["status"]) == ("error", "error")
    assert found["content"]["error"]["code"] == "malformed"
    with pytest.raises(BadFrame):
        read_frame(text)
    assert client.ask("engine_info_request", {})["status"] == "ok"


def test_bytes_are_refused_and_the_connection_goes_on(client: Client) -> None:
    client.connection.send(b"bytes")
    assert "text, not bytes" in client.receive()["content"]["error"]["detail"]
    assert client.ask("engine_info_request", {})["status"] == "ok"


def test_a_frame_that_is_too_long_ends_the_connection(client: Client, settings: GatewaySettings) -> None:
    client.connection.send("x" * (settings.max_body_bytes + 1))
    with pytest.raises(ConnectionClosed):
        client.receive()
    assert client.connection.close_code == channels_module.TOO_BIG


def test_too_many_requests_and_subscriptions(
    client: Client, http: httpx.Client, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels_module, "MAX_REQUESTS", 2)
    monkeypatch.setattr(channels_module, "MAX_SUBSCRIPTIONS", 1)
    sessions = [http.post("/v1/sessions").json()["id"] for _ in range(2)]
    assert client.ask("subscribe_request", {"session_id": sessions[0]})["status"] == "ok"
    assert client.ask("subscribe_request", {"session_id": sessions[0]})["status"] == "ok"
    assert client.ask("subscribe_request", {"session_id": sessions[1]})["error"]["code"] == "queue_full"
    backend.hold.set()
    for number in range(2):
        client.send("decide_request", {**TEXT, "state": str(number)})
        client.until("accepted")
    assert client.ask("decide_request", TEXT)["error"]["code"] == "queue_full"
    backend.hold.clear()
    assert client.until("decide_reply")["content"]["status"] == "ok"


def test_a_client_that_takes_nothing_holds_up_nobody_and_loses_nothing(
    client: Client, address: str, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More events than may wait: the follower waits, and goes on when the client reads again."""
    monkeypatch.setattr(channels_module, "QUEUE", 2)
    with connected(address) as slow:
        for number in range(30):
            slow.send("decide_request", {**TEXT, "state": str(number)}, msg_id=f"m{number}")
        assert client.ask("decide_request", TEXT)["status"] == "ok"
        for _ in range(30):
            assert slow.until("decide_reply")["content"]["job"]["status"] == "succeeded"
    results = [m for m in slow.seen if m["header"]["msg_type"] == "result"]
    assert len({m["content"]["job_id"] for m in results}) == 30


def test_a_foreign_origin_is_refused(address: str) -> None:
    for origin in ("http://evil.example", "null"):
        with pytest.raises(InvalidStatus) as caught, connected(address, origin=origin):
            pass
        assert caught.value.response.status_code == 403
        assert json.loads(bytes(caught.value.response.body))["code"] == "foreign_origin"
    with connected(address, origin=address) as client:
        assert client.ask("engine_info_request", {})["status"] == "ok"


def test_a_foreign_host_is_refused(address: str) -> None:
    host, port = address.removeprefix("http://").split(":")
    raw = socket.create_connection((host, int(port)))
    with pytest.raises(InvalidStatus) as caught, connected("http://evil.example", sock=raw):
        pass
    assert caught.value.response.status_code == 421


def test_keys(settings: GatewaySettings, backend: FakeBackend) -> None:
    with served(keyed(settings, ann="ask", ben="ask")) as address:
        for headers in ({}, bearer("nobody")):
            with pytest.raises(InvalidStatus) as caught, connected(address, additional_headers=headers):
                pass
            assert caught.value.response.status_code == 401
        with (
            connected(address, additional_headers=bearer("ann")) as ann,
            connected(address, additional_headers=bearer("ben")) as ben,
            httpx.Client(base_url=address, trust_env=False, headers=bearer("ann")) as http,
        ):
            job_id = ann.ask("decide_request", TEXT)["job"]["id"]
            session_id = http.post("/v1/sessions").json()["id"]
            for msg_type in ("subscribe_request", "interrupt_request"):
                assert ben.ask(msg_type, {"job_id": job_id})["error"]["code"] == "unknown_job"
                assert ben.ask(msg_type, {"session_id": session_id})["error"]["code"] == "unknown_session"
            theirs = ben.ask("turn_request", {"session_id": session_id, "text": "x"})
            assert theirs["error"]["code"] == "unknown_session"
            assert http.delete(f"/v1/jobs/{job_id}").status_code == 204
            for client, code in ((ann, "job_gone"), (ben, "unknown_job")):
                assert client.ask("subscribe_request", {"job_id": job_id})["error"]["code"] == code


# What each message needs: the scope that the same call needs over HTTP. Every request of the protocol is here.
BATCH_ID = "batch_" + "0" * 24
NEEDS: list[tuple[str, dict[str, Any], set[str]]] = [
    ("decide_request", TEXT, {"ask"}),
    ("turn_request", {"session_id": "ses_1", "text": "x"}, {"ask"}),
    ("engine_info_request", {}, {"ask", "batch", "admin"}),
    ("subscribe_request", {"job_id": "job_1"}, {"ask", "admin"}),
    ("subscribe_request", {"session_id": "ses_1"}, {"ask"}),
    ("subscribe_request", {"batch_id": BATCH_ID}, {"batch", "admin"}),
    ("unsubscribe_request", {"job_id": "job_1"}, {"ask", "batch", "admin"}),
    ("interrupt_request", {"job_id": "job_1"}, {"ask", "admin"}),
    ("interrupt_request", {"session_id": "ses_1"}, {"ask"}),
    ("interrupt_request", {"batch_id": BATCH_ID}, {"batch", "admin"}),
]


def test_a_message_needs_its_scope(settings: GatewaySettings, backend: FakeBackend) -> None:
    """Any key could follow and cancel its id's batches here, whatever it was for."""
    assert {msg_type for msg_type, _, _ in NEEDS} == set(frames.REQUESTS)
    with served(keyed(settings, ask="ask", batch="batch", admin="admin")) as address:
        for scope in ("ask", "batch", "admin"):
            with connected(address, additional_headers=bearer(scope)) as client:
                for msg_type, content, needed in NEEDS:
                    reply = client.ask(msg_type, content)
                    refused = reply.get("error", {}).get("code") == "missing_scope"
                    assert refused == (scope not in needed), (scope, msg_type, content, reply)


def test_an_admin_follows_and_cancels_what_is_anybody_s(settings: GatewaySettings, backend: FakeBackend) -> None:
    backend.hold.set()
    with (
        served(keyed(settings, ann="ask,batch", root="admin")) as address,
        httpx.Client(base_url=address, trust_env=False, headers=bearer("ann")) as http,
        connected(address, additional_headers=bearer("root")) as root,
    ):
        ann = Caller(http)
        batch_id = ann.start(ann.upload(jsonl(line("a"))))["id"]
        job_id = http.post("/v1/jobs", json=TEXT).json()["id"]
        for content in ({"job_id": job_id}, {"batch_id": batch_id}):
            assert root.ask("subscribe_request", content)["status"] == "ok"
            assert root.ask("interrupt_request", content)["status"] == "ok"
        assert ann.ended(batch_id)["status"] == "cancelled"
        assert http.get(f"/v1/jobs/{job_id}").json()["status"] == "cancelled"


def test_a_revoked_key_ends_what_is_open(settings: GatewaySettings, backend: FakeBackend) -> None:
    """A WebSocket, an event stream of each kind, a long poll and a synchronous call: all went on as before.

    Another key's go on.
    """
    backend.hold.set()
    changed = keyed(settings, ann="ask,batch", ben="ask")
    assert changed.api_keys is not None
    with (
        served(changed) as address,
        httpx.Client(base_url=address, trust_env=False, timeout=30, headers=bearer("ann")) as http,
        connected(address, additional_headers=bearer("ann")) as ann,
        connected(address, additional_headers=bearer("ben")) as ben,
        ThreadPoolExecutor(8) as pool,
    ):
        caller = Caller(http)
        batch_id = caller.start(caller.upload(jsonl(line("a"))))["id"]
        job_id, session_id = http.post("/v1/jobs", json=TEXT).json()["id"], http.post("/v1/sessions").json()["id"]
        assert ann.ask("subscribe_request", {"session_id": session_id})["status"] == "ok"
        ann.send("decide_request", {**TEXT, "state": "waits"})
        ann.until("accepted")
        streams = [f"/v1/jobs/{job_id}/events", f"/v1/sessions/{session_id}/events", f"/v1/batches/{batch_id}/events"]
        followed = [pool.submit(http.get, path) for path in streams]
        waiting = [
            pool.submit(http.get, f"/v1/jobs/{job_id}", headers={"prefer": "wait=30"}),
            pool.submit(http.post, "/v1/jobs", json=TEXT, headers={"prefer": "wait=30"}),
            pool.submit(http.post, "/v1/systemone", json={**TEXT, "state": "now"}),
        ]
        wait(waiting, 0.5)
        assert not any(future.done() for future in (*followed, *waiting))
        revoked_at = time.monotonic()
        write(changed.api_keys, ben="ask")
        for future in followed:
            assert future.result(10).status_code == 200
        for future in waiting:
            assert future.result(10).status_code == 401
        with pytest.raises(ConnectionClosed) as closed:
            ann.until("decide_reply")
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1008, "the API key has been revoked")
        assert time.monotonic() - revoked_at < 8, "said to be two seconds; the rest is for a slow machine"
        assert ben.ask("engine_info_request", {})["status"] == "ok"
        backend.hold.clear()
        assert ben.ask("decide_request", TEXT)["status"] == "ok"


def test_text_comes_as_it_is_made(client: Client, backend: FakeBackend, settings: GatewaySettings) -> None:
    """`stream` events with their offsets arrive before the answer."""
    records = Records(connect_redis(settings.redis_url), Wire(b"test-signing-key", "test"))

    def respond(ask: Any, record: JobRecord) -> Any:
        lease = Lease(record.job_id, record.fence, 1, record.header)
        for offset, text in ((0, "two "), (4, "boxes"), (0, "two boxes")):  # the last: a second attempt
            records.event(lease, StreamText(record.job_id, "t", offset, text))
        return answered(ask, record)

    backend.respond = respond
    client.ask("decide_request", {"state": "x", "questions": {"t": {"type": "text", "instructions": "What?"}}})
    streams = [m["content"] for m in client.seen if m["header"]["msg_type"] == "stream"]
    assert [(s["question"], s["offset"], s["text"]) for s in streams] == [("t", 0, "two "), ("t", 4, "boxes")]
    records.redis.close()


def test_an_idle_connection_is_pinged_and_one_that_does_not_answer_is_closed(settings: GatewaySettings) -> None:
    with served(settings, ping_s=0.2) as address:
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=30) as raw:
            raw.sendall(
                f"GET /v1/channels HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
            )
            received = b""
            while part := raw.recv(4096):
                received += part
        _, _, sent = received.partition(b"\r\n\r\n")
        assert sent[0] == 0x89  # a ping
        assert b"\x88" in sent  # then a close


def test_a_server_that_leaves_says_so(settings: GatewaySettings, backend: FakeBackend) -> None:
    backend.hold.set()
    with ExitStack() as client_side:
        with served(settings) as address:
            client = client_side.enter_context(connected(address))
            client.send("decide_request", TEXT)
            client.until("accepted")
        with pytest.raises(ConnectionClosed):
            list(client.connection)  # what was on its way
        assert client.connection.close_code == 1012  # service restart


def rows() -> dict[str, tuple[str, tuple[str, ...]]]:
    found = {}
    for written in DOCUMENT.splitlines():
        if written.startswith("| `"):
            name, channel, content = (cell.strip() for cell in written.strip("|").split("|"))
            found[name.strip("`")] = (channel, tuple(re.findall(r"`(.+?)`", content)))
    return found


def test_the_document_says_what_the_code_does() -> None:
    assert rows() == frames.REQUESTS
    parts = re.search(r"a JSON object with (.*?)\.\n", DOCUMENT)
    assert parts is not None
    assert tuple(re.findall(r"`(\w+)`", parts[1])) == frames.PARTS
    assert all(f"`{event}`" in DOCUMENT.split("## Events")[1] for event in frames.EVENTS)
    bounds = " ".join(DOCUMENT.split("## Bounds")[1].split())
    assert f"{channels_module.MAX_REQUESTS} unfinished requests and {channels_module.MAX_SUBSCRIPTIONS} sub" in bounds
    assert f"{channels_module.QUEUE} frames wait" in bounds
    assert f"no frame for {channels_module.SLOW_S:g} s" in bounds
    assert f"pinged every {channels_module.PING_S:g} s" in bounds
    assert f"(1 to {frames.MAX_ID_CHARS} characters)" in DOCUMENT

"""Messages to bytes and back, and everything that must not pass."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any, cast

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from photocall.errors import BadSignature, MalformedMessage, UnknownVersion
from photocall.messages import (
    TYPES,
    VERSION,
    BatchProgress,
    DecideRequest,
    EngineInfo,
    Error,
    InterruptRequest,
    Message,
    Prepared,
    Progress,
    ReleaseRequest,
    Result,
    RqValue,
    ShutdownRequest,
    Status,
    StreamText,
    TurnRequest,
    new_header,
)
from photocall.wire import SIGNATURE_BYTES, Wire

KEY = b"a key for tests"
WIRE = Wire(KEY, "session-1")
ONE_OF_EACH: list[Message] = [
    DecideRequest("f", ["job", 1]),
    RqValue({"a": None}),
    Prepared("j", 1, [{"sha256": "0", "grid_height": 3}]),
    Status("j", "busy", "preparing"),
    Progress("j", "running", 1, 2),
    BatchProgress("batch_1", "in_progress", 3, 1, 1, "queue_full"),
    StreamText("j", "wie heißt es?", 3, "Bär"),
    Result("j"),
    Error("j", "failed", {"code": "internal"}),
    InterruptRequest(["j"]),
    TurnRequest("j1", 1, [], "ses_1"),
    ReleaseRequest(["ses_1"]),
    ShutdownRequest("test"),
    EngineInfo("e", "m", "cpu", True, 1, 2, 3, 4, 5.0, 6, 7),
]


def signed(parts: Any, key: bytes = KEY) -> bytes:
    body: bytes = msgpack.packb(parts)
    return hmac.new(key, body, hashlib.sha256).digest() + body


def test_there_is_one_of_each() -> None:
    assert {type(message) for message in ONE_OF_EACH} == set(TYPES.values())


@pytest.mark.parametrize("message", ONE_OF_EACH, ids=lambda message: message.msg_type)
def test_round_trip(message: Message) -> None:
    cause = new_header("decide_request", "other")
    envelope = WIRE.decode(WIRE.encode(message, cause, {"deadline": 3}, [b"\x00\xff", b""]))
    assert envelope.message == message
    assert envelope.parent_header == cause
    assert envelope.metadata == {"deadline": 3}
    assert envelope.buffers == (b"\x00\xff", b"")
    assert envelope.header["msg_type"] == message.msg_type
    assert envelope.header["session"] == "session-1"
    assert envelope.header["version"] == VERSION
    assert envelope.header["date"].endswith("+00:00")


def test_a_first_message_has_no_cause() -> None:
    assert WIRE.decode(WIRE.encode(Result("j"))).parent_header is None


def test_headers_differ() -> None:
    assert new_header("x", "s")["msg_id"] != new_header("x", "s")["msg_id"]


@given(st.data())
def test_any_changed_byte_is_refused(data: st.DataObject) -> None:
    good = WIRE.encode(Prepared("j", 1, []), buffers=[b"in the buffers too"])
    at = data.draw(st.integers(0, len(good) - 1))
    bad = bytearray(good)
    bad[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(BadSignature):
        WIRE.decode(bytes(bad))


@pytest.mark.parametrize("cut", [0, 1, SIGNATURE_BYTES - 1, SIGNATURE_BYTES, -1])
def test_a_cut_message_is_refused(cut: int) -> None:
    with pytest.raises(BadSignature):
        WIRE.decode(WIRE.encode(Result("j"))[:cut])


def test_another_key_is_refused() -> None:
    with pytest.raises(BadSignature):
        WIRE.decode(Wire(b"another", "s").encode(Result("j")))


def test_nothing_is_decoded_before_the_signature_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr(msgpack, "unpackb", never)
    with pytest.raises(BadSignature):
        WIRE.decode(b"\x00" * 64)


def test_an_empty_key_is_no_key() -> None:
    with pytest.raises(ValueError, match="empty"):
        Wire(b"", "s")


def header(**changes: str) -> dict[str, str]:
    return {**cast("dict[str, str]", new_header("result", "s")), **changes}


@pytest.mark.parametrize(
    "parts",
    [
        7,
        [],
        [header(), {}, {}, {"job_id": "j"}],
        [header(), {}, {}, {"job_id": "j"}, [], 6],
        [{"version": "1.0"}, {}, {}, {"job_id": "j"}, []],
        [header(), {"msg_id": "only"}, {}, {"job_id": "j"}, []],
        [header(), [], {}, {"job_id": "j"}, []],
        [header(), {}, [], {"job_id": "j"}, []],
        [header(), {}, {}, ["j"], []],
        [header(), {}, {}, {}, []],
        [header(), {}, {}, {"job_id": 7}, []],
        [header(), {}, {}, {"job_id": "j"}, ["text"]],
        [header(), {}, {}, {"job_id": "j"}, {}],
        [header(msg_type="unheard_of"), {}, {}, {"job_id": "j"}, []],
    ],
)
def test_a_signed_message_of_another_shape_is_malformed(parts: Any) -> None:
    with pytest.raises(MalformedMessage):
        WIRE.decode(signed(parts))


def test_signed_rubbish_is_malformed() -> None:
    body = b"\xc1\xc1"
    with pytest.raises(MalformedMessage):
        WIRE.decode(hmac.new(KEY, body, hashlib.sha256).digest() + body)


def test_another_major_version_is_not_ours_to_judge() -> None:
    with pytest.raises(UnknownVersion) as unknown:
        WIRE.decode(signed([header(version="2.0", msg_type="unheard_of"), {}, {}, {}, []]))
    assert unknown.value.data == {"version": "2.0"}


def test_a_newer_minor_version_is_read_and_its_new_fields_ignored() -> None:
    data = signed([header(version="1.9"), {}, {}, {"job_id": "j", "new": 1}, []])
    assert WIRE.decode(data).message == Result("j")

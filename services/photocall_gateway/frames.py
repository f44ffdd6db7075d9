"""Frames of a channel: a message of Jupyter's shape as one JSON text, and the bounds it has to keep to.

docs/channels.md describes them for people; a test compares it with this file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from photocall.errors import CodedError
from photocall.messages import VERSION, new_header
from photocall.questions import InvalidField, Json
from photocall_gateway.json_body import load_json

# What a client may send, with the fields of its content; a `?` marks one that may be left out, `...` a body of the API.
REQUESTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "decide_request": ("shell", ("...",)),
    "turn_request": ("shell", ("session_id", "...")),
    "engine_info_request": ("shell", ()),
    "subscribe_request": ("shell", ("job_id?", "session_id?", "batch_id?", "last_event_id?")),
    "unsubscribe_request": ("shell", ("job_id?", "session_id?", "batch_id?")),
    "interrupt_request": ("control", ("job_id?", "session_id?", "batch_id?", "waiting?")),
}
# What comes on iopub: the events of jobs, and these two of the connection's own.
EVENTS = ("status", "prepared", "progress", "stream", "result", "error", "snapshot", "accepted")
PARTS = ("channel", "header", "parent_header", "metadata", "content", "buffers")
MAX_ID_CHARS = 128


@dataclass(frozen=True, slots=True)
class Frame:
    """A request of a client. `header` is as the client sent it, and the parent of every reply."""

    channel: str
    msg_type: str
    header: dict[str, Json]
    content: dict[str, Json]
    metadata: dict[str, Json] = field(default_factory=dict)


class BadFrame(CodedError):
    """A frame that is none. `header` is that of the frame, as far as it has one, `channel` where to say so."""

    def __init__(self, message: str, header: Mapping[str, Json] | None = None, channel: str = "shell") -> None:
        super().__init__("malformed", message)
        self.header = dict(header or {})
        self.channel = channel


def read_frame(text: str) -> Frame:
    """Raises BadFrame."""
    try:
        value = load_json(text.encode())
    except (CodedError, InvalidField) as error:
        raise BadFrame(f"A frame is one JSON object: {error}") from None
    if not isinstance(value, dict):
        raise BadFrame("A frame is one JSON object")
    header = value.get("header")
    if not isinstance(header, dict):
        raise BadFrame("`header` is an object")
    msg_type, msg_id = header.get("msg_type"), header.get("msg_id")
    if not isinstance(msg_id, str) or not 1 <= len(msg_id) <= MAX_ID_CHARS:
        raise BadFrame(f"`header.msg_id` has 1 to {MAX_ID_CHARS} characters")
    header = {name: header[name] for name in ("msg_id", "msg_type", "session", "username", "date", "version")
              if isinstance(header.get(name), str) and len(str(header[name])) <= MAX_ID_CHARS}  # fmt: skip
    if not isinstance(msg_type, str) or msg_type not in REQUESTS:
        raise BadFrame(f"`header.msg_type` is one of {', '.join(REQUESTS)}", header)
    channel = REQUESTS[msg_type][0]
    if value.get("channel") != channel:
        raise BadFrame(f"{msg_type} belongs on the channel {channel!r}", header, channel)
    content, metadata = value.get("content", {}), value.get("metadata", {})
    if not isinstance(content, dict) or not isinstance(metadata, dict):
        raise BadFrame("`content` and `metadata` are objects", header, channel)
    if value.get("buffers"):
        raise BadFrame("`buffers` are not taken: send a picture as base64, or by PUT and its hash", header, channel)
    return Frame(channel, msg_type, header, content, metadata)


def write_frame(
    channel: str,
    msg_type: str,
    content: Mapping[str, Any],
    parent: Mapping[str, Any],
    session: str,
    header: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> str:
    """A frame of the server. `header`: that of the event, where it has one."""
    parts = {
        "channel": channel,
        "header": dict(header or new_header(msg_type, session)),
        "parent_header": dict(parent),
        "metadata": dict(metadata or {}),
        "content": dict(content),
        "buffers": [],
    }
    return json.dumps(parts, ensure_ascii=False)


__all__ = ["EVENTS", "PARTS", "REQUESTS", "VERSION", "BadFrame", "Frame", "read_frame", "write_frame"]

"""Channel: questions and answers of a worker and its decoder, heads over a socket and bodies through shared memory.

A megabyte through a socket would wake each side a dozen times; so each is woken once. What a head says is checked by
whoever reads it: the other side may have been broken into.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from dataclasses import dataclass
from typing import Any

from photocall.wire import pack, unpack

MAX_HEAD_BYTES = 1 << 16
KEPT_BYTES = 4 << 20  # of shared memory between two frames
_SIZES = struct.Struct(">IQ")  # bytes of a msgpack map, and of the body


@dataclass(frozen=True, slots=True)
class Frame:
    """One question or answer."""

    head: dict[str, Any]
    body: bytes = b""


class Channel:
    """One end. `memory` is a file descriptor that both ends have; it holds the body of the last frame."""

    def __init__(self, pipe: socket.socket, memory: int) -> None:
        self._pipe = pipe
        self._memory = memory

    def send(self, frame: Frame) -> None:
        """Raises OSError, TimeoutError among them."""
        at, body = 0, memoryview(frame.body)
        while at < len(body):
            at += os.pwrite(self._memory, body[at:], at)
        head = pack(frame.head)
        self._pipe.settimeout(None)
        self._pipe.sendall(_SIZES.pack(len(head), len(body)) + head)  # less than a socket holds

    def receive(self, most: int, until: float | None = None) -> Frame:
        """The next one. `until`: the time.monotonic() at which to have it whole; `most`: bytes of its body.

        Raises EOFError when the other side is gone, OSError (TimeoutError is one), and ValueError for what is none.
        """
        head_bytes, body_bytes = _SIZES.unpack(self._exactly(_SIZES.size, until))
        if head_bytes > MAX_HEAD_BYTES or body_bytes > most:
            raise ValueError(f"a frame of {head_bytes} and {body_bytes} bytes")
        head = unpack(self._exactly(head_bytes, until))
        body = os.pread(self._memory, body_bytes, 0)
        if not isinstance(head, dict) or len(body) < body_bytes:
            raise ValueError("a frame that is not whole")
        if body_bytes > KEPT_BYTES:
            os.ftruncate(self._memory, 0)
        return Frame(head, body)

    def close(self) -> None:
        """The other side sees the end."""
        self._pipe.close()
        os.close(self._memory)

    def _exactly(self, size: int, until: float | None) -> bytes:
        found = bytearray(size)
        view = memoryview(found)
        while view:
            self._pipe.settimeout(None if until is None else max(0.001, until - time.monotonic()))
            count = self._pipe.recv_into(view)
            if not count:
                raise EOFError
            view = view[count:]
        return bytes(found)

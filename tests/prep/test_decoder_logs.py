"""What a decoder logs, in a process of its own, is about the job whose picture it has."""

from __future__ import annotations

import io
import logging
from typing import Any

from photocall.logs import LineFormatter, about_job
from photocall.views import PLAIN
from photocall_prep.decoder import asking, serve
from photocall_prep.decoder.channel import Frame


class Once:
    """A channel with one question on it."""

    def __init__(self, asked: Frame) -> None:
        self.asked = [asked]
        self.sent: list[Frame] = []

    def send(self, frame: Frame) -> None:
        self.sent.append(frame)

    def receive(self, most: int) -> Frame:
        if not self.asked:
            raise EOFError
        return self.asked.pop()


class Broken:
    def prepare(self, *asked: Any) -> Any:
        raise RuntimeError("a defect of ours")


def test_the_job_reaches_the_decoder_s_lines() -> None:
    with about_job("job_1"):
        channel: Any = Once(asking(b"a picture", 140, PLAIN))
    out, log = io.StringIO(), logging.getLogger("photocall_prep.decoder")
    handler = logging.StreamHandler(out)
    handler.setFormatter(LineFormatter("decoder"))
    log.addHandler(handler)
    try:
        serve(channel, Broken(), 1000)
    finally:
        log.removeHandler(handler)
    assert channel.sent[-1].head == {"failed": "RuntimeError"}
    [line] = out.getvalue().splitlines()
    assert "cannot prepare a picture job=job_1 trace=" in line

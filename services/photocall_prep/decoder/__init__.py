"""A decoder's process: pictures in, patches out, over one channel, within a limit of memory. No key, no Redis.

`guarded_prep.py` starts it, gives it the time it may take, and kills it when that is over: what hangs in a C library
hears no signal and holds Python's lock, so nothing in the same process could end it. It ends when the channel does.

The limit is RLIMIT_DATA: it counts private memory that can be written, which is what a decoder allocates. RLIMIT_AS
would count mapped libraries and reserved arenas too, and a look at RSS comes too late for a picture that takes a
gigabyte in a tenth of a second. It begins above what the process has once it has prepared a picture: libraries that
start a thread for each core have hundreds of megabytes by then on a large machine.
"""

from __future__ import annotations

import io
import logging
import resource
import signal
import socket
import warnings
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from PIL import Image

from photocall.grid import BUDGETS, Grid, ProcessorConfig
from photocall.logs import about_job, current_job, set_up
from photocall.settings import PrepSettings
from photocall.views import Budget, View, parse_budget
from photocall_prep.crowd import Crowd, own_cores
from photocall_prep.decoder.channel import Channel, Frame
from photocall_prep.prepare import ImagePrep, Prep, PreparedImage
from photocall_prep.refusal import ImageRefused
from photocall_prep.sources import Facts

log = logging.getLogger(__name__)


def serve(channel: Channel, prep: Prep, most: int) -> None:
    """Say that it is ready, then answer until the other side is gone. `most`: bytes of a picture."""
    channel.send(Frame({"ready": True}))
    while True:
        try:
            asked = channel.receive(most)
        except EOFError:
            return
        with about_job(str(asked.head.get("job", ""))):
            channel.send(_answer(prep, asked))


def _answer(prep: Prep, asked: Frame) -> Frame:
    try:
        prepared = prep.prepare(
            asked.body, parse_budget(str(asked.head["budget"])), View.parse(str(asked.head["view"]))
        )
    except ImageRefused as refused:
        return Frame({"refused": refused.code, "reason": refused.reason})
    except MemoryError:
        return Frame({"out_of_memory": True})
    except Exception as error:  # a defect of ours: the job fails, with the trace in the log
        log.exception("cannot prepare a picture")
        return Frame({"failed": type(error).__name__})
    return packed(prepared)


def asking(data: bytes, budget: Budget, view: View) -> Frame:
    """The question."""
    return Frame({"budget": str(budget), "view": str(view), "job": current_job()}, data)


def packed(prepared: PreparedImage) -> Frame:
    """The answer: every field of it in the head, but for the patches."""
    head = {item.name: getattr(prepared, item.name) for item in fields(prepared) if item.name != "patches"}
    return Frame({**head, "grid": asdict(prepared.grid), "facts": asdict(prepared.facts)}, prepared.patches)


def unpacked(frame: Frame) -> PreparedImage:
    """What `packed` was given. Raises TypeError and others for what is none."""
    head: dict[str, Any] = {name: _frozen(value) for name, value in frame.head.items()}
    return PreparedImage(**{**head, "grid": Grid(**head["grid"]), "facts": Facts(**head["facts"])}, patches=frame.body)


def _frozen(value: Any) -> Any:
    """msgpack has no tuples."""
    if isinstance(value, dict):
        return {name: _frozen(item) for name, item in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _prep(settings: PrepSettings) -> ImagePrep:
    allowed = ProcessorConfig.read(settings.model).allowed
    crowd = Crowd(settings.model, own_cores())
    return ImagePrep(settings, settings.fidelity, settings.background, allowed, crowd)


def run(environ: Mapping[str, str], socket_fd: int, memory_fd: int, prep: Prep | None = None) -> int:
    """Serve the channel of these descriptors; 0 when the worker is gone. `prep` is the tests'."""
    set_up("decoder")
    warnings.filterwarnings("ignore", category=UserWarning, module="PIL")  # on damaged metadata; damage is handled
    for number in (signal.SIGINT, signal.SIGTERM):  # meant for the worker, which ends this by closing the channel
        signal.signal(number, signal.SIG_IGN)
    settings = PrepSettings.from_env(environ)
    set_up("decoder", form=settings.log_format)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it would be full of somebody's picture
    prep = prep or _prep(settings)
    prep.prepare(_small_picture(), BUDGETS[0])
    most = _data_bytes() + settings.decode_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    channel = Channel(socket.socket(fileno=socket_fd), memory_fd)
    serve(channel, prep, settings.max_image_bytes)
    channel.close()
    return 0


def _small_picture() -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (64, 64)).save(out, "JPEG")
    return out.getvalue()


def _data_bytes() -> int:
    """What RLIMIT_DATA counts now."""
    kib = Path("/proc/self/status").read_text().partition("VmData:")[2].split()[0]
    return int(kib) << 10

"""GuardedPrep: prepares pictures in a process beside this one, which may hang, eat memory or die without harm.

A decode that outlasts its wall clock is killed with its process and the picture refused; one that asks for more memory
than it may have is refused; one that kills its process is tried once more in a new one, then refused. The worker that
asked waits on a socket meanwhile: its lease is renewed, its other jobs follow. What a decoder answers is checked, since
whoever broke into one would answer for it.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress

from photocall.grid import PATCH_BYTES
from photocall.logs import fields
from photocall.settings import without_secrets
from photocall.supervisor import ends_with
from photocall.views import PLAIN, Budget, View
from photocall_prep.decoder import asking, unpacked
from photocall_prep.decoder.channel import Channel, Frame
from photocall_prep.metrics import PrepMetrics
from photocall_prep.prepare import PreparedImage
from photocall_prep.refusal import ImageRefused

log = logging.getLogger(__name__)

START_S = 60.0  # to import Pillow and NumPy on a machine that is busy; no part of a picture's time
DEATH_S = 2.0
TRIES = 2  # a decoder may be killed for reasons that are not its picture's
DECODERS_CODES = ("image_undecodable", "image_too_large", "image_unsupported", "image_view_unsupported")
_MOST_REASON = 600  # characters
_MOST_BYTES = 64 << 20  # of an answer: the patches of the largest budget are a few MiB


class DecoderFailed(Exception):
    """A defect of ours in a decoder, or an answer that is none. The message names it."""


class GuardedPrep:
    """Prepares with decoders that are started as they are needed. Any number of threads may ask at once.

    A decoder ends with the thread that started it, so threads that ask should live as long as this does.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        wall_s: float,
        module: str = "photocall_prep.decoder",
        metrics: PrepMetrics | None = None,
    ) -> None:
        """`environ`: PrepSettings' variables, of which decoders get all but the secrets."""
        self._lost = (metrics or PrepMetrics()).decoders_lost
        self._environ = without_secrets(environ)
        self._wall_s = wall_s
        self._module = module
        self._idle: list[_Decoder] = []

    def start(self) -> None:
        """Have a decoder ready, so that the first picture need not wait for it."""
        self._idle.append(self._started())

    def pids(self) -> list[int]:
        """Of the decoders that are idle."""
        return [decoder.pid for decoder in self._idle]

    def close(self) -> None:
        """End the decoders that are idle."""
        while self._idle:
            self._idle.pop().end()

    def prepare(self, data: bytes, budget: Budget, view: View = PLAIN) -> PreparedImage:
        """Raises ImageRefused, and DecoderFailed."""
        ended = ""
        for _ in range(TRIES):
            decoder = self._ready()
            try:
                answer = decoder.ask(asking(data, budget, view), self._wall_s)
            except TimeoutError:
                decoder.end()
                self._lost.labels("too_slow").inc()
                log.warning("a decoder is killed", extra=fields(after_s=self._wall_s, bytes=len(data)))
                raise ImageRefused("image_undecodable", f"not decoded within {self._wall_s:g} s") from None
            except (EOFError, OSError) as error:
                ended = decoder.died()
                self._lost.labels("died").inc()
                log.warning("a decoder died", extra=fields(how=ended, error=type(error).__name__, bytes=len(data)))
                continue
            except ValueError:
                decoder.end()
                raise DecoderFailed("an answer that is none") from None
            if "out_of_memory" in answer.head:
                decoder.end()  # what it holds yet is not known
                raise ImageRefused("image_too_large", "decoding it takes more memory than a picture may")
            self._idle.append(decoder)
            return _read(answer)
        raise ImageRefused("image_undecodable", f"decoding it ended the decoder, {TRIES} times: {ended}")

    def _ready(self) -> _Decoder:
        """An idle decoder or a new one. One that ends while it starts is replaced. Raises DecoderFailed."""
        for left in reversed(range(TRIES)):
            try:
                decoder = self._idle.pop()  # another thread may have taken the last one since anybody looked
            except IndexError:
                decoder = self._started()
            try:
                decoder.wait_ready()
                return decoder
            except DecoderFailed as error:
                if not left:
                    raise
                log.warning("a decoder does not start", extra=fields(error=str(error)))
        raise AssertionError("a loop of at least one turn")

    def _started(self) -> _Decoder:
        return _Decoder(self._module, self._environ)


class _Decoder:
    """A decoder's process. One picture at a time."""

    def __init__(self, module: str, environ: Mapping[str, str]) -> None:
        ours, theirs = socket.socketpair()
        memory = os.memfd_create("photocall-decoder")
        self._channel = Channel(ours, memory)
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [*ends_with(os.getpid()), sys.executable, "-m", module, str(theirs.fileno()), str(memory)],
                    env=dict(environ),
                    stdin=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(), memory),
                )
        except OSError as error:
            self._channel.close()
            raise DecoderFailed(f"it cannot be started: {error}") from error
        self._ready = False

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    def wait_ready(self) -> None:
        """Raises DecoderFailed for one that does not start: no picture is to blame for it."""
        if self._ready:
            return
        try:
            self._channel.receive(0, time.monotonic() + START_S)
        except (EOFError, OSError, ValueError) as error:
            raise DecoderFailed(f"it does not start: {self.died()}") from error
        self._ready = True

    def ask(self, frame: Frame, within_s: float) -> Frame:
        """Its answer, in time. Raises TimeoutError, EOFError or OSError when it is gone, and ValueError."""
        until = time.monotonic() + within_s
        self._channel.send(frame)
        return self._channel.receive(_MOST_BYTES, until)

    def end(self) -> None:
        """Kill it if it lives."""
        with suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        self._channel.close()

    def died(self) -> str:
        """How it ended, or that it had to be."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(DEATH_S)  # its socket closes before it has
        status = self._process.poll()
        self.end()
        if status is None:
            return "it went silent"
        return f"status {status}" if status >= 0 else signal.Signals(-status).name


def _read(answer: Frame) -> PreparedImage:
    """What it says, if it can be true. Raises ImageRefused and DecoderFailed."""
    head = answer.head
    if "refused" in head:
        code = str(head["refused"])
        if code not in DECODERS_CODES:
            raise DecoderFailed("a refusal that is not a decoder's")
        raise ImageRefused(code, str(head.get("reason", ""))[:_MOST_REASON])
    if "failed" in head:
        raise DecoderFailed(str(head["failed"])[:_MOST_REASON])
    try:
        prepared = unpacked(answer)
        if len(answer.body) == prepared.grid.num_patches * PATCH_BYTES > 0:
            return prepared
    except (TypeError, ValueError, LookupError):
        pass
    raise DecoderFailed("an answer that is none")

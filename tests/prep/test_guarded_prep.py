"""Decoders that hang, eat memory, crash or lie: the picture is refused, the worker and its other jobs go on."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import redis
from PIL import Image

from photocall.jobs import JobStatus
from photocall.views import View
from photocall_prep.decoder.channel import Frame
from photocall_prep.guarded_prep import DecoderFailed, GuardedPrep, _read
from photocall_prep.prepare import ImagePrep
from photocall_prep.refusal import ImageRefused
from tests import pdf_bombs
from tests.prep.files import pdf
from tests.prep.pictures import TestLimits, encoded, noise, scene
from tests.prep.planted_decoder import CRASHING, DYING_ONCE, GREEDY, LYING, STUCK
from tests.prep.workshop import Workshop, checkpoint

PHOTO = encoded(scene(), "PNG")
WALL_S = 2.0
MIB = 1 << 20


@pytest.fixture(scope="module")
def prep() -> Iterator[GuardedPrep]:
    environ = dict(os.environ) | {"PHOTOCALL_SIGNING_KEY": "k", "PHOTOCALL_DECODE_BYTES": str(256 * MIB)}
    found = GuardedPrep(environ, WALL_S, "tests.prep.planted_decoder")
    yield found
    found.close()


def decoders() -> list[int]:
    """The decoders of this process."""
    here = Path(f"/proc/{os.getpid()}/task")
    words = [word for task in here.iterdir() for word in (task / "children").read_text().split()]
    return [int(pid) for pid in words if b"decoder" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def refusal(prep: GuardedPrep, data: bytes) -> ImageRefused:
    with pytest.raises(ImageRefused) as refused:
        prep.prepare(data, 140)
    return refused.value


def test_it_prepares_what_is_prepared_in_process(prep: GuardedPrep) -> None:
    assert prep.prepare(PHOTO, 140) == ImagePrep(TestLimits()).prepare(PHOTO, 140)
    frames = encoded(scene(), "GIF", save_all=True, append_images=[scene(96, 48)])
    second = View(frame=1, background="000000")
    assert prep.prepare(frames, 70, second) == ImagePrep(TestLimits()).prepare(frames, 70, second)
    assert prep.prepare(PHOTO, "auto") == ImagePrep(TestLimits()).prepare(PHOTO, "auto")
    with pytest.raises(ImageRefused) as here:
        ImagePrep(TestLimits()).prepare(b"no picture", 140)
    there = refusal(prep, b"no picture")
    assert (there.code, there.reason) == (here.value.code, here.value.reason)
    assert len(decoders()) == 1, "one decoder serves them all"


def test_the_real_decoder_prepares_as_the_settings_say(tmp_path: Path) -> None:
    """Fidelity, background, and for auto the budgets of the checkpoint; every format's library loads in its memory."""
    told = {
        "PHOTOCALL_MODEL": str(checkpoint(tmp_path / "model")),
        "PHOTOCALL_BACKGROUND": "102030",
        "PHOTOCALL_FIDELITY": "exact",
    }
    real = GuardedPrep(dict(os.environ) | told, 30.0)
    same = ImagePrep(TestLimits(), "exact", "102030", (70, 140, 280))
    try:
        files = [encoded(noise(1200, 900), "JPEG"), *(encoded(noise(400, 300), name) for name in ("HEIF", "AVIF"))]
        for data in (*files, encoded(Image.new("RGBA", (900, 900)), "PNG"), pdf("1 0 0 rg 0 0 48 48 re f")):
            assert real.prepare(data, "auto") == same.prepare(data, "auto")
        assert real.prepare(files[0], "auto").budget == 280
    finally:
        real.close()


def test_a_decoder_is_trusted_with_no_secret(prep: GuardedPrep) -> None:
    prep.prepare(PHOTO, 140)
    [pid] = decoders()
    environ = Path(f"/proc/{pid}/environ").read_bytes()
    assert b"PHOTOCALL_DECODE_BYTES=" in environ
    assert b"PHOTOCALL_SIGNING_KEY" not in environ


def test_a_decode_stuck_in_c_is_killed_and_its_decoder_replaced(prep: GuardedPrep) -> None:
    prep.prepare(PHOTO, 140)
    before = decoders()
    started = time.monotonic()
    refused = refusal(prep, STUCK)
    took_s = time.monotonic() - started
    assert (refused.code, refused.reason) == ("image_undecodable", "not decoded within 2 s")
    assert WALL_S <= took_s < WALL_S + 10
    assert decoders() == []
    assert prep.prepare(PHOTO, 140).patches
    assert len(decoders()) == 1
    assert decoders() != before


def test_one_that_eats_memory_is_refused_at_its_limit(prep: GuardedPrep) -> None:
    refused = refusal(prep, GREEDY)
    assert refused.code == "image_too_large"
    assert decoders() == [], "what it holds yet is not known"
    assert prep.prepare(PHOTO, 140).patches


def test_a_limit_of_memory_begins_above_what_libraries_have() -> None:
    """A library with a thread for each core has hundreds of megabytes before the first picture on a large machine."""
    environ = dict(os.environ) | {"PHOTOCALL_DECODE_BYTES": str(128 * MIB), "PLANTED_BYTES": str(512 * MIB)}
    prep = GuardedPrep(environ, WALL_S, "tests.prep.planted_decoder")
    assert prep.prepare(PHOTO, 140).patches
    assert refusal(prep, GREEDY).code == "image_too_large"


def test_one_that_crashes_is_tried_once_more_then_refused(prep: GuardedPrep) -> None:
    refused = refusal(prep, CRASHING)
    assert (refused.code, refused.reason) == ("image_undecodable", "decoding it ended the decoder, 2 times: SIGSEGV")
    assert prep.prepare(PHOTO, 140).patches


def test_a_decoder_that_somebody_else_kills_costs_no_picture(prep: GuardedPrep, tmp_path: Path) -> None:
    marker = os.fsencode(tmp_path / "died")
    assert prep.prepare(DYING_ONCE + marker + b"\n" + PHOTO, 140).patches
    assert Path(os.fsdecode(marker)).exists()


def test_a_decoder_that_is_killed_while_it_starts_is_replaced() -> None:
    prep = GuardedPrep(dict(os.environ), WALL_S, "tests.prep.planted_decoder")
    try:
        prep.start()
        os.kill(prep.pids()[0], signal.SIGKILL)
        assert prep.prepare(PHOTO, 140).patches
    finally:
        prep.close()


def test_a_decoder_that_there_is_no_room_for_is_no_fault_of_a_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: Any, **__: Any) -> None:
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", none)
    with pytest.raises(DecoderFailed, match="it cannot be started: Resource"):
        GuardedPrep(os.environ, WALL_S).prepare(PHOTO, 140)


@pytest.mark.parametrize("code", ["unauthorized", "internal", ""])
def test_a_decoder_refuses_pictures_and_nothing_else(code: str) -> None:
    with pytest.raises(DecoderFailed, match="not a decoder's"):
        _read(Frame({"refused": code, "reason": "x"}, b""))
    with pytest.raises(ImageRefused) as refused:
        _read(Frame({"refused": "image_undecodable", "reason": "x" * 70_000}, b""))
    assert len(refused.value.reason) < 1000


def test_what_a_decoder_answers_is_checked(prep: GuardedPrep) -> None:
    with pytest.raises(DecoderFailed):
        prep.prepare(LYING, 140)
    assert prep.prepare(PHOTO, 140).patches


def test_a_decoder_that_does_not_start_is_no_fault_of_a_picture() -> None:
    with pytest.raises(DecoderFailed, match="it does not start: status 1"):
        GuardedPrep(os.environ, WALL_S, "tests.prep.no_such_module").prepare(PHOTO, 140)


def test_the_job_of_a_stuck_picture_fails_and_the_next_ones_run(
    redis_client: redis.Redis, tmp_path: Path, prep: GuardedPrep
) -> None:
    """Nobody takes it for a dead worker's: its lease is renewed while C holds the lock, in another process."""
    shop = Workshop(redis_client, tmp_path / "blobs")
    preparer = shop.preparer(prep)
    for job_id, data in (("stuck", STUCK), ("greedy", GREEDY), ("good", PHOTO)):
        shop.accept(job_id, {"a": data})
        preparer.prepare(job_id)
    stuck, greedy = shop.records.get("stuck"), shop.records.get("greedy")
    assert (stuck.status, stuck.attempts) == (JobStatus.FAILED, 1)
    error = cast("dict[str, Any]", stuck.error)
    assert (error["code"], error["message"]) == ("image_undecodable", "cannot decode image a: not decoded within 2 s")
    assert cast("dict[str, Any]", greedy.error)["code"] == "image_too_large"
    assert shop.records.get("good").stage == "running"


def test_a_picture_that_takes_too_long_is_refused_by_the_real_decoder() -> None:
    """Pillow reads fill bytes before a JPEG's marker one by one: 20 MB of them, half a minute."""
    prep = GuardedPrep(os.environ, WALL_S)
    data = encoded(scene(), "JPEG")
    assert prep.prepare(data[:2] + b"\xff" * 1000 + data[2:], 140).patches
    assert refusal(prep, data[:2] + b"\xff" * (20 * MIB) + data[2:]).reason == "not decoded within 2 s"
    assert prep.prepare(data, 140).patches
    prep.close()


def test_a_page_that_draws_without_end_is_refused_by_the_real_decoder() -> None:
    """Ten forms of ten forms, nine deep: PDFium keeps them all, and ends its process where there is no more memory."""
    prep = GuardedPrep(dict(os.environ) | {"PHOTOCALL_DECODE_BYTES": str(128 * MIB)}, 30.0)
    try:
        assert refusal(prep, pdf_bombs.laughs()).code in ("image_too_large", "image_undecodable")
        assert prep.prepare(PHOTO, 140).patches
    finally:
        prep.close()


def test_a_decoder_ends_with_its_worker() -> None:
    before = set(decoders())
    prep = GuardedPrep(os.environ, WALL_S, "tests.prep.planted_decoder")
    prep.prepare(PHOTO, 140)
    [pid] = set(decoders()) - before
    prep.close()
    assert not Path(f"/proc/{pid}").exists()

"""Log lines: one line each, whatever is in them, with the job's id and without passwords."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator

import pytest

from photocall.logs import fields, set_up


@pytest.fixture
def out() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    stream = io.StringIO()
    set_up("prep", stream)
    yield stream
    root.handlers[:], root.level = before, level


log = logging.getLogger("photocall_prep.jobs")


def test_a_line(out: io.StringIO) -> None:
    log.info("prepared %d", 2, extra=fields(job="job_1", ms=3.5))
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO prep/jobs prepared 2 job=job_1 ms=3.5\n", out.getvalue()
    )


def test_a_library_is_named_by_its_package(out: io.StringIO) -> None:
    logging.getLogger("library.error").warning("bad request")  # "gateway/error" said more than had happened
    assert out.getvalue().endswith("Z WARNING prep/library bad request\n")


def test_always_one_line(out: io.StringIO) -> None:
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        log.exception("it\nbroke", extra=fields(name='a "b"\nc'))
    assert out.getvalue().count("\n") == 1
    assert 'it\\nbroke name="a \\"b\\"\\nc" trace="Traceback' in out.getvalue()


def test_forged_lines_stay_inside(out: io.StringIO) -> None:
    log.info("name %s", "x\n2026-01-01T00:00:00.000Z ERROR gateway/auth broken")
    assert len(out.getvalue().splitlines()) == 1


def test_no_passwords(out: io.StringIO) -> None:
    log.warning("cannot reach redis://user:hush@host:6379/0", extra=fields(url="rediss://:hush@host"))
    assert "hush" not in out.getvalue()
    assert "redis://host:6379/0" in out.getvalue()


def test_below_the_level(out: io.StringIO) -> None:
    log.debug("quiet")
    assert out.getvalue() == ""

"""Log lines: one line each, whatever is in them, with the job's id and without passwords."""

from __future__ import annotations

import io
import json
import logging
import re
import threading
from collections.abc import Iterator

import pytest

from photocall.logs import about_job, current_job, fields, set_up, thread_about


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


def test_lines_within_a_job_have_its_id(out: io.StringIO) -> None:
    with about_job("job_1"):
        log.info("one", extra=fields(ms=1))
        logging.getLogger("library.deep").warning("two")
        with about_job("job_2"):
            log.info("three")
        log.info("four", extra=fields(job="job_3"))
    log.info("five")
    tails = [re.sub(r".*Z (INFO|WARNING) \S+ ", "", line) for line in out.getvalue().splitlines()]
    assert tails == ["one job=job_1 ms=1", "two job=job_1", "three job=job_2", "four job=job_3", "five"]


def test_a_job_ends_with_what_was_about_it_even_when_that_fails(out: io.StringIO) -> None:
    with pytest.raises(ValueError, match="x"), about_job("job_1"):
        raise ValueError("x")
    assert current_job() == ""


def test_a_thread_is_about_its_own_job(out: io.StringIO) -> None:
    """A thread that is started within a job knows nothing of it: the first version of the lease's thread said none."""
    found: list[str] = []
    with about_job("job_1"):
        for thread in (threading.Thread(target=lambda: found.append(current_job())),
                       thread_about("job_2", lambda: found.append(current_job()), "named")):  # fmt: skip
            thread.start()
            thread.join()
    assert found == ["", "job_2"]


def test_json_has_the_same_fields(out: io.StringIO) -> None:
    stream = io.StringIO()
    set_up("prep", stream, form="json")
    with about_job("job_1"):
        log.warning("it\nbroke redis://u:hush@h:1", extra=fields(ms=3.5, message="mine", path=io))
    line = stream.getvalue()
    assert line.count("\n") == 1
    assert "hush" not in line
    found = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found.pop("at"))
    assert found.pop("path")
    assert found == {"level": "WARNING", "process": "prep", "module": "jobs", "job": "job_1", "ms": 3.5,
                     "message": "it\nbroke redis://h:1"}  # fmt: skip

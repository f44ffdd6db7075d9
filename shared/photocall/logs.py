"""Logs: one line per event, `key=value` after the message, the job's id where there is one, and no secrets.

Every process calls `set_up` once, and again when its settings want JSON. Modules log through
`logging.getLogger(__name__)`, with `extra=fields(...)`. Who works on a job does it within `about_job`: every line from
there, a library's too, has its id.
"""

from __future__ import annotations

import contextvars
import json
import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, Literal

_FIELDS = "photocall_fields"
_PASSWORD = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.-]*://)[^/@\s]*@")
_JOB: contextvars.ContextVar[str] = contextvars.ContextVar("job", default="")


def fields(**values: Any) -> dict[str, Any]:
    """For a logging call's `extra`: what the event is about, such as `batch=...`."""
    return {_FIELDS: values}


@contextmanager
def about_job(job_id: str) -> Iterator[None]:
    """Lines from here on, on this thread or task, are about this job unless they name one of their own."""
    token = _JOB.set(job_id)
    try:
        yield
    finally:
        _JOB.reset(token)


def current_job() -> str:
    """The job that lines are about here; empty: none."""
    return _JOB.get()


def thread_about(job_id: str, target: Callable[[], object], name: str) -> threading.Thread:
    """A daemon thread whose lines are about a job: a thread begins with no context of its own."""

    def run() -> None:
        with about_job(job_id):
            target()

    return threading.Thread(target=run, name=name, daemon=True)


class _Event:
    """A record as both formats show it: whose it is, and what it is about."""

    def __init__(self, record: logging.LogRecord, formatter: logging.Formatter) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        self.at = f"{stamp}.{int(record.msecs):03d}Z"
        package, _, module = record.name.partition(".")
        self.name = module.rpartition(".")[2] if package.startswith("photocall") and module else package
        self.values: dict[str, Any] = dict(getattr(record, _FIELDS, {}))
        if (job := current_job()) and "job" not in self.values:
            self.values = {"job": job, **self.values}
        if record.exc_info:
            self.values["trace"] = formatter.formatException(record.exc_info)


class LineFormatter(logging.Formatter):
    """`2026-11-30T02:08:01.123Z WARNING outlet Redis is away job=j1 tries=3`, whatever the message holds.

    A traceback is one more field, so that a log line is always one line. Passwords in URLs are removed.
    """

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        event = _Event(record, self)
        tail = "".join(f" {name}={_quoted(value)}" for name, value in event.values.items())
        message = json.dumps(record.getMessage(), ensure_ascii=False)[1:-1].replace('\\"', '"')
        line = f"{event.at} {record.levelname} {self._process}/{event.name} {message}{tail}"
        return _PASSWORD.sub(r"\g<scheme>", line)


class JsonFormatter(logging.Formatter):
    """The same as one JSON object: `at`, `level`, `process`, `module`, `message`, and behind them the fields."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        event = _Event(record, self)
        head = {
            "at": event.at,
            "level": record.levelname,
            "process": self._process,
            "module": event.name,
            "message": record.getMessage(),
        }
        line = json.dumps({**event.values, **head}, ensure_ascii=False, default=str)
        return _PASSWORD.sub(r"\g<scheme>", line)


def set_up(
    process: str, stream: IO[str] | None = None, level: int = logging.INFO, form: Literal["line", "json"] = "line"
) -> None:
    """Make this process log lines to stderr (or `stream`); replaces whatever handlers there were."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(process) if form == "json" else LineFormatter(process))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)


def _quoted(value: Any) -> str:
    shown = str(value)
    return shown if re.fullmatch(r"[\w.:/@%+-]+", shown) else json.dumps(shown, ensure_ascii=False)

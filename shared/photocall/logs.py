"""Logs: one line per event, `key=value` after the message, the job's id where there is one, and no secrets.

Every process calls `set_up` once. Modules log through `logging.getLogger(__name__)`, with `extra=fields(job=...)`.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from typing import IO, Any

_FIELDS = "photocall_fields"
_PASSWORD = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.-]*://)[^/@\s]*@")


def fields(**values: Any) -> dict[str, Any]:
    """For a logging call's `extra`: what the event is about, such as `job=...`."""
    return {_FIELDS: values}


class LineFormatter(logging.Formatter):
    """`2026-11-30T02:08:01.123Z WARNING outlet Redis is away job=j1 tries=3`, whatever the message holds.

    A traceback is one more field, so that a log line is always one line. Passwords in URLs are removed.
    """

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        values: dict[str, Any] = dict(getattr(record, _FIELDS, {}))
        if record.exc_info:
            values["trace"] = self.formatException(record.exc_info)
        tail = "".join(f" {name}={_quoted(value)}" for name, value in values.items())
        package, _, module = record.name.partition(".")
        name = module.rpartition(".")[2] if package.startswith("photocall") and module else package
        message = json.dumps(record.getMessage(), ensure_ascii=False)[1:-1].replace('\\"', '"')
        line = f"{stamp}.{int(record.msecs):03d}Z {record.levelname} {self._process}/{name} {message}{tail}"
        return _PASSWORD.sub(r"\g<scheme>", line)


def set_up(process: str, stream: IO[str] | None = None, level: int = logging.INFO) -> None:
    """Make this process log lines to stderr (or `stream`); replaces whatever handlers there were."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LineFormatter(process))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)


def _quoted(value: Any) -> str:
    shown = str(value)
    return shown if re.fullmatch(r"[\w.:/@%+-]+", shown) else json.dumps(shown, ensure_ascii=False)

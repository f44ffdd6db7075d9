"""Validation: reads a batch's input once, notes its rows, and says what is wrong with it."""

from __future__ import annotations

import time
from collections.abc import Iterator

from photocall.errors import CodedError
from photocall_gateway.batches.batch import BatchError, BatchStatus
from photocall_gateway.batches.inputs import Input, InputRefused
from photocall_gateway.batches.ledger import Ledger, Row
from photocall_gateway.models import ModelNames

MAX_ERRORS = 100
CHUNK_ROWS = 1000
CHUNK_S = 0.5


class Validation:
    """Blocking, a chunk at a time: the caller keeps the lease in between. One that was broken off begins anew."""

    def __init__(self, ledger: Ledger, source: Input, models: ModelNames, max_rows: int) -> None:
        self._ledger = ledger
        self._source = source
        self._models = models
        self._max_rows = max_rows
        self._found: Iterator[Row | BatchError] = iter(())
        self._errors: list[BatchError] = []
        self._rows = 0

    def begin(self) -> None:
        """Raises FenceLost."""
        self._ledger.clear_rows()
        self._found = self._source.scan()

    def go_on(self) -> bool:
        """A chunk more; True when the whole is read, or enough of it to know. Raises FenceLost."""
        rows: list[Row] = []
        until, ended = time.monotonic() + CHUNK_S, False
        try:
            while len(rows) < CHUNK_ROWS and time.monotonic() < until:
                item = next(self._found, None)
                if item is None:
                    ended = True
                    break
                if isinstance(item, BatchError):
                    self._errors.append(item)
                else:
                    rows.append(item)
                if len(self._errors) >= MAX_ERRORS:
                    break
        except InputRefused as refused:
            self._errors.append(refused.error)
            return True
        for row in self._ledger.add_rows(rows):
            msg = f"The custom_id {row.custom_id[:80]!r} for this request is a duplicate of another request."
            line = int(row.detail) if row.detail.isdecimal() else None
            self._errors.append(BatchError("duplicate_custom_id", msg, "custom_id", line))
        self._rows += len(rows)
        if self._rows > self._max_rows:
            msg = f"A batch has at most {self._max_rows} rows"
            self._errors.append(BatchError("too_many_rows", msg, "input_file_id"))
            return True
        return ended or len(self._errors) >= MAX_ERRORS

    def finish(self) -> None:
        """The batch goes on or fails. Raises FenceLost."""
        errors = self.errors()
        if errors:
            self._ledger.clear_rows()
            self._ledger.set_status(BatchStatus.FAILED, errors)
        else:
            self._ledger.set_model(self._source.model)
            self._ledger.set_status(BatchStatus.IN_PROGRESS)

    def errors(self) -> list[BatchError]:
        """What is wrong, in the order of the lines; empty for an input that can be run."""
        found = sorted(self._errors, key=lambda error: error.line or 0)[:MAX_ERRORS]
        if not found and not self._rows:
            found = [BatchError("empty_file", "The input holds no request.", "input_file_id")]
        if not found:
            try:
                self._models.check(self._source.model)
            except CodedError as error:
                found = [BatchError("model_not_found", error.message, "body.model")]
        return found

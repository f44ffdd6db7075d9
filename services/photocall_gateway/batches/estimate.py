"""Estimate: what a batch would take, from what rows took of late. Nothing is asked of the engine."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from photocall.errors import PhotocallError
from photocall.questions import InvalidField
from photocall_gateway.batches import row_shapes
from photocall_gateway.batches.batch import Head
from photocall_gateway.batches.inputs import Input
from photocall_gateway.batches.ledger import Ledger, Row
from photocall_gateway.batches.pace import GUESS_TOKENS_PER_CHAR, GUESS_TOKENS_PER_PICTURE, Measured
from photocall_gateway.batches.validation import Validation
from photocall_gateway.body import Limits
from photocall_gateway.models import ModelNames

SAMPLE = 50  # rows that are read whole; the others are taken to be like them


def estimate(
    head: Head,
    scratch: Path,
    open_input: Callable[[Head, Path], Input],
    models: ModelNames,
    max_rows: int,
    limits: Limits,
    measured: Measured | None,
    row_s: float | None,
    link: Callable[[Path], None],
) -> dict[str, Any]:
    """Blocking: validates the whole input, in a directory below `scratch` that is removed again.

    `row_s`: seconds a row takes where no batch was measured, None where nothing is known.
    """
    with tempfile.TemporaryDirectory(dir=scratch, prefix=".dry-run-") as directory:
        link(Path(directory))
        source = open_input(head, Path(directory))
        ledger = Ledger.create(Path(directory), head)
        try:
            validation = Validation(ledger, source, models, max_rows)
            validation.begin()
            while not validation.go_on():
                pass
            errors = validation.errors()
            rows = ledger.batch().total
            distinct, sample = ledger.sample(SAMPLE)
            asked = [_read(head.endpoint, source, row, limits) for row in sample]
        finally:
            ledger.close()
    good = [found for found in asked if found is not None]
    chars = sum(c for c, _ in good) / len(good) if good else 0.0
    pictures = sum(p for _, p in good) / len(good) if good else 0.0
    per_char = measured.tokens_per_char if measured else GUESS_TOKENS_PER_CHAR
    per_picture = measured.tokens_per_picture if measured else GUESS_TOKENS_PER_PICTURE
    per_row = chars * per_char + pictures * per_picture
    seconds = distinct / measured.rows_per_s if measured else None if row_s is None else distinct * row_s
    return {
        "object": "batch.estimate",
        "endpoint": head.endpoint,
        "errors": {"object": "list", "data": [error.shown() for error in errors]} if errors else None,
        "rows": rows,
        "distinct_rows": distinct,
        "refused_share": round(1 - len(good) / len(asked), 4) if asked else 0.0,
        "input_tokens": round(per_row * distinct),
        "output_tokens": round((measured.output_tokens_per_row if measured else 1.0) * distinct),
        "seconds": None if seconds is None else round(seconds, 1),
        "measured": measured is not None,
    }


def _read(endpoint: str, source: Input, row: Row, limits: Limits) -> tuple[int, int] | None:
    """Characters and pictures of a row; None for one that its route would refuse."""
    try:
        ask = row_shapes.parse(endpoint, source.body(row), limits).request.ask
    except (PhotocallError, InvalidField):
        return None
    return len(ask.to_content()["body"]), len(ask.images)

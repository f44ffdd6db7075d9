"""The error table: every row walked, every exception in it."""

from __future__ import annotations

import inspect

import pytest

from photocall import errors
from photocall.errors import TABLE, CodedError, ErrorRow, PhotocallError, row

# What the shapes' contracts fix; the rest of the table is ours.
SYSTEM_ONE = {
    "missing_key": (403, "authentication_error"),
    "bad_key": (401, "authentication_error"),
    "unknown_model": (400, "invalid_request"),
    "unreferenced_asset": (400, "invalid_request"),
    "prompt_too_long": (400, "max_tokens_exceeded"),
    "body_too_large": (413, "request_too_large"),
    "invalid_field": (422, "invalid_request"),
    "rate_limited": (429, "rate_limit"),
    "queue_full": (529, "overloaded"),
    "store_full": (529, "overloaded"),
    "overloaded": (529, "overloaded"),
}
NATIVE = {
    "malformed": 400,
    "unknown_job": 404,
    "in_progress": 409,
    "unknown_calibration": 404,
    "calibrations_full": 409,
    "job_gone": 410,
    "body_too_large": 413,
    "image_too_large": 413,
    "unsupported_type": 415,
    "image_unsupported": 415,
    "unknown_host": 421,
    "foreign_origin": 403,
    "invalid_field": 422,
    "image_undecodable": 422,
    "idempotency_mismatch": 422,
    "hash_mismatch": 422,
    "rate_limited": 429,
    "draining": 503,
    "deadline_exceeded": 504,
    "store_full": 507,
}
LATE = {
    "image_undecodable",
    "image_unsupported",
    "image_too_large",
    "image_lost",
    "image_view_unsupported",
    "image_url_refused",
    "image_unreachable",
    "budget_unsupported",
    "prompt_too_long",
    "request_too_big",
    "unanswerable",
    "calibration_mismatch",
    "cancelled",
    "replaced",
    "abandoned",
    "deadline_exceeded",
    "poison",
    "internal",
}


@pytest.mark.parametrize("found", TABLE.values(), ids=lambda found: found.code)
def test_every_row_is_whole(found: ErrorRow) -> None:
    assert TABLE[found.code] is found
    assert found.title
    assert found.title[0].isupper()
    assert not found.title.endswith(".")
    for status in (found.native, found.systemone, found.decisions):
        assert 400 <= status < 600
    # A client that may try again must see that from its own shape's status.
    assert (found.native >= 500) == (found.systemone >= 500) or found.code in {"queue_full"}
    assert (found.decisions_type == "server_error") == (found.decisions >= 500)
    assert (found.error_type == "overloaded") <= (found.systemone in (503, 504, 529))
    assert found.late == (found.code in LATE)


@pytest.mark.parametrize("code", SYSTEM_ONE)
def test_system_one_as_its_contract_has_it(code: str) -> None:
    assert (row(code).systemone, row(code).error_type) == SYSTEM_ONE[code]


@pytest.mark.parametrize("code", NATIVE)
def test_native_statuses(code: str) -> None:
    assert row(code).native == NATIVE[code]


def test_codes_are_unique() -> None:
    assert len(errors._ROWS) == len(TABLE)


def test_every_exception_is_in_the_table() -> None:
    classes = [cls for cls in vars(errors).values() if inspect.isclass(cls) and issubclass(cls, PhotocallError)]
    assert len(classes) > 5
    for cls in classes:
        assert cls.code in TABLE


def test_a_code_of_a_newer_process_reads_as_internal() -> None:
    assert row("from_the_future").code == "internal"


def test_an_error_carries_its_data_but_never_over_code_and_message() -> None:
    error = CodedError("prompt_too_long", "40123 of 32768", tokens=40123)
    assert str(error) == "40123 of 32768"
    assert error.to_error() == {"code": "prompt_too_long", "message": "40123 of 32768", "tokens": 40123}

"""multipart/form-data bodies, with the bytes of a real client among them."""

from __future__ import annotations

from pathlib import Path

import pytest

from photocall.errors import CodedError
from photocall_gateway.multipart import MAX_PARTS, parse_form

CONTRACT = Path(__file__).parent / "contract"
TYPE = "multipart/form-data; boundary=B"


def part(name: str, data: bytes, extra: str = "") -> bytes:
    return f'--B\r\nContent-Disposition: form-data; name="{name}"{extra}\r\n\r\n'.encode() + data + b"\r\n"


def test_the_official_clients_bytes() -> None:
    form = parse_form((CONTRACT / "04_two_images_multipart.bin").read_bytes(), TYPE)
    assert form.request.startswith(b'{"model"')
    assert form.request.endswith(b"}")
    assert list(form.parts) == ["asset-0", "asset-1"]
    assert all(data.startswith(b"\x89PNG") and data.endswith(b"IEND\xaeB`\x82") for data in form.parts.values())


def test_binary_data_with_line_breaks_and_half_boundaries_survives() -> None:
    data = b"\r\n--B-\r\n\0\xff--\r\n"
    body = part("request", b"{}") + part("é", data, '; filename="x.png"') + b"--B--\r\n"
    assert parse_form(body, TYPE).parts == {"é": data}


@pytest.mark.parametrize(
    ("body", "content_type", "message"),
    [
        (part("request", b"{}") + b"--B--\r\n", "multipart/form-data", "boundary"),
        (b"", TYPE, "last boundary"),
        (part("request", b"{}"), TYPE, "last boundary"),
        (b"{}", TYPE, "not valid"),
        (part("request", b"{}") + b"--B--\r\n", f"multipart/form-data; boundary={'b' * 300}", "Boundary length"),
        (b"--B--\r\n", TYPE, "not valid|named 'request'"),
        (part("photo", b"x") + part("request", b"{}") + b"--B--\r\n", TYPE, "named 'request'"),
        (part("request", b"{}") + part("a", b"1") + part("a", b"2") + b"--B--\r\n", TYPE, "stands twice"),
        (part("request", b"{}") + part("request", b"{}") + b"--B--\r\n", TYPE, "stands twice"),
        (part("request", b"{}") + b"--B\r\nX-Other: 1\r\n\r\nx\r\n--B--\r\n", TYPE, "no name"),
        (part("request", b"{}") + part("a", b"") * MAX_PARTS + b"--B--\r\n", TYPE, "at most"),
    ],
)
def test_what_is_refused(body: bytes, content_type: str, message: str) -> None:
    with pytest.raises(CodedError, match=message) as caught:
        parse_form(body, content_type)
    assert caught.value.code == "malformed"

"""Reading a request body: bounded in bytes and in time."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from photocall.errors import CodedError
from photocall_gateway.body import Body

READ_TIMEOUT_S = 60.0


async def read_body(request: Request, limit: int, timeout_s: float = READ_TIMEOUT_S) -> Body:
    """The whole body. Raises CodedError `body_too_large` or `body_slow`, ClientDisconnect when the caller left.

    The rest of a body over the limit is not kept; uvicorn reads it away, so that its sender sees the answer.
    """
    headers = request.headers
    announced = headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit:
        raise too_large(limit)
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(timeout_s):
            async for piece in request.stream():
                size += len(piece)
                if size > limit:
                    raise too_large(limit)
                pieces.append(piece)
    except TimeoutError as error:
        raise CodedError("body_slow", f"The request body did not arrive within {timeout_s:g} s") from error
    return Body(b"".join(pieces), headers.get("content-type", ""), headers.get("content-encoding", ""))


def too_large(limit: int) -> CodedError:
    """The refusal, with the limit."""
    shown = f"{limit >> 20} MiB" if limit % (1 << 20) == 0 else f"{limit} bytes"
    return CodedError("body_too_large", f"Request body is over {shown}", limit=limit)

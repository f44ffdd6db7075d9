"""/v1/channels: the same jobs, turns and events over one WebSocket."""

from __future__ import annotations

from starlette.websockets import WebSocket

from photocall_gateway.caller import caller_of
from photocall_gateway.channels import Connection
from photocall_gateway.described import DescribedSocket, operation


async def channels(socket: WebSocket) -> None:
    """Serve one connection; who may not have one was refused before this."""
    await socket.accept()
    await Connection(socket, socket.app.state.services, caller_of(socket)).serve()


ROUTES = [
    DescribedSocket(
        "/v1/channels",
        channels,
        operation(
            "A WebSocket for jobs, turns and their events",
            {101: None},
            (400, 403, 404, 426),
            description="Messages of Jupyter's shape on shell, control and iopub; see docs/channels.md.",
        ),
    )
]

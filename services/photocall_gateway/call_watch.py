"""CallWatch: what came of one HTTP call, for the middleware that counts it or traces it."""

from __future__ import annotations

from starlette.types import Message, Scope, Send

LEFT = 499  # the caller left before an answer


class CallWatch:
    """The app is called with `send` of this instead of the server's own."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self.status = LEFT

    async def send(self, message: Message) -> None:
        """Pass it on, and keep the status."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)

    @property
    def route(self) -> str:
        """The template of the route that took the call, so that ids become no labels. Known once the app was called."""
        return getattr(self._scope.get("route"), "path", "other")

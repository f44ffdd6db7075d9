"""A web server for tests of outgoing calls: https on loopback under a certificate of our own CA, and a resolver for it.

The certificate is for photos.example and hooks.example; tls/ca.pem signs nothing else and its key was thrown away.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_network
from pathlib import Path

from photocall.addresses import AddressRules
from photocall.outbound import Caller

TLS = Path(__file__).parent / "tls"
LOOPBACK = AddressRules((ip_network("127.0.0.0/8"),))
Handler = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class WebServer:
    """`pages` answers by path; `seen` is what was asked: method, Host and path."""

    port: int = 0
    pages: dict[str, Handler] = field(default_factory=dict)
    seen: list[tuple[str, str, str]] = field(default_factory=list)

    def url(self, path: str, host: str = "photos.example") -> str:
        return f"https://{host}:{self.port}{path}"

    def caller(self, timeout_s: float = 5.0, max_bytes: int = 1 << 20, rules: AddressRules = LOOPBACK) -> Caller:
        """A caller that finds every name here and trusts the CA."""
        tls = ssl.create_default_context(cafile=str(TLS / "ca.pem"))
        return Caller(rules, timeout_s, max_bytes, resolve=lambda host, port: ["127.0.0.1"], tls=tls)


def page(body: bytes, status: int = 200, **headers: str) -> Handler:
    """An answer with a length; header names have `_` for `-`."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.send_header("content-length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    return answer


@contextmanager
def web_server(plain: bool = False) -> Iterator[WebServer]:
    """Serve until the end of the block."""
    web = WebServer()

    class Requests(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            web.seen.append((self.command, self.headers["host"], self.path))
            handler = web.pages.get(self.path, page(b"nothing here", 404))
            with suppress(OSError):  # the caller left, as it should
                handler(self)

        do_POST = do_GET  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            pass  # handshakes that were refused

    server = Server(("127.0.0.1", 0), Requests)
    if not plain:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(TLS / "server.pem")
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    web.port = server.server_address[1]
    thread = threading.Thread(target=lambda: server.serve_forever(0.02), daemon=True)
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)

"""A server that redirects every request, and a server that records the requests that it receives."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(slots=True)
class Redirecting:
    """The server at ``url`` redirects every request with the status ``status`` to ``target``. ``received`` are the
    requests that arrived at ``target``."""

    url: str = ""
    target: str = ""
    status: int = 302
    received: list[str] = field(default_factory=list)


@contextmanager
def redirecting() -> Iterator[Redirecting]:
    """Two servers with different ports. The target answers each request with ``{}``."""
    made = Redirecting()

    class First(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(made.status)
            self.send_header("Location", made.target + self.path)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            """Prints nothing."""

    class Second(First):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            made.received.append(f"{self.command} {self.path} {dict(self.headers)} {body!r}")
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

    servers = [ThreadingHTTPServer(("127.0.0.1", 0), kind) for kind in (First, Second)]
    made.url, made.target = (f"http://127.0.0.1:{server.server_port}" for server in servers)
    for server in servers:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield made
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()

"""A proxy of a real schema registry. It can be made unreachable or slow, or require a password."""

from __future__ import annotations

import base64
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(slots=True)
class RegistryProxy:
    """Forwards requests to ``target``, or gives every request the same answer. ``requests`` are the paths requested so
    far.

    If ``is_cut`` is true, the connection ends before the end of an answer. ``ids`` maps the schema ids of requests to
    other ids, as in a registry that was created again. ``prefix`` is added before the names of subjects.
    """

    target: str
    is_down: bool = False
    login: tuple[str, str] | None = None
    answer: bytes | None = None
    is_cut: bool = False
    ids: dict[int, int] = field(default_factory=dict)
    prefix: str = ""
    requests: list[str] = field(default_factory=list)
    _server: ThreadingHTTPServer | None = None

    def start(self) -> str:
        """Starts the proxy on a free port; returns the address of its API."""
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._forward(None)

            def do_POST(self) -> None:
                self._forward(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

            def log_message(self, format: str, *args: object) -> None:
                """Prints nothing."""

            def _forward(self, body: bytes | None) -> None:
                proxy.requests.append(self.path)
                if proxy.is_down:
                    self._answer(503, b"down")
                    return
                if proxy.answer is not None:
                    self._answer(200, proxy.answer)
                    return
                if proxy.login is not None:
                    wanted = "Basic " + base64.b64encode(":".join(proxy.login).encode()).decode()
                    if self.headers.get("Authorization") != wanted:
                        self._answer(401, b'{"error_code": 40101, "message": "Unauthorized"}')
                        return
                kind = self.headers.get("Content-Type") or "application/json"
                request = urllib.request.Request(
                    proxy.target + proxy._path(self.path), body, {"Content-Type": kind}, method=self.command
                )
                try:
                    with urllib.request.urlopen(request) as answer:
                        self._answer(answer.status, answer.read())
                except urllib.error.HTTPError as error:
                    self._answer(error.code, error.read())
                except urllib.error.URLError:
                    self._answer(502, b"the registry does not respond")

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body) + (10 if proxy.is_cut else 0)))
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def _path(self, path: str) -> str:
        if path.startswith(by_id := "/schemas/ids/"):
            asked = int(path.removeprefix(by_id))
            return f"{by_id}{self.ids.get(asked, asked)}"
        return path.replace("/subjects/", f"/subjects/{self.prefix}", 1)

    def stop(self) -> None:
        """Stops the proxy."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

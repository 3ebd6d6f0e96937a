"""The endpoints of a process that serves a warehouse: ``/``, ``/metrics``, ``/healthz``, ``/readyz``.

The endpoints are read-only. On the loopback interface, a token is optional, but the request's Host header must name the
loopback interface. Without this check, a script of a web site could read the page through a host name of the site that
resolves to the loopback address (DNS rebinding). On any other interface, all endpoints except ``/healthz`` and
``/readyz`` require a token.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import json
import logging
import socket
import threading
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import TCPServer
from typing import TYPE_CHECKING, Protocol
from urllib.parse import parse_qs, urlsplit

from deltalake.exceptions import DeltaError

from rw_sql.errors import INVALID_PARAMETER, SqlError
from rw_sql.runtime.observe.metrics import exposition
from rw_sql.runtime.status.page import CONTENT_SECURITY_POLICY, PageQuery, page_html, script, style
from rw_sql.runtime.support.http_connections import MOST_CONNECTIONS, LimitedThreads, TimedRequests

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rw_sql.runtime.observe.metrics import Metrics
    from rw_sql.runtime.status.reading import WarehouseStatus

logger = logging.getLogger(__name__)

DEFAULT_PORT = 9465
TOKEN_VARIABLE = "RW_SQL_HTTP_TOKEN"
"""The environment variable that contains the endpoints' access token."""

LEAST_TOKEN = 16
"""The minimum length of the token in characters."""

MOST_READINGS = MOST_CONNECTIONS // 4
"""The maximum number of requests that read the warehouse at the same time. The limit applies separately to requests of
``/readyz`` and to all other requests. If the warehouse's store does not answer, each of these requests waits for
minutes. The limit keeps the remaining connections free for the liveness probe ``/healthz``."""

_PLACE_SECONDS = 0.8
"""The maximum time in seconds that a request waits until it may read the warehouse. This time is less than the default
timeout of a Kubernetes probe (one second)."""

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Served(Protocol):
    """The data of the endpoints. Thread-safe."""

    @property
    def metrics(self) -> Metrics:
        """The text of ``/metrics``."""
        ...

    def status(self) -> WarehouseStatus:
        """The data of the page."""
        ...

    def why_not_ready(self) -> str | None:
        """The reason why this process is not ready. None if the jobs of this process's resource group run in this
        process and match the catalog, or will match it within seconds."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    code: HTTPStatus
    kind: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


def _text(code: HTTPStatus, said: str, *headers: tuple[str, str]) -> _Answer:
    return _Answer(code=code, kind="text/plain; charset=utf-8", body=f"{said}\n".encode(), headers=headers)


def _again(path: str) -> tuple[tuple[str, str], ...]:
    """Returns headers for a response that reports a temporary failure. The headers tell a client when to repeat the
    request, and make a browser reload the page."""
    return ("Retry-After", "2"), *((("Refresh", "5"),) if path == "/" else ())


def _limited(places: threading.BoundedSemaphore, read: Callable[[], _Answer], *headers: tuple[str, str]) -> _Answer:
    """Returns the response that ``read`` computes, or 503 if too many earlier requests are still reading the
    warehouse."""
    if not places.acquire(timeout=_PLACE_SECONDS):
        said = f"the warehouse's store has not answered {MOST_READINGS} earlier requests yet"
        return _text(HTTPStatus.SERVICE_UNAVAILABLE, said, *headers)
    try:
        return read()
    finally:
        places.release()


def _readiness(served: Served) -> _Answer:
    why = served.why_not_ready()
    return _text(HTTPStatus.OK, "ready") if why is None else _text(HTTPStatus.SERVICE_UNAVAILABLE, why)


def _data(served: Served, path: str, query: str) -> _Answer:
    """The response for ``path``: the metrics, the status as JSON, or the status as an HTML page."""
    if path == "/metrics":
        return _Answer(code=HTTPStatus.OK, kind=_METRICS_TYPE, body=exposition(served.metrics))
    try:
        status = served.status()
    except (SqlError, OSError, DeltaError) as error:
        logger.warning("the status cannot be read: %s", error)
        said = "the catalog cannot be read now; the log shows the reason"
        return _text(HTTPStatus.SERVICE_UNAVAILABLE, said, *_again(path))
    if path == "/status.json":
        body = json.dumps(status.to_json(), ensure_ascii=False).encode()
        return _Answer(code=HTTPStatus.OK, kind="application/json", body=body)
    body = page_html(status, PageQuery.read(parse_qs(query))).encode("utf-8", "replace")
    return _Answer(code=HTTPStatus.OK, kind="text/html; charset=utf-8", body=body)


class StatusServer:
    """Listens at ``host:port``; port 0 selects a free port.

    Until :meth:`show` is called, the server reports that it is alive but not ready.

    Raises SqlError INVALID_PARAMETER if the server cannot listen at this address, or if the token is shorter than 16
    characters. On an interface other than the loopback interface, a missing token also raises this error.
    """

    def __init__(self, host: str, port: int, *, token: str | None = None) -> None:
        self.is_local = is_loopback(host)
        if not self.is_local and not token:
            raise SqlError(
                INVALID_PARAMETER,
                f"the status page is not served at {host!r} without a token: other machines could read it",
                hint=f"export {TOKEN_VARIABLE}=$(openssl rand -hex 16), or --host 127.0.0.1",
            )
        if token and len(token) < LEAST_TOKEN:
            raise SqlError(
                INVALID_PARAMETER,
                f"the token of the status page has fewer than {LEAST_TOKEN} characters",
                hint=f"export {TOKEN_VARIABLE}=$(openssl rand -hex 16)",
            )
        self._token = token.encode() if token else None
        self._served: Served | None = None
        self._probes = threading.BoundedSemaphore(MOST_READINGS)
        self._readings = threading.BoundedSemaphore(MOST_READINGS)
        try:
            self._server = _Server(host, port, self)
        except (OSError, OverflowError) as error:
            raise SqlError(
                INVALID_PARAMETER,
                f"the status page cannot be served at {host}:{port}: {error}",
                hint="--port 0 selects a free port, --no-http serves none",
            ) from error
        self.port: int = self._server.server_address[1]
        self.host = host
        threading.Thread(target=self._server.serve_forever, name="rw_sql-http", daemon=True).start()

    @property
    def url(self) -> str:
        """The page's address."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}/"

    def show(self, served: Served) -> None:
        """Makes the endpoints return the data of ``served`` from now on."""
        self._served = served

    def close(self) -> None:
        """Stops listening."""
        self._server.shutdown()
        self._server.server_close()

    def answer(self, target: str, headers: Mapping[str, str | None]) -> _Answer:
        """The response to a GET request for ``target``. ``headers`` are the request's headers Host and Authorization; a
        missing header is None."""
        parts = urlsplit(target)
        if self.is_local and not _names_loopback(headers.get("Host")):
            return _text(HTTPStatus.MISDIRECTED_REQUEST, "the Host header does not name the loopback interface")
        served = self._served
        if parts.path == "/healthz":
            return _text(HTTPStatus.OK, "alive")
        if parts.path == "/readyz":
            if served is None:
                return _text(HTTPStatus.SERVICE_UNAVAILABLE, "starting Spark")
            return _limited(self._probes, partial(_readiness, served))
        given = headers.get("Authorization")
        if not self._is_allowed(given):
            ask = ("WWW-Authenticate", 'Basic realm="rw_sql", charset="UTF-8"')
            said = "the token is wrong" if given else "a token is needed: as a bearer token, or as the password"
            return _text(HTTPStatus.UNAUTHORIZED, said, ask)
        if parts.path == "/style.css":
            return _Answer(code=HTTPStatus.OK, kind="text/css; charset=utf-8", body=style().encode())
        if parts.path == "/script.js":
            return _Answer(code=HTTPStatus.OK, kind="text/javascript; charset=utf-8", body=script().encode())
        if parts.path not in ("/", "/metrics", "/status.json"):
            return _text(HTTPStatus.NOT_FOUND, "the paths are /, /status.json, /metrics, /healthz and /readyz")
        if served is None:
            return _text(HTTPStatus.SERVICE_UNAVAILABLE, "starting Spark", *_again(parts.path))
        return _limited(self._readings, partial(_data, served, parts.path, parts.query), *_again(parts.path))

    def _is_allowed(self, authorization: str | None) -> bool:
        if self._token is None:
            return True
        scheme, _, given = (authorization or "").partition(" ")
        # http.server decodes headers as Latin-1.
        secret = given.strip(" \t").encode("latin-1", "replace")
        if scheme.lower() == "basic":
            try:
                secret = base64.b64decode(secret, validate=True).partition(b":")[2]
            except (binascii.Error, ValueError):
                return False
        elif scheme.lower() != "bearer":
            return False
        # Compares in constant time, because the duration must not reveal how much of a guess is right.
        return hmac.compare_digest(secret, self._token)


class _Server(LimitedThreads, HTTPServer):
    allow_reuse_address = True

    def __init__(self, host: str, port: int, owner: StatusServer) -> None:
        self.owner = owner
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Binds the socket like the base class, but does not look up the host's name in DNS."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])


class _Handler(TimedRequests, BaseHTTPRequestHandler):
    server_version = "rw_sql"
    sys_version = ""
    server: _Server

    def do_GET(self) -> None:
        """Responds to a GET request."""
        self._respond(has_body=True)

    def do_HEAD(self) -> None:
        """Responds to a HEAD request. The response has no body."""
        self._respond(has_body=False)

    def _respond(self, *, has_body: bool) -> None:
        headers = {name: self.headers.get(name) for name in ("Host", "Authorization")}
        try:
            answer = self.server.owner.answer(self.path, headers)
        except Exception:
            # Without a response, a probe or scrape would look as if the process had ended.
            logger.exception("the answer to a request of the status page failed")
            answer = _text(HTTPStatus.INTERNAL_SERVER_ERROR, "the answer failed; the log shows the reason")
        self.send_response(answer.code)
        for name, value in (
            ("Content-Type", answer.kind),
            ("Content-Length", str(len(answer.body))),
            ("Content-Security-Policy", CONTENT_SECURITY_POLICY),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cache-Control", "no-store"),
            *answer.headers,
        ):
            self.send_header(name, value)
        self.end_headers()
        if has_body:
            self.wfile.write(answer.body)


def is_loopback(host: str) -> bool:
    """True if ``host`` is the name or address of the loopback interface."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _names_loopback(header: str | None) -> bool:
    if header is None:
        return True  # HTTP/1.0, which no browser uses
    host = urlsplit(f"//{header}").hostname
    return host is not None and is_loopback(host)

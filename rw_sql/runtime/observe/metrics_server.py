"""The HTTP server for the option ``--metrics``. The server provides only metrics, and a scraper needs no token."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import make_wsgi_app

from rw_sql.errors import INVALID_PARAMETER, SqlError
from rw_sql.runtime.observe.metrics import registry_of
from rw_sql.runtime.support.http_connections import LimitedThreads, TimedRequests

if TYPE_CHECKING:
    from rw_sql.runtime.observe.metrics import Metrics


class _Server(LimitedThreads, WSGIServer):
    pass


class _ServerOfIpv6(_Server):
    address_family = socket.AF_INET6


class _Handler(TimedRequests, WSGIRequestHandler):
    pass


def serve_metrics(metrics: Metrics, where: str) -> WSGIServer:
    """Serves scrapes at ``port`` (loopback only) or ``host:port`` until the returned server is shut down.

    Raises SqlError INVALID_PARAMETER if the address cannot be used.
    """
    host, _, port = where.rpartition(":")
    try:
        server = _listening(host or "127.0.0.1", int(port), metrics)
    except (OSError, ValueError, OverflowError) as error:
        raise SqlError(
            INVALID_PARAMETER,
            f"metrics cannot be served at {where!r}: {error}",
            hint="give a free port such as 9464, or host:port such as 0.0.0.0:9464",
        ) from error
    threading.Thread(target=server.serve_forever, name="rw_sql-metrics", daemon=True).start()
    return server


def _listening(host: str, port: int, metrics: Metrics) -> WSGIServer:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    kind = _ServerOfIpv6 if family == socket.AF_INET6 else _Server
    return make_server(
        str(address[0]), port, make_wsgi_app(registry_of(metrics)), server_class=kind, handler_class=_Handler
    )

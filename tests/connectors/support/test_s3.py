"""A look at a store by a connection of type s3, at a server that answers as S3's API documents it."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.delta.sink import DeltaSink

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = "s3cr3t"
BUCKETS = (
    "<ListAllMyBucketsResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'><Owner><ID>x</ID></Owner><Buckets>"
    "<Bucket><Name>lake</Name><CreationDate>2026-01-01T00:00:00.000Z</CreationDate></Bucket>"
    "</Buckets></ListAllMyBucketsResult>"
)


class Store(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        key = (self.headers.get("Authorization") or "=none/").partition("Credential=")[2].partition("/")[0]
        codes = {"narrow": "AccessDenied", "wrong": "SignatureDoesNotMatch", "none": "InvalidAccessKeyId"}
        code = codes.get(key)
        body = BUCKETS if code is None else f"<Error><Code>{code}</Code><Message>no</Message></Error>"
        self.send_response(200 if code is None else 403)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """Nothing: the test's output is the test's."""


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Store)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def told(endpoint: str, key: str) -> str | None:
    options = {"s3.endpoint": endpoint, "s3.access.key": key, "s3.secret.key": SECRET, "s3.region": "eu-central-1"}
    return DeltaSink().look(options, None, timeout=3).error


@pytest.mark.parametrize("key", ["full", "narrow"])
def test_keys_that_are_known_are_good(store: str, key: str) -> None:
    assert told(store, key) is None


@pytest.mark.parametrize("key", ["wrong", "none"])
def test_keys_that_are_not_known_are_reported(store: str, key: str) -> None:
    error = told(store, key)
    assert error is not None
    assert "rejects the access key" in error
    assert SECRET not in error


def test_a_store_that_does_not_answer() -> None:
    error = told("http://127.0.0.1:1", "full")
    assert error is not None
    assert error.startswith("http://127.0.0.1:1: ")

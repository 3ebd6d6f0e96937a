"""An S3 server in a separate process, and the settings with which Spark, delta-rs and fsspec keep a warehouse in it.

``pytest --warehouse s3`` (or ``RW_SQL_TEST_WAREHOUSE=s3``) runs the tests that use the fixture ``session`` with their
warehouse in such a store. The server records each request. A test can therefore check the requests, and can check that
each commit was a conditional write.
"""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
import s3fs

from rw_sql.runtime.support.store_environment import complete_environment
from rw_sql.session.store_settings import EXCLUDED, store_packages, store_settings
from rw_sql.spark_jars import installed_jars
from tests.support.waits import LAST_RESORT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

BUCKET = "warehouses"
ACCESS_KEY, SECRET_KEY, REGION = "tests", "tests-secret", "us-east-1"

S3_JARS = {
    "spark.jars.packages": ",".join((installed_jars().delta, *store_packages(f"s3://{BUCKET}"))),
    "spark.jars.excludes": EXCLUDED,
}
"""The settings with which a Spark session loads these jars."""

_FILES = ("requests.jsonl", "gate", "waiting", "refusing", "trouble")
_WRITES = ("PUT", "POST", "DELETE")
_ERROR = '<?xml version="1.0" encoding="UTF-8"?><Error><Code>{}</Code><Message>{}</Message></Error>'
_REFUSED = _ERROR.format("AccessDenied", "Access Denied").encode()
_SLOW_DOWN = _ERROR.format("SlowDown", "Please reduce your request rate.").encode()
_INTERNAL = _ERROR.format("InternalError", "We encountered an internal error. Please try again.").encode()
_COMMIT = re.compile(r"/_delta_log/\d{20}\.json$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request: method, path with query, its If-None-Match header, and the time at which it was answered, in seconds
    since 1970."""

    method: str
    path: str
    if_none_match: str
    status: int
    answered: float

    @property
    def is_commit(self) -> bool:
        """True if the request writes a version of a Delta table."""
        return self.method == "PUT" and _COMMIT.search(self.path) is not None


class S3Store:
    """A running server with an empty bucket. The server ends with this process, and answers each request after at least
    ``delay_ms``."""

    def __init__(self, folder: Path, *, delay_ms: int = 0) -> None:
        self._requests, self._gate, self._waiting, self._refusing, self._trouble = (folder / name for name in _FILES)
        self._requests.touch()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.s3_store", str(folder), str(delay_ms)],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "server.log").open("wb"),
        )
        assert self._process.stdout is not None
        self.endpoint = self._process.stdout.readline().decode().strip()
        assert self.endpoint, (folder / "server.log").read_text()
        self.client: Any = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
        )
        self.client.create_bucket(Bucket=BUCKET)

    def warehouse(self) -> str:
        """The URI of a warehouse that does not exist yet."""
        return f"s3://{BUCKET}/{uuid.uuid4().hex[:12]}"

    def environment(self) -> Mapping[str, str]:
        """The environment variables from which delta-rs, fsspec and Spark take the address and the keys of the
        store."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": REGION,
        }

    @contextmanager
    def reached_by_the_environment(self) -> Iterator[None]:
        """Lets this process, and the processes that it starts, reach the store by their environment.

        fsspec caches one client per set of arguments, which do not include the endpoint. Without clearing the cache, a
        process that has used another store would continue to read the other store.
        """
        with pytest.MonkeyPatch.context() as patch:
            environment = dict(self.environment())
            complete_environment(f"s3://{BUCKET}", environment)
            for name, value in environment.items():
                patch.setenv(name, value)
            s3fs.S3FileSystem.clear_instance_cache()
            yield
        s3fs.S3FileSystem.clear_instance_cache()

    def spark_settings(self) -> Mapping[str, str]:
        """The settings with which a Spark session reads and writes ``s3://``."""
        return {**S3_JARS, **store_settings(f"s3://{BUCKET}", self.environment())}

    @contextmanager
    def holding(self, path: str) -> Iterator[Callable[[], bool]]:
        """A context manager that delays, until its end, the first write to a path that matches a pattern. Yields a
        function that returns whether such a write is waiting."""
        self._gate.write_text(path)
        try:
            yield self._waiting.exists
        finally:
            self._gate.unlink()
            self._waiting.unlink(missing_ok=True)

    @contextmanager
    def refusing_writes(self) -> Iterator[None]:
        """A context manager. Until its end, the server refuses every write, as if the keys permitted only reads."""
        self._refusing.touch()
        try:
            yield
        finally:
            self._refusing.unlink()

    @contextmanager
    def failing(self, share: float = 1.0) -> Iterator[None]:
        """A context manager. Until its end, the server answers a share of the requests with 503, and does not perform
        them."""
        with self._in_trouble(failing=share):
            yield

    @contextmanager
    def losing_answers(self, share: float = 1.0) -> Iterator[None]:
        """A context manager. Until its end, the server performs the writes, but answers a share of them with 500."""
        with self._in_trouble(lost=share):
            yield

    @contextmanager
    def slow(self, seconds: float) -> Iterator[None]:
        """A context manager. Until its end, the server answers each request after at least some seconds."""
        with self._in_trouble(seconds=seconds):
            yield

    @contextmanager
    def silent(self) -> Iterator[None]:
        """A context manager. Until its end, the server accepts connections, but answers nothing. Afterwards, it
        performs the requests that it has received, including requests of clients that no longer wait."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    @contextmanager
    def _in_trouble(self, **trouble: float) -> Iterator[None]:
        unfinished = self._trouble.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(trouble))
        unfinished.replace(self._trouble)
        try:
            yield
        finally:
            self._trouble.unlink()

    def requests(self) -> list[Request]:
        """All requests so far."""
        return [Request(**json.loads(line)) for line in self._requests.read_text().splitlines()]

    def stop(self) -> None:
        """Ends the server."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(LAST_RESORT_SECONDS)


@contextmanager
def store_of_the_environment(folder: Path) -> Iterator[S3Store]:
    """A running store that this process, and the processes that it starts, reach through the environment."""
    store = S3Store(folder)
    try:
        with store.reached_by_the_environment():
            yield store
    finally:
        store.stop()


def unconditional_commits(requests: Iterable[Request]) -> list[str]:
    """The paths of commits that could have replaced an existing commit, except for commits of tables that a single
    query writes."""
    return [
        request.path
        for request in requests
        if request.is_commit and request.if_none_match != "*" and "/written/" not in request.path
    ]


def main(folder: str, delay_ms: str) -> None:
    """Serves until standard input ends."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    inner = DomainDispatcherApplication(create_backend_app)
    requests, gate, waiting, refusing, in_trouble = (Path(folder, name) for name in _FILES)
    out = requests.open("a", encoding="utf-8", buffering=1)
    # A real store decides conditional writes one after the other; moto checks first and then writes.
    writing = threading.Lock()

    def is_held(path: str) -> bool:
        try:
            return re.search(gate.read_text(), path) is not None
        except FileNotFoundError:
            return False

    def trouble() -> dict[str, float]:
        try:
            told: dict[str, float] = json.loads(in_trouble.read_text())
        except FileNotFoundError:
            return {}
        return told

    def perform(environ: dict[str, Any], start: Any) -> Any:
        if environ["REQUEST_METHOD"] not in _WRITES:
            return inner(environ, start)
        with writing:
            return inner(environ, start)

    def application(environ: dict[str, Any], start_response: Any) -> Any:
        answered: list[str] = []
        method, now = environ["REQUEST_METHOD"], trouble()

        def start(status: str, headers: Any, exc_info: Any = None) -> Any:
            answered.append(status)
            return start_response(status, headers, exc_info)

        def refuse(status: str, body: bytes, *, is_read: bool = False) -> list[bytes]:
            if not is_read:
                environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
            return [body]

        time.sleep(max(int(delay_ms) / 1000, now.get("seconds", 0)))
        if method == "PUT" and is_held(environ["PATH_INFO"]) and not waiting.exists():
            waiting.touch()
            while is_held(environ["PATH_INFO"]):
                time.sleep(0.02)
        if method in _WRITES and refusing.exists():
            body = refuse("403 Forbidden", _REFUSED)
        elif random.random() < now.get("failing", 0):
            body = refuse("503 Slow Down", _SLOW_DOWN)
        elif method in _WRITES and random.random() < now.get("lost", 0):
            for _ in perform(environ, lambda *_: None):
                pass
            body = refuse("500 Internal Server Error", _INTERNAL, is_read=True)
        else:
            body = perform(environ, start)
        query = environ.get("QUERY_STRING", "")
        told = {
            "method": method,
            "path": environ["PATH_INFO"] + (f"?{query}" if query else ""),
            "if_none_match": environ.get("HTTP_IF_NONE_MATCH", ""),
            "status": int(answered[0].partition(" ")[0]) if answered else 0,
            "answered": time.time(),
        }
        out.write(json.dumps(told) + "\n")
        return body

    server = make_server("127.0.0.1", 0, application, threaded=True)
    print(f"http://127.0.0.1:{server.port}", flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.buffer.read()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

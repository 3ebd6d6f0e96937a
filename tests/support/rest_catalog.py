"""A server with Iceberg's REST protocol for tests. The server's tables are the tables of another catalog of
pyiceberg."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyiceberg.table import Table


@contextmanager
def rest_catalog(behind: Callable[[], Any], token: str) -> Iterator[str]:
    """The URL of a server that accepts requests with this token. ``behind`` opens the catalog with the tables."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def log_message(self, format: str, *args: Any) -> None:
            return

        def _answer(self, body: Any) -> None:
            from pyiceberg import exceptions

            if self.headers.get("Authorization") != f"Bearer {token}":
                return self._send(401, {"error": {"message": "no", "type": "NotAuthorizedException", "code": 401}})
            status = {
                exceptions.NoSuchTableError: 404,
                exceptions.NoSuchNamespaceError: 404,
                exceptions.CommitFailedException: 409,
                exceptions.NamespaceAlreadyExistsError: 409,
                exceptions.TableAlreadyExistsError: 409,
            }
            try:
                return self._send(200, _result(behind(), self.path.partition("?")[0].strip("/").split("/")[1:], body))
            except tuple(status) as error:
                kind, code = type(error).__name__, status[type(error)]
                return self._send(code, {"error": {"message": str(error), "type": kind, "code": code}})

        def _send(self, status: int, content: Any) -> None:
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _result(catalog: Any, path: list[str], body: Any) -> Any:
    match path, body:
        case ["config"], None:
            return {"defaults": {}, "overrides": {}}
        case ["namespaces"], {"namespace": parts}:
            catalog.create_namespace(tuple(parts))
            return {"namespace": parts, "properties": {}}
        case ["namespaces", name], None:
            catalog.load_namespace_properties(name)
            return {"namespace": [name], "properties": {}}
        case ["namespaces", name, "tables"], {"name": table, "schema": schema}:
            from pyiceberg.schema import Schema

            return _loaded(catalog.create_table(f"{name}.{table}", Schema.model_validate(schema)))
        case ["namespaces", name, "tables", table], None:
            return _loaded(catalog.load_table(f"{name}.{table}"))
        case ["namespaces", name, "tables", table], _:
            from pyiceberg.table import CommitTableRequest

            made = CommitTableRequest.model_validate(body)
            catalog.commit_table(catalog.load_table(f"{name}.{table}"), made.requirements, made.updates)
            return _loaded(catalog.load_table(f"{name}.{table}"))
        case _:
            raise AssertionError(f"a request that no test makes: {path}")


def _loaded(table: Table) -> Any:
    return {
        "metadata-location": table.metadata_location,
        "metadata": json.loads(table.metadata.model_dump_json()),
        "config": {},
    }

"""Two processes with a resource group each: a source moves between them under load, and its owner is killed."""

from __future__ import annotations

import json
import threading
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from rw_sql.metastore.records import MaterializedViewRecord
from rw_sql.runtime.control.session_state import SessionState
from rw_sql.runtime.remote.remote_executor import RemoteExecutor
from rw_sql.session.sparkless import sparkless
from rw_sql.syntax import parse_statement
from tests.integration.attached import wait_until
from tests.integration.processes import Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rw_sql.runtime.jobs.context import Context

pytestmark = [pytest.mark.spark, pytest.mark.long]

ROWS_PER_FILE = 7


class Load:
    """Writes small files all the time until it is stopped."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._ids = count()
        self._is_over = threading.Event()
        self.written = 0
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        while not self._is_over.wait(2.0):  # each file is a split: on a busy machine the reader restarts for seconds
            rows = [{"id": next(self._ids)} for _ in range(ROWS_PER_FILE)]
            text = "".join(json.dumps(row) + "\n" for row in rows)
            hidden = self._folder / f".{rows[0]['id']}"
            hidden.write_text(text, encoding="utf-8")
            hidden.rename(self._folder / f"{rows[0]['id']:09}.json")
            self.written += ROWS_PER_FILE

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()


class Client:
    """A process without Spark: the owners run its statements."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._executor = RemoteExecutor(context)
        self._state = SessionState()

    def run(self, text: str) -> list[tuple[object, ...]]:
        return list(self._executor.run(text, parse_statement(text), self._state).rows)

    def ids(self, view: str) -> list[int]:
        record = self.context.metastore.snapshot().find("materialized_view", view)
        assert isinstance(record, MaterializedViewRecord)
        table = DeltaTable(self.context.warehouse.data(record.id, record.generation))
        return sorted(table.to_pyarrow_table(columns=["id"])["id"].to_pylist())

    def state(self, group: str) -> str:
        return next(str(row[1]) for row in self.run("SHOW CLUSTER") if row[0] == group)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[Server]]:
    made: list[Server] = []
    yield made
    for server in made:
        server.close()


def test_every_row_once_while_a_source_moves_and_its_owner_dies(tmp_path: Path, servers: list[Server]) -> None:
    warehouse = str(tmp_path / "warehouse")

    def serve(*options: str) -> Server:
        servers.append(Server(warehouse, tmp_path, "--no-http", *options))
        return servers[-1]

    first, second = serve(), serve("--resource-group", "a")
    for server in (first, second):
        wait_until(server.is_serving, "it serves")
    load = Load(tmp_path / "data")
    with sparkless(warehouse) as context:
        client = Client(context)
        client.run(
            f"CREATE SOURCE s (id INT) WITH (connector = 'posix_fs', posix_fs.root = '{tmp_path / 'data'}', "
            "match_pattern = '*.json', refresh.interval.sec = '1') FORMAT PLAIN ENCODE JSON"
        )
        client.run("CREATE MATERIALIZED VIEW here AS SELECT id FROM s")
        client.run("CREATE MATERIALIZED VIEW there WITH (resource_group = 'a') AS SELECT id FROM s")

        def reaches(rows: int, *views: str) -> None:
            for view in views or ("here", "there"):
                wait_until(partial(has_rows, view, rows), f"{view} has {rows} rows")

        def has_rows(view: str, rows: int) -> bool:
            return len(client.ids(view)) >= rows

        reaches(ROWS_PER_FILE)
        client.run("ALTER SOURCE s SET RESOURCE_GROUP TO a")
        reaches(load.written)
        second.kill()
        wait_until(lambda: client.state("a") == "NONE", "the killed owner is noticed")
        # Out of the group of a dead owner, then back to its successor.
        client.run("ALTER SOURCE s RESET RESOURCE_GROUP")
        reaches(load.written, "here")
        wait_until(serve("--resource-group", "a").is_serving, "another process takes group a")
        client.run("ALTER SOURCE s SET RESOURCE_GROUP TO a")
        client.run("ALTER MATERIALIZED VIEW there SET RESOURCE_GROUP TO 'default'")
        load.stop()
        client.run("FLUSH")
        reaches(load.written)
        for view in ("here", "there"):
            assert client.ids(view) == list(range(load.written)), view

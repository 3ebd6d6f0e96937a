"""Two processes with a resource group each: a source moves between them under load, and its owner is killed."""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from rw_sql.cli.servers.kafka_topics import Record, create_topic, produce
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

    from rw_sql.cli.servers.kafka_broker import BrokerInfo
    from rw_sql.runtime.jobs.context import Context

pytestmark = [pytest.mark.spark, pytest.mark.long]

ROWS_AT_ONCE = 7
GROUPS = 5


class Load(ABC):
    """Writes some rows all the time until it is stopped; the ids count from 0."""

    statement: str
    """Creates the source that reads the rows."""
    _pause = 0.5

    def __init__(self) -> None:
        self._ids = count()
        self._is_over = threading.Event()
        self.written = 0
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        while not self._is_over.wait(self._pause):
            self._add([{"id": next(self._ids)} for _ in range(ROWS_AT_ONCE)])
            self.written += ROWS_AT_ONCE

    @abstractmethod
    def _add(self, rows: list[dict[str, int]]) -> None:
        """Writes rows to the upstream."""

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()


class FileLoad(Load):
    """Writes files to a folder."""

    _pause = 2.0  # each file is a split: on a busy machine the reader restarts for seconds

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self.statement = (
            f"CREATE SOURCE s (id INT) WITH (connector = 'posix_fs', posix_fs.root = '{folder}', "
            "match_pattern = '*.json', refresh.interval.sec = '1') FORMAT PLAIN ENCODE JSON"
        )
        super().__init__()

    def _add(self, rows: list[dict[str, int]]) -> None:
        text = "".join(json.dumps(row) + "\n" for row in rows)
        hidden = self._folder / f".{rows[0]['id']}"
        hidden.write_text(text, encoding="utf-8")
        hidden.rename(self._folder / f"{rows[0]['id']:09}.json")


class TopicLoad(Load):
    """Writes records to a topic of two partitions."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        create_topic(bootstrap, topic, 2)
        self._bootstrap, self._topic = bootstrap, topic
        self.statement = (
            f"CREATE SOURCE s (id INT) WITH (connector = 'kafka', topic = '{topic}', "
            f"properties.bootstrap.server = '{bootstrap}') FORMAT PLAIN ENCODE JSON"
        )
        super().__init__()

    def _add(self, rows: list[dict[str, int]]) -> None:
        records = [Record(value=json.dumps(row).encode(), partition=row["id"] % 2) for row in rows]
        produce(self._bootstrap, self._topic, records)


class Client:
    """A process without Spark: the owners run its statements."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._executor = RemoteExecutor(context)
        self._state = SessionState()

    def run(self, text: str) -> list[tuple[object, ...]]:
        return list(self._executor.run(text, parse_statement(text), self._state).rows)

    def rows(self, view: str, *columns: str) -> list[tuple[int, ...]]:
        record = self.context.metastore.snapshot().find("materialized_view", view)
        assert isinstance(record, MaterializedViewRecord)
        table = DeltaTable(self.context.warehouse.data(record.id, record.generation))
        return sorted(tuple(row.values()) for row in table.to_pyarrow_table(columns=list(columns)).to_pylist())

    def state(self, group: str) -> str:
        return next(str(row[1]) for row in self.run("SHOW CLUSTER") if row[0] == group)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[Server]]:
    made: list[Server] = []
    yield made
    for server in made:
        server.close()


@pytest.mark.kafka
@pytest.mark.parametrize("upstream", ["posix_fs", "kafka"])
def test_every_row_once_while_a_source_moves_and_its_owner_dies(
    upstream: str, tmp_path: Path, broker: BrokerInfo, topic_name: str, servers: list[Server]
) -> None:
    warehouse = str(tmp_path / "warehouse")

    def serve(*options: str) -> Server:
        servers.append(Server(warehouse, tmp_path, "--no-http", *options))
        return servers[-1]

    first, second = serve(), serve("--resource-group", "a")
    for server in (first, second):
        wait_until(server.is_serving, "it serves")
    load = FileLoad(tmp_path / "data") if upstream == "posix_fs" else TopicLoad(broker.bootstrap, topic_name)
    with sparkless(warehouse) as context:
        client = Client(context)
        client.run(load.statement)
        client.run("CREATE MATERIALIZED VIEW here AS SELECT id FROM s")
        client.run("CREATE MATERIALIZED VIEW there WITH (resource_group = 'a') AS SELECT id FROM s")
        client.run(
            "CREATE MATERIALIZED VIEW grouped WITH (resource_group = 'a') AS "
            f"SELECT id % {GROUPS} AS part, count(*) AS n, sum(id) AS ids FROM s GROUP BY id % {GROUPS}"
        )

        def reaches(rows: int, *views: str) -> None:
            for view in views or ("here", "there", "grouped"):
                wait_until(partial(has_rows, view, rows), f"{view} has {rows} rows")

        def has_rows(view: str, rows: int) -> bool:
            if view == "grouped":
                return sum(n for (n,) in client.rows(view, "n")) >= rows
            return len(client.rows(view, "id")) >= rows

        reaches(ROWS_AT_ONCE)
        client.run("ALTER SOURCE s SET RESOURCE_GROUP TO a")
        reaches(load.written)
        second.kill()
        wait_until(lambda: client.state("a") == "NONE", "the killed owner is noticed")
        # Out of the group of a dead owner, then back to its successor.
        client.run("ALTER SOURCE s RESET RESOURCE_GROUP")
        reaches(load.written, "here")
        wait_until(serve("--resource-group", "a").is_serving, "another process takes group a")
        client.run("ALTER SOURCE s SET RESOURCE_GROUP TO a")
        for view in ("there", "grouped"):
            client.run(f"ALTER MATERIALIZED VIEW {view} SET RESOURCE_GROUP TO 'default'")
        load.stop()
        client.run("FLUSH")
        reaches(load.written)
        for view in ("here", "there"):
            assert client.rows(view, "id") == [(id_,) for id_ in range(load.written)], view
        groups = [range(part, load.written, GROUPS) for part in range(GROUPS)]
        expected = [(part, len(ids), sum(ids)) for part, ids in enumerate(groups)]
        assert client.rows("grouped", "part", "n", "ids") == expected

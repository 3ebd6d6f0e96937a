"""The reader of a change data capture source on a real MariaDB, without Spark: its batches reach the log once."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.changes import UpstreamColumn, UpstreamTable
from rw_sql.connectors.mysql_cdc.source import MysqlCdcConnector
from rw_sql.runtime.ingest.noted_progress import stored_progress
from rw_sql.runtime.support.failures import StalledError
from rw_sql.runtime.support.warehouse import Warehouse
from tests.plan.tables import tables_world
from tests.runtime.ingest import test_capture
from tests.runtime.ingest.test_capture import Log, table_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.mysql import MysqlInfo

pytestmark = pytest.mark.mysql


@pytest.fixture
def log(mariadb: MysqlInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    kind = MysqlCdcConnector()
    for name in ("connector", "change_connector"):
        monkeypatch.setattr(test_capture, name, lambda _name: kind)
    database = f"c_{uuid.uuid4().hex[:8]}"
    table = f"{database}.t"
    mariadb.run(f"CREATE DATABASE {database}", f"CREATE TABLE {table} (id INT PRIMARY KEY, word TEXT)")
    world = tables_world()
    columns = (
        UpstreamColumn(name="id", type="int(11)", canonical="INT"),
        UpstreamColumn(name="word", type="text", canonical="CHARACTER VARYING"),
    )
    world.upstream_tables = {table: UpstreamTable(table=table, columns=columns, key=("id",))}
    options = {
        "hostname": "127.0.0.1", "port": str(mariadb.port), "username": mariadb.user, "database.name": database,
        "server.id": "4711",
    }  # fmt: skip
    listed = ", ".join(f"{key} = '{value}'" for key, value in options.items())
    world.run(
        f"CREATE SOURCE pg WITH (connector = 'mysql-cdc', {listed})", f"CREATE TABLE t (*) FROM pg TABLE '{table}'"
    )
    options |= {"password": mariadb.password}
    made = Log(mariadb, Warehouse.at(str(tmp_path)), world, options)  # type: ignore[arg-type]
    made.position = kind.prepare(options, []).state.offset
    yield made
    made.close()
    mariadb.run(f"DROP DATABASE {database}")


def test_snapshot_and_changes_are_in_the_log_once_however_often_the_reader_is_killed(log: Log) -> None:
    table = table_of(log)
    log.postgres.run(f"INSERT INTO {table} SELECT seq, CONCAT('w', seq) FROM {table.partition('.')[0]}.seq_1_to_30")
    log.open()
    log.write_until(lambda changes: sum(op == "r" for op, _, _ in changes) == 30)
    log.postgres.run(f"UPDATE {table} SET word = 'x' WHERE id = 1")
    log.write_until(lambda changes: any(op == "u" for op, _, _ in changes))
    log.postgres.run(f"DELETE FROM {table} WHERE id = 2")
    assert log.take()[-1].records.num_rows == 1
    log.close()  # Taken and not committed: read again.
    log.open()
    log.write_until(lambda changes: any(op == "d" for op, _, _ in changes))
    log.postgres.run(f"INSERT INTO {table} VALUES (99, 'last')")
    while log.changes()[-1][0] != "c":
        log.write(acknowledges=False)
    log.close()  # Committed and not acknowledged: not read again.
    log.open()
    log.postgres.run(f"TRUNCATE {table}")
    log.write_until(lambda changes: changes[-1][0] == "t")
    assert [op for op, _, _ in log.changes() if op != "r"] == ["u", "d", "c", "t"]
    (stored,) = stored_progress(log.warehouse, log.source).values()
    assert (stored[1].is_done, stored[1].rows_done) == (True, 30)
    assert log.reports[-1].is_over
    assert log.capture is not None
    # A table that is dropped upstream stalls, and what to type is said; so does the next run.
    log.close()
    log.postgres.run(f"DROP TABLE {table}")
    with pytest.raises(StalledError, match=r"MySQL table '\S+' doesn't exist"):
        log.open()


def test_a_transaction_that_was_prepared_in_the_part_that_a_move_skips_is_read(log: Log) -> None:
    table = table_of(log)
    log.postgres.run(f"INSERT INTO {table} VALUES (0, 'first')")

    def is_read() -> bool:
        stored = stored_progress(log.warehouse, log.source).values()
        return bool(stored) and all(made.is_done for _, made in stored)

    log.open()
    log.write_until(lambda _: is_read())
    log.close()
    xid = f"'{table}'"
    with log.postgres.connect() as connection, connection.cursor() as cursor:  # type: ignore[attr-defined]
        for statement in (f"XA START {xid}", f"INSERT INTO {table} VALUES (1, 'xa')", f"XA END {xid}"):
            cursor.execute(statement)
        cursor.execute(f"XA PREPARE {xid}")
    log.postgres.run(f"INSERT INTO {table} VALUES (2, 'skipped')")
    # INJECT SOURCE OFFSETS … TO LATEST
    split = log.options["database.name"]
    log.position = MysqlCdcConnector().look(log.options).splits[split].end
    log.open()
    log.postgres.run(f"XA COMMIT {xid}")
    log.write_until(lambda changes: any(op == "c" for op, _, _ in changes))
    assert [json.loads(row or "")["word"] for op, _, row in log.changes() if op == "c"] == ["xa"]


def test_rows_that_are_deleted_before_another_snapshot_begins_are_deleted_in_the_log(log: Log) -> None:
    table = table_of(log)
    log.postgres.run(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')")
    log.open()
    log.write_until(lambda changes: sum(op == "r" for op, _, _ in changes) == 4)
    log.close()
    # The upstream table gets a column, and then the table of rw_sql.
    log.postgres.run(f"DELETE FROM {table} WHERE id = 2")
    log.postgres.run(f"ALTER TABLE {table} ADD COLUMN more INT DEFAULT 7")
    described = log.world.upstream_tables[table]
    more = UpstreamColumn(name="more", type="int(11)", canonical="INT")
    log.world.upstream_tables = {table: replace(described, columns=(*described.columns, more))}
    log.world.run("ALTER TABLE t ADD COLUMN more INT")
    log.postgres.run(f"DELETE FROM {table} WHERE id = 3")
    log.open()
    log.write_until(lambda changes: any(op == "s" for op, _, _ in changes))
    assert [json.loads(key or "")["id"] for op, key, _ in log.changes() if op == "d"] == ["2", "3"]
    assert [op for op, _, _ in log.changes() if op in "bs"] == ["b", "s"]
    log.close()
    # A second table reads the same upstream table.
    log.postgres.run(f"DELETE FROM {table} WHERE id = 4")
    log.world.run(f"CREATE TABLE u (*) FROM pg TABLE '{table}'")
    log.open()
    log.write_until(lambda changes: sum(op == "r" for op, _, _ in changes) == 4 + 2 + 1)
    assert [json.loads(key or "")["id"] for op, key, _ in log.changes() if op == "d"] == ["2", "3", "4"]
    log.close()
    # No other snapshot begins when it is dropped.
    read = len([op for op, _, _ in log.changes() if op == "r"])
    log.world.run("DROP TABLE u")
    log.postgres.run(f"INSERT INTO {table} VALUES (5, 'e', 1)")
    log.open()
    log.write_until(lambda changes: any('"5"' in (row or "") for _, _, row in changes))
    assert len([op for op, _, _ in log.changes() if op == "r"]) == read
    assert [op for op, _, _ in log.changes() if op in "bs"] == ["b", "s"]

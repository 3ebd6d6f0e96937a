"""Another snapshot of a table whose rows are kept: no change after the reader's position is lost."""

from __future__ import annotations

import uuid
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.connectors.changes import TableProgress
from rw_sql.connectors.mysql_cdc import reader
from rw_sql.connectors.mysql_cdc.marks import Mark
from rw_sql.connectors.mysql_cdc.server import read_facts
from tests.support.captured import reason
from tests.support.column_changes import note_changes
from tests.support.mysql import MARIADB, SERVERS, server_of
from tests.support.mysql_changes import TIMEOUT, Replica, cdc_options

if TYPE_CHECKING:
    from rw_sql.connectors.changes import SchemaChange
    from tests.support.mysql import MysqlInfo

KINDS = [MARIADB, *(pytest.param(name, marks=pytest.mark.long) for name in SERVERS[1:])]


def made(server: MysqlInfo, *names: str) -> Replica:
    """A replica of a table ``t`` with some rows, under its plain name or the given ones."""
    database = f"o_{uuid.uuid4().hex[:8]}"
    server.run(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, word VARCHAR(20))",
        f"INSERT INTO {database}.t VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    )
    return Replica(cdc_options(server, database), [name.replace("d.", f"{database}.") for name in names or ("d.t",)])


def begin_another(replica: Replica, *, has_new_columns: bool = False) -> None:
    """The next reader begins another snapshot of the table, and the replica keeps its rows."""
    replica.close()
    for name, old in replica.progress.items():
        columns = dict.fromkeys(old.columns, "") if has_new_columns else old.columns
        replica.progress[name] = TableProgress(
            table=name, columns=columns, key_columns=old.key_columns, continues=old.identity
        )


def changes_of(replica: Replica) -> list[SchemaChange]:
    """Reads everything; returns the changes to the columns that the reader reported."""
    found = note_changes(replica.open())
    replica.catch_up()
    return found


@pytest.mark.mysql
@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_were_deleted_before_another_snapshot_began_are_deleted(kind: str) -> None:
    with server_of(kind) as server:
        replica = made(server.info)
        (table,) = replica.names
        for statement in (
            f"DELETE FROM {table} WHERE id = 2",
            f"UPDATE {table} SET id = 9 WHERE id = 3",
            f"TRUNCATE {table}",
        ):
            replica.catch_up()
            begin_another(replica)
            server.info.run(statement)
            replica.catch_up()
            assert replica.differences() == {}
        assert replica.rows[table] == {}
        replica.close()


@pytest.mark.mysql
def test_a_transaction_that_was_prepared_before_another_snapshot_is_read_when_it_commits(mariadb: MysqlInfo) -> None:
    replica = made(mariadb)
    (table,) = replica.names
    replica.catch_up()
    with mariadb.connect() as writer, writer.cursor() as cursor:
        cursor.execute("XA START 'x1'")
        cursor.execute(f"DELETE FROM {table} WHERE id = 2")
        cursor.execute("XA END 'x1'")
        cursor.execute("XA PREPARE 'x1'")
        mariadb.run(f"INSERT INTO {table} VALUES (10, 'later')")
        replica.catch_up()
        assert Mark.from_json(replica.progress[table].identity or "").prepared
        begin_another(replica)
        replica.catch_up()
        cursor.execute("XA COMMIT 'x1'")
    replica.catch_up()
    assert replica.differences() == {}
    replica.close()


@pytest.mark.mysql
def test_a_column_that_was_replaced_before_another_snapshot_is_not_reported_again(mariadb: MysqlInfo) -> None:
    replica = made(mariadb)
    (table,) = replica.names
    replica.catch_up()
    begin_another(replica, has_new_columns=True)
    mariadb.run(
        f"ALTER TABLE {table} DROP COLUMN word",
        f"DELETE FROM {table} WHERE id = 1",
        f"ALTER TABLE {table} ADD COLUMN word BIGINT DEFAULT 7, ADD COLUMN more INT",
    )
    found = changes_of(replica)
    assert [(dict(change.added), dict(change.dropped), dict(change.retyped)) for change in found] == [
        ({"more": "int(11)"}, {}, {})
    ]
    assert replica.differences() == {}
    mariadb.run(f"ALTER TABLE {table} DROP COLUMN word, ADD COLUMN word INT", f"INSERT INTO {table} VALUES (8, 1, 2)")
    replica.close()
    assert [list(change.dropped) for change in changes_of(replica)] == [["word"]]
    replica.close()


@pytest.mark.mysql
def test_two_spellings_of_one_table_both_get_every_change(mariadb: MysqlInfo) -> None:
    replica = made(mariadb, "d.t", "d.`t`")
    replica.catch_up()
    (table, _) = replica.names
    mariadb.run(f"UPDATE {table} SET word = 'x' WHERE id = 1", f"DELETE FROM {table} WHERE id = 2")
    replica.catch_up()
    assert replica.differences() == {}
    mariadb.run(f"TRUNCATE {table}", f"INSERT INTO {table} VALUES (5, 'after')")
    replica.catch_up()
    assert replica.differences() == {}
    assert [len(rows) for rows in replica.rows.values()] == [1, 1]
    replica.close()


def test_the_mark_of_another_snapshot_keeps_what_was_read() -> None:
    before = Mark(begin=10, file=1, created=2, server=3, prepared=(4,))
    progress = TableProgress(table="d.t", continues=before.to_json())
    found = Mark.of(progress, 1000, 5000)
    assert (found.begin, found.prepared, found.columns_from) == (10, (4,), 5000)
    assert Mark.from_json(found.to_json()) == found
    assert Mark.of(TableProgress(table="d.t"), 1000, 5000).begin == 5000
    assert Mark.of(TableProgress(table="d.t", is_done=True), 1000, 5000).begin == 1000


def test_the_mark_omits_no_change_that_a_table_without_a_snapshot_needs() -> None:
    live = TableProgress(table="d.t", has_live_tables=True)
    assert Mark.of(live, 1000, 5000).begin == 1000
    stored = replace(live, identity=Mark(begin=5000).to_json())
    assert Mark.of(stored, 1000, 9000).begin == 1000
    assert Mark.of(stored, 6000, 9000).begin == 5000
    assert Mark.of(replace(stored, has_live_tables=False), 1000, 9000).begin == 5000


@pytest.mark.mysql
def test_a_table_without_a_snapshot_ignores_the_table_before_it(mariadb: MysqlInfo) -> None:
    replica = made(mariadb)
    (table,) = replica.names
    replica.catch_up()
    replica.close()
    mariadb.run(
        f"DELETE FROM {table}", f"DROP TABLE {table}", f"CREATE TABLE {table} (id INT PRIMARY KEY, word VARCHAR(20))"
    )
    mariadb.run(f"INSERT INTO {table} VALUES (1, 'before')")
    end = read_facts(replica.options, TIMEOUT).end
    replica.rows[table] = {}
    replica.progress[table] = TableProgress(table=table, is_done=True, has_live_tables=True, live_from=end)
    mariadb.run(f"INSERT INTO {table} VALUES (2, 'after')")
    replica.catch_up()
    assert sorted(replica.rows[table]) == ['["2"]']
    mariadb.run(f"DROP TABLE {table}", f"CREATE TABLE {table} (id INT PRIMARY KEY, word VARCHAR(20))")
    assert "was dropped at" in reason(replica)


def test_a_table_without_a_snapshot_needs_no_change_from_before_its_creation() -> None:
    live = TableProgress(table="d.t", has_live_tables=True, live_from=3000)
    assert Mark.of(replace(live, is_done=True), 1000, 5000).begin == 3000
    assert Mark.of(replace(live, is_done=True), 4000, 5000).begin == 4000
    assert Mark.of(live, 1000, 5000).begin == 3000
    stored = replace(live, identity=Mark(begin=5000).to_json())
    assert Mark.of(stored, 1000, 9000).begin == 3000
    assert Mark.of(replace(stored, identity=Mark(begin=2000).to_json()), 1000, 9000).begin == 2000


def test_the_mark_compares_the_columns_that_a_table_without_a_snapshot_reads() -> None:
    kept = TableProgress(table="d.t", columns={"id": "int"}, continues=Mark(begin=10).to_json(), has_live_tables=True)
    assert Mark.of(kept, 1000, 5000).columns_from == 0
    assert Mark.of(replace(kept, columns={"id": ""}), 1000, 5000).columns_from == 5000
    assert Mark.of(replace(kept, has_live_tables=False), 1000, 5000).columns_from == 5000


def test_a_repeated_snapshot_begins_at_the_end_of_a_log_without_column_names() -> None:
    before = Mark(begin=10, prepared=(4,), names=("id", "word"))
    repeated = TableProgress(table="d.t", continues=before.to_json(), is_repeated=True)
    found = Mark.of(repeated, 1000, 5000, has_names=False)
    assert (found.begin, found.prepared, found.names) == (5000, (4,), ())
    for other in (replace(repeated, is_repeated=False), replace(repeated, has_live_tables=True)):
        assert Mark.of(other, 1000, 5000, has_names=False).begin == 10
    assert Mark.of(repeated, 1000, 5000).begin == 10


@pytest.mark.parametrize("has_names", [True, False])
def test_rows_that_are_read_again_keep_their_times_if_no_change_is_omitted(
    monkeypatch: pytest.MonkeyPatch, *, has_names: bool
) -> None:
    table: Any = SimpleNamespace(key=("id",), rows_estimated=3)
    monkeypatch.setattr(reader, "find_table", lambda *_: table)
    monkeypatch.setattr(reader, "require_readable", lambda *_: None)
    monkeypatch.setattr(reader, "with_names", lambda mark, *_: mark)
    monkeypatch.setattr(reader.MysqlReader, "_sql", lambda _: None)
    facts: Any = SimpleNamespace(end=5000, has_names=has_names, is_mariadb=False)
    read = reader.MysqlReader({"database.name": "d"})
    read._position = 1000
    before = Mark(begin=10, names=() if has_names else ("id",)).to_json()
    repeated = TableProgress(table="d.t", continues=before, is_repeated=True, kept_for="2.0", keeps_times=True)
    assert read._found("d.t", repeated, facts).keeps_times is has_names

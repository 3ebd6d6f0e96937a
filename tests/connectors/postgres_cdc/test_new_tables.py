"""A table that is read for the first time, or once more, while the slot has unread changes of an older shape of it."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.changes import KEY_ORDER, CaptureError, TableProgress
from rw_sql.connectors.postgres_cdc.server import read_facts
from tests.support.column_changes import note_changes
from tests.support.postgres_changes import TIMEOUT, Replica, cdc_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rw_sql.connectors.changes import SchemaChange
    from tests.support.postgres import PostgresInfo

pytestmark = pytest.mark.postgres


@pytest.fixture
def table(postgres: PostgresInfo) -> str:
    name = f"public.n_{uuid.uuid4().hex[:8]}"
    postgres.run(f"CREATE TABLE {name} (id INT PRIMARY KEY, word TEXT)")
    postgres.run(f"INSERT INTO {name} SELECT i, 'first' FROM generate_series(1, 5) i")
    return name


@pytest.fixture
def replica(postgres: PostgresInfo, table: str) -> Iterator[Replica]:
    made = Replica(cdc_options(postgres), [table])
    made.catch_up(postgres)
    made.close()
    yield made
    made.drop()


def begin_another(replica: Replica, table: str, *, has_new_columns: bool = False) -> None:
    """The next reader begins another snapshot of the table, and the replica keeps its rows."""
    replica.close()
    old = replica.progress[table]
    columns = dict.fromkeys(old.columns, "") if has_new_columns else old.columns
    traits = {name: trait for name, trait in old.traits.items() if name != KEY_ORDER}
    replica.progress[table] = TableProgress(
        table=table, columns=columns, key_columns=old.key_columns, traits=traits, continues=old.identity
    )


def changes_of(replica: Replica, postgres: PostgresInfo) -> list[SchemaChange]:
    """Reads everything; returns the changes to the columns that the reader reported."""
    found = note_changes(replica.open())
    replica.catch_up(postgres)
    return found


@pytest.mark.parametrize(
    "statements",
    [
        (
            "DROP TABLE {t}",
            "CREATE TABLE {t} (id INT PRIMARY KEY, word TEXT)",
            "ALTER PUBLICATION {p} ADD TABLE {t}",
        ),
        ("ALTER TABLE {t} ALTER id TYPE BIGINT",),
        ("ALTER TABLE {t} DROP CONSTRAINT {n}_pkey, ALTER word SET NOT NULL, ADD PRIMARY KEY (id, word)",),
    ],
    ids=["created again", "key of another type", "key of more columns"],
)
def test_a_table_that_is_created_again_here_ignores_what_its_upstream_table_was(
    postgres: PostgresInfo, table: str, replica: Replica, statements: tuple[str, ...]
) -> None:
    postgres.run(f"UPDATE {table} SET word = 'unread'; DELETE FROM {table} WHERE id = 3")
    for statement in statements:
        name = table.partition(".")[2]
        postgres.run(statement.format(t=table, n=name, p=replica.options["publication.name"]))
    postgres.run(f"INSERT INTO {table} VALUES (7, 'new')")
    replica.read_anew(table)
    assert changes_of(replica, postgres) == []
    assert replica.differences() == {}
    assert [record["op"] for record in replica.log if record["op"] in "ud"] == [], "changes of the earlier table"
    # The server does not describe the table once more before the next changes.
    postgres.run(f"UPDATE {table} SET word = 'later' WHERE id = 7; INSERT INTO {table} VALUES (8, 'new')")
    replica.catch_up(postgres)
    assert replica.differences() == {}
    replica.close()
    postgres.run(f"DELETE FROM {table} WHERE id = 8")
    replica.catch_up(postgres)
    assert replica.differences() == {}


def test_a_table_without_a_snapshot_ignores_the_table_before_it(
    postgres: PostgresInfo, table: str, replica: Replica
) -> None:
    postgres.run(f"UPDATE {table} SET word = 'unread'; DELETE FROM {table} WHERE id = 3")
    postgres.run(f"DROP TABLE {table}")
    postgres.run(f"CREATE TABLE {table} (id INT PRIMARY KEY, word TEXT)")
    postgres.run(f"ALTER PUBLICATION {replica.options['publication.name']} ADD TABLE {table}")
    end = read_facts(replica.options, TIMEOUT).end
    replica.rows[table] = {}
    replica.progress[table] = TableProgress(table=table, is_done=True, has_live_tables=True, live_from=end)
    postgres.run(f"INSERT INTO {table} VALUES (7, 'new')")
    replica.catch_up(postgres)
    assert replica.differences() == {}
    replica.close()
    postgres.run(f"DROP TABLE {table}")
    postgres.run(f"CREATE TABLE {table} (id INT PRIMARY KEY, word TEXT)")
    postgres.run(f"ALTER PUBLICATION {replica.options['publication.name']} ADD TABLE {table}")
    with pytest.raises(CaptureError, match="is not the table that was read"):
        replica.catch_up(postgres)


def test_changes_after_unread_changes_of_the_same_shape_arrive(
    postgres: PostgresInfo, table: str, replica: Replica
) -> None:
    postgres.run(f"UPDATE {table} SET word = 'unread' WHERE id = 1")
    replica.read_anew(table)
    replica.open()
    postgres.run(f"UPDATE {table} SET word = 'read' WHERE id = 2; DELETE FROM {table} WHERE id = 3")
    postgres.run(f"TRUNCATE {table}; INSERT INTO {table} VALUES (4, 'last')")
    replica.catch_up(postgres)
    assert replica.differences() == {}
    assert len(replica.rows[table]) == 1


def test_another_snapshot_of_rows_that_are_kept_loses_no_delete_and_repeats_no_report(
    postgres: PostgresInfo, table: str, replica: Replica
) -> None:
    begin_another(replica, table, has_new_columns=True)
    postgres.run(f"UPDATE {table} SET word = '1'; DELETE FROM {table} WHERE id = 2")
    postgres.run(f"ALTER TABLE {table} ALTER word TYPE INT USING word::int, ADD COLUMN more INT DEFAULT 7")
    postgres.run(f"UPDATE {table} SET id = 9 WHERE id = 3")
    found = changes_of(replica, postgres)
    assert [(dict(each.added), dict(each.dropped), dict(each.retyped)) for each in found] == [
        ({"more": "integer"}, {}, {})
    ]
    assert replica.differences() == {}
    replica.close()
    postgres.run(f"ALTER TABLE {table} ALTER more TYPE BIGINT; INSERT INTO {table} VALUES (10, 1, 1)")
    assert {"more": "bigint"} in [dict(each.retyped) for each in changes_of(replica, postgres)]


def test_a_table_whose_rows_are_kept_must_stay_the_same(postgres: PostgresInfo, table: str, replica: Replica) -> None:
    publication = replica.options["publication.name"]
    begin_another(replica, table)
    postgres.run(f"DROP TABLE {table}")
    postgres.run(f"CREATE TABLE {table} (id INT PRIMARY KEY, word TEXT)")
    postgres.run(f"ALTER PUBLICATION {publication} ADD TABLE {table}")
    with pytest.raises(CaptureError, match="is not the table that was read"):
        replica.catch_up(postgres)
    replica.close()


def test_two_spellings_of_one_table_are_named(table: str, replica: Replica) -> None:
    schema, _, name = table.partition(".")
    other = f'{schema}."{name}"'
    replica.progress[other] = TableProgress(table=other)
    with pytest.raises(CaptureError, match="are the same table of the database") as caught:
        replica.open()
    assert f"TABLE '{table}'" in (caught.value.hint or "")
    del replica.progress[other]

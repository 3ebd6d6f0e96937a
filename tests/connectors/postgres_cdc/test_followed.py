"""Changes of rows that PostgreSQL's stream does not contain: they stop the source instead of going unnoticed."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest

from rw_sql.connectors.changes import KEY_ORDER, CaptureError, SchemaChange
from tests.support.captured import reason
from tests.support.postgres import PASSWORD
from tests.support.postgres_changes import Replica, cdc_options
from tests.support.waits import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.postgres import PostgresInfo

pytestmark = [pytest.mark.postgres, pytest.mark.usefixtures("often_checked")]


@pytest.fixture
def table(postgres: PostgresInfo, name: str) -> str:
    postgres.run(f"CREATE TABLE {name} (a INT, b INT, c INT, d INT, PRIMARY KEY (a, b))")
    postgres.run(f"INSERT INTO {name} SELECT 1, i, i, 10 * i FROM generate_series(1, 3) i")
    return name


@pytest.fixture
def parted(postgres: PostgresInfo, name: str) -> str:
    postgres.run(f"CREATE TABLE {name} (id INT PRIMARY KEY, word TEXT) PARTITION BY RANGE (id)")
    for number in range(3):
        postgres.run(
            f"CREATE TABLE {name}_{number} PARTITION OF {name} FOR VALUES FROM ({10 * number}) TO ({10 * number + 10})"
        )
    postgres.run(f"INSERT INTO {name} SELECT i, 'x' FROM generate_series(0, 29) i")
    return name


@pytest.fixture
def replica(request: pytest.FixtureRequest, postgres: PostgresInfo, name: str) -> Iterator[Replica]:
    kind = "parted" if "parted" in request.fixturenames else "table"
    request.getfixturevalue(kind)
    made = Replica(cdc_options(postgres), [name])
    made.catch_up(postgres)
    yield made
    made.drop()


@pytest.mark.parametrize("key", ["a, b, c", "b", "c"])
def test_a_primary_key_of_other_columns(postgres: PostgresInfo, table: str, replica: Replica, key: str) -> None:
    plain = table.partition(".")[2]
    postgres.run(
        f"ALTER TABLE {table} ALTER c SET NOT NULL, DROP CONSTRAINT {plain}_pkey, ADD PRIMARY KEY ({key});"
        f"DELETE FROM {table} WHERE b = 2"
    )
    assert reason(replica) == f"the primary key of table {table} is ({key}) now, but was (a, b)"


def test_a_publication_without_some_kinds_of_changes(postgres: PostgresInfo, table: str, replica: Replica) -> None:
    publication = replica.options["publication.name"]
    postgres.run(f"ALTER PUBLICATION {publication} SET (publish = 'insert')")
    postgres.run(f"UPDATE {table} SET c = 0; DELETE FROM {table} WHERE b = 1")
    assert reason(replica) == f'publication "{publication}" does not publish update, delete, truncate'
    postgres.run(f"ALTER PUBLICATION {publication} SET (publish = 'insert, update, delete, truncate')")
    assert "was altered and has its earlier options again" in reason(replica)


def test_a_publication_that_was_altered_while_nothing_was_read(
    postgres: PostgresInfo, parted: str, replica: Replica
) -> None:
    replica.close()
    publication = replica.options["publication.name"]
    postgres.run(f"ALTER PUBLICATION {publication} SET (publish_via_partition_root = false)")
    postgres.run(f"UPDATE {parted} SET word = 'lost'")
    postgres.run(f"ALTER PUBLICATION {publication} SET (publish_via_partition_root = true)")
    assert "was altered and has its earlier options again" in reason(replica)


def test_a_publication_that_gets_other_options_goes_on(postgres: PostgresInfo, table: str, replica: Replica) -> None:
    replica.close()
    publication = replica.options["publication.name"]
    postgres.run(f"ALTER PUBLICATION {publication} SET (publish_via_partition_root = false)")
    postgres.run(f"CREATE ROLE owner_{publication} SUPERUSER")
    postgres.run(f"UPDATE {table} SET c = 5")
    replica.catch_up(postgres)
    postgres.run(f"ALTER PUBLICATION {publication} OWNER TO owner_{publication}")
    postgres.run(f"UPDATE {table} SET c = 6")
    replica.catch_up(postgres)
    assert replica.differences() == {}
    postgres.run(f"ALTER PUBLICATION {publication} OWNER TO postgres; DROP ROLE owner_{publication}")


def test_a_filter_of_rows(postgres: PostgresInfo, table: str, replica: Replica) -> None:
    publication = replica.options["publication.name"]
    postgres.run(f"ALTER PUBLICATION {publication} SET TABLE {table} WHERE (b > 1)")
    replica.read_anew(table)
    with pytest.raises(CaptureError, match=f"omits rows of table {table}: WHERE"):
        replica.open()


def test_a_schema_that_was_removed_from_the_publication_and_added(postgres: PostgresInfo, name: str) -> None:
    schema = f"s_{uuid.uuid4().hex[:8]}"
    postgres.run(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
    options = cdc_options(postgres)
    postgres.run(f"CREATE PUBLICATION {options['publication.name']} FOR TABLES IN SCHEMA {schema}")
    replica = Replica(options, [f"{schema}.t"])
    replica.catch_up(postgres)
    postgres.run(f"ALTER PUBLICATION {options['publication.name']} DROP TABLES IN SCHEMA {schema}")
    postgres.run(f"INSERT INTO {schema}.t VALUES (1)")
    postgres.run(f"ALTER PUBLICATION {options['publication.name']} ADD TABLES IN SCHEMA {schema}")
    assert "was not in publication" in reason(replica)
    replica.drop()


def test_a_table_of_a_publication_of_all_tables_that_is_not_logged(postgres: PostgresInfo, table: str) -> None:
    options = cdc_options(postgres)
    postgres.run(f"CREATE PUBLICATION {options['publication.name']} FOR ALL TABLES")
    replica = Replica(options, [table])
    replica.catch_up(postgres)
    postgres.run(f"ALTER TABLE {table} SET UNLOGGED")
    assert reason(replica) == f"table {table} is UNLOGGED: its changes are not in the server's log"
    replica.drop()


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (["TRUNCATE {t}_1"], "partition {p}_1 was truncated"),
        (["TRUNCATE {t}_1", "INSERT INTO {t} VALUES (11, 'new')"], "partition {p}_1 was truncated"),
        (["ALTER TABLE {t} DETACH PARTITION {t}_1"], "partition {p}_1 was dropped or detached"),
        (["DROP TABLE {t}_1"], "partition {p}_1 was dropped or detached"),
        (
            [
                "ALTER TABLE {t} DETACH PARTITION {t}_1",
                "UPDATE {t}_1 SET word = 'apart'",
                "ALTER TABLE {t} ATTACH PARTITION {t}_1 FOR VALUES FROM (10) TO (20)",
            ],
            "partition {p}_1 was attached with rows",
        ),
        (
            [
                "CREATE TABLE {t}_9 (id INT PRIMARY KEY, word TEXT)",
                "INSERT INTO {t}_9 VALUES (91, 'before')",
                "ALTER TABLE {t} ATTACH PARTITION {t}_9 FOR VALUES FROM (90) TO (100)",
            ],
            "partition {p}_9 was attached with rows",
        ),
        (
            [
                "BEGIN; CREATE TABLE {t}_9 (id INT PRIMARY KEY, word TEXT); INSERT INTO {t}_9 VALUES (91, 'before');"
                "ALTER TABLE {t} ATTACH PARTITION {t}_9 FOR VALUES FROM (90) TO (100); COMMIT"
            ],
            "partition {p}_9 was attached with rows",
        ),
        (
            [
                "CREATE TABLE {t}_8 (id INT PRIMARY KEY, word TEXT) PARTITION BY RANGE (id)",
                "CREATE TABLE {t}_9 PARTITION OF {t}_8 FOR VALUES FROM (90) TO (100)",
                "INSERT INTO {t}_8 VALUES (91, 'before')",
                "ALTER TABLE {t} ATTACH PARTITION {t}_8 FOR VALUES FROM (80) TO (100)",
            ],
            "partition {p}_9 was attached with rows",
        ),
    ],
)
def test_partitions_whose_rows_come_and_go(
    postgres: PostgresInfo, parted: str, replica: Replica, statements: list[str], message: str
) -> None:
    replica.close()
    for statement in statements:
        postgres.run(statement.format(t=parted))
    told = reason(replica)
    assert told.startswith(message.format(p=parted.partition(".")[2]))
    assert f"the stream does not show which rows of table {parted} were added or removed" in told


def test_a_partition_that_the_user_may_not_read_by_its_name(
    postgres: PostgresInfo, parted: str, replica: Replica
) -> None:
    replica.close()
    role = f"reader_{parted.partition('.')[2]}"
    postgres.run(f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD '{PASSWORD}'; GRANT SELECT ON {parted} TO {role}")
    own, replica.options = replica.options, replica.options | {"username": role}
    postgres.run(f"CREATE TABLE {parted}_3 PARTITION OF {parted} FOR VALUES FROM (30) TO (40)")
    postgres.run(f"INSERT INTO {parted} VALUES (31, 'x')")
    replica.catch_up(postgres)
    postgres.run(f"CREATE TABLE {parted}_9 (word TEXT, id INT PRIMARY KEY); INSERT INTO {parted}_9 VALUES ('x', 91)")
    postgres.run(f"ALTER TABLE {parted} ATTACH PARTITION {parted}_9 FOR VALUES FROM (90) TO (100)")
    assert "was attached with rows" in reason(replica)
    replica.options = own
    postgres.run(f"REVOKE ALL ON {parted} FROM {role}; DROP ROLE {role}")


def test_partitions_that_are_made_rewritten_or_attached_without_rows(
    postgres: PostgresInfo, parted: str, replica: Replica
) -> None:
    from rw_sql.connectors.postgres_cdc.connection import connect

    for statement in (
        # In one transaction, and with a command before the partition.
        f"UPDATE {parted} SET word = 'y'; CREATE TABLE {parted}_3 PARTITION OF {parted} FOR VALUES FROM (30) TO (40);"
        f"INSERT INTO {parted} VALUES (31, 'same'); INSERT INTO {parted}_3 VALUES (32, 'same')",
        f"CREATE TABLE {parted}_4 (LIKE {parted} INCLUDING ALL)",
        f"ALTER TABLE {parted} ATTACH PARTITION {parted}_4 FOR VALUES FROM (40) TO (50)",
        f"INSERT INTO {parted} VALUES (41, 'later')",
        f"CREATE TABLE {parted}_5 PARTITION OF {parted} FOR VALUES FROM (50) TO (60)",
    ):
        postgres.run(statement)
    replica.catch_up(postgres)
    postgres.run(f"UPDATE {parted} SET word = 'w'")
    with connect(replica.options, 30) as connection:
        connection.execute(f"VACUUM (FULL, FREEZE) {parted}".encode())
    postgres.run(f"UPDATE {parted} SET word = 'z' WHERE id % 2 = 0; TRUNCATE {parted}_5")
    replica.catch_up(postgres)
    replica.close()
    replica.catch_up(postgres)
    postgres.run(f"TRUNCATE {parted}; INSERT INTO {parted} VALUES (11, 'after')")
    replica.catch_up(postgres)
    replica.close()
    postgres.run(f"TRUNCATE {parted}")
    replica.catch_up(postgres)
    assert replica.differences() == {}


def test_partitions_that_get_rows_of_older_transactions(postgres: PostgresInfo, parted: str, replica: Replica) -> None:
    """A partition may be younger than the transactions that write to it."""
    replica.close()
    postgres.run(f"CREATE TABLE {parted}_old (id INT)")
    with psycopg.connect(
        host="127.0.0.1", port=postgres.port, dbname="postgres", user=postgres.user, password=PASSWORD
    ) as old:
        old.execute(f"INSERT INTO {parted}_old VALUES (1)".encode())
        create = f"CREATE TABLE {parted}_3 PARTITION OF {parted} FOR VALUES FROM (30) TO (40)"
        # The handler makes the block a subtransaction.
        postgres.run(
            f"INSERT INTO {parted}_old VALUES (2);"
            f"DO $$ BEGIN {create}; EXCEPTION WHEN duplicate_table THEN NULL; END $$;"
            f"INSERT INTO {parted} VALUES (31, 'same')"
        )
        postgres.run(f"CREATE TABLE {parted}_4 PARTITION OF {parted} FOR VALUES FROM (40) TO (50)")
        old.execute(f"INSERT INTO {parted} VALUES (32, 'older'), (41, 'older')".encode())
    replica.catch_up(postgres)
    replica.close()
    replica.catch_up(postgres)
    assert replica.differences() == {}
    postgres.run(
        f"DO $$ BEGIN CREATE TABLE {parted}_9 (id INT PRIMARY KEY, word TEXT); INSERT INTO {parted}_9 VALUES (91, 'x');"
        f"ALTER TABLE {parted} ATTACH PARTITION {parted}_9 FOR VALUES FROM (90) TO (100);"
        "EXCEPTION WHEN duplicate_table THEN NULL; END $$"
    )
    assert "was attached with rows" in reason(replica)


def test_partitions_that_an_alter_rewrites(postgres: PostgresInfo, parted: str, replica: Replica) -> None:
    postgres.run(f"ALTER TABLE {parted} ADD COLUMN draw DOUBLE PRECISION DEFAULT random()")
    for _ in range(10):
        assert replica.step(wait=0.1).changes == (), "the stream tells it with the next row"
    postgres.run(f"ALTER TABLE {parted} ALTER word TYPE TEXT USING word || 'y'")
    (change,) = changes_of(replica)
    assert set(change.dropped) == {"word"}


def changes_of(replica: Replica, count: int = 1) -> list[SchemaChange]:
    found: list[SchemaChange] = []

    def has_all() -> bool:
        found.extend(replica.step(wait=0.2).changes)
        return len(found) >= count

    wait_until(has_all, "the changes are noticed")
    return found


def test_a_column_that_was_dropped_and_added_again(postgres: PostgresInfo, table: str, replica: Replica) -> None:
    postgres.run(f"ALTER TABLE {table} DROP COLUMN c, ADD COLUMN c INT DEFAULT 7")
    (change,) = changes_of(replica)
    assert (change.dropped, change.added, change.retyped) == ({"c": "integer"}, {"c": "integer"}, {})
    replica.close()
    postgres.run(f"ALTER TABLE {table} DROP COLUMN c; ALTER TABLE {table} ADD COLUMN c INT DEFAULT 8")
    progress = replica.progress
    assert changes_of(replica)[0].dropped == {"c": "integer"}
    # What was not committed is noticed again.
    replica.close()
    replica.progress = progress
    assert changes_of(replica)[0].dropped == {"c": "integer"}


def test_values_that_an_alter_computed(postgres: PostgresInfo, table: str, replica: Replica) -> None:
    postgres.run(f"ALTER TABLE {table} ALTER c TYPE INT USING c * 100, ALTER d SET DEFAULT 5")
    (change,) = changes_of(replica)
    assert "c" in change.dropped
    assert "a" not in change.dropped
    replica.close()
    postgres.run(f"ALTER TABLE {table} ALTER d TYPE TEXT USING 'd' || d")
    (change,) = changes_of(replica)
    assert (change.retyped, change.old) == ({"d": "text"}, {"d": "integer"})


def test_a_table_that_is_rewritten_with_its_values(postgres: PostgresInfo, table: str, replica: Replica) -> None:
    from rw_sql.connectors.postgres_cdc.connection import connect

    with connect(replica.options, 30) as connection:
        connection.execute(f"VACUUM FULL {table}".encode())
    postgres.run(f"ALTER TABLE {table} ALTER c SET DEFAULT 5, ALTER d SET NOT NULL, ALTER d SET STATISTICS 10")
    replica.close()
    postgres.run(f"INSERT INTO {table} VALUES (7, 7, DEFAULT, 7)")
    postgres.run(f"CLUSTER {table} USING {table.partition('.')[2]}_pkey")
    replica.catch_up(postgres)
    assert replica.differences() == {}


def test_columns_that_exchange_their_names(postgres: PostgresInfo, table: str, replica: Replica) -> None:
    replica.close()
    postgres.run(
        f"ALTER TABLE {table} RENAME c TO e; ALTER TABLE {table} RENAME d TO c; ALTER TABLE {table} RENAME e TO d"
    )
    (change,) = changes_of(replica)
    assert change.dropped == {"c": "integer", "d": "integer"}


def test_a_column_that_the_last_chunk_has_and_the_stream_does_not_have_yet(postgres: PostgresInfo, table: str) -> None:
    replica = Replica(cdc_options(postgres), [table])
    replica.open().set_rate_limit(0)
    postgres.run(f"INSERT INTO {table} VALUES (5, 5, 5, 5)")
    wait_until(lambda: replica.step(wait=0.1).records.num_rows > 0, "the stream has described the table")
    postgres.run(f"ALTER TABLE {table} ADD COLUMN late INT DEFAULT 7")
    assert replica.reader is not None
    replica.reader.set_rate_limit(None)
    (change,) = changes_of(replica)
    assert (change.added, change.dropped) == ({"late": "integer"}, {})
    replica.catch_up(postgres)
    assert set(replica.progress[table].columns) == {"a", "b", "c", "d", "late"}
    replica.drop()


def test_a_primary_key_in_another_order(postgres: PostgresInfo, table: str) -> None:
    postgres.run(f"INSERT INTO {table} SELECT i, 100 - i, 0, 0 FROM generate_series(10, 60) i")
    replica = Replica(cdc_options(postgres), [table], chunk_rows=5)
    replica.open().set_rate_limit(5)
    wait_until(lambda: replica.step(most=5, wait=0.1).records.num_rows > 0, "a chunk")
    plain = table.partition(".")[2]
    postgres.run(f"ALTER TABLE {table} DROP CONSTRAINT {plain}_pkey, ADD PRIMARY KEY (b, a)")
    assert "(b, a)" in reason(replica)
    replica.drop()


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_snapshot_begins_again_if_the_collation_of_the_key_changes(
    postgres: PostgresInfo, name: str, is_stopped: bool
) -> None:
    """In the order of the old collation, the letters alternate, and each chunk ends with a lower-case letter."""
    postgres.run(f'CREATE TABLE {name} (id INT, word TEXT COLLATE "en-x-icu", PRIMARY KEY (word, id))')
    postgres.run(f"INSERT INTO {name} SELECT 1, chr(i) FROM generate_series(65, 90) i")
    postgres.run(f"INSERT INTO {name} SELECT 1, chr(i) || 'x' FROM generate_series(97, 122) i")
    replica = Replica(cdc_options(postgres), [name], chunk_rows=6)
    replica.open().set_rate_limit(6)
    wait_until(lambda: replica.step(most=6, wait=0.1).records.num_rows > 0, "a chunk")
    if is_stopped:
        replica.close()
    postgres.run(f'ALTER TABLE {name} ALTER word TYPE TEXT COLLATE "C"')
    if not is_stopped:
        assert replica.reader is not None
        replica.reader.set_rate_limit(None)
    replica.catch_up(postgres)
    assert replica.differences() == {}
    replica.drop()


def test_a_snapshot_whose_stored_progress_lacks_the_order_of_the_key_continues(
    postgres: PostgresInfo, table: str
) -> None:
    postgres.run(f"INSERT INTO {table} SELECT 2, i, i, i FROM generate_series(1, 50) i")
    replica = Replica(cdc_options(postgres), [table], chunk_rows=5)
    replica.open().set_rate_limit(5)
    wait_until(lambda: replica.step(most=5, wait=0.1).records.num_rows > 0, "a chunk")
    replica.close()
    stored = replica.progress[table]
    assert stored.key_order == "0,0"
    without = {key: value for key, value in stored.traits.items() if key != KEY_ORDER}
    replica.progress[table] = replace(stored, traits=without)
    replica.catch_up(postgres)
    assert replica.differences() == {}
    assert replica.progress[table].rows_done == 53
    replica.drop()

"""Rows of PostgreSQL that are rewritten between two checks, by commands that later commands hide in the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.postgres_cdc.connection import connect
from tests.support.captured import reason
from tests.support.postgres_changes import Replica, cdc_options
from tests.support.waits import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rw_sql.connectors.changes import SchemaChange
    from tests.support.postgres import PostgresInfo

pytestmark = [pytest.mark.postgres, pytest.mark.usefixtures("often_checked")]

PLAIN, WITH_TOAST = "id INT PRIMARY KEY, c INT, d INT", "id INT PRIMARY KEY, c INT, word TEXT"
"""A table's columns: of a fixed size, so that the table has no TOAST table, and of any size."""


def made(postgres: PostgresInfo, name: str, columns: str, *, publication: str = "") -> Replica:
    """The closed replica of a table with some rows."""
    postgres.run(f"CREATE TABLE {name} ({columns}); INSERT INTO {name} SELECT i, i, i FROM generate_series(1, 9) i")
    options = cdc_options(postgres)
    if publication:
        postgres.run(f"CREATE PUBLICATION {options['publication.name']} {publication}")
    replica = Replica(options, [name])
    replica.catch_up(postgres)
    replica.close()
    return replica


@pytest.fixture
def parted(postgres: PostgresInfo, name: str) -> Iterator[Replica]:
    postgres.run(f"CREATE TABLE {name} (id INT PRIMARY KEY, word TEXT) PARTITION BY RANGE (id)")
    for number in range(3):
        postgres.run(
            f"CREATE TABLE {name}_{number} PARTITION OF {name} FOR VALUES FROM ({10 * number}) TO ({10 * number + 10})"
        )
    postgres.run(f"INSERT INTO {name} SELECT i, 'x' FROM generate_series(0, 29) i")
    replica = Replica(cdc_options(postgres), [name])
    replica.catch_up(postgres)
    replica.close()
    yield replica
    replica.drop()


def run(replica: Replica, postgres: PostgresInfo, *statements: str) -> None:
    """Each statement in a transaction of its own; ``{t}`` is the table."""
    for statement in statements:
        text = statement.format(t=replica.names[0])
        if text.startswith("VACUUM"):
            with connect(replica.options, 30) as connection:
                connection.execute(text.encode())
        else:
            postgres.run(text)


def first_change(replica: Replica) -> SchemaChange:
    found: list[SchemaChange] = []

    def has_one() -> bool:
        found.extend(replica.step(wait=0.2).changes)
        return bool(found)

    wait_until(has_one, "the change is noticed")
    return found[0]


LATER = [
    "GRANT SELECT ON {t} TO PUBLIC",
    "ALTER TABLE {t} ADD CHECK (c < 100000)",
    "ALTER TABLE {t} ALTER c SET DEFAULT 5",
    "ALTER TABLE {t} ALTER c SET NOT NULL",
    "ALTER TABLE {t} ADD COLUMN more INT",
    "CREATE INDEX ON {t} (c)",
]


@pytest.mark.parametrize("columns", [PLAIN, WITH_TOAST])
def test_values_that_an_alter_computed_are_noticed_after_other_commands(
    postgres: PostgresInfo, name: str, columns: str
) -> None:
    for at, later in enumerate(LATER):
        replica = made(postgres, f"{name}_{at}", columns)
        run(
            replica, postgres, "ALTER TABLE {t} ALTER c TYPE INT USING c * 100", later, "INSERT INTO {t} VALUES (99, 1)"
        )
        change = first_change(replica)
        assert set(change.dropped) == {"c"}, later
        replica.drop()


@pytest.mark.parametrize("columns", [PLAIN, WITH_TOAST])
def test_rows_that_are_rewritten_with_their_values_do_not_stop_the_source(
    postgres: PostgresInfo, name: str, columns: str
) -> None:
    replica = made(postgres, name, columns)
    alters = "ALTER TABLE {t} ALTER c SET DEFAULT 5", "ALTER TABLE {t} ADD CHECK (c < 100000)"
    run(replica, postgres, "VACUUM (FULL, FREEZE) {t}", *alters, "GRANT SELECT ON {t} TO PUBLIC")
    replica.catch_up(postgres)
    replica.close()
    run(replica, postgres, "CREATE INDEX ON {t} (c)", "REINDEX TABLE {t}", "UPDATE {t} SET c = 8", "VACUUM FULL {t}")
    replica.catch_up(postgres)
    replica.close()
    run(replica, postgres, "DELETE FROM {t}", "ALTER TABLE {t} ALTER c TYPE INT USING c * 100")
    if columns == WITH_TOAST:
        run(replica, postgres, "INSERT INTO {t} VALUES (1, 1, 'x')")
        replica.read_anew(name)
        replica.catch_up(postgres)
        replica.close()
        run(replica, postgres, "BEGIN; TRUNCATE {t}; INSERT INTO {t} VALUES (2, 2, 'y'); COMMIT", *alters[:1])
    replica.catch_up(postgres)
    assert replica.differences() == {}
    replica.drop()


@pytest.mark.parametrize(
    "later",
    ["GRANT SELECT ON {t}_1 TO PUBLIC", "ALTER TABLE {t} ADD COLUMN more INT", "ALTER TABLE {t}_1 ADD CHECK (id > 0)"],
)
def test_a_partition_that_was_truncated_is_noticed_after_other_commands(
    postgres: PostgresInfo, parted: Replica, later: str
) -> None:
    run(parted, postgres, "TRUNCATE {t}_1", "INSERT INTO {t} VALUES (11, 'new')", later)
    told = reason(parted)
    assert "_1 was truncated, and the stream does not show which rows" in told


def test_partitions_that_an_alter_rewrote_are_told_from_truncated_ones_after_other_commands(
    postgres: PostgresInfo, parted: Replica
) -> None:
    run(parted, postgres, "ALTER TABLE {t} ALTER word TYPE TEXT USING word || 'y'", "GRANT SELECT ON {t}_1 TO PUBLIC")
    assert set(first_change(parted).dropped) == {"word"}


def test_an_empty_partition_that_is_rewritten_may_have_been_truncated(postgres: PostgresInfo, parted: Replica) -> None:
    run(parted, postgres, "DELETE FROM {t}_1", "VACUUM FULL {t}_1")
    assert "_1 was truncated, or was empty and rewritten, and the stream" in reason(parted)
    parted.read_anew(parted.names[0])
    run(parted, postgres, "VACUUM FULL {t}_1")
    parted.catch_up(postgres)
    assert parted.differences() == {}


@pytest.mark.parametrize("later", ["", "GRANT SELECT ON {t} TO PUBLIC"])
def test_a_table_that_was_unlogged_for_a_time(postgres: PostgresInfo, name: str, later: str) -> None:
    replica = made(postgres, name, WITH_TOAST, publication="FOR ALL TABLES")
    run(
        replica,
        postgres,
        "ALTER TABLE {t} SET UNLOGGED",
        "UPDATE {t} SET word = 'not in the log'",
        "ALTER TABLE {t} SET LOGGED",
        later or "SELECT 1",
    )
    assert f"if it was UNLOGGED for a time, changes of table {name} are missing" in reason(replica)
    replica.drop()


def test_a_partition_that_is_or_was_unlogged(postgres: PostgresInfo, parted: Replica) -> None:
    run(parted, postgres, "ALTER TABLE {t}_1 SET UNLOGGED", "UPDATE {t}_1 SET word = 'not in the log'")
    assert "_1 of table" in (told := reason(parted))
    assert "is UNLOGGED" in told
    run(parted, postgres, "ALTER TABLE {t}_1 SET LOGGED")
    assert "if it was UNLOGGED for a time" in reason(parted)


def test_other_commands_do_not_count_as_unlogged(postgres: PostgresInfo, name: str) -> None:
    replica = made(postgres, name, WITH_TOAST, publication="FOR ALL TABLES")
    for statements in (
        ("ALTER TABLE {t} ADD COLUMN draw DOUBLE PRECISION DEFAULT random()",),
        ("VACUUM FULL {t}", "GRANT SELECT ON {t} TO PUBLIC"),
        ("BEGIN; TRUNCATE {t}; INSERT INTO {t} VALUES (2, 2, 'y'); COMMIT",),
        ("CLUSTER {t} USING " + name.partition(".")[2] + "_pkey", "UPDATE {t} SET c = 8"),
    ):
        run(replica, postgres, *statements)
        replica.catch_up(postgres)
        replica.close()
    replica.read_anew(name)
    replica.catch_up(postgres)
    assert replica.differences() == {}
    replica.drop()


@pytest.mark.parametrize("between", ["ALTER TABLE {t} ADD COLUMN more INT", "SELECT 1"])
def test_a_table_with_a_new_or_a_constant_column_that_was_unlogged_for_a_time(
    postgres: PostgresInfo, name: str, between: str
) -> None:
    replica = made(postgres, name, WITH_TOAST, publication="FOR ALL TABLES")
    run(replica, postgres, "ALTER TABLE {t} ADD COLUMN flag BOOLEAN DEFAULT true")
    replica.catch_up(postgres)
    replica.close()
    run(
        replica,
        postgres,
        "ALTER TABLE {t} SET UNLOGGED",
        between,
        "UPDATE {t} SET word = 'not in the log'",
        "ALTER TABLE {t} SET LOGGED",
    )
    assert f"if it was UNLOGGED for a time, changes of table {name} are missing" in reason(replica)
    replica.drop()


@pytest.mark.parametrize("columns", [PLAIN, WITH_TOAST])
def test_a_constant_column_whose_constant_is_stored_in_the_rows_has_its_values(
    postgres: PostgresInfo, name: str, columns: str
) -> None:
    replica = made(postgres, name, columns)
    run(replica, postgres, "ALTER TABLE {t} ADD COLUMN flag BOOLEAN DEFAULT true", "ALTER TABLE {t} ADD COLUMN n INT")
    replica.catch_up(postgres)
    replica.read_anew(name)
    replica.catch_up(postgres)
    replica.close()
    run(replica, postgres, "ALTER TABLE {t} ADD COLUMN token UUID DEFAULT gen_random_uuid()", "UPDATE {t} SET c = 7")
    change = first_change(replica)
    assert (set(change.added), dict(change.dropped)) == ({"token"}, {})
    replica.drop()


def test_an_altered_constant_column_is_noticed(postgres: PostgresInfo, name: str) -> None:
    replica = made(postgres, name, WITH_TOAST)
    run(replica, postgres, "ALTER TABLE {t} ADD COLUMN flag BOOLEAN DEFAULT true")
    replica.read_anew(name)
    replica.catch_up(postgres)
    replica.close()
    run(replica, postgres, "ALTER TABLE {t} ALTER flag TYPE BOOLEAN USING NOT flag")
    assert set(first_change(replica).dropped) == {"flag"}
    replica.drop()


def test_a_table_without_a_toast_table_whose_rows_were_all_written_after_it_was_rewritten(
    postgres: PostgresInfo, name: str
) -> None:
    replica = made(postgres, name, PLAIN)
    run(replica, postgres, "VACUUM FULL {t}", "ALTER TABLE {t} ALTER c SET DEFAULT 5", "UPDATE {t} SET c = 7")
    changes = [change for _ in range(5) for change in replica.step(wait=0.2).changes]
    assert changes == []
    replica.catch_up(postgres)
    assert replica.differences() == {}
    replica.drop()

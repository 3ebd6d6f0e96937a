"""Changes of rows that the binary log does not contain, or not as such: they stop the source or are reported."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

import pymysql
import pytest

from rw_sql.connectors.changes import CaptureError, SchemaChange
from rw_sql.connectors.mysql_cdc import connection, decoder
from rw_sql.connectors.mysql_cdc.source import MysqlCdcConnector
from tests.support.captured import read_on, reason
from tests.support.lossy_relay import relay
from tests.support.mysql_changes import Replica, cdc_options
from tests.support.waits import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.mysql import MysqlInfo

pytestmark = pytest.mark.mysql


@pytest.fixture
def table(mariadb: MysqlInfo) -> Iterator[str]:
    database = f"d_{uuid.uuid4().hex[:8]}"
    name = f"{database}.t"
    mariadb.run(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {name} (a INT, b INT, c INT, d INT, PRIMARY KEY (a, b)) ENGINE = InnoDB",
        f"INSERT INTO {name} VALUES (1, 1, 1, 10), (1, 2, 2, 20), (2, 1, 3, 30)",
    )
    yield name
    mariadb.run(f"DROP DATABASE {database}")


@pytest.fixture
def replica(mariadb: MysqlInfo, table: str) -> Iterator[Replica]:
    made = Replica(cdc_options(mariadb, table.partition(".")[0]), [table])
    made.catch_up()
    yield made
    made.close()


@pytest.mark.parametrize("is_stopped", [False, True])
@pytest.mark.parametrize("key", ["a", "c", "a, b, c"])
def test_a_primary_key_of_other_columns(
    mariadb: MysqlInfo, table: str, replica: Replica, key: str, is_stopped: bool
) -> None:
    if is_stopped:
        replica.close()
    mariadb.run(
        f"DELETE FROM {table} WHERE b = 2",
        f"ALTER TABLE {table} DROP PRIMARY KEY, ADD PRIMARY KEY ({key})",
        f"INSERT INTO {table} VALUES (7, 7, 7, 7)",
    )
    assert reason(replica) == f"the primary key of table {table} is ({key}) now, but was (a, b)"


def test_a_primary_key_in_another_order(mariadb: MysqlInfo, table: str) -> None:
    mariadb.run(f"INSERT INTO {table} SELECT seq, 100 - seq, 0, 0 FROM {table.partition('.')[0]}.seq_10_to_60")
    replica = Replica(cdc_options(mariadb, table.partition(".")[0]), [table], chunk_rows=5)
    replica.open().set_rate_limit(5)
    wait_until(lambda: replica.step(most=5, wait=0.1).records.num_rows > 0, "a chunk")
    mariadb.run(f"ALTER TABLE {table} DROP PRIMARY KEY, ADD PRIMARY KEY (b, a)")
    assert "(b, a)" in reason(replica)
    # After its snapshot, the order has no meaning.
    replica.read_anew(table)
    replica.catch_up()
    mariadb.run(
        f"ALTER TABLE {table} DROP PRIMARY KEY, ADD PRIMARY KEY (a, b)", f"UPDATE {table} SET d = 5 WHERE a % 2 = 0"
    )
    replica.catch_up()
    there = mariadb.run(f"SELECT a, b, d FROM {table}")
    here = {tuple(int(row[name]) for name in "abd") for row in replica.rows[table].values()}
    assert here == set(there)
    replica.close()


def test_system_versioning(mariadb: MysqlInfo, table: str, replica: Replica) -> None:
    mariadb.run(
        f"ALTER TABLE {table} ADD SYSTEM VERSIONING",
        f"UPDATE {table} SET c = 9",
        f"DELETE FROM {table} WHERE b = 2",
    )
    with pytest.raises(CaptureError, match="system versioning"):
        read_on(replica)
    replica.close()
    # The events with the history stay in the log, also if the table has none any more.
    mariadb.run("SET system_versioning_alter_history = KEEP", f"ALTER TABLE {table} DROP SYSTEM VERSIONING")
    assert "the system versioning of table" in reason(replica)
    replica.read_anew(table)
    replica.catch_up()
    assert replica.differences() == {}
    replica.close()
    mariadb.run(f"ALTER TABLE {table} ADD SYSTEM VERSIONING")
    (lack,) = MysqlCdcConnector().find_lacks(replica.options, {table: None})
    assert "has system versioning" in lack.message
    assert lack.hint.endswith("DROP SYSTEM VERSIONING")


@pytest.mark.parametrize("wait", ["NOWAIT", "WAIT 5"])
def test_a_rename_that_does_not_wait(mariadb: MysqlInfo, table: str, replica: Replica, wait: str) -> None:
    mariadb.run(f"ALTER TABLE {table} {wait} RENAME TO {table}_new", f"UPDATE {table}_new SET c = 9")
    with pytest.raises(CaptureError, match="was renamed to"):
        read_on(replica)


@pytest.mark.parametrize("call", ["SELECT {d}.f()", "DO {d}.f()", "SET @x = {d}.f()"])
def test_a_function_that_is_in_the_log_instead_of_its_changes(
    mariadb: MysqlInfo, table: str, replica: Replica, call: str
) -> None:
    database = table.partition(".")[0]
    mariadb.run(
        "SET GLOBAL log_bin_trust_function_creators = 1",
        f"CREATE FUNCTION {database}.f() RETURNS INT BEGIN UPDATE {table} SET c = 9; RETURN 1; END",
        "SET SESSION binlog_format = 'STATEMENT'",
        call.format(d=database),
    )
    assert "instead of the rows that the statement changed" in reason(replica)


def changes_of(replica: Replica) -> list[SchemaChange]:
    found: list[SchemaChange] = []

    def has_some() -> bool:
        found.extend(replica.step(wait=0.2).changes)
        return bool(found)

    wait_until(has_some, "the change is noticed")
    return found


@pytest.mark.parametrize(
    ("statements", "dropped"),
    [
        (["ALTER TABLE {t} DROP COLUMN c, ADD COLUMN c INT DEFAULT 7"], {"c"}),
        (["ALTER TABLE {t} DROP `c`", "ALTER TABLE {t} ADD c INT DEFAULT 7"], {"c"}),
        (["ALTER TABLE {t} CHANGE c d INT, CHANGE d c INT"], {"c", "d"}),
        (["ALTER TABLE {t} RENAME COLUMN c TO d, RENAME COLUMN d TO c"], {"c", "d"}),
        (["ALTER TABLE {t} CHANGE COLUMN c e INT", "ALTER TABLE {t} CHANGE COLUMN IF EXISTS e c INT"], {"c"}),
    ],
)
@pytest.mark.parametrize("is_stopped", [False, True])
def test_columns_whose_values_an_alter_replaces(
    mariadb: MysqlInfo, table: str, replica: Replica, statements: list[str], dropped: set[str], is_stopped: bool
) -> None:
    if is_stopped:
        replica.close()
    mariadb.run(*(statement.format(t=table) for statement in statements))
    progress, state = replica.progress, replica.state
    assert set(changes_of(replica)[0].dropped) == dropped
    replica.close()
    replica.progress, replica.state = progress, state
    assert set(changes_of(replica)[0].dropped) == dropped, "what was not committed is noticed again"


def test_an_alter_that_replaces_no_values(mariadb: MysqlInfo, table: str, replica: Replica) -> None:
    mariadb.run(
        f"ALTER TABLE {table} CHANGE c c INT NOT NULL, ADD INDEX i (c), ALTER COLUMN d SET DEFAULT 5",
        f"ALTER TABLE {table} DROP INDEX i, MODIFY d INT FIRST",
        f"UPDATE {table} SET d = 6",
    )
    changes: list[SchemaChange] = []
    for _ in range(5):
        changes += replica.step(wait=0.2).changes
    assert changes == []
    assert replica.differences() == {}


def test_a_batch_ends_at_a_number_of_bytes(mariadb: MysqlInfo, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limit, row = 200_000, 20_000
    monkeypatch.setattr(decoder, "BATCH_BYTES", limit)
    mariadb.run(f"ALTER TABLE {table} ADD COLUMN word TEXT")
    mariadb.run(
        f"INSERT INTO {table} SELECT seq, 0, 0, 0, REPEAT('x', {row}) FROM {table.partition('.')[0]}.seq_100_to_140"
    )
    replica = Replica(cdc_options(mariadb, table.partition(".")[0]), [table], chunk_rows=2)
    sizes = []
    while not all(each.is_done for each in replica.progress.values()):
        sizes.append(replica.step(most=10_000, wait=0.5).records.nbytes)
    for number in range(200, 240):
        mariadb.run(f"INSERT INTO {table} VALUES ({number}, 0, 0, 0, REPEAT('x', {row}))")
    while len(replica.rows[table]) < 84:
        sizes.append(replica.step(most=10_000, wait=0.5).records.nbytes)
    assert max(sizes) < limit + 4 * row
    assert replica.differences() == {}
    replica.close()


def test_a_network_that_loses_every_packet_ends_a_wait_for_rows(
    mariadb: MysqlInfo, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connection._ALIVE, "TCP_USER_TIMEOUT", 1000)
    options = cdc_options(mariadb, table.partition(".")[0])
    with relay(mariadb.port) as (port, lose):
        used = connection.connect(options | {"port": str(port)}, 10, read_timeout=600)
        assert connection.rows_of(used, f"SELECT count(*) FROM {table}") == [(3,)]
        lose()
        began = time.monotonic()
        with pytest.raises(pymysql.Error):
            connection.rows_of(used, f"SELECT count(*) FROM {table}")
        assert time.monotonic() - began < 60


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_snapshot_begins_again_if_the_collation_of_the_key_changes(mariadb: MysqlInfo, is_stopped: bool) -> None:
    """In the order of the old collation, the letters alternate, and each chunk ends with a lower-case letter."""
    database = f"d_{uuid.uuid4().hex[:8]}"
    name = f"{database}.t"
    words = [chr(at) for at in range(65, 91)] + [f"{chr(at)}x" for at in range(97, 123)]
    listed = ", ".join(f"('{word}')" for word in words)
    mariadb.run(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {name} (word VARCHAR(10) COLLATE utf8mb4_general_ci PRIMARY KEY) ENGINE = InnoDB",
        f"INSERT INTO {name} VALUES {listed}",
    )
    replica = Replica(cdc_options(mariadb, database), [name], chunk_rows=6)
    replica.open().set_rate_limit(6)
    wait_until(lambda: replica.step(most=6, wait=0.1).records.num_rows > 0, "a chunk")
    if is_stopped:
        replica.close()
    mariadb.run(f"ALTER TABLE {name} CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    if not is_stopped:
        assert replica.reader is not None
        replica.reader.set_rate_limit(None)
    replica.catch_up()
    assert replica.differences() == {}
    replica.close()
    mariadb.run(f"DROP DATABASE {database}")

"""What a server lacks: the sentence, and a statement that mends it when it is typed."""

from __future__ import annotations

import sys
import uuid
from typing import TYPE_CHECKING

import psycopg
import pytest

from rw_sql.connectors.changes import CaptureError
from rw_sql.connectors.connection_types import (
    check_connection_options,
    connection_source,
    connection_spec,
    connection_types,
    place_of,
)
from rw_sql.connectors.postgres_cdc import setup, tables
from rw_sql.connectors.postgres_cdc.source import PostgresCdcConnector
from rw_sql.connectors.spec import OptionError
from rw_sql.packages import deferred
from tests.support.postgres import PASSWORD, running_server
from tests.support.postgres_changes import TIMEOUT, Replica, cdc_options

if TYPE_CHECKING:
    from rw_sql.connectors.changes import Lack
    from tests.support.postgres import PostgresInfo

CONNECTOR = PostgresCdcConnector()


def only(lacks: tuple[Lack, ...]) -> Lack:
    assert len(lacks) == 1, [lack.message for lack in lacks]
    return lacks[0]


@pytest.fixture
def table() -> str:
    return f"public.v_{uuid.uuid4().hex[:8]}"


@pytest.mark.postgres
def test_a_table_with_everything_lacks_nothing(postgres: PostgresInfo, table: str) -> None:
    postgres.run(f"CREATE TABLE {table} (id INT PRIMARY KEY, word TEXT)")
    assert CONNECTOR.find_lacks(cdc_options(postgres), {table: None}) == ()
    assert CONNECTOR.find_lacks(cdc_options(postgres), {table: {"word": "CHARACTER VARYING", "id": "BIGINT"}}) == ()


@pytest.mark.postgres
def test_what_a_table_lacks_and_the_statement_that_gives_it(postgres: PostgresInfo, table: str) -> None:
    options = cdc_options(postgres)
    cases = (
        ("(id INT)", "", "has no primary key", "ALTER TABLE {t} ADD PRIMARY KEY (id)"),
        ("(id INT PRIMARY KEY)", "ALTER TABLE {t} REPLICA IDENTITY NOTHING", "replica identity", None),
        (
            "(id INT PRIMARY KEY, b INT NOT NULL UNIQUE)",
            "ALTER TABLE {t} REPLICA IDENTITY USING INDEX {p}_b_key",
            "lacks its primary key (id)",
            None,
        ),
    )
    for columns, then, message, mend in cases:
        postgres.run(f"CREATE TABLE {table} {columns}")
        plain = table.partition(".")[2]
        if then:
            postgres.run(then.format(t=table, p=plain))
        lack = only(CONNECTOR.find_lacks(options, {table: None}))
        assert message in lack.message
        postgres.run(mend.format(t=table) if mend else lack.hint)
        assert CONNECTOR.find_lacks(options, {table: None}) == ()
        postgres.run(f"DROP TABLE {table}")
    postgres.run(f"CREATE UNLOGGED TABLE {table} (id INT PRIMARY KEY)")
    lack = only(CONNECTOR.find_lacks(options, {table: None}))
    assert "is UNLOGGED" in lack.message
    postgres.run(lack.hint)
    assert CONNECTOR.find_lacks(options, {table: None}) == ()
    postgres.run(f"CREATE VIEW {table}_v AS SELECT * FROM {table}")
    assert "is a view" in only(CONNECTOR.find_lacks(options, {f"{table}_v": None})).message
    lack = only(CONNECTOR.find_lacks(options, {table + "x": None}))
    assert (lack.message, lack.hint) == (f'table "{table}x" does not exist', f"did you mean '{table}'?")
    assert "invalid Postgres CDC table name" in only(CONNECTOR.find_lacks(options, {"plain": None})).message


@pytest.mark.postgres
def test_columns_and_types(postgres: PostgresInfo, table: str) -> None:
    options = cdc_options(postgres)
    postgres.run(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, word TEXT, made INT GENERATED ALWAYS AS (id + 1) STORED, "
        "score NUMERIC(6, 2) DEFAULT 1.5, at TIMESTAMPTZ DEFAULT now(), note TEXT DEFAULT 'it''s', "
        "ok BOOL DEFAULT true)"
    )
    lacks = CONNECTOR.find_lacks(
        options, {table: {"wrod": "INT", "made": "INT", "word": "INT", "id": "SMALLINT", "score": "INT"}}
    )
    assert [lack.message.partition(":")[0] for lack in lacks] == [
        "Column 'wrod' not found in the upstream database",
        f"Column 'made' of table {table} is generated, so it is not in the stream",
        "Incompatible data type of column word",
        "Incompatible data type of column id",
        "Incompatible data type of column score",
    ]
    assert lacks[0].hint.startswith('did you mean "word"? ')
    assert lacks[4].hint == "score NUMERIC(6, 2) or CHARACTER VARYING"
    described = CONNECTOR.describe_table(options, table)
    assert {column.name: column.default for column in described.columns} == {
        "id": None, "word": None, "made": None, "score": "1.5", "at": None, "note": "it's", "ok": "true",
    }  # fmt: skip


@pytest.mark.postgres
def test_names_in_quotes(postgres: PostgresInfo, table: str) -> None:
    options = cdc_options(postgres)
    word = uuid.uuid4().hex[:8]
    postgres.run(f'CREATE SCHEMA "Odd.{word}"; CREATE TABLE "Odd.{word}"."a ""b" ("Id" INT PRIMARY KEY)')
    name = f'"Odd.{word}"."a ""b"'
    assert CONNECTOR.find_lacks(options, {name: None}) == ()
    assert CONNECTOR.describe_table(options, name).key == ("Id",)
    with pytest.raises(CaptureError, match="does not exist"):
        CONNECTOR.describe_table(options, f'"Odd.{word}".a')


@pytest.mark.postgres
def test_publications(postgres: PostgresInfo, table: str) -> None:
    options = cdc_options(postgres)
    publication = options["publication.name"]
    postgres.run(f"CREATE TABLE {table} (id INT PRIMARY KEY, a INT, b INT)")
    forbidden = options | {"publication.create.enable": "false"}
    lack = only(CONNECTOR.find_lacks(forbidden, {table: None}))
    assert lack.message == f"Publication '{publication}' doesn't exist and auto create is disabled"
    with pytest.raises(CaptureError, match="does not exist and auto create is disabled"):
        setup.prepare(forbidden, [table], TIMEOUT)
    postgres.run(f"CREATE PUBLICATION {publication} WITH (publish = 'insert')")
    lacks = CONNECTOR.find_lacks(forbidden, {table: None})
    assert [lack.message for lack in lacks] == [
        f"publication '{publication}' does not publish update, delete, truncate",
        f"publication '{publication}' does not cover table {table}",
    ]
    for lack in lacks:
        postgres.run(lack.hint)
    assert CONNECTOR.find_lacks(forbidden, {table: None}) == ()
    postgres.run(f"ALTER PUBLICATION {publication} SET TABLE {table} (id, a)")
    assert "does not cover all columns" in only(CONNECTOR.find_lacks(options, {table: None})).message
    postgres.run(f"ALTER PUBLICATION {publication} SET TABLE {table} WHERE (id > 5)")
    assert "omits rows of table" in only(CONNECTOR.find_lacks(options, {table: None})).message
    postgres.run(f"DROP PUBLICATION {publication}")


@pytest.mark.postgres
def test_partitions(postgres: PostgresInfo, table: str) -> None:
    options = cdc_options(postgres)
    publication = options["publication.name"]
    postgres.run(f"CREATE TABLE {table} (id INT PRIMARY KEY) PARTITION BY RANGE (id)")
    postgres.run(f"CREATE TABLE {table}_1 PARTITION OF {table} FOR VALUES FROM (0) TO (10)")
    postgres.run(f"CREATE PUBLICATION {publication} FOR TABLE {table}")
    lack = only(CONNECTOR.find_lacks(options, {table: None}))
    assert "`publish_via_partition_root = true`" in lack.message
    postgres.run(lack.hint)
    assert CONNECTOR.find_lacks(options, {table: None}) == ()
    postgres.run(f"ALTER TABLE {table}_1 REPLICA IDENTITY NOTHING")
    lack = only(CONNECTOR.find_lacks(options, {table: None}))
    assert "the replica identity of partition" in lack.message
    postgres.run(lack.hint)
    assert CONNECTOR.find_lacks(options, {table: None}) == ()
    lack = only(CONNECTOR.find_lacks(options, {f"{table}_1": None}))
    assert lack.message == (
        f"The ancestor or descendant partition '{table}' of the table partition '{table}_1' is already covered in the "
        f"publication '{publication}'. Please use a new publication for '{table}_1'"
    )
    postgres.run(f"DROP PUBLICATION {publication}")


@pytest.mark.postgres
def test_a_parent_of_a_published_partition_needs_another_publication(postgres: PostgresInfo, table: str) -> None:
    options = cdc_options(postgres)
    publication = options["publication.name"]
    postgres.run(f"CREATE TABLE {table} (id INT PRIMARY KEY) PARTITION BY RANGE (id)")
    for number in (1, 2):
        postgres.run(
            f"CREATE TABLE {table}_{number} PARTITION OF {table} FOR VALUES FROM ({number}0) TO ({number + 1}0)"
        )
    setup.prepare(options, [f"{table}_1"], TIMEOUT)
    assert CONNECTOR.find_lacks(options, {f"{table}_1": None, f"{table}_2": None}) == ()
    lack = only(CONNECTOR.find_lacks(options, {table: None}))
    assert lack.message.startswith(f"The ancestor or descendant partition '{table}_1' of the table partition '{table}'")
    postgres.run(lack.hint.partition("then ")[2].partition(";")[0])
    assert CONNECTOR.find_lacks(options, {table: None}) == ()
    setup.release(options, slot=True, publication=True, timeout=TIMEOUT)
    assert postgres.run(f"SELECT 1 FROM pg_publication WHERE pubname = '{publication}'") == []


@pytest.mark.postgres
def test_keys_that_are_deferrable(postgres: PostgresInfo, table: str) -> None:
    """Such a key is no replica identity: PostgreSQL would refuse to change the table as soon as it is published."""
    options = cdc_options(postgres)
    parted = f"{table}_parted"
    key = "(id INT PRIMARY KEY DEFERRABLE, word TEXT)"
    postgres.run(f"CREATE TABLE {table} {key}; CREATE TABLE {parted} {key} PARTITION BY RANGE (id)")
    postgres.run(f"CREATE TABLE {parted}_1 PARTITION OF {parted} FOR VALUES FROM (0) TO (10)")
    lacks = CONNECTOR.find_lacks(options, {table: None, parted: None})
    told = ("is DEFERRABLE", "is DEFERRABLE", "the replica identity of partition")
    for lack, words in zip(lacks, told, strict=True):
        assert words in lack.message
        postgres.run(lack.hint)
    assert CONNECTOR.find_lacks(options, {table: None, parted: None}) == ()
    replica = Replica(options, [table, parted])
    for name in (table, parted):
        postgres.run(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    replica.catch_up(postgres)
    for name in (table, parted):
        postgres.run(f"UPDATE {name} SET word = 'z' WHERE id = 1; UPDATE {name} SET id = 4 WHERE id = 2")
        postgres.run(f"DELETE FROM {name} WHERE id = 3")
    replica.catch_up(postgres)
    assert replica.differences() == {}
    replica.drop()


@pytest.mark.postgres
@pytest.mark.parametrize("is_told", [False, True])
def test_tables_that_inherit_are_not_published(postgres: PostgresInfo, table: str, is_told: bool) -> None:
    options = cdc_options(postgres)
    postgres.run(f"CREATE TABLE {table} (id INT PRIMARY KEY, word TEXT); CREATE TABLE {table}_1 () INHERITS ({table})")
    postgres.run(f"INSERT INTO {table} VALUES (1, 'a'); INSERT INTO {table}_1 VALUES (2, 'b')")
    if is_told:
        postgres.run(f"CREATE PUBLICATION {options['publication.name']}")
        postgres.run(only(CONNECTOR.find_lacks(options | {"publication.create.enable": "false"}, {table: None})).hint)
    replica = Replica(options, [table])
    # The child has no key, so it could not be changed if it were published.
    postgres.run(f"UPDATE {table} SET word = 'z'; INSERT INTO {table} VALUES (3, 'c')")
    replica.catch_up(postgres)
    assert {key: row["word"] for key, row in replica.rows[table].items()} == {'["1"]': "z", '["3"]': "c"}
    replica.drop()


@pytest.mark.postgres
@pytest.mark.parametrize("is_parted", [False, True])
def test_a_table_that_is_being_written_on_a_server_that_needs_a_lock(
    postgres: PostgresInfo, table: str, is_parted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_FIRST_WITHOUT_LOCK", {99: 0})
    monkeypatch.setattr(setup, "_LOCK_SECONDS", 1)
    options = cdc_options(postgres)
    written = table
    postgres.run(f"CREATE TABLE {table} (id INT PRIMARY KEY) {'PARTITION BY RANGE (id)' if is_parted else ''}")
    if is_parted:
        written = f"{table}_1"
        postgres.run(f"CREATE TABLE {written} PARTITION OF {table} FOR VALUES FROM (0) TO (10)")
    replica = Replica(options, [])
    with psycopg.connect(
        host="127.0.0.1", port=postgres.port, dbname="postgres", user=postgres.user, password=PASSWORD
    ) as writer:
        writer.execute(f"INSERT INTO {written} VALUES (1)".encode())
        with pytest.raises(CaptureError, match=r"transactions that write to the table have not ended") as caught:
            setup.prepare(options, [table], TIMEOUT)
        assert caught.value.is_temporary
        assert caught.value.hint is not None
        assert "pg_locks" in caught.value.hint
        postgres.run(caught.value.hint.partition("find them: ")[2])
    lack = only(CONNECTOR.find_lacks(options | {"publication.create.enable": "false"}, {table: None}))
    assert lack.hint.startswith("BEGIN; LOCK TABLE ")
    postgres.run(lack.hint)
    assert setup.prepare(options, [table], TIMEOUT).added_tables == ()
    postgres.run(f"ALTER PUBLICATION {options['publication.name']} DROP TABLE {table}")
    assert setup.prepare(options, [table], TIMEOUT).added_tables == (table,)
    replica.drop()


@pytest.mark.parametrize(
    ("version", "is_needed"),
    [
        (100_023, True), (120_022, True), (130_020, True), (130_021, False), (140_017, True), (150_012, True),
        (150_013, False), (160_008, True), (160_009, False), (170_004, True), (170_005, False), (180_000, False),
    ],
)  # fmt: skip
def test_which_versions_need_a_lock(version: int, is_needed: bool) -> None:
    found = tables.CatalogTable(
        schema="s", name="t", oid=1, kind="r", identity="d", persistence="p", is_partition=False, is_readable=True,
        is_owned=True, key=("id",), key_order="", is_key_deferrable=False, identity_columns=(), rows_estimated=None,
        membership=None, is_published=False,
    )  # fmt: skip
    wanted = 'LOCK TABLE ONLY "s"."t" IN SHARE ROW EXCLUSIVE MODE' if is_needed else None
    assert tables.adding_lock(found, version) == wanted


@pytest.mark.postgres
def test_rights(postgres: PostgresInfo, table: str) -> None:
    user = f"u_{uuid.uuid4().hex[:8]}"
    postgres.run(f"CREATE TABLE {table} (id INT PRIMARY KEY); CREATE ROLE {user} LOGIN PASSWORD '{PASSWORD}'")
    options = cdc_options(postgres, username=user)
    lacks = CONNECTOR.find_lacks(options, {table: None})
    assert [lack.message for lack in lacks] == [
        "Postgres user must be superuser or replication role to start walsender",
        "Postgres user must have create privilege on database 'postgres'",
        f"Postgres user must have select privilege on table '{table}'",
        f"Postgres user must be the owner of table '{table}' to create/alter publication",
    ]
    for lack in lacks[:3]:
        postgres.run(lack.hint)
    postgres.run(f"ALTER TABLE {table} OWNER TO {user}")
    assert CONNECTOR.find_lacks(options, {table: None}) == ()
    publication = options["publication.name"]
    postgres.run(f"CREATE PUBLICATION {publication}")
    lack = only(CONNECTOR.find_lacks(options, {table: None}))
    assert lack.message == f"Postgres user must be the owner of publication '{publication}' to add table '{table}'"
    postgres.run(f"ALTER TABLE {table} OWNER TO postgres")
    assert [lack.message.partition(" to ")[0] for lack in CONNECTOR.find_lacks(options, {table: None})][1:] == [
        f"Postgres user must be the owner of table '{table}'",
        f"Postgres user must be the owner of publication '{publication}'",
    ]
    postgres.run(lack.hint.partition(": ")[2])
    postgres.run(f"GRANT SELECT ON {table} TO {user}")
    assert CONNECTOR.find_lacks(options, {table: None}) == (), "the publication already contains the table"
    postgres.run(f"DROP PUBLICATION {publication}; ALTER TABLE {table} OWNER TO {user}")
    with pytest.raises(CaptureError) as caught:
        CONNECTOR.find_lacks(options | {"password": "guessed"}, {})
    assert not caught.value.is_temporary
    assert "guessed" not in str(caught.value)


@pytest.mark.postgres
def test_a_server_that_does_not_replicate_and_one_without_a_slot() -> None:
    with running_server(wal_level="replica", max_replication_slots="1", max_wal_senders="4") as server:
        options = cdc_options(server.info)
        lack = only(CONNECTOR.find_lacks(options, {}))
        assert lack.message == "Postgres wal_level should be 'logical', not 'replica'"
        assert lack.hint.startswith("ALTER SYSTEM SET wal_level = logical")
        with pytest.raises(CaptureError, match="wal_level"):
            setup.prepare(options, [], TIMEOUT)
        server.info.run("SELECT pg_create_physical_replication_slot('other')")
        lacks = CONNECTOR.find_lacks(options, {})
        assert [lack.check for lack in lacks] == ["server", "slot"]
        assert lacks[1].message == "all 1 replication slots are in use"


def test_a_server_that_does_not_answer() -> None:
    options = {
        "hostname": "127.0.0.1", "port": "1", "username": "u", "password": "hidden", "database.name": "d",
        "slot.name": "s", "publication.name": "p",
    }  # fmt: skip
    assert CONNECTOR.look(options, timeout=2).error is not None
    with pytest.raises(CaptureError) as caught:
        CONNECTOR.find_lacks(options, {}, timeout=2)
    assert caught.value.is_temporary
    assert caught.value.code == "RW401"


def test_an_installation_without_psycopg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.setattr("rw_sql.connectors.postgres_cdc.connection.psycopg", deferred("psycopg"))
    with pytest.raises(CaptureError) as caught:
        CONNECTOR.slot_details({"hostname": "h", "username": "u", "database.name": "d", "slot.name": "s"})
    assert caught.value.code == "RW416"
    assert caught.value.hint == "pip install 'rw-sql[postgres-cdc]'"


def test_options_that_contradict() -> None:
    given = {"hostname": "h", "username": "u", "database.name": "d"}
    CONNECTOR.check_options(given)
    for wrong, message in (
        ({"slot.name": "My-Slot"}, "lower-case letters, digits and underscores"),
        ({"publication.name": "ü" * 40}, "at most 63 bytes"),
        ({"ssl.mode": "verify-full"}, "needs ssl[.]root[.]cert"),
        ({"ssl.mode": "sometimes"}, "must be disabled, preferred, required, verify-ca or verify-full"),
        ({"port": "70000"}, "from 1 to 65535"),
    ):
        with pytest.raises(OptionError, match=message):
            CONNECTOR.check_options(given | wrong)
    named = CONNECTOR.filled_in(given, "AB-12")
    assert (named["slot.name"], named["publication.name"]) == ("rw_cdc_ab_12", "rw_publication_ab_12")
    CONNECTOR.check_options(named)


def test_connections_of_type_postgres() -> None:
    assert "postgres" in connection_types()
    assert connection_source("postgres") == connection_spec("postgres").name == "postgres-cdc"
    given = {"hostname": "h", "username": "u", "database.name": "d"}
    check_connection_options("postgres", given)
    with pytest.raises(OptionError, match=r"needs ssl\.root\.cert"):
        check_connection_options("postgres", given | {"ssl.mode": "verify-ca"})
    assert place_of("postgres", "slot.name") == "omit slot.name here: CREATE SOURCE … WITH (slot.name = …) accepts it"


def test_positions_as_postgresql_writes_them() -> None:
    state = CONNECTOR.decode_state("shop", "0/16B3748")
    assert state.offset == 0x16B3748
    assert CONNECTOR.show_position(state.offset) == "0/16B3748"
    assert CONNECTOR.decode_state("shop", str(state.offset)) == state
    assert CONNECTOR.decode_state("shop", CONNECTOR.encode_state(state)) == state
    assert CONNECTOR.decode_state("shop", "A/FF").offset == (10 << 32) + 255

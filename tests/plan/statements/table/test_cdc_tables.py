"""CREATE SOURCE and CREATE TABLE … FROM source TABLE for change data capture, in lowering."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rw_sql.connectors.changes import ChangeCount, Lack, UpstreamColumn, UpstreamTable
from rw_sql.connectors.slot_details import SlotDetails
from rw_sql.errors import SqlError
from rw_sql.metastore.records import LivePosition, SourceRecord, TableRecord
from rw_sql.model.job_ids import ingest_fragment
from rw_sql.model.job_specs import IngestSpec, ViewSpec, desired_jobs
from tests.plan.canned import CannedWorld, refused
from tests.plan.statements.move.test_block import commit
from tests.plan.tables import tables_world

SOURCE = (
    "CREATE SOURCE pg WITH (connector = 'postgres-cdc', hostname = 'db', username = 'u', database.name = 'shop', "
    "slot.name = 'rw', publication.name = 'rw')"
)
ORDERS = UpstreamTable(
    table="public.orders",
    columns=(
        UpstreamColumn(name="id", type="integer", canonical="INT"),
        UpstreamColumn(name="word", type="text", canonical="CHARACTER VARYING"),
        UpstreamColumn(name="amount", type="numeric(10,2)", canonical="NUMERIC(10, 2)"),
        UpstreamColumn(name="twice", type="numeric", is_generated=True),
    ),
    key=("id",),
)
TABLE = "CREATE TABLE orders (*) FROM pg TABLE 'public.orders'"
SLOT = SlotDetails(
    name="rw", acknowledged=0x4000, restart=0x4000, end=0x5000, status="reserved", retained_bytes=0, lag_bytes=0,
    safe_bytes=None, active_pid=None, cluster="1/1", incarnation=None,
)  # fmt: skip


def cdc_world(*texts: str) -> CannedWorld:
    world = tables_world()
    world.slot = SLOT
    world.upstream_tables = {
        "public.orders": ORDERS,
        "public.lines": replace(ORDERS, table="public.lines"),
        "public.keyless": replace(ORDERS, table="public.keyless", key=()),
    }
    world.run(SOURCE, *texts)
    return world


def table(world: CannedWorld, name: str) -> TableRecord:
    found = world.snapshot.find("table", name)
    assert isinstance(found, TableRecord)
    return found


def source(world: CannedWorld) -> SourceRecord:
    found = world.snapshot.find("source", "pg")
    assert isinstance(found, SourceRecord)
    return found


def ingest(world: CannedWorld) -> IngestSpec:
    (found,) = [spec for spec in desired_jobs(world.snapshot).values() if isinstance(spec, IngestSpec)]
    return found


def test_a_source_begins_at_the_end_of_the_server_s_log() -> None:
    world = cdc_world()
    assert world.states("pg") == {"shop": 0x5000}
    assert source(world).is_shared
    assert not desired_jobs(world.snapshot)


def test_names_that_a_statement_leaves_out_are_stored() -> None:
    world = tables_world()
    world.run(SOURCE.replace(", slot.name = 'rw', publication.name = 'rw'", ""))
    stored = dict(source(world).options)
    assert stored["slot.name"].startswith("rw_cdc_")
    assert stored["publication.name"].startswith("rw_publication_")


def test_the_star_becomes_the_columns_and_the_key() -> None:
    world = cdc_world(TABLE)
    made = table(world, "orders")
    assert " ".join(made.definition.split()) == (
        "CREATE TABLE orders ( id INT, word CHARACTER VARYING, amount NUMERIC(10, 2), PRIMARY KEY (id) ) "
        "FROM pg TABLE 'public.orders'"
    )
    assert (made.source_id, made.inputs, made.keys) == (None, (source(world).id,), ("id",))
    hour = 1_700_000_000_000 // 3_600_000
    assert made.live_from == LivePosition(since=1, offset=0x5000, hour=hour - 1, split="shop", run=1)
    (job,) = [spec for spec in desired_jobs(world.snapshot).values() if isinstance(spec, ViewSpec)]
    assert job.query == (
        "SELECT `id`, `word`, `amount`, `_rw_run`, `_rw_batch`, `_rw_split`, `_rw_offset`, `_rw_index`, `_rw_op`, "
        "`_rw_unchanged` FROM `pg`"
    )
    assert " ".join(job.inputs[0].decoded_by.split()) == (
        "CREATE SOURCE pg ( id INT, word CHARACTER VARYING, amount NUMERIC(10, 2), PRIMARY KEY (id) ) "
        "FROM pg TABLE 'public.orders'"
    )


def test_the_reader_knows_every_table() -> None:
    world = cdc_world(
        TABLE,
        "CREATE TABLE lines (id INT PRIMARY KEY, w VARCHAR FROM word) INCLUDE table_name AS t "
        "WITH (snapshot = 'false') FROM pg TABLE 'public.lines'",
        "CREATE TABLE words (id INT PRIMARY KEY, word VARCHAR) WITH (snapshot.batch_size = '7') "
        "FROM pg TABLE 'public.orders'",
    )
    lines, orders = ingest(world).tables
    assert (lines.upstream, lines.has_snapshot, lines.columns, lines.key_columns) == (
        "public.lines",
        False,
        ("id", "word"),
        ("id",),
    )
    words = table(world, "words").id
    assert orders.tables == (table(world, "orders").id, words)
    assert (orders.chunk_rows, orders.columns) == (7, ("amount", "id", "word"))
    assert (lines.snapshot, orders.snapshot) == (f"{lines.tables[0]}.0-", f"{orders.tables[0]}.0,{words}.0")
    before = ingest(world)
    world.run("DROP TABLE words")
    assert [each.upstream for each in ingest(world).tables] == ["public.lines", "public.orders"]
    assert ingest(world) != before


def test_the_key_is_that_of_the_oldest_table_until_it_is_dropped() -> None:
    world = cdc_world(TABLE)
    world.upstream_tables = {"public.orders": replace(ORDERS, key=("id", "word"))}
    world.run("CREATE TABLE newer (*) FROM pg TABLE 'public.orders'")
    (orders,) = ingest(world).tables
    assert (orders.tables[1], orders.key_columns) == (table(world, "newer").id, ("id",))
    world.run("DROP TABLE orders")
    (orders,) = ingest(world).tables
    assert orders.key_columns == ("id", "word")


@pytest.mark.parametrize("option", ["backfill_rate_limit", "snapshot.batch_size"], ids=["rate", "batch"])
@pytest.mark.parametrize("value", ["\u0663", "1_000", "0x10", "1e3", "9" * 30])
def test_an_option_with_a_number_takes_ascii_digits_only(option: str, value: str) -> None:
    world = cdc_world()
    with pytest.raises(SqlError) as caught:
        world.run(f"CREATE TABLE orders (*) WITH ({option} = '{value}') FROM pg TABLE 'public.orders'")
    assert option in caught.value.message
    assert caught.value.span is not None


def test_forgetting_offsets_reads_every_table_again() -> None:
    world = cdc_world(TABLE)
    (before,) = ingest(world).tables
    assert not before.repeats
    world.run("PAUSE SOURCE pg")
    world.run("RESET SOURCE SPLITS pg ALLOW GAPS WITH (FORGET_OFFSETS = true)")
    world.run("RESUME SOURCE pg")
    (after,) = ingest(world).tables
    assert after.repeats
    assert after.snapshot != before.snapshot
    world.run("CREATE TABLE lines (*) FROM pg TABLE 'public.lines'")
    assert [each.repeats for each in ingest(world).tables] == [False, True]


def test_both_can_be_renamed() -> None:
    world = cdc_world(TABLE)
    world.run("ALTER SOURCE pg RENAME TO shop", "ALTER TABLE orders RENAME TO o")
    made = table(world, "o")
    assert made.definition.endswith("FROM shop TABLE 'public.orders'")
    assert made.query == "SELECT `id`, `word`, `amount` FROM `shop`"
    assert made.maintenance.query.endswith("FROM `shop`")
    (job,) = [spec for spec in desired_jobs(world.snapshot).values() if isinstance(spec, ViewSpec)]
    assert (job.name, job.inputs[0].name) == ("o", "shop")


def test_dropping_a_source_needs_its_tables_dropped() -> None:
    world = cdc_world(TABLE)
    assert "other objects depend on it" in refused(world, "DROP SOURCE pg").message
    world.run("DROP SOURCE pg CASCADE")
    assert world.snapshot.find("table", "orders") is None


def test_a_schema_is_dropped_with_its_source_and_its_table() -> None:
    world = cdc_world(
        "CREATE SCHEMA s", "ALTER SOURCE pg SET SCHEMA s", "CREATE TABLE s.orders (*) FROM s.pg TABLE 'public.orders'"
    )
    assert {row.change for row in world.run("DROP SCHEMA s CASCADE").changes} == {"DROPPED"}
    assert not desired_jobs(world.snapshot)
    assert world.snapshot.find("source", "s.pg") is None


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            "CREATE TABLE t (*, a INT) FROM pg TABLE 'public.orders'",
            "wildcard(*) and column definitions cannot be used together",
            "write either * or the columns",
        ),
        (
            "CREATE TABLE t (id INT) FROM pg TABLE 'public.orders'",
            "CDC table without primary key constraint is not supported",
            "PRIMARY KEY",
        ),
        (
            "CREATE TABLE t (id INT PRIMARY KEY, wrod VARCHAR) FROM pg TABLE 'public.orders'",
            "Column 'wrod' not found in the upstream database",
            "did you mean word?",
        ),
        (
            "CREATE TABLE t (id INT PRIMARY KEY, word INT) FROM pg TABLE 'public.orders'",
            "Incompatible data type of column word",
            "CHARACTER VARYING",
        ),
        (
            "CREATE TABLE t (id INT, word VARCHAR PRIMARY KEY) FROM pg TABLE 'public.orders'",
            "Primary key mismatch",
            "PRIMARY KEY (id)",
        ),
        ("CREATE TABLE t (*) FROM pg TABLE 'public.keyless'", "has no primary key", "ADD PRIMARY KEY"),
        ("CREATE TABLE t (*) FROM pg TABLE 'orders'", "must contain schema name prefix", "'public.orders'"),
        ("CREATE TABLE t (*) FROM pg TABLE 'public.none'", "public.none does not exist", ""),
        ("CREATE TABLE t (*) FROM gone TABLE 'public.orders'", 'source "gone" does not exist', ""),
        (
            "CREATE TABLE t (id INT PRIMARY KEY DEFAULT 1) FROM pg TABLE 'public.orders'",
            "Default value for columns defined on the table created from a CDC source",
            "omit DEFAULT",
        ),
        (
            "CREATE TABLE t (*) WITH (snapshot = 'maybe') FROM pg TABLE 'public.orders'",
            "Invalid value for snapshot",
            "snapshot = 'false'",
        ),
        (
            "CREATE TABLE t (*) WITH (snapshots = 'false') FROM pg TABLE 'public.orders'",
            'unknown property "snapshots"',
            'did you mean "snapshot"?',
        ),
        ("CREATE TABLE t (*) INCLUDE header FROM pg TABLE 'public.orders'", "header", ""),
        ("CREATE TABLE t (*) ON CONFLICT DO NOTHING FROM pg TABLE 'public.orders'", "ON CONFLICT", "omit it"),
    ],
)
def test_what_is_wrong_is_reported(text: str, message: str, hint: str) -> None:
    error = refused(cdc_world(), text)
    assert message in error.message
    assert hint in (error.hint or "")


def test_what_the_server_lacks_is_said_with_the_statement_that_gives_it() -> None:
    world = cdc_world()
    lack = Lack(check="server", message="wal_level is replica", hint="ALTER SYSTEM SET wal_level = logical")
    world.lacks = (lack,)
    error = refused(world, TABLE)
    assert lack.message in error.message
    assert error.hint == lack.hint


def test_a_hint_of_the_connector_names_the_source() -> None:
    world = cdc_world()
    world.lacks = (Lack(check="slot", message="the slot is lost", hint="RESET SOURCE SPLITS SOURCE_NAME ALLOW GAPS"),)
    assert refused(world, TABLE).hint == "RESET SOURCE SPLITS pg ALLOW GAPS"


def test_splits_show_the_slot() -> None:
    world = cdc_world(TABLE)
    world.slot = SlotDetails(
        name="rw",
        acknowledged=0x4000,
        restart=0x3000,
        end=0x6000,
        status="reserved",
        retained_bytes=0x3000,
        lag_bytes=0x2000,
        safe_bytes=None,
        active_pid=7,
        cluster="7:1",
        incarnation="16384",
    )
    shown = world.plan("SHOW SOURCE SPLITS pg").table
    assert shown is not None
    (row,) = shown.rows
    found = dict(zip((name for name, _ in shown.columns), row, strict=True))
    assert (found["split"], found["status"], found["slot"], found["wal_status"]) == ("shop", "OK", "rw", "reserved")
    assert (found["position"], found["retained_bytes"], found["bytes_behind"]) == ("0/5000", 0x3000, 0x1000)


def test_a_source_takes_the_login_from_a_connection_of_type_postgres() -> None:
    world = tables_world()
    world.upstream_tables = {"public.orders": ORDERS}
    world.run(
        "CREATE CONNECTION db WITH (type = 'postgres', hostname = 'db', username = 'u', database.name = 'shop')",
        "CREATE SOURCE pg WITH (connector = 'postgres-cdc', connection = db, slot.name = 'rw')",
        TABLE,
    )
    assert table(world, "orders").name == "orders"
    error = refused(world, "CREATE SOURCE k (id INT) WITH (connector = 'kafka', connection = db, topic = 't') "
        "FORMAT PLAIN ENCODE JSON")  # fmt: skip
    assert error.message == "connection \"db\" is of type 'postgres', not 'kafka'"


def test_what_a_statement_leaves_out_is_no_difference() -> None:
    source_text = SOURCE.replace(", slot.name = 'rw', publication.name = 'rw'", "")
    table_text = "CREATE TABLE orders (*) INCLUDE timestamp FROM pg TABLE 'public.orders'"
    world = tables_world()
    world.upstream_tables = {"public.orders": ORDERS}
    world.run(source_text, table_text)
    for text in (source_text, table_text):
        again = world.plan(text.replace("CREATE ", "CREATE OR REPLACE "))
        assert [row.change for row in again.changes] == ["NOTHING"]
    other = table_text.replace("CREATE ", "CREATE OR REPLACE ").replace("public.orders", "public.lines")
    assert "FROM … TABLE cannot change" in refused(world, other).message
    assert "a table of source" in refused(world, "ALTER TABLE orders UNSAFE SET (port = '1')").message


def test_a_new_column_reads_the_table_again_and_a_dropped_one_does_not() -> None:
    world = cdc_world("CREATE TABLE orders (id INT PRIMARY KEY, word VARCHAR) FROM pg TABLE 'public.orders'")
    (before,) = ingest(world).tables
    world.run("ALTER TABLE orders ADD COLUMN amount NUMERIC(10, 2)")
    (after,) = ingest(world).tables
    assert after.columns == ("amount", "id", "word")
    assert after.repeats
    assert after.snapshot != before.snapshot
    assert source(world).definition == cdc_world().snapshot.find("source", "pg").definition  # type: ignore[union-attr]
    world.run("ALTER TABLE orders DROP COLUMN word")
    (left,) = ingest(world).tables
    assert (left.columns, left.snapshot) == (("amount", "id"), after.snapshot)
    # The same column again, with another type: its rows are read again, so that the log's old texts do not matter.
    world.run("ALTER TABLE orders ADD COLUMN word VARCHAR")
    assert ingest(world).tables[0].snapshot not in (before.snapshot, after.snapshot)
    assert "not found in the upstream database" in refused(world, "ALTER TABLE orders ADD COLUMN nothing INT").message
    before = ingest(world).tables[0]
    world.run("ALTER TABLE orders RENAME COLUMN word TO said")
    assert "said CHARACTER VARYING FROM word" in " ".join(table(world, "orders").definition.split())
    assert ingest(world).tables[0] == before
    world.lacks = (Lack(check="column", message="column twice is generated", hint="omit it"),)
    assert "column twice is generated" in refused(world, "ALTER TABLE orders ADD COLUMN twice NUMERIC").message


def test_a_new_column_is_added_though_another_is_gone_upstream() -> None:
    world = cdc_world("CREATE TABLE orders (id INT PRIMARY KEY, word VARCHAR) FROM pg TABLE 'public.orders'")
    world.upstream_tables = {
        "public.orders": replace(ORDERS, columns=tuple(each for each in ORDERS.columns if each.name != "word"))
    }
    world.run("ALTER TABLE orders ADD COLUMN amount NUMERIC(10, 2)")
    assert ingest(world).tables[0].columns == ("amount", "id", "word")
    assert "not found in the upstream database" in refused(world, "ALTER TABLE orders ADD COLUMN other INT").message


def test_a_snapshot_is_limited_by_its_table() -> None:
    limited = "CREATE TABLE orders (*) WITH (backfill_rate_limit = 100) FROM pg TABLE 'public.orders'"
    world = cdc_world(limited, "CREATE TABLE lines (*) FROM pg TABLE 'public.lines'")
    assert [spec.rate for spec in ingest(world).tables] == [None, 100]
    world.run("ALTER TABLE orders SET backfill_rate_limit = 0")
    assert [spec.rate for spec in ingest(world).tables] == [None, 0]
    world.run("ALTER TABLE orders SET backfill_rate_limit = DEFAULT")
    assert [spec.rate for spec in ingest(world).tables] == [None, None]
    assert "backfill_rate_limit" not in table(world, "orders").definition
    wrong = refused(world, limited.replace("100", "'many'").replace("orders (", "more ("))
    assert "takes a number of rows per second" in wrong.message


def test_a_move_shows_positions_as_the_server_writes_them_and_counts_transactions() -> None:
    world = cdc_world(TABLE)
    world.changes = ChangeCount(transactions=3, changes=40, first_end=0x4800)
    world.run("PAUSE SOURCE pg")
    assert "0/9000" in refused(world, "INJECT SOURCE OFFSETS pg VALUES ('shop' = '0/9000')").message
    plan = world.plan("INJECT SOURCE OFFSETS pg VALUES ('shop' = '0/4800')")
    assert plan.preview is not None
    (split,) = plan.preview.splits
    assert split.written is not None
    assert split.written[:2] == ("0/5000", "0/4800")
    assert [row.detail for row in plan.changes if row.change == "INJECTED"] == ["shop at 0/4800 (was 0/5000)"]


def test_skip_takes_the_position_before_a_transaction() -> None:
    world = cdc_world(TABLE)
    world.run("PAUSE SOURCE pg")
    wrong = refused(world, "SKIP RECORD AT 'shop' 7 ON SOURCE pg")
    assert "0/7" in wrong.message
    assert wrong.hint == "SKIP RECORD AT 'shop' 20480 ON SOURCE pg skips the next transaction"
    unknown = refused(world, "SKIP RECORD AT 'shop' 20480 ON SOURCE pg")
    assert "did not report its end" in unknown.message
    world.changes = ChangeCount(transactions=0, changes=0)
    assert refused(world, "SKIP RECORD AT 'shop' 20480 ON SOURCE pg").hint == "RESUME SOURCE pg"
    world.changes = ChangeCount(transactions=1, changes=3, first_end=0x5100)
    plan = world.run("SKIP RECORD AT 'shop' 20480 ON SOURCE pg")
    assert plan.preview is not None
    assert "shop: skips 1 transaction with 3 changes" in plan.preview.notices
    assert world.states("pg") == {"shop": 0x5100}


def test_what_another_slot_or_publication_means_is_said_before() -> None:
    world = cdc_world(TABLE)
    world.run("PAUSE SOURCE pg")

    def notices(option: str) -> str:
        plan = world.plan(f"ALTER SOURCE pg UNSAFE SET ({option})")
        assert plan.preview is not None
        return " ".join(plan.preview.notices)

    world.slot = None
    assert 'slot "other" does not exist there' in notices("slot.name = 'other'")
    world.slot = replace(SLOT, name="other")
    assert notices("slot.name = 'other'") == ""
    assert "always contained the tables" in notices("publication.name = 'other'")


def test_a_table_of_mysql() -> None:
    world = tables_world()
    flags = UpstreamColumn(
        name="ok", type="tinyint(1)", canonical="SMALLINT", accepts=("SMALLINT", "BOOLEAN").__contains__
    )
    world.upstream_tables = {"shop.orders": replace(ORDERS, table="shop.orders", columns=(*ORDERS.columns, flags))}
    world.run(
        "CREATE CONNECTION db WITH (type = 'mysql', hostname = 'db', username = 'u', database.name = 'shop')",
        "CREATE SOURCE my WITH (connector = 'mysql-cdc', connection = db)",
        "CREATE TABLE orders (id INT PRIMARY KEY, ok BOOLEAN) INCLUDE database_name FROM my TABLE 'shop.orders'",
    )
    found = world.snapshot.find("source", "my")
    assert isinstance(found, SourceRecord)
    assert int(dict(found.options)["server.id"]) >= 1 << 30
    assert refused(world, "CREATE TABLE t (*) FROM my TABLE 'orders'").message == (
        "The upstream table name must contain database name prefix, e.g. 'shop.table'"
    )
    assert refused(world, "CREATE TABLE t (id INT PRIMARY KEY, word BOOLEAN) FROM my TABLE 'shop.orders'").message == (
        "Incompatible data type of column word: upstream it is text, here BOOLEAN"
    )
    assert "schema_name" in refused(world, "CREATE TABLE t (*) INCLUDE schema_name FROM my TABLE 'shop.orders'").message
    paused = world.run("PAUSE SOURCE my")
    assert "the server removes its log after some time" in paused.changes[1].detail


@pytest.mark.parametrize(
    ("options", "advised"),
    [
        ("connector = 'postgres-cdc', hostname = 'db', table.name = 'orders'", "FROM g_source TABLE 'public.orders'"),
        ("connector = 'postgres-cdc', schema.name = 's', table.name = 'o'", "FROM g_source TABLE 's.o'"),
        ("connector = 'postgres-cdc', hostname = 'db'", "FROM g_source TABLE 'public.…'"),
        ("connector = 'mysql-cdc', database.name = 'd', table.name = 'd.orders'", "FROM g_source TABLE 'd.orders'"),
        ("connector = 'mysql-cdc', database.name = 'd', table.name = 'orders'", "FROM g_source TABLE 'd.orders'"),
    ],
)
def test_a_table_that_captures_a_database_itself_must_read_a_source(options: str, advised: str) -> None:
    error = refused(cdc_world(), f"CREATE TABLE g (id INT PRIMARY KEY) WITH ({options})")
    assert "through a source" in error.message
    assert advised in (error.hint or "")


@pytest.mark.parametrize("in_block", [False, True])
def test_a_paused_source_that_moves_to_another_database_reads_it_as_new(*, in_block: bool) -> None:
    """Only if the source's snapshot has the epoch of its position, a slot may be created there."""
    world = cdc_world(TABLE)
    move = (
        "PAUSE SOURCE pg",
        "ALTER SOURCE pg UNSAFE SET (database.name = 'other', slot.name = 'rw2')",
        "RESET SOURCE SPLITS pg",
        "RESUME SOURCE pg",
    )
    world.run("ALTER SYSTEM SET enable_unsafe_ops = true")
    for texts in (move,) if in_block else zip(move, strict=True):
        commit(world, *texts) if in_block else world.run(*texts)
        states = world.snapshot.states(ingest_fragment(source(world).id))
        fresh = {split: state.epoch for split, state in states.items() if "other" in split}
        if fresh:
            assert set(fresh.values()) == {source(world).snapshot}
    assert fresh


@pytest.mark.parametrize(
    ("source_text", "first", "second"),
    [
        (SOURCE, "public.orders", 'public."orders"'),
        (SOURCE, 'public."orders"', '"public".orders'),
        (SOURCE.replace("postgres-cdc", "mysql-cdc").partition(", slot")[0] + ")", "shop.`orders`", "shop.orders"),
    ],
)
def test_two_tables_of_one_upstream_table_have_one_spelling_of_its_name(
    source_text: str, first: str, second: str
) -> None:
    world = tables_world()
    world.upstream_tables = {name: replace(ORDERS, table=name) for name in (first, second)}
    tables = (f"CREATE TABLE {name} (*) FROM pg TABLE '{given}'" for name, given in (("a", first), ("b", second)))
    world.run(source_text, *tables)
    (orders,) = ingest(world).tables
    assert (orders.upstream, orders.tables) == (first, (table(world, "a").id, table(world, "b").id))
    again = world.plan(f"CREATE OR REPLACE TABLE b (*) FROM pg TABLE '{second}'")
    assert [row.change for row in again.changes] == ["NOTHING"]


def test_only_a_table_without_a_snapshot_says_so_to_its_job() -> None:
    world = cdc_world(TABLE, TABLE.replace("orders (*)", "later (*) WITH (snapshot = 'FALSE')"))
    specs = [spec for spec in desired_jobs(world.snapshot).values() if isinstance(spec, ViewSpec)]
    found = {spec.name: "snapshot" in spec.inputs[0].decoded_by for spec in specs}
    assert found == {"orders": False, "later": True}

"""An operator moves a captured PostgreSQL source by statements while programs write to the database."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING

import pytest

from rw_sql.errors import SqlError
from rw_sql.runtime.support.secrets import KEY_VARIABLE
from tests.integration.attached import wait_until
from tests.integration.captured_database import Database
from tests.integration.captured_moves import SPLIT, CapturedShop, named_in, predicted
from tests.support.postgres import running_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.attached import AttachedSession
    from tests.support.postgres import PostgresInfo

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.postgres]


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, base64.b64encode(os.urandom(32)).decode())


@pytest.fixture
def shop(session: AttachedSession, postgres: PostgresInfo) -> Iterator[CapturedShop]:
    database = Database(session, postgres)
    made = CapturedShop(database)
    yield made
    made.close()
    session.detach()
    database.drop()


def refused(shop: CapturedShop, statement: str) -> SqlError:
    """The error of a statement, which changes nothing."""
    epoch = shop.session.epoch()
    with pytest.raises(SqlError) as caught:
        shop.session.sql(statement)
    assert shop.session.epoch() == epoch
    return caught.value


def free_slot(shop: CapturedShop) -> None:
    wait_until(lambda: all(pid is None for _, pid in shop.database.slots()), "the reader to leave the slot")


def wait_for_point(shop: CapturedShop, operation: int) -> None:
    query = f"SELECT 1 FROM rw_catalog.rw_rewind_points WHERE operation = {operation}"
    wait_until(lambda: bool(shop.session.sql(query)), "the rewind point")


def copied_slot(shop: CapturedShop) -> str:
    """A copy of the source's slot, for which the source must be paused."""
    name = f"copy_{len(shop.database.slots())}_{shop.database.schema}"
    (slot,) = {option for option in shop.create_sql().splitlines() if "slot.name" in option}
    free_slot(shop)
    shop.database.run(f"SELECT pg_copy_logical_replication_slot('{slot.split(chr(39))[1]}', '{name}')")
    return name


def test_each_move_forward_skips_the_transactions_that_its_preview_names(shop: CapturedShop) -> None:
    session, writer = shop.session, shop.writer
    assert "PAUSE SOURCE pg" in str(refused(shop, "INJECT SOURCE OFFSETS pg TO LATEST").hint)

    def move(target: str) -> None:
        """One INJECT while the source is paused, which skips what its preview says."""
        before = shop.arrived()
        said = shop.move(f"INJECT SOURCE OFFSETS pg {target}")
        assert said.transactions > 0
        assert shop.position() > 0
        shop.resume()
        shop.require_arrived(before, said)
        shop.require_as_predicted(said)

    def unread() -> int:
        """The number of the third unread transaction."""
        shop.pause()
        return max(shop.arrived(), default=0) + 3

    writer.wait_for(10)
    session.run("FLUSH")
    at = writer.written[unread()].after
    move(f"VALUES ('{SPLIT}' = '{at >> 32:X}/{at & 0xFFFFFFFF:X}')")
    # A position inside a transaction skips only the transactions before.
    move(f"TO OFFSET {writer.written[unread()].inside}")
    at_time = writer.written[unread()].at
    move(f"TO TIMESTAMP '{at_time}'")
    shop.pause()
    move("TO LATEST")
    shop.pause()
    move(f"VALUES ('{SPLIT}' = NULL)")
    # SKIP names the position, and the message names the statement that has the right one.
    shop.pause()
    hint = refused(shop, f"SKIP RECORD AT '{SPLIT}' 7 ON SOURCE pg").hint
    before = shop.arrived()
    said = shop.move(named_in(hint, "SKIP RECORD AT"))
    assert said.transactions == 1
    shop.resume()
    shop.require_arrived(before, said)
    shop.require_as_predicted(said)
    assert shop.create_sql() == shop.definition
    shop.require_continuity()
    assert session.job("orders").restarts == session.job("changes").restarts == 0
    # The tables lack what was skipped, until they are read again.
    shop.read_tables_again("RESET SOURCE SPLITS pg ALLOW GAPS WITH (FORGET_OFFSETS = true)")
    shop.require_equal()
    shop.require_continuity()


def test_several_moves_during_one_pause_are_previewed_together(shop: CapturedShop) -> None:
    writer = shop.writer
    writer.wait_for(10)
    shop.session.run("FLUSH")
    shop.pause(9)
    before = shop.arrived()
    last = max(before)
    first = shop.move(f"SKIP RECORD AT '{SPLIT}' {shop.position()} ON SOURCE pg")
    second = shop.move(f"SKIP RECORD AT '{SPLIT}' {shop.position()} ON SOURCE pg")
    forward = shop.move(f"INJECT SOURCE OFFSETS pg TO OFFSET {writer.written[last + 7].after}")
    back = shop.move(f"INJECT SOURCE OFFSETS pg TO OFFSET {writer.written[last + 4].after}")
    assert [said.transactions for said in (first, second, forward, back)] == [1, 2, 7, 4]
    again = shop.move("INJECT SOURCE OFFSETS pg TO EARLIEST")
    assert (again.verb, again.gap) == ("", 0)
    said = shop.move(f"INJECT SOURCE OFFSETS pg TO OFFSET {writer.written[last + 4].after}")
    shop.resume()
    shop.require_arrived(before, said)
    shop.require_as_predicted(said)
    shop.require_continuity()
    shop.read_tables_again("RESET SOURCE SPLITS pg ALLOW GAPS WITH (FORGET_OFFSETS = true)")
    shop.require_equal()


def test_a_transaction_that_ends_after_the_position_is_read_as_a_whole(shop: CapturedShop) -> None:
    import psycopg

    from tests.support.postgres import PASSWORD

    shop.writer.wait_for(5)
    with psycopg.connect(
        host="127.0.0.1", port=shop.database.postgres.port, dbname="postgres", user="postgres", password=PASSWORD
    ) as connection:
        connection.execute(f"INSERT INTO {shop.database.schema}.steps VALUES (1000001, 'long')".encode())
        shop.session.run("FLUSH")
        shop.pause()
        before = shop.arrived()
        said = shop.move("INJECT SOURCE OFFSETS pg TO LATEST")
        connection.execute(f"INSERT INTO {shop.database.schema}.steps VALUES (1000002, 'long')".encode())
    shop.resume()
    shop.require_as_predicted(said)
    now = shop.arrived()
    assert (now.pop(1000001), now.pop(1000002)) == (1, 1)
    missing = set(range(1, max(now) + 1)) - set(now)
    assert len(missing) == said.transactions
    assert not before - now


def test_a_move_that_the_slot_cannot_make_is_refused_with_the_next_statement(shop: CapturedShop) -> None:
    session = shop.session
    shop.writer.wait_for(10)
    session.run("FLUSH")
    shop.wait_for_acknowledgement()
    shop.pause()
    at = shop.position()
    early = refused(shop, f"INJECT SOURCE OFFSETS pg VALUES ('{SPLIT}' = '0/1')")
    assert (early.code, "before the start" in early.message) == ("RW211", True)
    late = refused(shop, f"INJECT SOURCE OFFSETS pg TO OFFSET {at + (1 << 40)}")
    assert (late.code, "beyond the end" in late.message) == ("RW211", True)
    for target in (f"TO TIMESTAMP '{shop.writer.written[1].at}'", "BACK BY INTERVAL '1 hour'"):
        past = refused(shop, f"INJECT SOURCE OFFSETS pg {target}")
        assert past.code == "RW211"
        assert named_in(past.hint, "RESET SOURCE SPLITS").endswith("ALLOW GAPS WITH (FORGET_OFFSETS = true)")
        assert "TO EARLIEST" in str(past.hint)
    assert [row.change for row in session.sql("RESET SOURCE SPLITS pg")] == ["KEPT", "NOTHING"]
    clamped = shop.move(f"INJECT SOURCE OFFSETS pg VALUES ('{SPLIT}' = '0/1') ALLOW CLAMP")
    assert "clamped" in clamped.text
    # In advance, only what ALLOW names is confirmed.
    session.attached.ask = None
    for statement in ("INJECT SOURCE OFFSETS pg TO LATEST", "RESET SOURCE SPLITS pg WITH (FORGET_OFFSETS = true)"):
        session.run("SET unsafe_confirmation = 'yes'")
        needs = refused(shop, statement)
        assert "needs ALLOW GAPS" in str(needs.hint), needs
    assert shop.position() <= at
    before = shop.arrived()
    session.run("SET unsafe_confirmation = 'yes'", named_in(early.hint, "RESET SOURCE SPLITS"))
    session.run("RESUME SOURCE pg", "FLUSH")
    shop.skipped = set(range(1, max(shop.arrived()) + 1)) - set(shop.arrived())
    assert not before - shop.arrived()
    shop.require_equal()
    shop.require_continuity()


MOVES = (
    "SKIP RECORD AT '{split}' {at} ON SOURCE pg",
    "INJECT SOURCE OFFSETS pg TO LATEST",
    "INJECT SOURCE OFFSETS pg TO EARLIEST",
    "RESET SOURCE SPLITS pg WITH (FORGET_OFFSETS = true)",
    "ALTER SOURCE pg UNSAFE SET (slot.name = '{copy}')",
    "ALTER SOURCE pg UNSAFE SET (slot.name = 'none_{schema}')",
    "ALTER SOURCE pg UNSAFE SET (publication.name = 'none_{schema}')",
    "ALTER SOURCE pg UNSAFE SET (port = '1') WITH (VALIDATE = false)",
    "ALTER SOURCE pg UNSAFE SET (auto.schema.change = 'true')",
)


def test_a_move_that_is_undone_before_the_source_continues_has_no_effect(shop: CapturedShop) -> None:
    shop.writer.wait_for(10)
    shop.session.run("FLUSH")
    for text in MOVES:
        before = shop.arrived()
        shop.pause(3)
        copy = copied_slot(shop) if "{copy}" in text else ""
        at = shop.position()
        shop.session.run(text.format(split=SPLIT, at=at, copy=copy, schema=shop.database.schema))
        epoch = shop.newest_operation()
        shop.session.questions.clear()
        undone = shop.session.sql(f"UNDO OPERATION {epoch}")
        assert shop.position() == at, (text, undone)
        assert shop.create_sql() == shop.definition
        shop.resume()
        shop.require_arrived(before)
        wait_until(lambda: shop.session.job("pg").state == "RUNNING", "the reader to run")
    shop.require_equal()
    shop.require_continuity()


def test_a_move_whose_changes_were_acknowledged_names_what_reads_the_tables_again(shop: CapturedShop) -> None:
    session = shop.session
    shop.writer.wait_for(10)
    session.run("FLUSH")
    shop.pause()
    before = shop.arrived()
    said = shop.move("INJECT SOURCE OFFSETS pg TO LATEST")
    shop.resume()
    shop.require_arrived(before, said)
    shop.writer.wait_for(5)
    session.run("FLUSH")
    shop.wait_for_acknowledgement()
    epoch = shop.newest_operation()
    for statement in (f"UNDO OPERATION {epoch}", f"REWIND SOURCE pg TO OPERATION {epoch}"):
        wait_for_point(shop, epoch)
        error = refused(shop, statement)
        assert error.code in ("RW330", "RW334"), error
        again = named_in(error.hint, "RESET SOURCE SPLITS")
    shop.read_tables_again(again)
    shop.require_equal()
    shop.require_continuity()


def test_a_move_to_a_copy_of_the_slot_is_undone_or_rewound_to_the_first_slot(shop: CapturedShop) -> None:
    session = shop.session
    shop.writer.wait_for(10)
    session.run("FLUSH")
    for verb in ("UNDO OPERATION {}", "REWIND SOURCE pg TO OPERATION {}"):
        shop.pause()
        before, rows = shop.arrived(), len(session.rows_of("pg", "op"))
        copy = copied_slot(shop)
        session.questions.clear()
        session.run(f"ALTER SOURCE pg UNSAFE SET (slot.name = '{copy}')")
        left = "run on that server: SELECT pg_drop_replication_slot('{}')"
        assert left.format(shop.database.slot) in session.questions[-1].preview
        epoch = shop.newest_operation()
        shop.resume()
        shop.require_arrived(before)
        wait_for_point(shop, epoch)
        shop.pause(3)
        rows = len(session.rows_of("pg", "op")) - rows
        session.questions.clear()
        session.run(verb.format(epoch))
        said = predicted(session.questions[-1].preview)
        assert shop.create_sql() == shop.definition
        assert (said.gap, said.repeated) == (0, 0), said.text
        assert left.format(copy) in said.text
        shop.resume()
        shop.require_arrived(before)
        if verb.startswith("REWIND"):
            assert f"the log of pg: {rows} rows are removed" in said.text, said.text
            assert shop.continuity(epoch).status == "TAKEN BACK"
    shop.require_equal()
    shop.require_continuity()


def test_a_slot_that_was_dropped_names_the_statements_that_read_the_tables_again(shop: CapturedShop) -> None:
    session = shop.session
    shop.writer.wait_for(10)
    session.run("FLUSH")
    shop.pause()
    at, copy = shop.position(), copied_slot(shop)
    session.run(f"ALTER SOURCE pg UNSAFE SET (slot.name = '{copy}')")
    epoch = shop.newest_operation()
    shop.resume()
    wait_for_point(shop, epoch)
    shop.database.run(f"SELECT pg_drop_replication_slot('{shop.database.slot}')")
    for statement in (f"REWIND SOURCE pg TO OPERATION {epoch}", f"UNDO OPERATION {epoch}"):
        error = refused(shop, statement)
        assert f'slot "{shop.database.slot}" does not exist' in error.message
    statements, _, _ = str(error.hint).partition(": ")
    session.run(*statements.split("; "))
    assert shop.create_sql() == shop.definition
    last = shop.writer.wait_for(1)
    wait_until(lambda: (last,) in session.rows_of("steps", "number"), "the rows that are read again")
    shop.pause()
    free_slot(shop)
    shop.database.run(f"SELECT pg_drop_replication_slot('{shop.database.slot}')")
    for statement in (
        "INJECT SOURCE OFFSETS pg TO EARLIEST",
        f"INJECT SOURCE OFFSETS pg TO OFFSET {at}",
        f"SKIP RECORD AT '{SPLIT}' {shop.position()} ON SOURCE pg",
    ):
        error = refused(shop, statement)
        assert error.code == "RW211"
    session.run(named_in(error.hint, "RESET SOURCE SPLITS"), "RESUME SOURCE pg")
    shop.require_equal()


def test_a_block_on_a_running_source_skips_what_its_one_preview_names(shop: CapturedShop) -> None:
    session = shop.session
    shop.writer.wait_for(10)
    session.run("FLUSH")
    before, epoch = shop.arrived(), session.epoch()
    session.questions.clear()
    session.run("BEGIN UNSAFE REASON 'too late'", "PAUSE SOURCE pg", "INJECT SOURCE OFFSETS pg TO LATEST ALLOW GAPS")
    assert session.sql("SHOW SOURCES")[0].state == "PAUSED"
    shop.writer.wait_for(5)
    session.run("RESUME SOURCE pg", "COMMIT")
    (question,) = session.questions
    assert session.epoch() == epoch + 1
    said = predicted(question.preview)
    shop.writer.wait_for(5)
    session.run("FLUSH")
    shop.require_arrived(before, said)
    shop.require_as_predicted(said)
    # The next record is not known while the source runs; the message says what to type.
    session.run("BEGIN UNSAFE", "PAUSE SOURCE pg")
    hint = refused(shop, f"SKIP RECORD AT '{SPLIT}' 7 ON SOURCE pg").hint
    assert "SKIP RECORD AT" in str(hint)
    session.run("ROLLBACK")
    # A block on a paused source: to a copy of the slot, behind the next transaction.
    shop.pause()
    before = shop.arrived()
    copy = copied_slot(shop)
    session.questions.clear()
    session.run(
        "BEGIN UNSAFE",
        f"ALTER SOURCE pg UNSAFE SET (slot.name = '{copy}')",
        f"SKIP RECORD AT '{SPLIT}' {shop.position()} ON SOURCE pg",
        "RESUME SOURCE pg",
    )
    assert copy in shop.create_sql()
    session.run("COMMIT")
    (question,) = session.questions
    said = predicted(question.preview)
    assert (said.verb, said.transactions) == ("skips", 1), said.text
    assert copy in shop.create_sql()
    shop.writer.wait_for(5)
    session.run("FLUSH")
    shop.require_arrived(before, said)
    shop.require_as_predicted(said)
    # The first slot still has the skipped transaction, and those that were read from the other slot.
    epoch = shop.newest_operation()
    shop.writer.close()
    session.run("FLUSH")
    came = shop.arrived() - before
    said = shop.move(f"UNDO OPERATION {epoch}")
    assert (said.verb, said.transactions) == ("repeats", len(came)), (said.text, came)
    assert said.changes == sum(shop.writer.written[number].changes for number in came)
    assert session.sql("SHOW SOURCES")[0].state == "PAUSED"
    assert shop.create_sql() == shop.definition
    session.run("RESUME SOURCE pg", "FLUSH")
    now = shop.arrived()
    assert set(range(max(before) + 1, max(now) + 1)) <= set(now)
    assert {number for number, times in now.items() if times > 1} == set(came)
    shop.require_as_predicted(said)
    shop.require_continuity()
    shop.read_tables_again("RESET SOURCE SPLITS pg ALLOW GAPS WITH (FORGET_OFFSETS = true)")
    shop.require_equal()


def test_a_source_that_stalls_after_a_move_names_the_way_on_and_loses_nothing_when_it_is_undone(
    shop: CapturedShop,
) -> None:
    session, schema = shop.session, shop.database.schema
    shop.database.run(f"CREATE PUBLICATION other_{schema} FOR TABLE {schema}.orders, {schema}.steps")
    shop.writer.wait_for(10)
    session.run("FLUSH")
    try:
        with running_server(wal_level="logical") as other:
            for option, why in (
                (f"slot.name = 'none_{schema}'", "does not exist"),
                (f"publication.name = 'other_{schema}'", "publication"),
                (f"port = '{other.info.port}'", "another server"),
            ):
                before = shop.arrived()
                session.questions.clear()
                session.run(f"ALTER SOURCE pg UNSAFE SET ({option})")
                said = session.questions[-1].preview
                assert "so the source stalls" in said, said
                wait_until(lambda: session.job("pg").state == "STALLED", f"the source to be stalled: {option}")
                reason = session.job("pg").reason
                assert why in reason, reason
                again = named_in(reason, "RESET SOURCE SPLITS pg")
                assert again.endswith("pg" if option.startswith("port") else "(FORGET_OFFSETS = true)"), reason
                assert not other.run("SELECT slot_name FROM pg_replication_slots")
                shop.writer.wait_for(3)
                session.run(f"UNDO OPERATION {shop.newest_operation()}")
                assert shop.create_sql() == shop.definition
                wait_until(lambda: session.job("pg").state == "RUNNING", "the source to run again")
                session.run("FLUSH")
                shop.require_arrived(before)
                shop.require_acknowledged_at_most_committed()
        # A server that does not answer is not moved to, unless the operator says so.
        gone = refused(shop, f"ALTER SOURCE pg UNSAFE SET (port = '{other.info.port}')")
        assert gone.code == "RW401"
        assert "VALIDATE = false" in str(gone.hint)
        shop.require_equal()
        shop.require_continuity()
    finally:
        shop.database.run(f"DROP PUBLICATION other_{schema}")


def test_a_block_moves_to_another_server_and_is_undone(shop: CapturedShop) -> None:
    session, schema = shop.session, shop.database.schema
    with running_server(wal_level="logical") as other:
        for statement in (
            f"CREATE SCHEMA {schema}",
            f"CREATE TABLE {schema}.orders (id INT PRIMARY KEY, customer TEXT, amount INT)",
            f"CREATE TABLE {schema}.steps (number BIGINT PRIMARY KEY, word TEXT)",
            f"INSERT INTO {schema}.orders SELECT g, 'other', 1 FROM generate_series(100, 120) g",
        ):
            other.run(statement)
        shop.writer.wait_for(10)
        session.run("FLUSH")
        session.questions.clear()
        session.run(
            "BEGIN UNSAFE REASON 'the database has moved'",
            "PAUSE SOURCE pg",
            f"ALTER SOURCE pg UNSAFE SET (port = '{other.info.port}')",
            "RESET SOURCE SPLITS pg ALLOW GAPS WITH (FORGET_OFFSETS = true)",
            "RESUME SOURCE pg",
            "COMMIT",
        )
        (question,) = session.questions
        assert "UNKNOWN (other cluster)" in question.preview
        assert "is read again" in question.preview
        moved = shop.newest_operation()
        other.run(f"INSERT INTO {schema}.orders VALUES (1000, 'streamed', 1)")
        wait_until(
            lambda: session.rows_of("orders") == sorted(other.run(f"SELECT * FROM {schema}.orders")),
            "the table to equal the other server's",
        )
        assert f"port = {other.info.port}" in shop.create_sql().replace("'", "")
        # The first server's slot kept everything.
        session.questions.clear()
        session.run(f"UNDO OPERATION {moved}")
        assert "is read again" in session.questions[-1].preview
        assert shop.create_sql() == shop.definition
        shop.require_equal()
        shop.require_continuity()
        numbers = shop.arrived()
        assert set(range(1, max(numbers) + 1)) == set(numbers)
        session.detach()

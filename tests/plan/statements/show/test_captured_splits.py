"""SHOW SOURCE SPLITS of a captured database: the state of a slot or log on a real server, and the statement to type."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.connectors.changes import CaptureError
from rw_sql.connectors.registry import change_connector
from rw_sql.errors import OFFSET_OUT_OF_RANGE, PACKAGE_MISSING, UPSTREAM_MISSING, UPSTREAM_UNREACHABLE
from rw_sql.plan.ports.positions import CommittedRanges
from rw_sql.runtime.control.upstreams import Upstreams
from tests.plan.canned import CannedWorld
from tests.plan.canned_inspector import CannedInspector, CannedPositions
from tests.plan.statements.move.test_undo import undo
from tests.plan.statements.table.test_cdc_tables import TABLE, cdc_world
from tests.plan.tables import tables_world
from tests.support import mysql, mysql_changes, postgres_changes
from tests.support.postgres import running_server
from tests.support.waits import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rw_sql.plan.ports.positions import Positions
    from tests.support.mysql import MysqlInfo, MysqlServer
    from tests.support.postgres import PostgresInfo, PostgresServer

AGAIN = "RESET SOURCE SPLITS src ALLOW GAPS WITH (FORGET_OFFSETS = true) reads every table again"


@dataclass
class Captured:
    """A catalog with a source ``src`` over a table ``t`` of a real server, and the source's options."""

    world: CannedWorld
    options: dict[str, str]
    split: str

    def row(self) -> dict[str, Any]:
        """The only row of SHOW SOURCE SPLITS."""
        shown = self.world.plan("SHOW SOURCE SPLITS src").table
        assert shown is not None
        (row,) = shown.rows
        return dict(zip((name for name, _ in shown.columns), row, strict=True))

    def told(self) -> tuple[str, str | None]:
        """The status and the reason."""
        row = self.row()
        return row["status"], row["reason"]

    def read_to(self, offset: int) -> None:
        """Makes the source's reader commit this position."""
        self.world.read_on("src")
        self.world.moved[self.split] = offset
        self.world.read.add(self.split)

    def end(self, connector: str) -> int:
        """The end of the server's log."""
        return change_connector(connector).look(self.options).splits[self.split].end  # type: ignore[attr-defined,no-any-return]


def captured(
    monkeypatch: pytest.MonkeyPatch, connector: str, options: dict[str, str], table: str, split: str
) -> Captured:
    upstreams = Upstreams(lambda _, __=(): dict(options), {}, lambda _: False)

    def fresh(_: CannedInspector) -> Upstreams:
        upstreams._looks.clear()
        return upstreams

    monkeypatch.setattr(CannedInspector, "upstreams", property(fresh))
    world = tables_world()
    given = ", ".join(f"{key} = '{value}'" for key, value in options.items() if key != "password")
    world.run(f"CREATE SOURCE src WITH (connector = '{connector}', {given})")
    world.run(f"CREATE TABLE t (*) FROM src TABLE '{table}'")
    return Captured(world, options, split)


@contextmanager
def postgres_source(monkeypatch: pytest.MonkeyPatch, postgres: PostgresInfo) -> Iterator[Captured]:
    name = f"public.t_{uuid.uuid4().hex[:8]}"
    postgres.run(f"CREATE TABLE {name} (id INT PRIMARY KEY)")
    replica = postgres_changes.Replica(postgres_changes.cdc_options(postgres), [name])
    found = captured(monkeypatch, "postgres-cdc", replica.options, name, "postgres")
    replica.catch_up(postgres)
    replica.close()
    wait_until(lambda: slot_of(found).active_pid is None, "the reader to leave the slot")
    found.read_to(replica.state.offset)
    yield found
    replica.drop()


def slot_of(found: Captured) -> Any:
    return change_connector("postgres-cdc").slot_details(found.options)


@pytest.mark.postgres
def test_a_slot_that_is_missing_moved_or_of_another_program(
    monkeypatch: pytest.MonkeyPatch, postgres: PostgresInfo
) -> None:
    with postgres_source(monkeypatch, postgres) as found:
        slot = found.options["slot.name"]
        assert found.told() == ("OK", None)
        postgres.run(f"SELECT pg_drop_replication_slot('{slot}')")
        row = found.row()
        assert (row["status"], row["slot"]) == ("UNREADABLE", None)
        assert row["reason"] == f'replication slot "{slot}" does not exist: {AGAIN}'
        # A slot that somebody creates again begins after the position.
        postgres.run("SELECT txid_current()")
        postgres.run(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
        status, reason = found.told()
        assert status == "EXPIRED"
        assert "it was dropped and created again; the changes between the two are missing" in str(reason)
        assert str(reason).endswith(AGAIN)
        postgres.run(f"SELECT pg_drop_replication_slot('{slot}')")
        postgres.run(f"SELECT pg_create_physical_replication_slot('{slot}')")
        status, reason = found.told()
        assert status == "UNREADABLE"
        assert str(reason).startswith(f'replication slot "{slot}" is a physical slot, not of pgoutput: give another')


@pytest.mark.postgres
def test_a_source_that_has_read_nothing_needs_no_slot(monkeypatch: pytest.MonkeyPatch, postgres: PostgresInfo) -> None:
    with postgres_source(monkeypatch, postgres) as found:
        postgres.run(f"SELECT pg_drop_replication_slot('{found.options['slot.name']}')")
        assert found.told()[0] == "UNREADABLE"
        # A RESET makes the next run create the slot; an UNDO of it does not.
        forget = "RESET SOURCE SPLITS src ALLOW GAPS WITH (FORGET_OFFSETS = true)"
        found.world.run("ALTER SYSTEM SET enable_unsafe_ops = true", "PAUSE SOURCE src", forget)
        assert found.told() == ("OK", None)
        found.world.run(undo(found.world))
        assert found.told()[0] == "UNREADABLE"


@pytest.mark.postgres
def test_a_slot_whose_log_the_server_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        running_server(
            wal_level="logical", max_slot_wal_keep_size="1MB", min_wal_size="32MB", max_wal_size="32MB"
        ) as server,
        postgres_source(monkeypatch, server.info) as found,
    ):
        wait_until(lambda: is_lost(server, found), "the slot is lost")
        # Also if the source had read the whole log.
        for offset in (found.world.moved[found.split], found.end("postgres-cdc")):
            found.read_to(offset)
            row = found.row()
            assert row["status"] in ("EXPIRED", "UNREADABLE")
            assert row["wal_status"] == "lost"
            assert "is lost" in row["reason"]
            assert AGAIN in row["reason"]


def is_lost(server: PostgresServer, found: Captured) -> bool:
    for statement in (
        "SELECT pg_logical_emit_message(false, 'x', repeat('x', 4000000))",
        "SELECT pg_switch_wal()",
        "CHECKPOINT",
    ):
        server.info.run(statement)
    return bool(slot_of(found).status == "lost")


@pytest.mark.postgres
def test_a_server_that_does_not_respond(monkeypatch: pytest.MonkeyPatch) -> None:
    with running_server(wal_level="logical") as server:
        with postgres_source(monkeypatch, server.info) as found:
            server.stop()
            status, reason = found.told()
            server.start()
        assert status == "UNKNOWN"
        assert str(server.info.port) in str(reason)


@contextmanager
def mysql_source(monkeypatch: pytest.MonkeyPatch, info: MysqlInfo, *, is_read: bool = True) -> Iterator[Captured]:
    info.run("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)", "INSERT INTO shop.t VALUES (1)")
    options = mysql_changes.cdc_options(info, "shop")
    found = captured(monkeypatch, "mysql-cdc", options, "shop.t", "shop")
    info.run("INSERT INTO shop.t VALUES (2)")
    if is_read:
        found.read_to(found.end("mysql-cdc"))
    yield found


@pytest.mark.mysql
def test_a_binary_log_that_was_purged_reset_or_is_of_another_server(monkeypatch: pytest.MonkeyPatch) -> None:
    with mysql.running_server() as server, mysql_source(monkeypatch, server.info) as found:
        assert found.told() == ("OK", None)
        server.info.run("FLUSH LOGS", "INSERT INTO shop.t VALUES (3)", "FLUSH LOGS")
        last = server.info.run("SHOW BINARY LOGS")[-1][0]

        def is_purged() -> bool:
            # A file stays while the server still sends it to a search that has ended.
            server.info.run(f"PURGE BINARY LOGS TO '{last}'")
            return bool(server.info.run("SHOW BINARY LOGS")[0][0] == last)

        wait_until(is_purged, "the log is purged")
        status, reason = found.told()
        assert status == "EXPIRED"
        assert str(reason).startswith(f"the server has purged its log up to {last}, and the position is ")
        assert AGAIN in str(reason)
        assert "binlog_expire_logs_seconds" in str(reason)
        found.read_to(found.end("mysql-cdc"))
        assert found.told() == ("OK", None)
        server.info.run("RESET MASTER")
        status, reason = found.told()
        assert status == "AHEAD"
        assert "it was reset, or the server was restored from a backup" in str(reason)
        with other_server() as other:
            found.options["port"] = str(other.info.port)
            status, reason = found.told()
        assert status == "OTHER_CLUSTER"
        assert "the server has server_id 8, but the position belongs to a server with server_id 7" in str(reason)


@contextmanager
def other_server() -> Iterator[MysqlServer]:
    with mysql.running_server(server_id="8") as server:
        server.info.run("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
        yield server


def read(found: Captured, end: int) -> None:
    """The reader commits everything up to ``end``."""
    world = found.world
    state = world.full_states("src")[found.split]
    ranges = {found.split: (state.offset, end)}
    lives = {found.split: (state.cluster, state.incarnation)}
    world.commits.append(CommittedRanges(epoch=world.snapshot.epoch, ranges=ranges, lives=lives))
    world.read_on("src", **{found.split: end})


def proof(found: Captured) -> dict[str, Any]:
    """The row of SHOW SOURCE CONTINUITY for the last move."""
    table = found.world.plan("SHOW SOURCE CONTINUITY src").table
    assert table is not None
    rows = [dict(zip((name for name, _ in table.columns), row, strict=True)) for row in table.rows]
    (between,) = [row for row in rows if row["operation"] is None]
    assert (between["duplicates"], between["gaps"], between["status"]) == (0, 0, "UNBROKEN")
    return [row for row in rows if row["operation"] is not None][-1]


@pytest.mark.mysql
def test_a_move_in_a_log_of_files_is_predicted_and_proved_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The positions of MySQL differ by far more than the bytes between them, in particular between two files."""
    with mysql.running_server() as server, mysql_source(monkeypatch, server.info, is_read=False) as found:
        world = found.world
        world.run("ALTER SYSTEM SET enable_unsafe_ops = true")
        read(found, middle := found.end("mysql-cdc"))
        server.info.run("INSERT INTO shop.t VALUES (3)", "FLUSH LOGS", "INSERT INTO shop.t VALUES (4)")
        read(found, found.end("mysql-cdc"))
        world.run("PAUSE SOURCE src")
        for target, word, column in (
            (f"TO OFFSET {middle}", "DUPLICATES", "duplicates"),
            ("TO LATEST", "GAP", "gaps"),
        ):
            plan = world.run(f"INJECT SOURCE OFFSETS src {target} ALLOW GAPS, DUPLICATES")
            assert plan.preview is not None
            (split,) = plan.preview.splits
            said = max(split.sizes or ())
            assert f"{word} at most {said} (bytes" in split.verdict
            assert 0 < said < 10_000
            assert proof(found)["status"] == "PENDING"
            world.run("RESUME SOURCE src")
            server.info.run("INSERT INTO shop.t SELECT MAX(id) + 1 FROM shop.t")
            read(found, found.end("mysql-cdc"))
            row = proof(found)
            assert (row["predicted"], row["status"]) == (split.verdict, "AS PREDICTED")
            assert (row[column], row["duplicates"] + row["gaps"]) == (said, said)
            server.info.run("FLUSH LOGS", "INSERT INTO shop.t SELECT MAX(id) + 1 FROM shop.t")
            world.run("PAUSE SOURCE src")
        # What was proved stays proved when the server has removed the files.
        server.info.run("RESET MASTER")
        assert (proof(found)["gaps"], proof(found)["status"]) == (said, "AS PREDICTED")


@pytest.mark.mysql
def test_an_effect_that_was_not_predicted_is_shown_in_bytes_while_the_server_has_the_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with mysql.running_server() as server, mysql_source(monkeypatch, server.info, is_read=False) as found:
        world = found.world
        world.run("ALTER SYSTEM SET enable_unsafe_ops = true")
        read(found, before := found.end("mysql-cdc"))
        server.info.run("INSERT INTO shop.t VALUES (3)", "FLUSH LOGS", "INSERT INTO shop.t VALUES (4)")
        world.run("PAUSE SOURCE src")
        world.run("INJECT SOURCE OFFSETS src TO LATEST ALLOW GAPS")
        server.info.run("INSERT INTO shop.t VALUES (5)")
        end = found.end("mysql-cdc")
        world.run("RESUME SOURCE src")
        world.moved[found.split] = end
        server.info.run("INSERT INTO shop.t VALUES (6)")
        read(found, found.end("mysql-cdc"))
        upstream = change_connector("mysql-cdc").look(found.options).splits[found.split]  # type: ignore[attr-defined]
        row = proof(found)
        assert (row["status"], row["gaps"]) == ("DIFFERS", upstream.place(end) - upstream.place(before))
        server.info.run("RESET MASTER")
        assert (proof(found)["status"], proof(found)["gaps"]) == ("DIFFERS", None)


def canned(obstacle: CaptureError | None) -> Captured:
    world = cdc_world(TABLE)
    world.moved["shop"] = 0x4800
    world.read.add("shop")
    world.obstacle = obstacle
    return Captured(world, {}, "shop")


def shown(found: Captured) -> Mapping[str, Any]:
    table = found.world.plan("SHOW SOURCE SPLITS pg").table
    assert table is not None
    (row,) = table.rows
    return dict(zip((name for name, _ in table.columns), row, strict=True))


def test_a_reason_that_may_pass_leaves_the_status() -> None:
    found = canned(CaptureError(UPSTREAM_UNREACHABLE, "no answer", is_temporary=True))
    assert (shown(found)["status"], shown(found)["reason"]) == ("OK", "no answer")
    found = canned(CaptureError(UPSTREAM_MISSING, "it is lost", hint="RESET SOURCE SPLITS SOURCE_NAME"))
    assert (shown(found)["status"], shown(found)["reason"]) == ("UNREADABLE", "it is lost: RESET SOURCE SPLITS pg")
    # The process of the owner may have the package.
    found = canned(CaptureError(PACKAGE_MISSING, "no package", hint="pip install"))
    assert (shown(found)["status"], shown(found)["reason"]) == ("OK", "no package: pip install")


def test_a_position_that_the_reader_moves_meanwhile_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    found = canned(CaptureError(OFFSET_OUT_OF_RANGE, "the slot begins after the position"))
    of, moved = CannedPositions.of, iter(range(1, 100))

    def reading(self: CannedPositions, source_id: int, fragment: str | None = None) -> Positions:
        positions = of(self, source_id, fragment)
        state = positions.states["shop"]
        return replace(positions, states={"shop": replace(state, offset=state.offset + next(moved))})

    monkeypatch.setattr(CannedPositions, "of", reading)
    assert (shown(found)["status"], shown(found)["reason"]) == ("OK", None)


def test_a_source_whose_first_run_has_created_the_slot_can_continue() -> None:
    found = canned(CaptureError(OFFSET_OUT_OF_RANGE, "the slot begins after the position"))
    world = found.world
    world.read.clear()
    world.moved.clear()
    assert world.slot is not None
    # While the server creates the slot, the slot has no position.
    for acknowledged in (None, 0x7FFFFFFF):
        world.slot = replace(world.slot, acknowledged=acknowledged)
        assert (shown(found)["status"], shown(found)["reason"]) == ("OK", None)
    world.obstacle = CaptureError(UPSTREAM_MISSING, "it is a physical slot")
    assert shown(found)["status"] == "UNREADABLE"
    world.obstacle = CaptureError(OFFSET_OUT_OF_RANGE, "the slot begins after the position")
    world.moved["shop"] = 0x4800
    world.read.add("shop")
    assert shown(found)["reason"] == "the slot begins after the position"

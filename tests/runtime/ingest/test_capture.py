"""The reader of a change data capture source on a real PostgreSQL, without Spark: its batches reach the log once."""

from __future__ import annotations

import json
import threading
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from rw_sql.connectors.base import SplitState
from rw_sql.connectors.changes import UpstreamColumn, UpstreamTable
from rw_sql.connectors.registry import change_connector, connector
from rw_sql.metastore.records import DEFAULT_GROUP, SourceRecord, TableRecord
from rw_sql.model.definitions import definition_of, log_columns
from rw_sql.model.job_ids import view_job
from rw_sql.model.job_specs import IngestSpec, desired_jobs
from rw_sql.model.source_readers import CdcTableSpec, TableRead
from rw_sql.plan.ports.positions import Positions
from rw_sql.runtime.decoding.decoder import BUCKET
from rw_sql.runtime.delta.job_output import JobOutput
from rw_sql.runtime.delta.stored_rows import as_stored
from rw_sql.runtime.ingest import capture as capture_module
from rw_sql.runtime.ingest import change_feed
from rw_sql.runtime.ingest.capture import ADD_COLUMNS, Capture
from rw_sql.runtime.ingest.noted_progress import stored_progress
from rw_sql.runtime.jobs.applied_epoch import Applied
from rw_sql.runtime.positions.flush_position import request_position
from rw_sql.runtime.support.failures import StalledError
from rw_sql.runtime.support.warehouse import Warehouse
from tests.plan.tables import tables_world
from tests.support.postgres import PASSWORD, running_server
from tests.support.waits import LAST_RESORT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from rw_sql.connectors.changes import Taken
    from rw_sql.runtime.jobs.context import Context
    from tests.plan.canned import CannedWorld
    from tests.support.postgres import PostgresInfo

pytestmark = pytest.mark.postgres


_TYPES: dict[str, Any] = {
    "BIGINT": "long",
    "INT": "integer",
    "ARRAY<STRING>": {"type": "array", "elementType": "string", "containsNull": True},
}


def schema_of(source: SourceRecord) -> str:
    """The columns of a log as Delta's JSON, without Spark."""
    fields = [
        {"name": name, "type": _TYPES.get(kind, kind.lower()), "nullable": True, "metadata": {}}
        for name, kind in log_columns(definition_of(source))
    ]
    return json.dumps({"type": "struct", "fields": fields})


@dataclass
class Log:
    """A source's log, which the runs of its reader write one after the other."""

    postgres: PostgresInfo
    warehouse: Warehouse
    world: CannedWorld
    options: dict[str, str]
    run: int = 0
    position: int | None = None
    capture: Capture | None = None
    output: JobOutput | None = None
    batch: int = -1
    entries: list[int] = field(default_factory=list)
    reports: list[Any] = field(default_factory=list)
    added: list[Any] = field(default_factory=list)

    @property
    def source(self) -> SourceRecord:
        found = self.world.snapshot.find("source", "pg")
        assert isinstance(found, SourceRecord)
        return found

    def open(self) -> None:
        """Starts the next run where the log ends."""
        self.run, self.batch, self.entries = self.run + 1, -1, []
        (spec,) = [found for found in desired_jobs(self.world.snapshot).values() if isinstance(found, IngestSpec)]
        source = self.source
        context = SimpleNamespace(
            warehouse=self.warehouse,
            metastore=SimpleNamespace(
                jobs=SimpleNamespace(write_backfill=self.reports.append),
                snapshot=lambda: self.world.snapshot,
                operation={record.epoch: record for record in self.world.operations}.get,
            ),
            applied=Applied(),
            owning=threading.Event(),
            group=DEFAULT_GROUP,
            made={ADD_COLUMNS: self.add_columns},
        )
        self.output = JobOutput.open(
            self.warehouse,
            self.warehouse.data(source.id, 1),
            schema_of(source),
            job=spec.job,
            run=self.run,
            epoch=1,
            partition_by=(BUCKET,),
        )
        (row,) = self.world.snapshot.states(spec.job).values()
        state = connector("postgres-cdc").decode_state(row.split, row.state)
        states = {row.split: SplitState(split=row.split, offset=self.position or state.offset)}
        read = frozenset() if self.position is None else frozenset({row.split})
        self.capture = Capture.open(
            cast("Context", context),
            self.world.snapshot,
            change_connector("postgres-cdc"),
            source,
            spec,
            self.options,
            Positions(states=states, log_version=0, read_splits=read),
            1000,
        )
        self.position = self.capture.made.offset
        self.capture.feed.begin(lambda: self.entries.append(len(self.entries)))

    def add_columns(self, source_id: int, table: str, known: Collection[str], added: Mapping[str, str]) -> bool:
        """As the owner does; here it only notes what it was given."""
        self.added.append((source_id, table, sorted(known), dict(added)))
        return True

    def take(self) -> tuple[Taken, ...]:
        """The next batch of the reader."""
        assert self.capture is not None
        wait_until(lambda: len(self.entries) > self.batch + 1, "a batch")
        self.batch += 1
        return self.capture.feed.take(str(self.batch))

    def write(self, *, acknowledges: bool = True) -> None:
        """Takes and commits one batch."""
        capture, output = self.capture, self.output
        assert capture is not None
        assert output is not None
        taken = self.take()
        rows = capture.rows(taken, run=self.run, batch=self.batch, since=1, bucket=1)
        progress = capture.progress_after(taken)
        output.tables = capture.stored_with(progress, is_due=self.batch == 0)
        small = as_stored(rows, pa.schema(output.table.schema().to_arrow()))
        output.append_rows(small, self.batch, {capture.split: (self.position or 0, taken[-1].position)})
        self.position = taken[-1].position
        if acknowledges:
            capture.committed(taken, progress)

    def close(self) -> None:
        if self.capture is not None:
            self.capture.feed.close()
            self.capture = None

    def changes(self) -> list[tuple[str, str | None, str | None]]:
        """The changes in the log, in order."""
        rows = DeltaTable(self.warehouse.data(self.source.id, 1)).to_pyarrow_table().to_pylist()
        rows.sort(key=lambda row: (row["_rw_run"], row["_rw_batch"], row["_rw_offset"], row["_rw_index"]))
        return [(row["op"], row["key"], row["row"]) for row in rows]

    def write_until(self, is_met: Any) -> None:
        while not is_met(self.changes()):
            self.write()


@pytest.fixture
def log(postgres: PostgresInfo, tmp_path: Path) -> Iterator[Log]:
    with made_log(postgres, tmp_path) as made:
        yield made


@contextmanager
def made_log(postgres: PostgresInfo, tmp_path: Path) -> Iterator[Log]:
    """A source over a table of its own."""
    word = uuid.uuid4().hex[:8]
    table = f"public.t_{word}"
    postgres.run(f"CREATE TABLE {table} (id INT PRIMARY KEY, word TEXT)")
    world = tables_world()
    columns = (
        UpstreamColumn(name="id", type="integer", canonical="INT"),
        UpstreamColumn(name="word", type="text", canonical="CHARACTER VARYING"),
    )
    world.upstream_tables = {table: UpstreamTable(table=table, columns=columns, key=("id",))}
    options = {
        "hostname": "127.0.0.1",
        "port": str(postgres.port),
        "username": postgres.user,
        "database.name": "postgres",
        "slot.name": f"slot_{word}",
        "publication.name": f"pub_{word}",
    }
    listed = ", ".join(f"{key} = '{value}'" for key, value in options.items())
    world.run(
        f"CREATE SOURCE pg WITH (connector = 'postgres-cdc', {listed})", f"CREATE TABLE t (*) FROM pg TABLE '{table}'"
    )
    made = Log(postgres, Warehouse.at(str(tmp_path)), world, options | {"password": PASSWORD})
    yield made
    made.close()
    change_connector("postgres-cdc").release(made.options, slot=True, publication=True)
    postgres.run(f"DROP TABLE {table}")


def table_of(log: Log) -> str:
    (name,) = log.world.upstream_tables
    return name


def confirmed(log: Log) -> int:
    slot = change_connector("postgres-cdc").slot_details(log.options)
    assert slot is not None
    assert slot.acknowledged is not None
    return slot.acknowledged


def test_snapshot_and_changes_are_in_the_log_once_however_often_the_reader_is_killed(log: Log) -> None:
    log.postgres.run(f"INSERT INTO {table_of(log)} SELECT g, 'w' || g FROM generate_series(1, 30) g")
    log.open()
    log.write_until(lambda changes: sum(op == "r" for op, _, _ in changes) == 30)
    log.postgres.run(f"UPDATE {table_of(log)} SET word = 'x' WHERE id = 1")
    log.write_until(lambda changes: any(op == "u" for op, _, _ in changes))
    log.postgres.run(f"DELETE FROM {table_of(log)} WHERE id = 2")
    taken = log.take()
    assert taken[-1].records.num_rows == 1
    log.close()  # Taken and not committed: read again.
    before = confirmed(log)
    assert log.position is not None
    assert before <= log.position
    log.open()
    log.write_until(lambda changes: any(op == "d" for op, _, _ in changes))
    log.postgres.run(f"INSERT INTO {table_of(log)} VALUES (99, 'last')")
    capture = log.capture
    assert capture is not None
    while log.changes()[-1][0] != "c":
        log.write(acknowledges=False)
    log.close()  # Committed and not acknowledged: not read again.
    assert confirmed(log) <= log.position
    log.open()
    log.postgres.run(f"TRUNCATE {table_of(log)}")
    log.write_until(lambda changes: changes[-1][0] == "t")
    assert [op for op, _, _ in log.changes() if op != "r"] == ["u", "d", "c", "t"]
    (stored,) = stored_progress(log.warehouse, log.source).values()
    assert (stored[1].is_done, stored[1].rows_done) == (True, 30)
    assert log.reports[-1].is_over


def test_a_slot_that_is_gone_is_not_made_again(log: Log) -> None:
    log.open()
    log.write()
    log.close()
    wait_until(lambda: confirmed(log) > 0, "the slot")
    log.postgres.run(
        f"SELECT pg_drop_replication_slot('{log.options['slot.name']}') "
        f"FROM pg_replication_slots WHERE slot_name = '{log.options['slot.name']}'"
    )
    with pytest.raises(StalledError, match=log.options["slot.name"]) as stalled:
        log.open()
    assert "RESET SOURCE SPLITS pg ALLOW GAPS WITH (FORGET_OFFSETS = true)" in str(stalled.value)
    assert change_connector("postgres-cdc").slot_details(log.options) is None


def test_new_columns_are_added_and_dropped_ones_name_the_statement(log: Log) -> None:
    table = table_of(log)
    log.options["auto.schema.change"] = "true"
    log.postgres.run(f"INSERT INTO {table} VALUES (1, 'a')")
    log.open()
    log.write_until(lambda changes: bool(changes))
    log.postgres.run(f"ALTER TABLE {table} ADD COLUMN more INT DEFAULT 7; INSERT INTO {table} VALUES (2, 'b')")
    capture, taken = log.capture, log.take()
    assert capture is not None
    while not any(each.changes for each in taken):
        taken = log.take()
    with pytest.raises(StalledError, match="COLUMNS were added"):
        capture.require_known(taken)
    assert log.added == [(log.source.id, table, ["id", "word"], {"more": "integer"})]
    log.close()  # Nothing was committed: the next run finds the columns again.
    log.postgres.run(f"ALTER TABLE {table} DROP COLUMN word; INSERT INTO {table} VALUES (3)")
    log.open()
    capture = log.capture
    assert capture is not None
    capture.adds_columns = False
    taken = log.take()
    while not any(change.dropped for each in taken for change in each.changes):
        taken = log.take()
    with pytest.raises(StalledError, match=r'column "word" no longer exists: ALTER TABLE t DROP COLUMN word$'):
        capture.require_known(taken)


def test_the_reader_does_not_start_beside_a_table_without_its_new_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_module, "_COLUMNS_SECONDS", 0.1)
    applied, owning = Applied(), threading.Event()
    context: Any = SimpleNamespace(applied=applied, owning=owning, group=DEFAULT_GROUP)
    table = CdcTableSpec(upstream="public.t", reads=(TableRead(table=9, columns=3),), columns=(), key_columns=())
    spec: Any = SimpleNamespace(tables=(table,))
    catalog: Any = SimpleNamespace(epoch=5, get=lambda _: None)
    stored: Any = {"public.t": ("9.0", None)}
    owning.set()
    applied.tell(5, [view_job(9)])
    with pytest.raises(StalledError, match=r"WAITS for the tables of public\.t"):
        capture_module._await_columns(context, catalog, spec, stored)
    applied.tell(5, [view_job(8)])
    capture_module._await_columns(context, catalog, spec, stored)


def test_a_column_that_is_added_while_another_is_taken_is_found(log: Log) -> None:
    table = table_of(log)
    log.options["auto.schema.change"] = "true"
    log.postgres.run(f"INSERT INTO {table} VALUES (1, 'a')")
    log.open()
    log.write_until(lambda changes: bool(changes))
    log.close()
    # The table's rows are read again because of the first column, and they are the first that have the second.
    log.postgres.run(f"ALTER TABLE {table} ADD COLUMN more INT DEFAULT 7; ALTER TABLE {table} ADD COLUMN late INT")
    described = log.world.upstream_tables[table]
    more = UpstreamColumn(name="more", type="integer", canonical="INT")
    log.world.upstream_tables = {table: replace(described, columns=(*described.columns, more))}
    log.world.run("ALTER TABLE t ADD COLUMN more INT")
    log.open()
    capture, taken = log.capture, log.take()
    assert capture is not None
    while not any(each.changes for each in taken):
        taken = log.take()
    with pytest.raises(StalledError, match="COLUMNS were added"):
        capture.require_known(taken)
    assert log.added == [(log.source.id, table, ["id", "word"], {"late": "integer"})]


def test_a_repeated_snapshot_is_enclosed_by_marks(log: Log) -> None:
    log.postgres.run(f"INSERT INTO {table_of(log)} VALUES (1, 'a'), (2, 'b')")
    log.open()
    log.write_until(lambda changes: sum(op == "r" for op, _, _ in changes) == 2)
    log.close()
    world = log.world
    world.run("PAUSE SOURCE pg", "RESET SOURCE SPLITS pg ALLOW GAPS WITH (FORGET_OFFSETS = true)", "RESUME SOURCE pg")
    log.open()
    log.write_until(lambda changes: changes[-1][0] == "s")
    assert [op for op, _, _ in log.changes()] == ["r", "r", "b", "r", "r", "s"]


def test_a_snapshot_after_an_undone_reset_is_enclosed_by_marks_too(log: Log) -> None:
    log.postgres.run(f"INSERT INTO {table_of(log)} VALUES (1, 'a'), (2, 'b')")
    log.open()
    log.write_until(lambda changes: sum(op == "r" for op, _, _ in changes) == 2)
    log.close()
    log.world.run("PAUSE SOURCE pg", "RESET SOURCE SPLITS pg ALLOW GAPS WITH (FORGET_OFFSETS = true)")
    reset = log.world.snapshot.epoch
    log.world.run("RESUME SOURCE pg")
    log.open()
    log.write_until(lambda changes: changes[-1][0] == "s")
    log.close()
    log.world.run(f"UNDO OPERATION {reset}")
    log.postgres.run(f"DELETE FROM {table_of(log)} WHERE id = 2")
    log.open()
    log.write_until(lambda changes: sum(op == "s" for op, _, _ in changes) == 2)
    assert [op for op, _, _ in log.changes() if op != "d"] == ["r", "r", "b", "r", "r", "s", "b", "r", "s"]


def test_a_position_that_flush_waits_for_is_committed_without_a_change(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_feed, "QUIET_SECONDS", LAST_RESORT_SECONDS * 2)
    log.open()

    def is_read(_: object) -> bool:
        return all(progress.is_done for _, progress in stored_progress(log.warehouse, log.source).values())

    log.write()
    log.write_until(is_read)
    log.postgres.run("CREATE TABLE IF NOT EXISTS unread (id INT); INSERT INTO unread SELECT generate_series(1, 100)")
    (seen,) = connector("postgres-cdc").look(log.options).splits.values()
    assert log.position is not None
    assert log.position < seen.end
    request_position(log.warehouse, log.source, seen.end)
    taken = log.take()
    assert sum(each.records.num_rows for each in taken) == 0
    assert taken[-1].position >= seen.end


@pytest.mark.long
def test_a_lost_slot_is_replaced_only_where_the_tables_are_read_again(tmp_path: Path) -> None:
    with (
        running_server(
            wal_level="logical", max_slot_wal_keep_size="1MB", min_wal_size="32MB", max_wal_size="32MB"
        ) as server,
        made_log(server.info, tmp_path) as log,
    ):
        server.run(f"INSERT INTO {table_of(log)} VALUES (1, 'a')")
        log.open()
        log.write_until(lambda changes: bool(changes))
        log.close()
        kind = change_connector("postgres-cdc")

        def is_lost() -> bool:
            server.run("SELECT pg_logical_emit_message(false, 'x', repeat('x', 4000000))")
            server.run("SELECT pg_switch_wal()")
            server.run("CHECKPOINT")
            details = kind.slot_details(log.options)
            return details is not None and details.status == "lost"

        wait_until(is_lost, "the slot is lost")
        server.run(f"INSERT INTO {table_of(log)} VALUES (2, 'unread')")
        with pytest.raises(StalledError, match="is lost"):
            log.open()
        log.world.run(
            "PAUSE SOURCE pg", "RESET SOURCE SPLITS pg ALLOW GAPS WITH (FORGET_OFFSETS = true)", "RESUME SOURCE pg"
        )
        log.position = None
        log.open()
        log.write_until(lambda changes: changes[-1][0] == "s")
        assert kind.slot_details(log.options).status == "reserved"  # type: ignore[union-attr]
        assert [json.loads(row or "{}").get("id") for op, _, row in log.changes() if op == "r"] == ["1", "1", "2"]


def test_rows_that_are_written_after_the_clock_was_set_back_are_those_that_the_table_reads(log: Log) -> None:
    found = log.world.snapshot.find("table", "t")
    assert isinstance(found, TableRecord)
    assert found.live_from is not None
    hour = found.live_from.hour
    assert hour > 1, "the reader of this test writes at hour 1"
    log.postgres.run(f"INSERT INTO {table_of(log)} VALUES (1, 'a')")
    log.open()
    log.write_until(lambda changes: len(changes) == 1)
    rows = DeltaTable(log.warehouse.data(log.source.id, 1)).to_pyarrow_table(columns=[BUCKET])
    assert rows[BUCKET].to_pylist() == [hour]

"""A source's log with readers, without Spark. A test makes the batches, the checkpoints and the runs of upkeep.

``python -m tests.runtime.maintained_log <warehouse>`` runs upkeep once and ends. If a fault point is armed, the process
is killed at this point.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from deltalake import DeltaTable, Schema

from rw_sql.metastore import Metastore
from rw_sql.metastore.records import (
    Maintenance,
    MaterializedViewRecord,
    Operation,
    PutObject,
    RebuildRecord,
    SinkRecord,
    SourceRecord,
)
from rw_sql.model.job_ids import ingest_fragment
from rw_sql.runtime.decoding.decoder import BUCKET, ERROR, OFFSET, SPLIT
from rw_sql.runtime.delta.delta_log import commit_versions, read_actions
from rw_sql.runtime.delta.job_output import JobOutput
from rw_sql.runtime.delta.table_files import live_files
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.positions.commit_history import note_stretches
from rw_sql.runtime.positions.logged_ranges import note_cleaned_ranges, note_ranges
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.runtime.upkeep.table_upkeep import Retention, Upkeep

HIDDEN = {
    SPLIT: pa.string(),
    OFFSET: pa.int64(),
    "_rw_run": pa.int64(),
    "_rw_since": pa.int64(),
    ERROR: pa.string(),
    "_rw_raw": pa.binary(),
    BUCKET: pa.int32(),
}
SCHEMA = pa.schema([("id", pa.int32()), *HIDDEN.items()])
SPLIT_NAME = "t:0"


@dataclass(slots=True)
class MaintainedLog:
    """A log of one split in which each record's id is its offset. ``hour`` is the bucket of new batches.

    ``later_seconds`` is the time by which upkeep's clock is ahead.
    """

    warehouse: Warehouse
    source: SourceRecord
    context: Context
    output: JobOutput
    batch: int = 0
    end: int = 0
    hour: int = 1000
    retention: Retention = field(default_factory=Retention)
    later_seconds: float = 0.0

    @staticmethod
    def open(folder: str, run: int = 1) -> MaintainedLog:
        """Opens the log in a warehouse, with a new run of its job. Creates the log if it does not exist."""
        warehouse = Warehouse.at(folder)
        metastore = Metastore.open(warehouse.uri)
        source = metastore.snapshot().find("source", "s")
        if source is None:
            source = SourceRecord(
                id=metastore.snapshot().next_id,
                name="s",
                definition="CREATE SOURCE s (id INT) WITH (connector = 'datagen')",
                connector="datagen",
                options=(),
                is_shared=True,
            )
            put(metastore, source)
        assert isinstance(source, SourceRecord)
        output = JobOutput.open(
            warehouse,
            warehouse.data(source.id, source.generation),
            Schema.from_arrow(SCHEMA).to_json(),
            job=ingest_fragment(source.id),
            run=run,
            epoch=run,
            partition_by=(BUCKET,),
            statistics=(SPLIT, OFFSET, ERROR),
        )
        context = Context(warehouse=warehouse, metastore=metastore, sessions=cast("Any", None), owner="a test")
        log = MaintainedLog(warehouse=warehouse, source=source, context=context, output=output)
        log.end = len(log.ids())
        return log

    @property
    def table_id(self) -> str:
        return str(self.output.table.metadata().id)

    @property
    def pending(self) -> list[str]:
        """The names of the lists of replaced files."""
        return self.warehouse.list_names(self.warehouse.replaced_files(self.source.id, 1))

    def append(self, batches: int = 1, rows: int = 2) -> None:
        """Appends ``batches`` batches of ``rows`` rows."""
        for _ in range(batches):
            offsets = range(self.end, self.end + rows)
            columns: dict[str, object] = {name: pa.nulls(rows, kind) for name, kind in HIDDEN.items()}
            columns |= {
                "id": list(offsets),
                SPLIT: [SPLIT_NAME] * rows,
                OFFSET: list(offsets),
                BUCKET: [self.hour] * rows,
            }
            table = pa.table({name: pa.array(columns[name], SCHEMA.field(name).type) for name in SCHEMA.names})
            self.output.append_rows(table, self.batch, {SPLIT_NAME: (self.end, self.end + rows)})
            self.end += rows
            self.batch += 1

    def view(self, name: str, created_at_ms: int = 0, strategy: str = "") -> MaterializedViewRecord:
        """Creates a view that reads the log."""
        record = MaterializedViewRecord(
            id=self.context.metastore.snapshot().next_id,
            name=name,
            definition="",
            query="",
            schema="",
            inputs=(self.source.id,),
            created_at_ms=created_at_ms,
            maintenance=Maintenance(strategy=strategy),
        )
        put(self.context.metastore, record)
        return record

    def sink(self, starts: tuple[tuple[int, int], ...] = (), created_at_ms: int = 0) -> SinkRecord:
        """Creates a sink that reads the log."""
        record = SinkRecord(
            id=self.context.metastore.snapshot().next_id,
            name="k",
            definition="",
            connector="kafka",
            options=(),
            inputs=(self.source.id,),
            schema="",
            type="append-only",
            starts=starts,
            created_at_ms=created_at_ms,
        )
        put(self.context.metastore, record)
        return record

    def read(self, view: MaterializedViewRecord, batch: int, next_version: int, *, is_whole: bool = False) -> None:
        """Writes a view's checkpoint: the view has planned a batch that ends before this version."""
        offset = {
            "sourceVersion": 1,
            "reservoirId": self.table_id,
            "reservoirVersion": next_version,
            "index": -1,
            "isStartingVersion": is_whole,
        }
        folder = self.warehouse.view_checkpoint(view.id, view.generation)
        self.warehouse.write_text(f"{folder}/offsets/{batch}", f"v1\n{{}}\n{json.dumps(offset)}")

    def forget(self, view: MaterializedViewRecord, batch: int) -> None:
        """Removes a batch from the view's checkpoint."""
        self.warehouse.remove(f"{self.warehouse.view_checkpoint(view.id, view.generation)}/offsets/{batch}")

    def log_sizes(self) -> list[int]:
        """The size in bytes of each file of the Delta log."""
        return [file.stat().st_size for file in (Path(self.output.path) / "_delta_log").iterdir()]

    def upkeep(self) -> Upkeep:
        def note(version: int) -> None:
            note_ranges(self.warehouse, self.source)
            note_cleaned_ranges(self.warehouse, self.source, version)
            note_stretches(self.warehouse, self.context.metastore.snapshot(), self.source, version)

        return Upkeep(
            context=self.context,
            object_id=self.source.id,
            generation=1,
            output=self.output,
            retention=self.retention,
            is_log=True,
            note=note,
            clock=lambda: time.time() + self.later_seconds,
        )

    def turn(self) -> None:
        """Runs upkeep once."""
        self.upkeep().run()

    def ids(self, version: int | None = None) -> list[int]:
        """The rows of the log, read without any cached state."""
        table = DeltaTable(self.output.path, version=version)
        return sorted(table.to_pyarrow_table(columns=["id"]).column("id").to_pylist())

    def streamed(self, first: int) -> list[int]:
        """The rows that a stream reads from the commits from this version on. Of each commit, a stream reads only the
        new data."""
        found: list[int] = []
        for version in range(first, self.output.table.version() + 1):
            for action in read_actions(self.warehouse, self.output.path, version):
                if "add" in action and action["add"]["dataChange"]:
                    file = f"{self.output.path}/{action['add']['path']}"
                    found += pa.parquet.read_table(file, columns=["id"]).column("id").to_pylist()
        return found

    def versions(self) -> list[int]:
        """The versions of the existing commits."""
        return commit_versions(self.warehouse, self.output.path)

    def files(self) -> int:
        """The number of live data files."""
        return len(DeltaTable(self.output.path).file_uris())

    def on_disk(self) -> set[str]:
        """All data files on the disk, whether or not they are live."""
        return {path for path in self.warehouse.older_files(self.output.path, -60.0) if "_delta_log" not in path}

    def unexplained(self) -> set[str]:
        """The data files on the disk that are neither live nor named by an existing commit."""
        known = set(live_files(DeltaTable(self.output.path)))
        for version in self.versions():
            for action in read_actions(self.warehouse, self.output.path, version):
                known.update(action[kind]["path"] for kind in ("add", "remove") if kind in action)
        return self.on_disk() - known


def put(metastore: Metastore, record: SourceRecord | MaterializedViewRecord | RebuildRecord | SinkRecord) -> None:
    """Commits a record."""
    operation = Operation(kind="TEST", statement="", objects=(), changes=(PutObject(record=record),))
    metastore.commit(operation, based_on=metastore.snapshot())


if __name__ == "__main__":
    from rw_sql.runtime.delta import table_files
    from rw_sql.runtime.support import faults

    folder, point = sys.argv[1:]
    table_files.GRACE_SECONDS = 0.0
    table_files.COMMITS_GRACE_SECONDS = 0.0
    log = MaintainedLog.open(folder, run=2)
    faults.arm(point)
    log.turn()

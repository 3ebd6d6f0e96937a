"""Warehouses written without Spark: objects, a lease, statuses of jobs, and tables as jobs leave them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import CommitProperties, Schema, write_deltalake

from rw_sql.metastore import Metastore
from rw_sql.metastore.facts import JobStatus, Lease
from rw_sql.metastore.records import (
    DEFAULT_GROUP,
    AssignSplits,
    ConnectionRecord,
    MaterializedViewRecord,
    Operation,
    PutObject,
    SinkRecord,
    SourceRecord,
)
from rw_sql.metastore.table import create_table
from rw_sql.runtime.decoding.decoder import ERROR
from rw_sql.runtime.delta.delta_log import JobCommit
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.jobs.lease import LEASE_SECONDS
from rw_sql.runtime.spark.no_spark import NoSpark
from rw_sql.runtime.support.processes import now_ms, process_start, this_machine
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.syntax.lexing.identifiers import quoted

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.metastore.records import Change

_SCHEMA = pa.schema([("id", pa.int64()), (ERROR, pa.string())])
_VIEW_SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'


@dataclass(slots=True)
class Absence:
    """Replaces the pauses of a repeating loop. The catalog is unreadable from the first pause to the second. The third
    pause is interrupted, as by Ctrl-C."""

    folder: Path
    pauses: int = 0

    def __call__(self, _: float) -> None:
        catalog, away = self.folder / "rw_catalog", self.folder / "away"
        self.pauses += 1
        if self.pauses == 1:
            catalog.rename(away)
        elif self.pauses == 2:
            away.rename(catalog)
        else:
            raise KeyboardInterrupt


@dataclass(slots=True)
class WrittenWarehouse:
    """A warehouse under a folder, and functions to write objects into it."""

    folder: Path
    metastore: Metastore = field(init=False)

    def __post_init__(self) -> None:
        self.metastore = Metastore.open(str(self.folder))

    @property
    def uri(self) -> str:
        """The warehouse's URI."""
        return str(self.folder)

    def context(self) -> Context:
        """The warehouse's context in a process without Spark."""
        metastore = Metastore.open(self.uri, only_reads=True)
        return Context(warehouse=Warehouse.at(self.uri), metastore=metastore, sessions=NoSpark(), owner="a test")

    def commit(self, *changes: Change, **said: Any) -> int:
        """Commits one operation, completes the projections, and returns the operation's epoch. Otherwise a thread would
        write the projections later, even into a catalog that a test has taken away."""
        operation = Operation(
            **{"kind": "TEST", "statement": "", "objects": (), "changes": changes, "actor": "ann", **said}
        )
        epoch = self.metastore.commit(operation, based_on=self.metastore.snapshot()).epoch
        self.metastore.project()
        return epoch

    def connection(self, id_: int, name: str, definition: str = "") -> Change:
        """A connection."""
        return PutObject(record=ConnectionRecord(id=id_, name=name, definition=definition, connector="kafka"))

    def source(self, id_: int, name: str, *, uses: tuple[int, ...] = (), is_shared: bool = True) -> list[Change]:
        """A source of generated rows with one split."""
        definition = f"CREATE SOURCE {quoted(name)} (id INT) WITH (connector = 'datagen') FORMAT PLAIN ENCODE JSON"
        record = SourceRecord(
            id=id_,
            name=name,
            definition=definition,
            connector="datagen",
            options=(("connector", "datagen"),),
            is_shared=is_shared,
            uses=uses,
        )
        return [PutObject(record=record), AssignSplits(fragment=f"ingest-{id_}", splits=("0",))]

    def view(self, id_: int, name: str, *inputs: int) -> Change:
        """A view over other objects."""
        record = MaterializedViewRecord(
            id=id_, name=name, definition="", query="SELECT 1", inputs=inputs, schema=_VIEW_SCHEMA
        )
        return PutObject(record=record)

    def sink(self, id_: int, name: str, *inputs: int, uses: tuple[int, ...] = ()) -> Change:
        """A sink that reads other objects."""
        options = (("connector", "kafka"), ("properties.bootstrap.server", "127.0.0.1:1"), ("topic", "t"))
        with_list = ", ".join(f"{key} = '{value}'" for key, value in options)
        record = SinkRecord(
            id=id_,
            name=name,
            definition=f"CREATE SINK {quoted(name)} FROM t WITH ({with_list}) FORMAT PLAIN ENCODE JSON",
            connector="kafka",
            options=options,
            inputs=inputs,
            schema=_VIEW_SCHEMA,
            type="append-only",
            uses=uses,
        )
        return PutObject(record=record)

    def lease(self, *, applied: int | None = None, jvm_pid: int | None = None, group: str = DEFAULT_GROUP) -> Lease:
        """Makes this process the owner of the jobs of a resource group."""
        at = now_ms()
        jvm_pid = os.getpid() if jvm_pid is None else jvm_pid
        lease = Lease(
            owner="host-1-ab",
            host=this_machine(),
            python_pid=os.getpid(),
            jvm_pid=jvm_pid,
            python_start=process_start(os.getpid()),
            jvm_start=process_start(jvm_pid),
            taken_at_ms=at,
            heartbeat_ms=at,
            expires_ms=at + int(LEASE_SECONDS * 1000),
            applied_epoch=self.metastore.snapshot().epoch if applied is None else applied,
            group=group,
        )
        assert self.metastore.jobs.take_lease(lease, replacing=self.metastore.jobs.lease(group))
        return lease

    def status(self, job: str, state: str, **said: Any) -> None:
        """Writes the owner's report about a job."""
        object_id = int(job.rpartition("-")[2])
        told = {"object_id": object_id, "run": 1, "updated_ms": now_ms(), **said}
        self.metastore.jobs.write_job_status([JobStatus(job=job, state=state, **told)])

    def fence(self, job: str, run: int, *, generation: int = 1) -> str:
        """Writes the fence of a run of a job; returns the path of the job's table."""
        table = Warehouse.at(self.uri).data(int(job.rpartition("-")[2]), generation)
        if run == 1:
            create_table(table, Schema.from_arrow(_SCHEMA), {})
        self._append(table, 0, 0, JobCommit(job=job, run=run, epoch=1, batch=-1, ranges={}))
        return table

    def batch(self, table: str, job: str, run: int, batch: int, rows: int, errors: int = 0) -> None:
        """Commits a batch of a job's run."""
        self._append(table, rows, errors, JobCommit(job=job, run=run, epoch=1, batch=batch, ranges={}))

    def _append(self, table: str, rows: int, errors: int, commit: JobCommit) -> None:
        ids: list[int] = list(range(rows))
        notes = ["broken" if at < errors else None for at in range(rows)]
        write_deltalake(
            table,
            pa.table([pa.array(ids, pa.int64()), pa.array(notes, pa.string())], schema=_SCHEMA),
            mode="append",
            commit_properties=CommitProperties(custom_metadata={"userMetadata": commit.to_json()}),
        )

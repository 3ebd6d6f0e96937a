"""Small streaming queries on real Delta tables, checkpoint files and a real metastore, without Spark.

The queries store the same state as Spark's queries: an entry per batch in ``offsets`` and ``commits``, and the state of
the query after each batch. Like Spark's Delta source, they first read their input table as a whole, then read commit by
commit, and fail on removed rows.
"""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema

from rw_sql.metastore import Metastore
from rw_sql.metastore.facts import Lease
from rw_sql.metastore.records import MaterializedViewRecord, Operation, PutObject, SourceRecord
from rw_sql.model.job_ids import ingest_fragment, view_job
from rw_sql.model.job_specs import ingest_spec
from rw_sql.runtime.control.executor import Executor
from rw_sql.runtime.control.session_state import SessionState
from rw_sql.runtime.delta.delta_log import latest_version, read_actions
from rw_sql.runtime.delta.job_output import JobOutput
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.positions.shared import read_positions
from rw_sql.runtime.rewind.scheduler import Rewinding
from rw_sql.runtime.support.processes import now_ms, process_start, this_machine
from rw_sql.runtime.support.warehouse import Warehouse
from rw_sql.syntax import parse_statement

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from rw_sql.plan.result.plan import Table
    from rw_sql.runtime.spark.sessions import SparkSessions

SPLIT = "1-0"
KEYS = 3


def _schema(*columns: str) -> str:
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in columns]
    return json.dumps({"type": "struct", "fields": fields})


LOG = json.loads(_schema("id"))
LOG["fields"].append({"name": "_rw_error", "type": "string", "nullable": True, "metadata": {}})
LOG_SCHEMA = json.dumps(LOG)
VIEWS = {"plain": (_schema("id"), ()), "counts": (_schema("k", "n"), ("k",)), "pairs": (_schema("a", "b"), ())}
"""The kinds of views: unchanged rows, counts by key, and pairs of each row and the earlier rows with the same key."""


class NoSpark:
    """A process without Spark, so that no check of Spark fails."""

    def require_alive(self, done: str | None = None) -> None:
        """Does nothing: there is no Spark that could have ended."""


class RemovedRowsError(Exception):
    """The error of Spark's Delta source for a commit that removes rows."""


@dataclass(slots=True)
class MiniWarehouse:
    """A source ``s`` of the rows 0, 1, 2, …, and views on this source. The jobs run when a test calls them."""

    context: Context
    session: SessionState = field(default_factory=lambda: SessionState(ask=lambda _: True))
    previews: list[str] = field(default_factory=list)

    @staticmethod
    def opened(folder: Path | str, owner: str = "a test") -> MiniWarehouse:
        """Opens an existing warehouse. ``owner`` is the name of the process that opens it."""
        warehouse = Warehouse.at(str(folder))
        context = Context(
            warehouse=warehouse,
            metastore=Metastore.open(warehouse.uri),
            sessions=cast("SparkSessions", NoSpark()),
            owner=owner,
        )
        mini = MiniWarehouse(context=context)
        mini.session.ask = mini._say_yes
        return mini

    @staticmethod
    def at(folder: Path | str) -> MiniWarehouse:
        """Creates a warehouse with the source, and enables unsafe operations."""
        mini = MiniWarehouse.opened(folder)
        mini.run(
            "ALTER SYSTEM SET enable_unsafe_ops = true",
            "CREATE SOURCE s (id BIGINT) WITH (connector = 'datagen') FORMAT PLAIN ENCODE JSON",
        )
        DeltaTable.create(mini.context.log_path(mini.source), Schema.from_json(LOG_SCHEMA))
        return mini

    def _say_yes(self, question: Any) -> bool:
        self.previews.append(question.preview)
        return True

    @property
    def source(self) -> SourceRecord:
        found = self.context.metastore.snapshot().find("source", "s")
        assert found is not None
        return found

    def run(self, *statements: str) -> Table:
        """Runs statements one by one, and returns the result of the last statement."""
        for text in statements:
            answer = Executor(self.context, None).run(parse_statement(text), self.session)
        return answer

    def epoch(self) -> int:
        """The newest epoch."""
        return self.context.metastore.snapshot().epoch

    def create_view(self, name: str, of: str | None = None) -> MaterializedViewRecord:
        """Creates a view on the source or, if ``of`` is given, on another view."""
        snapshot = self.context.metastore.snapshot()
        given = snapshot.find("materialized_view", of) if of is not None else self.source
        assert given is not None
        schema, keys = VIEWS[name.partition("_")[0]]
        record = MaterializedViewRecord(
            id=snapshot.next_id,
            name=name,
            definition=f"CREATE MATERIALIZED VIEW {name} AS SELECT 1",
            query="SELECT 1",
            inputs=(given.id,),
            schema=schema,
            keys=keys,
        )
        change = PutObject(record=record)
        operation = Operation(
            kind="CREATE MATERIALIZED VIEW", statement=record.definition, objects=(name,), changes=(change,)
        )
        self.context.metastore.commit(operation, based_on=snapshot)
        return record

    def views(self) -> tuple[MaterializedViewRecord, ...]:
        """The views in the order of their creation."""
        return self.context.metastore.snapshot().all("materialized_view")

    def position(self) -> int:
        """The next row that the source's reader reads."""
        snapshot = self.context.metastore.snapshot()
        return (
            read_positions(self.context.warehouse, self.context.metastore, snapshot, self.source).states[SPLIT].offset
        )

    def ingest(self, *counts: int) -> None:
        """Runs the source's reader once. The reader writes a batch for each of these numbers of rows. The catalog must
        require the reader."""
        snapshot = self.context.metastore.snapshot()
        assert ingest_spec(snapshot, self.source) is not None, "nothing reads the source, or it is paused"
        job = ingest_fragment(self.source.id)
        run = self.context.metastore.jobs.claim_run(job, snapshot.epoch, "a test")
        output = JobOutput.reopen(
            self.context.warehouse, self.context.log_path(self.source), job=job, run=run.run, epoch=run.epoch
        )
        at = self.position()
        for batch, count in enumerate(counts):
            ids = pa.array(range(at, at + count), pa.int64())
            rows = pa.table({"id": ids, "_rw_error": pa.nulls(count, pa.string())})
            output.append_rows(rows, batch, {SPLIT: (at, at + count)})
            at += count

    def read_views(self, *names: str) -> None:
        """Runs the jobs of all views, or of the views with these names, once. Each job reads all new rows."""
        for view in self.views():
            if not names or view.name in names:
                MiniView(self.context, view).run()

    def rows(self, name: str) -> list[tuple[int, ...]]:
        """A view's rows, sorted."""
        view = self.context.metastore.snapshot().find("materialized_view", name)
        assert view is not None
        table = DeltaTable(self.context.warehouse.data(view.id, view.generation)).to_pyarrow_table()
        return sorted(tuple(row.values()) for row in table.to_pylist())

    def log_ids(self) -> list[int]:
        """The log's rows, sorted."""
        return sorted(DeltaTable(self.context.log_path(self.source)).to_pyarrow_table()["id"].to_pylist())

    def settle(self) -> None:
        """Does the owner's work between stopping and starting jobs: makes rewind points and carries out REWINDs."""
        woken = threading.Event()
        rewinding = Rewinding(self.context, woken.set)
        with self.owning():
            while rewinding.withheld(self.context.metastore.snapshot(), {}) or rewinding.owed:
                assert woken.wait(120), "nothing came of it"
                woken.clear()
            rewinding.stop()

    @contextmanager
    def owning(self) -> Iterator[None]:
        """A context manager inside which this process has the lease, even if another process had the lease before.

        Afterwards, no process has the lease, so that statements do not wait for an owner.
        """
        jobs, at = self.context.metastore.jobs, now_ms()
        lease = Lease(
            owner=self.context.owner,
            host=this_machine(),
            python_pid=os.getpid(),
            jvm_pid=0,
            python_start=process_start(os.getpid()),
            jvm_start="",
            taken_at_ms=at,
            heartbeat_ms=at,
            expires_ms=at + 3_600_000,
            applied_epoch=0,
        )
        assert jobs.take_lease(lease, replacing=jobs.lease())
        try:
            yield
        finally:
            jobs.release_lease(lease)


def expected(ids: Iterable[int]) -> dict[str, list[tuple[int, ...]]]:
    """The views' rows for these source rows. The rows do not depend on the division into batches."""
    listed = list(ids)
    counts = Counter(id_ % KEYS for id_ in listed)
    return {
        "plain": sorted((id_,) for id_ in listed),
        "counts": sorted((key, count) for key, count in counts.items()),
        "pairs": sorted(
            (min(a, b), max(a, b)) for at, a in enumerate(listed) for b in listed[:at] if a % KEYS == b % KEYS
        ),
    }


class MiniView:
    """One run of a view's job."""

    def __init__(self, context: Context, view: MaterializedViewRecord) -> None:
        self._context, self._view = context, view
        self._warehouse = context.warehouse
        self._folder = self._warehouse.view_checkpoint(view.id, view.generation)
        snapshot = context.metastore.snapshot()
        given = snapshot.get(view.inputs[0])
        self._input = self._warehouse.data(view.inputs[0], getattr(given, "generation", 1))
        job = view_job(view.id)
        run = context.metastore.jobs.claim_run(job, snapshot.epoch, "a test")
        self._output = JobOutput.open(
            self._warehouse,
            self._warehouse.data(view.id, view.generation),
            view.schema,
            job=job,
            run=run.run,
            epoch=run.epoch,
            generation=view.generation,
        )

    def run(self) -> None:
        """Reads all rows. First repeats the planned batches that are not committed, and then reads the new rows in
        another batch."""
        planned = self._batches("offsets")
        committed = max(self._batches("commits"), default=-1)
        for batch in [batch for batch in planned if batch > committed]:
            self._batch(batch)
            committed = batch
        if self._offset(committed) <= latest_version(self._warehouse, self._input):
            self._plan(committed + 1, latest_version(self._warehouse, self._input) + 1)
            self._batch(committed + 1)

    def _batches(self, folder: str) -> list[int]:
        return sorted(int(name) for name in self._warehouse.list_names(f"{self._folder}/{folder}") if name.isdigit())

    def _offset(self, batch: int) -> int:
        if batch < 0:
            return 0
        line = self._warehouse.read_text(f"{self._folder}/offsets/{batch}").splitlines()[2]
        return int(json.loads(line)["reservoirVersion"])

    def _plan(self, batch: int, end: int) -> None:
        offset = {
            "sourceVersion": 1,
            "reservoirId": str(DeltaTable(self._input).metadata().id),
            "reservoirVersion": end,
            "index": -1,
            "isStartingVersion": False,
        }
        if not self._warehouse.exists(f"{self._folder}/metadata"):
            self._warehouse.write_text(f"{self._folder}/metadata", json.dumps({"id": f"query of {self._view.name}"}))
        text = f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps(offset)}'
        self._warehouse.write_text(f"{self._folder}/offsets/{batch}", text)

    def _rows(self, start: int, end: int) -> list[int]:
        if start == 0:
            table = DeltaTable(self._input, version=end - 1).to_pyarrow_table()
            return [int(id_) for id_ in table.column(0).to_pylist()]
        found: list[int] = []
        for version in range(start, end):
            for action in read_actions(self._warehouse, self._input, version):
                if "remove" in action:
                    raise RemovedRowsError(f"version {version} of {self._input}")
                if "add" in action:
                    path = f"{self._input}/{action['add']['path']}"
                    found += [int(id_) for id_ in pq.read_table(path).column(0).to_pylist()]
        return found

    def _batch(self, batch: int) -> None:
        rows = self._rows(self._offset(batch - 1), self._offset(batch))
        state = self._state(batch)
        kind = self._view.name.partition("_")[0]
        out: dict[str, list[int]]
        if kind == "plain":
            out = {"id": rows}
        elif kind == "counts":
            counts = Counter(id_ % KEYS for id_ in state)
            counts.update(id_ % KEYS for id_ in rows)
            touched = sorted({id_ % KEYS for id_ in rows})
            out = {"k": touched, "n": [counts[key] for key in touched]}
        else:
            pairs = []
            seen = list(state)
            for id_ in rows:
                pairs += [(min(id_, other), max(id_, other)) for other in seen if other % KEYS == id_ % KEYS]
                seen.append(id_)
            out = {"a": [a for a, _ in pairs], "b": [b for _, b in pairs]}
        table = pa.table({name: pa.array(values, pa.int64()) for name, values in out.items()})
        if batch > self._output.done and table.num_rows:
            if self._view.keys:
                self._output.upsert_rows(table, self._view.keys, batch)
            else:
                self._output.append_rows(table, batch)
        self._warehouse.write_text(f"{self._folder}/state/0/0/{batch + 1}.delta", json.dumps([*state, *rows]))
        self._warehouse.write_text(f"{self._folder}/commits/{batch}", 'v1\n{"nextBatchWatermarkMs":0}')

    def _state(self, batch: int) -> list[int]:
        """The rows that the batches before ``batch`` have read."""
        if batch == 0:
            return []
        return [int(id_) for id_ in json.loads(self._warehouse.read_text(f"{self._folder}/state/0/0/{batch}.delta"))]

"""A table of a captured database gets the last change of each row, however Delta divides the log among batches."""

from __future__ import annotations

import json
from contextlib import nullcontext
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from rw_sql.runtime.delta.delta_log import JobCommit
from rw_sql.runtime.delta.job_output import JobOutput
from rw_sql.runtime.delta.young_table import YoungTable
from rw_sql.runtime.jobs import inputs
from rw_sql.runtime.views.keyed import Keyed
from rw_sql.runtime.views.strategy import ViewRun
from tests.runtime.views.test_emptied import HOUR, LogOfRows
from tests.support.log_files import commit_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long]

OWN, OTHER = "public.orders", "public.lines"
AT = 0x6000
"""An offset after the creation of the table."""

Change = tuple[str, int | None]
"""The kind of a change, and the key of the changed row."""


class Captured(LogOfRows):
    """A log of two captured tables, the job of one of them, and the rows that this table must have."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, columns="id INT PRIMARY KEY, word VARCHAR")
        self.random = Random(4)
        self.wanted: dict[int, str] = {}
        self.runs = 0
        self._seen: set[int] = set()
        self._position = {"_rw_run": 1, "_rw_since": 1, "_rw_batch": 0, "_rw_offset": AT}

    def commit(self, changes: list[Change], files: int = 4, *, hour: int = HOUR, upstream: str = OWN) -> None:
        """Commits a batch of the source with these changes. They are divided among files in any order."""
        self._position["_rw_batch"] += 1
        rows: list[dict[str, object]] = []
        for op, id_ in changes:
            self._position["_rw_offset"] += 1
            word = f"w{self._position['_rw_run']}.{self._position['_rw_offset']}"
            rows.append({
                **self._position,
                "table_name": upstream,
                "op": op,
                "key": json.dumps({"id": str(id_)}) if op == "d" else None,
                "row": json.dumps({"id": str(id_), "word": word}) if op in "cru" else None,
                "_rw_split": "shop",
                "_rw_index": 0,
            })  # fmt: skip
            if upstream == OWN and hour >= HOUR:
                self._apply(op, id_, word)
        self.random.shuffle(rows)
        count = {upstream: len(rows)}
        made = JobCommit(job="ingest", run=1, epoch=1, batch=self._position["_rw_batch"], ranges={}, rows=count)
        commit_files(
            self.path, self.schema, [(hour, rows[part::files]) for part in range(files)], self.random, made.to_json()
        )

    def forget_offsets(self) -> None:
        """Sets the source's position back, as RESET … FORGET_OFFSETS does."""
        self._position |= {"_rw_run": 2, "_rw_since": 9, "_rw_batch": 0, "_rw_offset": 100}

    def _apply(self, op: str, id_: int | None, word: str) -> None:
        match op:
            case "b":
                self._seen = set()
            case "s":
                self.wanted = {key: value for key, value in self.wanted.items() if key in self._seen}
            case "t":
                self.wanted = {}
            case "d":
                self.wanted.pop(id_ or 0, None)
            case _:
                self.wanted[id_ or 0] = word
                self._seen.add(id_ or 0)

    def changes(self, count: int) -> list[Change]:
        """Random changes of the keys 0 to 19, some of which repeat."""
        return [(self.random.choice("cuuud"), self.random.randrange(20)) for _ in range(count)]

    def run_job(self, spark: SparkSession) -> None:
        """Runs the table's job until it has read the log."""
        self.runs += 1
        output = JobOutput.open(
            self.warehouse, self.table, self.spec.schema, job=self.spec.writer, run=self.runs, epoch=1
        )
        context: Any = SimpleNamespace(warehouse=self.warehouse)
        checkpoint = self.warehouse.view_checkpoint(self.spec.view_id, self.spec.generation)
        run = ViewRun(context=context, spec=self.spec, output=output, checkpoint=checkpoint, turn=nullcontext)
        assert self.spec.keyed is not None
        keyed = Keyed(run, self.spec.keyed)
        frame, mode = keyed.stream(spark)

        def on_batch(frame: DataFrame, batch: int) -> None:
            if batch > output.done:
                keyed.write(frame, batch)

        writer = frame.writeStream.outputMode(mode).option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).foreachBatch(on_batch).start().awaitTermination()

    @property
    def table(self) -> str:
        return self.warehouse.data(self.spec.view_id, self.spec.generation)

    @property
    def found(self) -> dict[int, str]:
        """The rows of the table."""
        return {row["id"]: row["word"] for row in DeltaTable(self.table).to_pyarrow_table().to_pylist()}


def steps(log: Captured) -> Iterator[None]:
    """Makes one commit after the other: rows of an hour before the table, a snapshot with changes, changes of another
    table, a truncation, and a repeated snapshot after the source's position was set back."""
    log.commit([("r", id_) for id_ in range(100, 120)], 3, hour=HOUR - 5)
    yield
    log.commit([*(("r", id_) for id_ in range(20)), *log.changes(40)])
    yield
    log.commit([("c", id_) for id_ in range(200, 230)], 3, upstream=OTHER)
    yield
    log.commit(log.changes(60), hour=HOUR + 1)
    yield
    log.commit([*log.changes(20), ("t", None), *log.changes(30)], hour=HOUR + 1)
    yield
    log.forget_offsets()
    log.commit([("b", None), *(("r", id_) for id_ in range(0, 12, 2)), *log.changes(3)], 3, hour=HOUR + 2)
    yield
    log.commit([*(("r", id_) for id_ in (12, 15, 18)), ("s", None), *log.changes(20)], 3, hour=HOUR + 2)
    yield


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Captured:
    monkeypatch.setattr(inputs, "_BATCH_BYTES_PER_CORE", 1)
    return Captured(tmp_path)


def test_commits_that_are_read_in_parts_are_applied_in_order(spark: SparkSession, log: Captured) -> None:
    for number, _ in enumerate(steps(log)):
        log.run_job(spark)
        assert log.found == log.wanted, number
    assert len(log.wanted) > 5


def test_a_snapshot_of_the_log_is_applied_in_order(
    spark: SparkSession, log: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(YoungTable, "of", staticmethod(lambda *_: None))
    for _ in steps(log):
        pass
    log.run_job(spark)
    assert log.found == log.wanted
    log.commit(log.changes(40), hour=HOUR + 3)
    log.run_job(spark)
    assert log.found == log.wanted

"""Reads a source's log batch by batch in the order of LOG_ORDER. Delta's stream alone does not preserve this order,
because it divides commits and snapshots among batches.

Delta's stream limits the size of a batch. A batch can therefore end after any file, even in the middle of a commit, or
in the middle of the snapshot that a query reads first. The files of a commit are in no particular order. The files of a
snapshot are in the order of their modification times, and compaction changes these times. Therefore, the stream may
return a row in a later batch than rows of the same key that follow this row in the log.

For a reader that depends on the order, this module itself distributes the rows of a divided commit or snapshot among
the batches. The module reads the positions of all rows of the commit or snapshot, and chooses positions that divide
these rows into shares of about the size of a batch. A batch that ends within the commit or snapshot gets the next
share. The batch that reads the rest of the commit or snapshot gets all remaining shares. As a result, each row is read
once, and each batch has about the size that Delta has planned. Neither the writer of the files nor the statistics of
the files affect the order of the rows.

The query's checkpoint contains the shares (:mod:`rw_sql.runtime.positions.log_shares`). If an older version of rw_sql
has read the first part of a commit or snapshot, the checkpoint has no shares of this commit or snapshot. The batches
then read the rest of this commit or snapshot as Delta divides it, because only the order of Delta's files shows which
rows were already read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from rw_sql.connectors.delta.plain_files import AS_WRITTEN
from rw_sql.connectors.delta.versions import table_at
from rw_sql.connectors.support.local_frames import empty_frame, local_frame
from rw_sql.model.definitions import INDEX_COLUMN
from rw_sql.runtime.decoding.decoder import BATCH, BUCKET, OFFSET, RUN, SPLIT
from rw_sql.runtime.delta.delta_log import read_actions
from rw_sql.runtime.delta.staged_files import schema_of
from rw_sql.runtime.positions.log_shares import (
    File,
    Position,
    Shares,
    StoredShares,
    cuts_of,
    number_of_shares,
    place_of,
)
from rw_sql.runtime.positions.progress import batch_ends

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from rw_sql.runtime.positions.progress import TableEnd
    from rw_sql.runtime.support.warehouse import Warehouse

LOG_ORDER = (RUN, BATCH, SPLIT, OFFSET, INDEX_COLUMN[0])
"""The columns by which the rows of a log are sorted: first the commit (RUN and BATCH), then the split and the offset,
and then the index (only for change data capture sources and for files). A log that an older version of rw_sql created
may lack BATCH."""

_SAMPLED = 100
"""The approximate number of positions that are sampled for each share. With this number, the sizes of the shares differ
from each other by only a few percent."""

_ROW_BYTES = 100
"""The row size in bytes that the sampling assumes for a file whose number of rows is unknown."""

_FILE = "_rw_file"


@dataclass(frozen=True, slots=True, kw_only=True)
class _DataFile:
    """A data file of a commit or snapshot. The fields are the path relative to the table's folder, the size in bytes,
    the number of rows (None if unknown), and the value of BUCKET of all rows of the file (None if there is no
    value)."""

    path: str
    size: int
    rows: int | None
    bucket: int | None


@dataclass(slots=True, kw_only=True)
class OrderedLog:
    """A log that one run of a query reads. ``path`` is the path of the log's table, and ``checkpoint`` is the query's
    checkpoint.

    ``most_bytes`` is the approximate maximum size of a batch in bytes (Delta's option ``maxBytesPerTrigger``). The
    query reads only rows whose BUCKET is ``least_bucket`` or later. If ``least_bucket`` is None, the query reads the
    rows of all buckets, but not the column BUCKET.
    """

    warehouse: Warehouse
    path: str
    checkpoint: str
    most_bytes: int
    least_bucket: int | None = None
    _stored: StoredShares = field(init=False)
    _known: tuple[str, Shares] | None = field(default=None, init=False)
    _places: set[str] | None = field(default=None, init=False)
    """The commits and snapshots of which the run's last batch has read only a part; None before the run's first
    batch."""
    _last: dict[int, list[TableEnd]] = field(default_factory=dict, init=False)
    """The end of the run's last batch, by the batch's number. The end is cached for two reasons: the plan of a batch
    never changes during a run, and each read of a checkpoint's file in an object store takes a request."""

    def __post_init__(self) -> None:
        self._stored = StoredShares(warehouse=self.warehouse, checkpoint=self.checkpoint)

    def rows(self, spark: SparkSession, batch: int) -> DataFrame | None:
        """The rows of the log for a planned batch. BUCKET is NULL if ``least_bucket`` is None. Otherwise, the result
        may lack rows of buckets before ``least_bucket``.

        The result is None if the caller must use the rows of Spark's frame instead. The caller must do so if the batch
        reads only whole commits, or if the query does not read exactly one Delta table. The caller must also do so if
        an older version of rw_sql has read the first part of a snapshot that the batch continues, or of a commit that
        the batch continues but does not complete.

        For each batch that the query's output does not contain yet, the caller must call either this method or
        :meth:`skip`.
        """
        ends = self._ends(batch)
        if ends is None or not self._places:
            return None
        begin, end = ends
        frames: list[DataFrame] = []
        if begin is None:
            if not end.is_snapshot and end.version > 0:
                # If this batch is repeated, Delta also reads this snapshot.
                frames.append(table_at(spark, self.path, end.version - 1))
            first = end.version
        elif begin.is_within:
            done, is_same = self._stored.done_at(begin), place_of(begin) == place_of(end)
            if done is None and (is_same or begin.is_snapshot):
                return None
            if done is not None and is_same:
                return self._next_share(spark, end, done)
            frames.append(self._rest(spark, begin, done))
            first = begin.version + 1
        else:
            first = begin.version
        whole = self._needed(file for version in range(first, end.version) for file in self._added(version))
        if whole:
            frames.append(self._read(spark, whole))
        if end.is_within:
            frames.append(self._next_share(spark, end, 0))
        return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)

    def skip(self, batch: int) -> None:
        """The caller must call this method instead of :meth:`rows` for a planned batch whose commits have no rows for
        the caller."""
        if self._places is not None and not self._places:
            return  # The last batch has read whole commits, so no commit of this batch is divided into shares.
        ends = self._ends(batch)
        if ends is None or not ends[1].is_within or self._stored.of(ends[1]) is None:
            return
        begin, end = ends
        # The number of shares does not matter, because no share of this commit or snapshot has rows for the caller.
        done = self._stored.done_at(begin) if begin is not None and place_of(begin) == place_of(end) else 0
        self._stored.note_done(end, done or 0)

    def forget_read(self) -> None:
        """Removes from the checkpoint the shares of commits and snapshots that have been read completely."""
        self._stored.forget_read()

    def _ends(self, batch: int) -> tuple[TableEnd | None, TableEnd] | None:
        """Returns the end of the batch before a planned batch, and the end of the planned batch; see
        :func:`rw_sql.runtime.positions.progress.batch_ends`. If the earlier batches have read the last share of a
        commit or snapshot, also removes its shares from the checkpoint."""
        ends = batch_ends(self.warehouse, self.checkpoint, batch, known=self._last)
        self._last = {} if ends is None else {batch: [ends[1]]}
        places = {place_of(end) for end in ends or () if end is not None and end.is_within}
        if (self._places or set()) - places:
            self._stored.forget_read()
        if self._known is not None and self._known[0] not in places:
            self._known = None
        self._places = places
        return ends

    def _next_share(self, spark: SparkSession, end: TableEnd, done: int) -> DataFrame:
        """Returns the rows of the share that follows the first ``done`` shares, for a batch that ends at ``end``. If
        only the last share remains, the result is empty, because the batch that reads the rest of the commit or
        snapshot reads the last share."""
        shares = self._shares(spark, end)
        upto = min(done + 1, len(shares.cuts))
        self._stored.note_done(end, upto)
        if upto == done:
            return self._read(spark, {})
        return self._between(spark, shares, *shares.bounds(done, upto))

    def _rest(self, spark: SparkSession, begin: TableEnd, done: int | None) -> DataFrame:
        """Returns the rows of a commit or snapshot that follow the first ``done`` shares. If ``done`` is None, an older
        version of rw_sql has read the commit's files up to the index of ``begin``, and the result contains the rows of
        the later files."""
        if done is None:
            return self._read(spark, self._needed(self._added(begin.version)[begin.index + 1 :]))
        shares = self._shares(spark, begin)
        return self._between(spark, shares, *shares.bounds(done, None))

    def _between(self, spark: SparkSession, shares: Shares, low: Position | None, high: Position | None) -> DataFrame:
        rows = self._read(spark, {file.path: file.bucket for file in shares.files_between(low, high)})
        if low is not None:
            rows = rows.where(_position(shares.columns) >= _literal(rows, shares.columns, low))
        return rows if high is None else rows.where(_position(shares.columns) < _literal(rows, shares.columns, high))

    def _shares(self, spark: SparkSession, end: TableEnd) -> Shares:
        """The shares of the commit or snapshot in which a batch ends."""
        name = place_of(end)
        if self._known is None or self._known[0] != name:
            found = self._stored.of(end)
            if found is None:
                found = self._stored.put(end, self._divided(spark, end))
            self._known = name, self._with_buckets(found, end)
        return self._known[1]

    def _with_buckets(self, shares: Shares, end: TableEnd) -> Shares:
        """Returns the shares with the value of BUCKET of each file. An older version of rw_sql may have stored the
        shares without these values. If the query needs the values, this method adds them."""
        if self.least_bucket is None or all(file.bucket is not None for file in shares.files):
            return shares
        buckets = {file.path: file.bucket for file in self._files_of(end)}
        return replace(shares, files=tuple(replace(file, bucket=buckets[file.path]) for file in shares.files))

    def _divided(self, spark: SparkSession, end: TableEnd) -> Shares:
        """Reads the positions of the rows of the commit or snapshot in which a batch ends, and divides the rows into
        shares."""
        from pyspark.sql import functions as f

        files = [file for file in self._files_of(end) if self._is_needed(file.bucket)]
        if not files:
            return Shares(columns=(), files=(), cuts=())
        if end.is_snapshot:
            rows = table_at(spark, self.path, end.version)
            rows = rows if self.least_bucket is None else rows.where(f.col(BUCKET) >= self.least_bucket)
        else:
            rows = self._stored_rows(spark, [file.path for file in files])
        columns = tuple(name for name in LOG_ORDER if name in rows.columns and name != INDEX_COLUMN[0])
        number = number_of_shares([file.size for file in files], self.most_bytes)
        chances = _chances(files, _SAMPLED * number if number > 1 else 0)
        placed = rows.select(f.col("_metadata.file_name").alias(_FILE), _position(columns).alias("at"))
        placed = _with_value(placed, "chance", "double", {_name(file): chances[file.path] for file in files})
        placed = placed.withColumn("sampled", f.when(f.rand(0) < f.col("chance"), f.col("at")))
        parts = placed.groupBy(_FILE).agg(f.min("at"), f.max("at"), f.count(f.lit(1)), f.collect_list("sampled"))
        found = {name: values for name, *values in parts.collect()}
        stored: list[File] = []
        sampled: list[tuple[Position, float]] = []
        for file in files:
            if _name(file) not in found:
                continue  # The file has no rows.
            first, last, count, positions = found[_name(file)]
            stored.append(File(path=file.path, first=tuple(first), last=tuple(last), bucket=file.bucket))
            sampled += ((tuple(position), file.size / count / chances[file.path]) for position in positions)
        return Shares(columns=columns, files=tuple(stored), cuts=cuts_of(sampled, number))

    def _files_of(self, end: TableEnd) -> list[_DataFile]:
        """The files of the commit or snapshot in which a batch ends."""
        if not end.is_snapshot:
            return self._added(end.version)
        actions = pa.table(self._table(end.version).get_add_actions(flatten=True))
        columns = {name: actions.column(name).to_pylist() for name in ("path", "size_bytes", "num_records")}
        of_bucket = f"partition.{BUCKET}"
        buckets = (
            actions.column(of_bucket).to_pylist() if of_bucket in actions.column_names else [None] * actions.num_rows
        )
        return [
            _DataFile(path=unquote(path), size=size, rows=rows, bucket=bucket)
            for path, size, rows, bucket in zip(*columns.values(), buckets, strict=True)
        ]

    def _added(self, version: int) -> list[_DataFile]:
        """The files with new data that a commit adds, in the order in which the commit lists them."""
        actions = read_actions(self.warehouse, self.path, version)
        return [_data_file(action["add"]) for action in actions if _is_new(action)]

    def _needed(self, files: Iterable[_DataFile]) -> dict[str, int | None]:
        """Maps the path of each file that may contain rows for the query to the file's value of BUCKET."""
        return {file.path: file.bucket for file in files if self._is_needed(file.bucket)}

    def _is_needed(self, bucket: int | None) -> bool:
        return self.least_bucket is None or (bucket is not None and bucket >= self.least_bucket)

    def _read(self, spark: SparkSession, buckets: Mapping[str, int | None]) -> DataFrame:
        """The rows of files, with all columns of the table. ``buckets`` maps the files' paths to their values of
        BUCKET. In the result, BUCKET is NULL if ``least_bucket`` is None."""
        from pyspark.sql import functions as f

        rows, schema = self._stored_rows(spark, [*buckets]), schema_of(self._table())
        if self.least_bucket is not None:
            of_file = {path.rpartition("/")[2]: bucket for path, bucket in buckets.items()}
            rows = _with_value(rows, BUCKET, "int", of_file).drop(_FILE)
        missing = (column for column in schema.fields if column.name not in rows.columns)
        return rows.select("*", *(f.lit(None).cast(column.dataType).alias(column.name) for column in missing))

    def _stored_rows(self, spark: SparkSession, paths: Sequence[str]) -> DataFrame:
        """The rows of files, without the partition columns."""
        from pyspark.sql.types import StructType

        table = self._table()
        parts = table.metadata().partition_columns
        stored = StructType([column for column in schema_of(table).fields if column.name not in parts])
        if paths:
            return spark.read.options(**AS_WRITTEN).schema(stored).parquet(*(f"{self.path}/{path}" for path in paths))
        return empty_frame(spark, stored)

    def _table(self, version: int | None = None) -> DeltaTable:
        self.warehouse.files_at(self.path)  # completes the environment variables for the table's store
        return DeltaTable(self.path, version=version)


def _data_file(added: dict[str, Any]) -> _DataFile:
    """The file of an ``add`` action."""
    rows = json.loads(added.get("stats") or "{}").get("numRecords")
    bucket = (added.get("partitionValues") or {}).get(BUCKET)
    return _DataFile(
        path=unquote(added["path"]),
        size=int(added["size"]),
        rows=None if rows is None else int(rows),
        bucket=None if bucket is None else int(bucket),
    )


def _name(file: _DataFile) -> str:
    return file.path.rpartition("/")[2]


def _is_new(action: dict[str, Any]) -> bool:
    return "add" in action and bool(action["add"].get("dataChange", True))


def _chances(files: Sequence[_DataFile], count: int) -> dict[str, float]:
    """Maps the path of each file to the probability with which a row of the file is sampled. In total, about ``count``
    rows are sampled. The probability of a row is proportional to its size. All rows of a file are assumed to be equally
    large."""
    total = max(1, sum(file.size for file in files))
    rows = {file.path: file.rows or file.size // _ROW_BYTES or 1 for file in files}
    return {file.path: min(1.0, count * file.size / total / rows[file.path]) for file in files}


def _with_value(rows: DataFrame, name: str, kind: str, values: Mapping[str, float | None]) -> DataFrame:
    """Adds the column ``name`` of the type ``kind``, whose value depends on the file of the row. ``values`` maps the
    names of the files to the values. The result may also have the column _FILE, which contains the names."""
    from pyspark.sql import functions as f

    if len({*values.values()}) < 2:
        return rows.withColumn(name, f.lit(next(iter(values.values()), None)).cast(kind))
    if _FILE not in rows.columns:
        rows = rows.withColumn(_FILE, f.col("_metadata.file_name"))
    listed = local_frame(rows.sparkSession, pa.table({_FILE: [*values], name: [*values.values()]}))
    listed = listed.select(_FILE, f.col(name).cast(kind).alias(name))
    return rows.join(f.broadcast(listed), _FILE, "left")


def _position(columns: Sequence[str]) -> Column:
    from pyspark.sql import functions as f

    return f.struct(*columns)


def _literal(rows: DataFrame, columns: Sequence[str], position: Position) -> Column:
    from pyspark.sql import functions as f

    named = zip(columns, position, strict=True)
    return f.struct(*(f.lit(value).cast(rows.schema[name].dataType).alias(name) for name, value in named))

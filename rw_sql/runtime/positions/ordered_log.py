"""Reads a source's log in its order, batch by batch, although Delta divides commits and snapshots among batches.

Delta's stream limits the size of a batch: it ends a batch at a file of a commit, or of the snapshot with which a query
begins. The files of a commit have no order, and a snapshot's files are in the order of their times, which compaction
changes. Therefore, a later batch of the stream may contain an earlier row of a key.

For a reader that depends on the order, this module replaces the rows of such a batch. It reads the positions of the
rows, and chooses positions that divide the rows into shares of about the size of a batch. A batch that ends within the
commit or snapshot gets the next share. The batch that reads the rest of the commit or snapshot gets all other shares.
So each row is read once, each batch has about the size that Delta has planned, and the order depends on neither the
writer of the files nor their statistics.

The query's checkpoint has a folder for each commit or snapshot: ``shares/<version>-commit-<table>`` or
``shares/<version>-snapshot-<table>``. The file ``files.json`` in this folder contains the files and shares, and the
file ``<index>`` contains the number of shares that were read when a batch ended at this index. These files are written
before the batch writes rows. If an older version of rw_sql has read the first part of a commit or snapshot, the files
do not exist, and the rest is read as Delta divides it, because only Delta's order shows which rows were read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from rw_sql.connectors.delta.plain_files import AS_WRITTEN
from rw_sql.connectors.delta.versions import table_at
from rw_sql.connectors.support.local_frames import keeping_active_session
from rw_sql.model.definitions import INDEX_COLUMN
from rw_sql.runtime.decoding.decoder import BATCH, OFFSET, RUN, SPLIT
from rw_sql.runtime.delta.delta_log import read_actions
from rw_sql.runtime.delta.staged_files import schema_of
from rw_sql.runtime.positions.progress import batch_ends
from rw_sql.runtime.support.failures import StalledError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from rw_sql.runtime.positions.progress import TableEnd
    from rw_sql.runtime.support.warehouse import Warehouse

LOG_ORDER = (RUN, BATCH, SPLIT, OFFSET, INDEX_COLUMN[0])
"""The columns that sort the rows of a log: by commit, then by split and offset, then (for a change data capture
source, and for files) by index. A log that an older version of rw_sql created may lack BATCH."""

_FOLDER = "shares"
_FILES = "files.json"
_KEPT = 20
"""The number of commits whose shares are kept, so that a copy of the checkpoint, for a rewind point, has the shares of
the batch to which it belongs."""

_SAMPLED = 100
"""The approximate number of positions that are sampled for each share. The size of a share differs from the size of
other shares by some percent."""

Position = tuple[Any, ...]
"""The values of a row in the columns of a log that sort it. Rows with equal values are in the same share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file of a commit or snapshot, with the first and the last position of its rows. ``path`` is relative to the
    table's folder."""

    path: str
    first: Position
    last: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """The shares of a commit or snapshot, in order. A share ends before the position in ``cuts`` with its number
    (counted from 0). The last share has no end. ``columns`` are the columns of positions: those of LOG_ORDER that the
    log had when it was divided, without INDEX_COLUMN."""

    columns: tuple[str, ...]
    files: tuple[File, ...]
    cuts: tuple[Position, ...]

    def bounds(self, done: int, upto: int | None) -> tuple[Position | None, Position | None]:
        """The first position of the shares from ``done`` to ``upto`` (exclusive; None: all), and the first position
        after them. A bound is None if there are no rows beyond it."""
        return self.cuts[done - 1] if done else None, None if upto is None else self.cuts[upto - 1]

    def files_between(self, low: Position | None, high: Position | None) -> list[str]:
        """The paths of the files that may have rows from ``low`` to ``high`` (exclusive)."""
        return [
            file.path
            for file in self.files
            if (high is None or _ordered(file.first) < _ordered(high))
            and (low is None or _ordered(file.last) >= _ordered(low))
        ]

    def to_json(self) -> str:
        """The shares as JSON."""
        files = [[file.path, file.first, file.last] for file in self.files]
        return json.dumps({"columns": self.columns, "files": files, "cuts": self.cuts}, separators=(",", ":"))

    @staticmethod
    def from_json(body: Any) -> Shares:
        """Reverses :meth:`to_json`."""
        files = (File(path=path, first=tuple(first), last=tuple(last)) for path, first, last in body["files"])
        return Shares(columns=tuple(body["columns"]), files=tuple(files), cuts=tuple(map(tuple, body["cuts"])))


def number_of_shares(sizes: Sequence[int], most_bytes: int) -> int:
    """The number of shares of files with these sizes in bytes. Delta divides the files into at least as many batches,
    because a batch exceeds ``most_bytes`` by less than one file."""
    return sum(sizes) // (most_bytes + max(sizes, default=0)) + 1


def cuts_of(sampled: Iterable[Position], count: int) -> tuple[Position, ...]:
    """The positions that divide sampled positions into ``count`` shares of about the same size. If many positions are
    equal, there are fewer shares."""
    found = sorted(sampled, key=_ordered)
    chosen = dict.fromkeys(found[len(found) * number // count] for number in range(1, count)) if found else {}
    return tuple(position for position in chosen if _ordered(position) > _ordered(found[0]))


def _ordered(position: Position) -> tuple[Any, ...]:
    """A value that sorts positions as Spark sorts them: NULL is the smallest value of a column."""
    return tuple((value is not None, value) for value in position)


@dataclass(slots=True, kw_only=True)
class OrderedLog:
    """A log as one run of a query reads it. ``path`` is the log's table, and ``checkpoint`` the query's checkpoint.

    ``most_bytes`` is the limit of a batch in bytes (Delta's option ``maxBytesPerTrigger``).
    """

    warehouse: Warehouse
    path: str
    checkpoint: str
    most_bytes: int
    _known: tuple[str, Shares] | None = field(default=None, init=False)

    def rows(self, spark: SparkSession, batch: int) -> DataFrame | None:
        """The rows of the log for a planned batch, with BUCKET NULL.

        The result is None if Spark's frame has the rows to read, because the batch reads whole commits or an older
        version of rw_sql has begun the commit or snapshot.

        The caller must read each batch that writes rows by this method.
        """
        ends = batch_ends(self.warehouse, self.checkpoint, batch)
        if ends is None or not any(end is not None and end.is_within for end in ends):
            return None
        begin, end = ends
        frames: list[DataFrame] = []
        if begin is None:
            if not end.is_snapshot and end.version > 0:
                # If this batch is repeated, Delta also reads this snapshot.
                frames.append(table_at(spark, self.path, end.version - 1))
            first = end.version
        elif begin.is_within:
            done, is_same = self._done_at(begin), _place(begin) == _place(end)
            if done is None and (is_same or begin.is_snapshot):
                return None
            if done is not None and is_same:
                return self._next_share(spark, begin, end, done)
            frames.append(self._rest(spark, begin, done))
            first = begin.version + 1
        else:
            first = begin.version
        whole = [file for version in range(first, end.version) for file in self._added(version)]
        if whole:
            frames.append(self._read(spark, whole))
        if end.is_within:
            frames.append(self._next_share(spark, begin, end, 0))
        return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)

    def _next_share(self, spark: SparkSession, begin: TableEnd | None, end: TableEnd, done: int) -> DataFrame:
        """The share after ``done`` shares, for a batch from ``begin`` to ``end``. The last share belongs to the batch
        that reads the rest."""
        shares = self._shares(spark, end)
        upto = min(done + 1, len(shares.cuts))
        self._forget_old({_place(end), *(() if begin is None else (_place(begin),))})
        self.warehouse.write_text(f"{self._folder}/{_place(end)}/{end.index}", str(upto), is_durable=True)
        if upto == done:
            return self._read(spark, [])
        return self._between(spark, shares, *shares.bounds(done, upto))

    def _forget_old(self, needed: Collection[str]) -> None:
        """Removes the shares of old commits, except those in ``needed``."""
        for name in sorted(self.warehouse.list_names(self._folder))[:-_KEPT]:
            if name not in needed:
                self.warehouse.remove(f"{self._folder}/{name}")

    @property
    def _folder(self) -> str:
        return f"{self.checkpoint}/{_FOLDER}"

    def _rest(self, spark: SparkSession, begin: TableEnd, done: int | None) -> DataFrame:
        """The rows of a commit or snapshot after ``done`` shares. If ``done`` is None, an older version of rw_sql has
        read the files of the commit up to the index of ``begin``."""
        if done is None:
            return self._read(spark, self._added(begin.version)[begin.index + 1 :])
        shares = self._shares(spark, begin)
        return self._between(spark, shares, *shares.bounds(done, None))

    def _between(self, spark: SparkSession, shares: Shares, low: Position | None, high: Position | None) -> DataFrame:
        rows = self._read(spark, shares.files_between(low, high))
        if low is not None:
            rows = rows.where(_position(shares.columns) >= _literal(rows, shares.columns, low))
        return rows if high is None else rows.where(_position(shares.columns) < _literal(rows, shares.columns, high))

    def _done_at(self, end: TableEnd) -> int | None:
        """The number of shares that were read when a batch ended at ``end``; None if an older version of rw_sql read
        the batch. Raises StalledError if the number is lost."""
        done: int | None = self._stored(f"{_place(end)}/{end.index}")
        if done is None and self._stored(f"{_place(end)}/{_FILES}") is not None:
            raise StalledError(f"CHECKPOINT lost: {self._folder}/{_place(end)}/{end.index} does not exist")
        return done

    def _stored(self, name: str) -> Any:
        """The content of a file in the folder of the shares; None if the file does not exist. Raises StalledError if it
        cannot be read."""
        try:
            body = self.warehouse.read_json(f"{self._folder}/{name}")
        except FileNotFoundError:
            return None
        if body is None:
            raise StalledError(f"CHECKPOINT lost: {self._folder}/{name} cannot be read")
        return body

    def _shares(self, spark: SparkSession, end: TableEnd) -> Shares:
        """The shares of the commit or snapshot in which a batch ends."""
        name = _place(end)
        if self._known is None or self._known[0] != name:
            stored = self._stored(f"{name}/{_FILES}")
            found = self._divided(spark, end) if stored is None else Shares.from_json(stored)
            if stored is None:
                # Reading the positions may take minutes, in which another owner may have divided the rows.
                stored = self._stored(f"{name}/{_FILES}")
                if stored is not None:
                    found = Shares.from_json(stored)
                else:
                    self.warehouse.write_text(f"{self._folder}/{name}/{_FILES}", found.to_json(), is_durable=True)
            self._known = name, found
        return self._known[1]

    def _divided(self, spark: SparkSession, end: TableEnd) -> Shares:
        """Reads the positions of a commit or snapshot, and divides them into shares."""
        from pyspark.sql import functions as f

        if end.is_snapshot:
            rows = table_at(spark, self.path, end.version)
            paths, sizes, count = self._snapshot(end.version)
        else:
            added = [
                action["add"] for action in read_actions(self.warehouse, self.path, end.version) if _is_new(action)
            ]
            paths, sizes = [unquote(file["path"]) for file in added], [int(file["size"]) for file in added]
            rows = self._stored_rows(spark, paths)
            count = sum(int(json.loads(file.get("stats") or "{}").get("numRecords", 0)) for file in added)
        columns = tuple(name for name in LOG_ORDER if name in rows.columns and name != INDEX_COLUMN[0])
        number = number_of_shares(sizes, self.most_bytes)
        is_sampled = f.rand(0) < (_SAMPLED * number / max(1, count) if number > 1 else 0.0)
        placed = rows.select(f.col("_metadata.file_name").alias("file"), _position(columns).alias("at"))
        placed = placed.withColumn("sampled", f.when(is_sampled, f.col("at")))
        parts = placed.groupBy("file").agg(f.min("at"), f.max("at"), f.collect_list("sampled")).collect()
        bounds = {name: (tuple(first), tuple(last)) for name, first, last, _ in parts}
        files = (
            File(path=path, first=bounds[name][0], last=bounds[name][1])
            for path in paths
            if (name := path.rpartition("/")[2]) in bounds
        )
        sampled = (tuple(position) for *_, positions in parts for position in positions)
        return Shares(columns=columns, files=tuple(files), cuts=cuts_of(sampled, number))

    def _snapshot(self, version: int) -> tuple[list[str], list[int], int]:
        """The paths and sizes of the files of a version, and the number of rows."""
        actions = pa.table(self._table(version).get_add_actions(flatten=True))
        paths, sizes, counts = (actions.column(name).to_pylist() for name in ("path", "size_bytes", "num_records"))
        return [unquote(path) for path in paths], sizes, sum(count or 0 for count in counts)

    def _added(self, version: int) -> list[str]:
        """The paths of the files that a commit adds as new data, in the commit's order."""
        actions = read_actions(self.warehouse, self.path, version)
        return [unquote(action["add"]["path"]) for action in actions if _is_new(action)]

    def _read(self, spark: SparkSession, paths: Sequence[str]) -> DataFrame:
        """The rows of files, with all columns of the table. The partition columns are NULL."""
        from pyspark.sql import functions as f

        rows, schema = self._stored_rows(spark, paths), schema_of(self._table())
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
        with keeping_active_session(spark):
            return spark.createDataFrame([], stored)

    def _table(self, version: int | None = None) -> DeltaTable:
        self.warehouse.files_at(self.path)  # completes the environment variables for the table's store
        return DeltaTable(self.path, version=version)


def _place(end: TableEnd) -> str:
    """The name of the commit or snapshot in which a batch ends. The names are in the order of the versions."""
    return f"{end.version:020d}-{'snapshot' if end.is_snapshot else 'commit'}-{end.table}"


def _is_new(action: dict[str, Any]) -> bool:
    return "add" in action and bool(action["add"].get("dataChange", True))


def _position(columns: Sequence[str]) -> Column:
    from pyspark.sql import functions as f

    return f.struct(*columns)


def _literal(rows: DataFrame, columns: Sequence[str], position: Position) -> Column:
    from pyspark.sql import functions as f

    named = zip(columns, position, strict=True)
    return f.struct(*(f.lit(value).cast(rows.schema[name].dataType).alias(name) for name, value in named))

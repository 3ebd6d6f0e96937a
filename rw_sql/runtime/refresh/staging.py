"""Manages the staging table of a refresh. The table contains the differences between the upstream and the refreshable
table, divided into chunks by ranges of the key.

Each row is stored with the number of its chunk. Therefore, an interrupted merge continues with the same chunks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from rw_sql.runtime.delta.held_rows import may_hold
from rw_sql.runtime.delta.row_counts import Expected, MiscountError, RowCount, exactly
from rw_sql.runtime.delta.staged_files import missing_files
from rw_sql.runtime.refresh.chunk_sizes import chunk_numbers, row_sizes, write_by_range
from rw_sql.runtime.spark.jvm import planned_bytes
from rw_sql.runtime.support.faults import fault
from rw_sql.syntax.query.maintained_form import KEEP

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from rw_sql.runtime.support.warehouse import Warehouse

CHUNK = "_rw_chunk"
"""The name of the column with the number of a row's chunk."""

CHUNK_ROWS = 50_000
"""The approximate maximum number of changed rows in one commit."""

CHUNK_TABLE_ROWS = 2_000_000
"""The approximate maximum number of the table's rows in the key range of a chunk. The number is limited because the
merge of a chunk rewrites these rows."""

CHUNK_BYTES = 64 << 20
"""The approximate maximum size in bytes of a chunk's changed rows in memory. The owner merges each chunk in memory."""

_MOST_BY_SIZE = 10_000
"""The maximum number of chunks that :func:`chunk_count` computes from the size of the rows. This maximum is needed
because Spark may estimate a size that is far too large after it has lost persisted rows."""

IN_MEMORY_ROWS = 200_000
"""The maximum number of changed rows that are divided into chunks in memory after a comparison in memory.

If more rows have changed, Spark repeats the comparison.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """``rows`` is the number of staged rows, which are the rows that differ between the upstream and the table.
    ``chunks`` is the number of chunks into which these rows are divided."""

    rows: int
    chunks: int


def chunk_count(rows: int, size: int, table_rows: int) -> int:
    """The number of chunks for ``rows`` changed rows that need ``size`` bytes of memory; 0 if no row has changed.
    ``table_rows`` is the number of rows of the refreshable table."""
    if rows == 0:
        return 0
    by_size = min(_MOST_BY_SIZE, -(-size // CHUNK_BYTES))
    return min(rows, max(-(-rows // CHUNK_ROWS), by_size, -(-table_rows // CHUNK_TABLE_ROWS)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging:
    """The staging table of a refreshable table, at ``path``. ``schema`` and ``keys`` are the schema and the primary key
    of the refreshable table."""

    warehouse: Warehouse
    path: str
    schema: pa.Schema
    keys: tuple[str, ...]

    def of(self, refresh: int) -> Staging:
        """The staging table of one refresh.

        In an object store, each refresh has its own staging table. The reason is that an owner may be suspended while
        it loads, and may lose its lease. When this owner resumes, it may still write to the table of its own refresh
        and delete that table, but it cannot damage the table of a later refresh.
        """
        return self if self.warehouse.is_local else replace(self, path=f"{self.path}/{refresh}")

    def remove(self) -> None:
        """Deletes the table at ``path``. If ``path`` is a folder with the tables of several refreshes, deletes all of
        these tables."""
        self.warehouse.remove(self.path)

    def remove_left(self, refresh: int, *, is_over: bool) -> None:
        """Deletes the tables of refreshes that are over. All refreshes before ``refresh`` are over. If ``is_over`` is
        true, ``refresh`` itself is over too.

        In an object store, an owner that has lost its lease may call this method, because no refresh that is over
        begins again. On a local path, all refreshes use the same table. This table is deleted only if ``is_over`` is
        true; otherwise, the next :meth:`write` replaces it.
        """
        if self.warehouse.is_local:
            if is_over:
                self.remove()
            return
        last = refresh if is_over else refresh - 1
        for name in self.warehouse.list_names(self.path):
            if name.isdecimal() and int(name) <= last:
                self.warehouse.remove(f"{self.path}/{name}")

    def write_table(self, changes: pa.Table, table_rows: int) -> Staged:
        """Does the same as :meth:`write`, for changed rows in memory."""
        fault("refresh.compared")
        self.remove()
        chunks = 0
        if changes.num_rows:
            chunks = self.write_rows(changes, chunk_count(changes.num_rows, 0, table_rows))
            self._require_staged(changes.num_rows)
        return Staged(rows=changes.num_rows, chunks=chunks)

    def write(self, held: DataFrame, rows: int, table_rows: int) -> Staged:
        """Replaces the content of the staging table with changed rows. ``held`` contains the rows with the column KEEP.
        The caller has persisted and counted these rows, and ``rows`` is their number. ``table_rows`` is the number of
        rows of the refreshable table."""
        fault("refresh.compared")
        self.remove()
        if rows == 0:
            return Staged(rows=0, chunks=0)
        if may_hold(held, rows):
            chunks = self.write_rows(held.toArrow(), chunk_count(rows, 0, table_rows))
        else:
            chunks = self._write_frame(held, rows, chunk_count(rows, planned_bytes(held), table_rows))
        self._require_staged(rows)
        return Staged(rows=rows, chunks=chunks)

    def _require_staged(self, rows: int) -> None:
        """Raises MiscountError if the number of staged rows is wrong, or if the driver does not find the staged
        files."""
        exactly(rows).require(RowCount(written=sum(self._rows_by_chunk().values())))
        files = self._files()
        sizes = zip(files.column("path").to_pylist(), files.column("size_bytes").to_pylist(), strict=True)
        wrong = missing_files(self.warehouse, self.path, {unquote(path): int(size) for path, size in sizes})
        if wrong:
            raise MiscountError(wrong)

    def _files(self) -> pa.Table:
        return pa.table(DeltaTable(self.path).get_add_actions(flatten=True))

    def _rows_by_chunk(self) -> dict[int, int]:
        """The number of rows in each chunk, according to the statistics of the staged files."""
        files = self._files()
        found: dict[int, int] = {}
        for number, rows in zip(
            files.column(f"partition.{CHUNK}").to_pylist(), files.column("num_records").to_pylist(), strict=True
        ):
            found[int(number)] = found.get(int(number), 0) + int(rows)
        return found

    def write_rows(self, rows: pa.Table, count: int) -> int:
        """Writes rows from memory, divided into ranges of the key. Returns the number of ranges. There are ``count``
        ranges with about equal numbers of rows. If some of these ranges would be larger than CHUNK_BYTES, there are
        more ranges."""
        ordered = rows.take(pc.sort_indices(rows, sort_keys=[(key, "ascending") for key in self.keys]))
        chunks = pa.array(chunk_numbers(row_sizes(ordered), -(-ordered.num_rows // count), CHUNK_BYTES))
        fields = [self.schema.field(name) for name in self.schema.names]
        fitted = ordered.select(self.schema.names).cast(pa.schema([field.with_nullable(True) for field in fields]))
        fitted = fitted.append_column(KEEP, ordered[KEEP]).append_column(CHUNK, chunks)
        write_deltalake(self.path, fitted, partition_by=[CHUNK])
        return int(chunks[-1].as_py()) + 1

    def _write_frame(self, rows: DataFrame, row_count: int, count: int) -> int:
        """Writes ``row_count`` persisted rows with Spark, divided into ranges of the key. Returns the number of ranges.
        There are ``count`` ranges. If some of these ranges would be larger than CHUNK_BYTES, there are more ranges."""
        return write_by_range(
            rows,
            self.keys,
            CHUNK,
            count=count,
            row_count=row_count,
            most_rows=CHUNK_ROWS,
            most_bytes=CHUNK_BYTES,
            write=lambda divided: divided.write.format("delta").partitionBy(CHUNK).save(self.path),
        )

    def chunk(self, number: int) -> pa.Table:
        """The rows of a chunk, with the column KEEP; empty if the chunk's range contains no rows.

        Raises StalledError if the number of rows differs from the number that was staged.
        """
        read: Any = DeltaTable(self.path)
        rows = read.to_pyarrow_table(filters=[(CHUNK, "=", number)])
        staged = self._rows_by_chunk().get(number, 0)
        Expected(least=staged, most=staged, limits_of="the staging table").require(RowCount(written=rows.num_rows))
        schema = self.schema.append(pa.field(KEEP, pa.bool_()))
        return rows.select(schema.names).cast(pa.schema([field.with_nullable(True) for field in schema]))

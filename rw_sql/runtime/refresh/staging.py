"""Where an upstream is loaded beside a table: what differs, cut into chunks that are ranges of the key.

The chunk of a row is written with it. So a merge that was killed goes on with the very chunks it had begun.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import functions as f

from rw_sql.runtime.delta.row_counts import Expected, MiscountError, RowCount, exactly
from rw_sql.runtime.delta.staged_files import missing_files
from rw_sql.runtime.support.faults import fault
from rw_sql.syntax.query.maintained_form import KEEP

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from rw_sql.runtime.support.warehouse import Warehouse

CHUNK = "_rw_chunk"
"""The column that says which chunk a row belongs to."""

CHUNK_ROWS = 50_000
"""About how many changed rows are merged in one commit."""

CHUNK_TABLE_ROWS = 2_000_000
"""About how many rows of the table lie in the key range of one chunk: it rewrites no more, whatever it changes."""

IN_MEMORY_ROWS = 200_000
"""Up to so many changed rows are cut into chunks in the driver's memory, more by Spark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """What was loaded: how many rows differ, in how many chunks."""

    rows: int
    chunks: int


def chunk_count(rows: int, table_rows: int) -> int:
    """How many chunks so many changed rows of a table are cut into; none where nothing changed."""
    if rows == 0:
        return 0
    return min(rows, max(-(-rows // CHUNK_ROWS), -(-table_rows // CHUNK_TABLE_ROWS)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging:
    """The staging table of a refreshable table, at ``path``. ``schema`` is the table's, ``keys`` its primary key."""

    warehouse: Warehouse
    path: str
    schema: pa.Schema
    keys: tuple[str, ...]

    def of(self, refresh: int) -> Staging:
        """The staging table of one refresh.

        In an object store a table of its own: an owner that was paused while it loaded, and lost its lease, may still
        write and remove what the refresh that it knew of has staged.
        """
        return self if self.warehouse.is_local else replace(self, path=f"{self.path}/{refresh}")

    def remove(self) -> None:
        """Takes away what an earlier refresh left."""
        self.warehouse.remove(self.path)

    def write(self, held: DataFrame, rows: int, table_rows: int) -> Staged:
        """Puts changed rows, so many, each with KEEP, in the place of whatever was there."""
        fault("refresh.compared")
        count = chunk_count(rows, table_rows)
        self.remove()
        if rows == 0:
            return Staged(rows=0, chunks=0)
        if rows <= IN_MEMORY_ROWS:
            self.write_rows(held.toArrow(), count)
        else:
            self._write_frame(held, count)
        self._require_staged(rows)
        return Staged(rows=rows, chunks=count)

    def _require_staged(self, rows: int) -> None:
        """Raises MiscountError where so many rows are not staged, or not where the driver finds them."""
        exactly(rows).require(RowCount(written=sum(self._rows_by_chunk().values())))
        files = self._files()
        sizes = zip(files.column("path").to_pylist(), files.column("size_bytes").to_pylist(), strict=True)
        wrong = missing_files(self.warehouse, self.path, {unquote(path): int(size) for path, size in sizes})
        if wrong:
            raise MiscountError(wrong)

    def _files(self) -> pa.Table:
        return pa.table(DeltaTable(self.path).get_add_actions(flatten=True))

    def _rows_by_chunk(self) -> dict[int, int]:
        """How many rows each chunk has, as the statistics of the staged files say."""
        files = self._files()
        found: dict[int, int] = {}
        for number, rows in zip(
            files.column(f"partition.{CHUNK}").to_pylist(), files.column("num_records").to_pylist(), strict=True
        ):
            found[int(number)] = found.get(int(number), 0) + int(rows)
        return found

    def write_rows(self, rows: pa.Table, count: int) -> None:
        """Writes rows that are in memory, cut into ``count`` ranges of the key of about the same number of rows."""
        ordered = rows.take(pc.sort_indices(rows, sort_keys=[(key, "ascending") for key in self.keys]))
        size = -(-ordered.num_rows // count)
        chunks = pa.array(np.arange(ordered.num_rows) // size, pa.int32())
        fields = [self.schema.field(name) for name in self.schema.names]
        fitted = ordered.select(self.schema.names).cast(pa.schema([field.with_nullable(True) for field in fields]))
        fitted = fitted.append_column(KEEP, ordered[KEEP]).append_column(CHUNK, chunks)
        write_deltalake(self.path, fitted, partition_by=[CHUNK])

    def _write_frame(self, rows: DataFrame, count: int) -> None:
        ranges = rows.repartitionByRange(count, *(f.col(f"`{key}`") for key in self.keys))
        ranges.withColumn(CHUNK, f.spark_partition_id()).write.format("delta").partitionBy(CHUNK).save(self.path)

    def chunk(self, number: int) -> pa.Table:
        """The rows of a chunk, each with KEEP; none where nothing fell into its range.

        Raises StalledError where they are not as many as were staged.
        """
        read: Any = DeltaTable(self.path)
        rows = read.to_pyarrow_table(filters=[(CHUNK, "=", number)])
        staged = self._rows_by_chunk().get(number, 0)
        Expected(least=staged, most=staged, told_by="what was staged").require(RowCount(written=rows.num_rows))
        schema = self.schema.append(pa.field(KEEP, pa.bool_()))
        return rows.select(schema.names).cast(pa.schema([field.with_nullable(True) for field in schema]))

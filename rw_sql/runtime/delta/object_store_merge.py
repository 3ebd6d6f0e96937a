"""Merges many rows into a table in an object store. Spark computes and writes the files, and delta-rs commits these
files.

Each file that contains one of the keys is replaced by new files, which contain the file's remaining rows and the new
rows (copy on write, like Spark's own MERGE). If a commit of a table with a change feed contains no change files,
readers derive the feed from all rows in the added and removed files (Delta protocol, "Add CDC File"). For a table with
a change feed, a first commit therefore divides the affected files: it writes the rows that stay to some new files, and
the rows to remove to others. This commit changes no data. The batch's commit then removes exactly the files with the
rows to remove, and adds exactly the new rows. Readers of the feed see each changed row as one delete and one insert.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql import functions as f

from rw_sql.connectors.delta.plain_files import AS_WRITTEN
from rw_sql.connectors.delta.versions import table_at
from rw_sql.runtime.delta.staged_files import fitted, schema_of, write_files
from rw_sql.syntax.lexing.identifiers import quoted_for_spark
from rw_sql.syntax.query.maintained_form import KEEP

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from deltalake import DeltaTable
    from pyspark.sql import Column, DataFrame

    from rw_sql.runtime.support.warehouse import Warehouse

_FILE = "_rw_file"

Action = AddAction | RemoveAction


@dataclass(slots=True)
class FileMerge:
    """One merge into an unpartitioned table, at the version of ``table``.

    ``frame`` has one row per key. If ``frame`` has a column KEEP, a row with the value false deletes the table's row
    with the same key. The caller must persist the frame, because it is read several times.
    """

    warehouse: Warehouse
    path: str
    table: DeltaTable
    frame: DataFrame
    keys: Sequence[str]
    job: str
    run: int
    _gone: dict[str, int] | None = field(default=None, init=False)

    def split(self) -> list[Action]:
        """Returns the actions that move the rows that the merge replaces or deletes to separate files. These actions
        change no data. The result is empty if there are no such rows.

        After the commit of these actions, :meth:`merged` removes the files with these rows as a whole.
        """
        touched = self._touched()
        if not touched:
            return []
        rows = self._rows_of(touched)
        stay = self._write(self._without_keys(rows, "left_anti"), is_new_data=False)
        go = self._write(self._without_keys(rows, "left_semi"), is_new_data=False)
        self._gone = {action.path: action.size for action in go if isinstance(action, AddAction)}
        return [*_removed(touched, is_new_data=False), *stay, *go]

    def merged(self) -> list[Action]:
        """Returns the actions of the batch's commit, which remove files and add files."""
        comes = self._given()
        if KEEP in self.frame.columns:
            comes = comes.where(f.col(KEEP)).drop(KEEP)
        if self._gone is not None:
            return [*_removed(self._gone, is_new_data=True), *self._write(comes)]
        touched = self._touched()
        if touched:
            comes = self._without_keys(self._rows_of(touched), "left_anti").unionByName(comes)
        return [*_removed(touched, is_new_data=True), *self._write(comes)]

    def _given(self) -> DataFrame:
        """Returns the rows of ``frame`` with the table's columns and types, and with the column KEEP if ``frame`` has
        it."""
        return fitted(self.frame, self.table, {}, keep=(KEEP,))

    def _touched(self) -> dict[str, int]:
        """The table's files that contain one of the keys, each with its size."""
        now = table_at(self.frame.sparkSession, self.path, self.table.version())
        columns = [f.col(quoted_for_spark(key)) for key in self.keys]
        named = now.select(*columns, f.col("_metadata.file_name").alias(_FILE))
        found = self._without_keys(named, "left_semi").select(_FILE).distinct().collect()
        names = {unquote(row[_FILE]) for row in found}
        files = pa.table(self.table.get_add_actions(flatten=True))
        paths, sizes = files.column("path").to_pylist(), files.column("size_bytes").to_pylist()
        touched = {
            path: size for path, size in zip(paths, sizes, strict=True) if unquote(path).rpartition("/")[2] in names
        }
        if len(touched) != len(names):
            raise OSError(f"the table {self.path} contains several files with the same name")
        return touched

    def _rows_of(self, files: Collection[str]) -> DataFrame:
        """The rows of some of the table's files.

        This method reads the files directly, because reading the table would include all files.
        """
        spark = self.frame.sparkSession
        paths = (f"{self.path}/{unquote(path)}" for path in files)
        return spark.read.options(**AS_WRITTEN).schema(schema_of(self.table)).parquet(*paths)

    def _without_keys(self, rows: DataFrame, how: str) -> DataFrame:
        """Returns rows of the table. If ``how`` is ``left_semi``, these are the rows whose keys are in the merge. If
        ``how`` is ``left_anti``, these are the rows whose keys are not in the merge."""
        given = self._given().select(
            *(f.col(quoted_for_spark(key)).alias(f"_rw_key_{at}") for at, key in enumerate(self.keys))
        )
        same = [f.col(quoted_for_spark(key)).eqNullSafe(f.col(f"_rw_key_{at}")) for at, key in enumerate(self.keys)]
        return rows.join(given, reduce(_and, same, f.lit(True)), how)

    def _write(self, rows: DataFrame, *, is_new_data: bool = True) -> list[Action]:
        return write_files(
            self.warehouse,
            self.path,
            self.table,
            rows,
            job=self.job,
            run=self.run,
            partition={},
            is_new_data=is_new_data,
        ).actions


def _and(one: Column, other: Column) -> Column:
    return one & other


def _removed(files: dict[str, int], *, is_new_data: bool) -> list[Action]:
    at = int(time.time() * 1000)
    return [RemoveAction(path, is_new_data, at, size, {}) for path, size in files.items()]

"""Decodes the records of a chunk that a backfill reads from upstream. Arrow decodes a chunk if it supports the source's
format and columns, and if the chunk has so many records that Arrow saves time. Spark decodes all other chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from rw_sql.connectors.support.local_frames import keeping_active_session
from rw_sql.runtime.decoding.decoder import log_schema
from rw_sql.runtime.delta.staged_files import decoding_folder
from rw_sql.runtime.jobs.arrow_batches import ArrowBatches
from rw_sql.runtime.spark.executors import require_executors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame

    from rw_sql.runtime.backfill.direct_table import DirectTable
    from rw_sql.runtime.backfill.staging_table import BackfillStaging
    from rw_sql.runtime.delta.row_counts import Expected
    from rw_sql.runtime.delta.staged_files import Reported, SaveFiles, SparkSave
    from rw_sql.runtime.support.warehouse import Warehouse
    from rw_sql.syntax.statements import CreateSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkDecoder:
    """Decodes the chunks of one input during one run. ``arrow`` is None if Spark must decode all chunks."""

    warehouse: Warehouse
    statement: CreateSource
    table: BackfillStaging | DirectTable
    run: int
    arrow: ArrowBatches | None

    @staticmethod
    def of(
        warehouse: Warehouse, statement: CreateSource, table: BackfillStaging | DirectTable, run: int
    ) -> ChunkDecoder:
        """Creates the decoder that decodes a source's records for a table."""
        arrow = ArrowBatches.of(warehouse, statement, run)
        return ChunkDecoder(warehouse=warehouse, statement=statement, table=table, run=run, arrow=arrow)

    def rows(
        self, records: DataFrame, count: int, rows_of: Callable[[DataFrame], DataFrame], expected: Expected
    ) -> tuple[DataFrame, SaveFiles | None]:
        """Returns the rows of about ``count`` records in the form in which the log would contain them, and None. If
        Arrow writes the files of the table, the result instead consists of the undecoded records and of the function
        that writes the files.

        ``rows_of`` decodes records with Spark. If Arrow decodes the records, and all columns of the table are columns
        of the log, Arrow writes the table's files. If the table has other columns, Arrow writes files below the table's
        folder, Spark reads the rows from these files, and :meth:`discard` deletes the files.
        """
        if self.arrow is None or not self.arrow.takes(records, count):
            return rows_of(records), None
        columns = self.table.columns_in_log(self._empty_log(records))
        if columns is not None:
            return records, self._save(self.arrow, records, columns, rows_of)
        require_executors(self.warehouse, records.sparkSession)
        found = self.arrow.decoded(self.warehouse, self._folder, records=records, rows_of=rows_of, expected=expected)
        return rows_of(records) if found is None else found, None

    def _save(
        self,
        arrow: ArrowBatches,
        records: DataFrame,
        columns: Mapping[str, str],
        rows_of: Callable[[DataFrame], DataFrame],
    ) -> SaveFiles:
        stored = pa.schema(self.table.output.table.schema().to_arrow())

        def result_of(left: DataFrame) -> DataFrame:
            return self.table.result(rows_of(left))

        def save(folder: str, by_spark: SparkSave) -> Reported:
            made = arrow.save(
                self.warehouse,
                folder,
                by_spark,
                schema=pa.schema([column for column in stored if column.name in columns]),
                records=records,
                rows_of=result_of,
                batch=0,
                since={},
                renamed=columns,
            )
            return by_spark(result_of(records), folder) if made is None else made

        return save

    def discard(self) -> None:
        """Deletes the files that Arrow has written for Spark to read."""
        if self.arrow is not None:
            self.warehouse.remove(self._folder)

    @property
    def _folder(self) -> str:
        return decoding_folder(self.table.output.path, job=self.table.output.job, run=self.run)

    def _empty_log(self, records: DataFrame) -> DataFrame:
        with keeping_active_session(records.sparkSession):
            return records.sparkSession.createDataFrame([], log_schema(self.statement))

"""A batch of a source's reader whose records Spark decodes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from rw_sql.runtime.decoding.decoder import BUCKET
from rw_sql.runtime.delta.stored_rows import as_stored
from rw_sql.runtime.ingest.registry_batches import write_by_known_schemas

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from rw_sql.runtime.decoding.decoder import Decoder
    from rw_sql.runtime.decoding.registry.message_records import MessageRecords
    from rw_sql.runtime.decoding.registry.records import SchemaRecords
    from rw_sql.runtime.delta.job_output import JobOutput
    from rw_sql.runtime.delta.row_counts import Expected
    from rw_sql.runtime.delta.staged_files import SaveFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkBatch:
    """The records of a batch, and the values of those columns of the log that are equal in all rows or depend only on
    the split.

    ``heads`` are the known distinct heads of the records. A head is the first bytes of a record, which contain the id
    of the record's schema.
    """

    records: DataFrame
    heads: frozenset[bytes]
    schemas: SchemaRecords | MessageRecords | None
    decoder: Decoder
    batch: int
    bucket: int
    since: Mapping[str, int]

    def rows(self, heads: frozenset[bytes] | None = None) -> DataFrame:
        """The batch's rows, with the log's columns. If ``heads`` is given, Spark decodes the records with the schemas
        of these heads; otherwise, with the schemas of the known heads."""
        known = self.records
        if self.schemas is not None:
            known = self.schemas.rows(known, self.heads if heads is None else heads)
        return self.decoder.rows(known, batch=self.batch, bucket=self.bucket, since=self.since)

    def collected(self, schema: pa.Schema) -> pa.Table:
        """Collects the batch's rows into this process, with the columns of ``schema``."""
        return as_stored(self.rows().toArrow(), schema)

    def write(
        self, output: JobOutput, ranges: dict[str, tuple[int, int]], *, expected: Expected, save: SaveFiles | None
    ) -> None:
        """Appends the batch's rows to the log. If ``save`` is given, ``save`` writes the files with the rows;
        otherwise, Spark writes these files."""
        write = partial(
            output.append_frame,
            batch=self.batch,
            ranges=ranges,
            partition={BUCKET: self.bucket},
            expected=expected,
            save=save,
        )
        if self.schemas is None:
            write(self.rows())
            return
        write_by_known_schemas(
            self.schemas, output.warehouse, output.path, self.rows, lambda frame, check: write(frame, check=check)
        )

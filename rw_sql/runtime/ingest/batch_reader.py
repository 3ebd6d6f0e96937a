"""Reads and decodes the records of a source's batches: in this process, or with Spark."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from rw_sql.connectors.fetching import PartlyStreamingConnector, TermFetcher, UnreadableRecordError
from rw_sql.connectors.ranged import RangedConnector
from rw_sql.connectors.support.local_frames import is_large, local_frame
from rw_sql.connectors.support.private_files import share_with_executors
from rw_sql.runtime.decoding.upstream_records import has_small_batches, packages_on_executors, read_records
from rw_sql.runtime.delta.job_output import SMALL_ROWS
from rw_sql.runtime.ingest.spark_batch import SparkBatch
from rw_sql.runtime.jobs.batch_mode import LeftToSparkError
from rw_sql.runtime.spark.executors import require_executors
from rw_sql.runtime.support.faults import fault
from rw_sql.syntax.lexing.identifiers import literal, sql_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from rw_sql.connectors.base import Connector
    from rw_sql.runtime.decoding.decoder import Decoder
    from rw_sql.runtime.decoding.registry.message_records import MessageRecords
    from rw_sql.runtime.decoding.registry.records import SchemaRecords
    from rw_sql.runtime.delta.delta_log import SplitIdentity
    from rw_sql.runtime.delta.staged_files import SaveFiles
    from rw_sql.runtime.ingest.source_stream import SourceStream
    from rw_sql.runtime.jobs.arrow_batches import ArrowBatches
    from rw_sql.runtime.jobs.log_terms import LogTerms
    from rw_sql.runtime.support.warehouse import Warehouse


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """A batch that will be read. ``moved`` maps each split to its range of offsets, without empty ranges. ``expected``
    is the approximate number of records in the batch. ``batch``, ``bucket`` and ``since`` are the values of those
    columns of the log that depend only on the batch or on the split."""

    batch: int
    moved: Mapping[str, tuple[int, int]]
    expected: int
    bucket: int
    since: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBatch:
    """A batch that was read. ``small`` contains the batch's rows, if this process has decoded them. If ``small`` is
    None, ``spark`` contains the batch's records, which Spark decodes and writes. ``fetched`` is the number of records
    that this process has fetched; None if Spark reads the records. ``unproved`` are the ranges for which the terms of
    the fetched records (Kafka: leader epochs) do not show that the log still has the last offsets. For these ranges,
    the run must request the logs' terms from the upstream before it commits the batch."""

    small: pa.Table | None
    spark: SparkBatch | None
    fetched: int | None
    unproved: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReader:
    """Reads the batches of one run of a source's reader. ``schema`` is the schema of the log's table."""

    warehouse: Warehouse
    opening: SourceStream
    lives: Mapping[str, SplitIdentity]
    schema: pa.Schema
    terms: LogTerms | None
    decoder: Decoder
    arrow: ArrowBatches | None
    schemas: SchemaRecords | MessageRecords | None

    def read(self, plan: BatchPlan, frame: DataFrame | None) -> ReadBatch:
        """Reads a batch. ``frame`` contains the records of the batch if a query reads them; otherwise, it is None.

        Raises LeftToSparkError if only a query can read the batch.
        """
        fetched = self._fetched(plan)
        if fetched is None and frame is None:
            raise LeftToSparkError("the fetcher has given up")
        unproved = plan.moved if fetched is None else self._unproved(plan, fetched)
        small = spark = None
        if fetched is not None and self.arrow is not None:
            small = self.arrow.rows(fetched, self.schema, batch=plan.batch, bucket=plan.bucket, since=plan.since)
        if small is None:
            spark = self._by_spark(plan, frame, fetched)
        fault("ingest.in_batch")
        # A batch that a fetcher leaves to Spark may be too large for this process.
        is_few = plan.expected <= SMALL_ROWS and has_small_batches(self._kind)
        may_collect = is_few and (self.opening.fetcher is None or fetched is not None)
        if spark is not None and may_collect and not is_large(spark.records):
            small = spark.collected(self.schema)
        count = None if fetched is None else fetched.num_rows
        return ReadBatch(small=small, spark=spark, fetched=count, unproved=unproved)

    def arrow_save(self, plan: BatchPlan, spark: SparkBatch) -> SaveFiles | None:
        """The function that decodes and saves a large batch with Arrow; None if Spark must decode the batch."""
        if self.arrow is None or not self.arrow.takes(spark.records, plan.expected):
            return None
        return partial(
            self.arrow.save,
            self.warehouse,
            schema=self.schema,
            records=spark.records,
            rows_of=partial(self.decoder.rows, batch=plan.batch, bucket=plan.bucket, since=plan.since),
            batch=plan.batch,
            since=plan.since,
        )

    @property
    def _kind(self) -> Connector:
        return self.opening.kind

    def _fetched(self, plan: BatchPlan) -> pa.Table | None:
        """Fetches the records of a small batch in this process. Returns None if Spark's reader must read the batch."""
        fetcher = self.opening.fetcher
        if fetcher is None or plan.expected > SMALL_ROWS:
            return None
        return fetcher.fetch(plan.moved)

    def _unproved(self, plan: BatchPlan, fetched: pa.Table) -> Mapping[str, tuple[int, int]]:
        """Checks the terms of fetched records. Returns the ranges for which these terms do not show that the log still
        has the last offsets.

        Raises StalledError if the log of a split has lost records that were read.
        """
        fetcher = self.opening.fetcher
        if fetcher is not None and self.terms is not None and isinstance(fetcher, TermFetcher):
            return self.terms.note_fetched(plan.moved, fetcher.terms, _ends_of(fetched))
        return plan.moved

    def _by_spark(self, plan: BatchPlan, frame: DataFrame | None, fetched: pa.Table | None) -> SparkBatch:
        records, heads = self._records(plan, frame, fetched)
        return SparkBatch(
            records=records,
            heads=heads,
            schemas=self.schemas,
            decoder=self.decoder,
            batch=plan.batch,
            bucket=plan.bucket,
            since=plan.since,
        )

    def _records(
        self, plan: BatchPlan, frame: DataFrame | None, fetched: pa.Table | None
    ) -> tuple[DataFrame, frozenset[bytes]]:
        """Returns the records that Spark will decode, and their known heads (see :class:`SparkBatch`)."""
        opening, heads = self.opening, frozenset[bytes]()
        spark = frame.sparkSession if frame is not None else opening.session or opening.open_session()
        if fetched is not None:
            heads = heads if self.schemas is None else self.schemas.heads_in(fetched)
            return local_frame(spark, fetched if self.schemas is None else self.schemas.decoded(fetched, heads)), heads
        if frame is None:
            raise LeftToSparkError("the batch was not fetched")
        # Executors read the batch, possibly with files of secrets that were made after the run's start. For a ranged
        # connector, read_records below would announce them only after the check.
        share_with_executors(opening.options.values())
        require_executors(self.warehouse, spark, packages_on_executors(self._kind, opening.statement))
        if isinstance(self._kind, PartlyStreamingConnector) and self._kind.unstreamable(opening.options, plan.moved):
            try:
                frame = read_records(self._kind, spark, opening.options, plan.moved, opening.statement)
            except UnreadableRecordError as error:
                past = f"VALUES ({literal(error.split)} = {error.offset + 1})"
                name = sql_name(opening.statement.name.key)
                raise OSError(f"{error}: to omit the record, INJECT SOURCE OFFSETS {name} {past}") from error
        if self.schemas is not None:
            heads = self.schemas.heads_of(frame) if plan.expected <= SMALL_ROWS else self.schemas.known_heads
        if not isinstance(self._kind, RangedConnector):
            return frame, heads
        lives = {split: self.lives[split][1] for split in plan.moved}
        return read_records(self._kind, spark, opening.options, plan.moved, opening.statement, lives), heads


def _ends_of(records: pa.Table) -> dict[str, int]:
    """Returns, for each split, the offset after the split's last record."""
    last = records.group_by("_rw_split", use_threads=False).aggregate([("_rw_offset", "max")])
    splits, offsets = last.column("_rw_split").to_pylist(), last.column("_rw_offset_max").to_pylist()
    return {split: offset + 1 for split, offset in zip(splits, offsets, strict=True)}

"""Writes each batch of a job exactly once to the job's Delta table: small batches by delta-rs, others by Spark.

Each job has one application id. A batch has the transaction version ``run × 2³² + batch + 1`` (Delta protocol,
"Transaction Identifiers"). A run starts by committing a fence: an append without rows (except for the first rows of a
new table) that has the version ``run × 2³²``. From then on, a commit of an older run has no effect: delta-rs refuses
it, and Spark skips it. A run that directly follows an idle run of the same process needs no fence, because its first
batch is refused if anything else has been committed since.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, TableNotFoundError

from rw_sql.connectors.delta.inexact_statistics import without_inexact_min_max
from rw_sql.metastore.table import create_table
from rw_sql.runtime.delta.compaction import maintenance_properties
from rw_sql.runtime.delta.delta_log import JobCommit, last_commit, latest_version
from rw_sql.runtime.delta.key_range import same_keys
from rw_sql.runtime.delta.object_store_merge import FileMerge
from rw_sql.runtime.delta.row_counts import ANY, Expected, MiscountError
from rw_sql.runtime.delta.staged_files import forget_unfinished, merge_problem, write_files
from rw_sql.runtime.delta.table_settings import CHANGE_FEED, TABLE_SETTINGS, add_columns, add_settings
from rw_sql.runtime.delta.version_checksum import VersionChecksums
from rw_sql.runtime.spark.executors import require_executors
from rw_sql.runtime.support.faults import fault
from rw_sql.syntax.query.maintained_form import KEEP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from deltalake.transaction import AddAction, RemoveAction
    from pyspark.sql import DataFrame

    from rw_sql.runtime.delta.delta_log import SplitIdentity
    from rw_sql.runtime.delta.staged_files import SaveFiles
    from rw_sql.runtime.support.warehouse import Warehouse

SMALL_ROWS = 20_000
"""The maximum number of rows of a batch that is written with Arrow and delta-rs. Spark writes larger batches."""

LARGE_ROWS = 200_000
"""Spark merges batches of keyed rows if they have more than this number of rows. delta-rs merges smaller batches."""

HELD_BYTES = 128 * 1024 * 1024
"""The maximum size in bytes of a batch that this process holds in memory. Spark writes larger batches."""

SMALL_FILE_BYTES = 32 * 1024 * 1024
"""The maximum size in bytes of compressed files whose rows are assumed to fit into :data:`HELD_BYTES`."""

_RUN_SHIFT = 32


class FencedError(Exception):
    """A later run of this job has taken over its table; this run must stop."""


@dataclass(slots=True)
class JobOutput:
    """The table that one run of a job writes. Not thread-safe: only one batch may be written at a time.

    ``done`` is the last batch that earlier runs of the generation have written; -1 if they have written no batch.
    ``lives`` maps each split to its identity, and ``terms`` maps each split to the term of its log (Kafka: leader
    epoch). The commits of a job that reads an upstream contain ``lives`` and ``terms``. ``ranges`` are the offsets of
    the batch in progress, unless the caller passes them with the rows. ``follows`` is the table's transaction version
    at the start of a run without a fence; None for other runs. :meth:`append_frame` calls ``before_commit`` before the
    commit. If ``before_commit`` raises an exception, the batch is aborted. ``tables`` is the progress of snapshots that
    the batch in progress stores. ``rows`` maps each upstream table to the number of its rows in the batch. ``sent`` is
    the last batch whose rows were sent to a sink's target; None if it is unknown, and for jobs that are not sinks.
    """

    warehouse: Warehouse
    path: str
    job: str
    run: int
    epoch: int
    generation: int
    table: DeltaTable
    done: int = -1
    follows: int | None = None
    lives: Mapping[str, SplitIdentity] = field(default_factory=dict)
    terms: Mapping[str, int] = field(default_factory=dict)
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    before_commit: Callable[[], None] | None = None
    tables: Mapping[str, list[str]] = field(default_factory=dict)
    rows: Mapping[str, int] | None = None
    sent: int | None = None
    checksums: VersionChecksums = field(init=False)
    _seen: tuple[int, int | None] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.checksums = VersionChecksums(self.warehouse, self.path)

    @staticmethod
    def open(
        warehouse: Warehouse,
        path: str,
        spark_schema: str,
        *,
        job: str,
        run: int,
        epoch: int,
        generation: int = 1,
        partition_by: Sequence[str] = (),
        has_change_feed: bool = False,
        statistics: Sequence[str] = (),
        first_rows: pa.Table | None = None,
    ) -> JobOutput:
        """Opens the table, creating it if needed, and fences all earlier runs.

        Adds columns of ``spark_schema`` that the table lacks. If ``has_change_feed`` is true, enables the table's
        change feed. ``statistics`` are the columns for which Delta stores statistics; if empty, the table's setting
        does not change. ``first_rows`` are the rows that a new table contains before the first batch.
        """
        try:
            table = DeltaTable(path)
        except TableNotFoundError:
            create_table(path, Schema.from_json(spark_schema), TABLE_SETTINGS, partition_by)
            table = DeltaTable(path)
        output = JobOutput(
            warehouse=warehouse, path=path, job=job, run=run, epoch=epoch, generation=generation, table=table
        )
        if table.version() == 0:
            output.write_checksum()  # Streams that read the table from its creation open this version.
        output._fence(first_rows)
        output.fit(spark_schema, has_change_feed=has_change_feed, statistics=statistics)
        return output

    @staticmethod
    def reopen(warehouse: Warehouse, path: str, *, job: str, run: int, epoch: int, generation: int = 1) -> JobOutput:
        """Opens an existing table, unchanged, and fences all earlier runs. Raises TableNotFoundError."""
        output = JobOutput(
            warehouse=warehouse, path=path, job=job, run=run, epoch=epoch, generation=generation, table=DeltaTable(path)
        )
        output._fence()
        return output

    def followed_by(self, path: str, *, run: int, epoch: int) -> JobOutput | None:
        """Returns the output of the job's next run, which commits no fence; None if the next run needs a fence.

        After this call, nothing may be committed through this output, which belongs to the old run. The fence of the
        old run remains valid until the next run's first batch, which is refused if another run has committed. The next
        run needs a fence if another run was claimed, if the table was replaced, or if this run's commit is not last.
        """
        if path != self.path or run != self.run + 1:
            return None
        known = self.table.version()
        seen = self._newest_transaction()
        if self.table.version() != known or not self._is_own(seen):
            return None
        output = JobOutput(
            warehouse=self.warehouse,
            path=path,
            job=self.job,
            run=run,
            epoch=epoch,
            generation=self.generation,
            table=self.table,
            follows=seen,
        )
        output.checksums = self.checksums
        return output

    def fit(self, spark_schema: str, *, has_change_feed: bool = False, statistics: Sequence[str] = ()) -> None:
        """Adds missing columns and settings to the table, as described for :meth:`open`."""
        if add_columns(self.table, Schema.from_json(spark_schema)):
            self.write_checksum()
        if add_settings(self.table, has_change_feed=has_change_feed, statistics=statistics):
            self.write_checksum()

    def _is_own(self, seen: int | None) -> bool:
        """True if a transaction version belongs to this run, or to the run that this run follows without a fence."""
        return seen is not None and (seen >> _RUN_SHIFT == self.run or seen == self.follows)

    def write_checksum(self, *, recount: bool = False) -> None:
        """Writes the version checksum of the last commit through ``table`` (see :meth:`VersionChecksums.write`)."""
        self.checksums.write(self.table, recount=recount)

    def _version_of(self, batch: int) -> int:
        return (self.run << _RUN_SHIFT) + batch + 1

    def _fence(self, first_rows: pa.Table | None = None) -> None:
        fault("fence.before")
        while True:
            seen = self._newest_transaction()
            if seen is not None and seen >> _RUN_SHIFT >= self.run:
                raise FencedError(f"run {seen >> _RUN_SHIFT} of {self.job} has taken over from run {self.run}")
            # No later commit can change the last batch: if anything is committed after the version that is read here,
            # the fence is refused.
            before = last_commit(self.warehouse, self.path, self.generation)
            self.done, self.sent = (-1, None) if before is None else (before.newest_batch, before.sent)
            commit = self._mark(self.done)
            is_new = first_rows is not None and self.done < 0 and not self.table.file_uris()
            rows = first_rows if is_new and first_rows is not None else self._empty()
            try:
                self._append(rows, self._properties(self.run << _RUN_SHIFT, commit))
            except CommitFailedError:
                continue
            self.write_checksum()
            fault("fence.after")
            forget_unfinished(self.warehouse, self.path, job=self.job, run=self.run)
            return

    def _empty(self) -> pa.Table:
        schema = pa.schema(self.table.schema().to_arrow())
        return schema.empty_table()

    def _properties(self, version: int, commit: JobCommit) -> CommitProperties:
        return CommitProperties(
            custom_metadata={"userMetadata": commit.to_json()},
            max_commit_retries=0,
            app_transactions=[Transaction(self.job, version)],
        )

    def _mark(self, done: int, *, rewind: int = 0) -> JobCommit:
        """The metadata of a fence or a RESTORE. ``done`` is the last batch in the table."""
        return JobCommit(
            job=self.job,
            run=self.run,
            epoch=self.epoch,
            batch=-1,
            generation=self.generation,
            ranges={},
            done=done,
            rewind=rewind,
            sent=self.sent,
        )

    def _commit_of(self, batch: int, ranges: dict[str, tuple[int, int]], merged: int | None = None) -> JobCommit:
        ranges = ranges or dict(self.ranges)
        return JobCommit(
            job=self.job,
            run=self.run,
            epoch=self.epoch,
            batch=batch,
            generation=self.generation,
            ranges=ranges,
            lives=self.lives if ranges else {},
            terms={split: self.terms[split] for split in ranges if split in self.terms},
            tables=self.tables,
            rows=self.rows,
            sent=self.sent,
            merged=merged,
        )

    def _newest_transaction(self) -> int | None:
        """Advances ``table`` to the newest version; returns the job's transaction version there.

        On a local path, ``table`` is refreshed only if a newer version exists, because a refresh reads the log.
        """
        at = self.table.version()
        if not self.warehouse.is_local or latest_version(self.warehouse, self.path) != at:
            self.table.update_incremental()
            at = self.table.version()
        if self._seen is None or self._seen[0] != at:
            self._seen = (at, self.table.transaction_version(self.job))
        return self._seen[1]

    def _require_turn(self, version: int) -> None:
        seen = self._newest_transaction()
        if not self._is_own(seen) or seen is None or seen >= version:
            raise FencedError(f"another run of {self.job} has taken over from run {self.run}")

    def _require_written(self, version: int) -> None:
        """Raises FencedError if the batch is not in the table: Spark skips the commit of a fenced run without an
        error."""
        if self._newest_transaction() != version:
            raise FencedError(f"another run of {self.job} has taken over from run {self.run}")

    def restore(self, version: int, *, rewind: int, done: int) -> int:
        """Restores the table to the content of ``version``; returns the version of the commit that restores it.

        ``rewind`` is the epoch of the REWIND. ``done`` is the last batch in the restored table. Raises FencedError if
        another run has taken over.
        """
        self._require_turn(self._version_of(0))
        try:
            self.table.restore(
                version, commit_properties=self._properties(self._version_of(0), self._mark(done, rewind=rewind))
            )
        except CommitFailedError as error:
            raise FencedError(f"another writer committed to the table of {self.job}") from error
        self.write_checksum(recount=True)
        return self.table.version()

    def require_own_run(self) -> None:
        """Advances ``table`` to the newest version. Raises FencedError if another run has taken over."""
        if not self._is_own(self._newest_transaction()):
            raise FencedError(f"another run of {self.job} has taken over from run {self.run}")

    def require_turn(self, batch: int) -> None:
        """Raises FencedError if another run has taken over, or if the batch has already been committed."""
        self._require_turn(self._version_of(batch))

    def is_written(self, batch: int) -> bool:
        """True if this run has committed the batch."""
        return self._newest_transaction() == self._version_of(batch)

    def mark(self, batch: int) -> None:
        """Commits only the number of a batch, for a batch that has no rows or whose rows are stored elsewhere. Raises
        FencedError if another run has taken over."""
        self.append_rows(self._empty(), batch)

    def prove(self) -> None:
        """Calls ``before_commit``, if it is set. For a batch that is written through :meth:`append_rows`, the job
        itself calls this method after it has read the batch."""
        if self.before_commit is not None:
            self.before_commit()

    @contextmanager
    def _committing(self) -> Iterator[None]:
        """A context manager for the commit of a batch through ``table``. Raises FencedError if another writer commits
        first."""
        try:
            with self.checksums.committing(self.table):
                yield
        except CommitFailedError as error:
            raise FencedError(f"another writer committed to the table of {self.job}") from error

    def _append(self, rows: pa.Table, properties: CommitProperties) -> None:
        more = without_inexact_min_max(rows.schema)
        write_deltalake(self.table, rows, mode="append", commit_properties=properties, **more)

    def append_rows(self, rows: pa.Table, batch: int, ranges: dict[str, tuple[int, int]] | None = None) -> None:
        """Appends a batch through delta-rs. Raises FencedError if another run has taken over."""
        version = self._version_of(batch)
        fault("batch.before_append")
        self._require_turn(version)
        before = self.table.version()
        properties = self._properties(version, self._commit_of(batch, ranges or {}))
        with self._committing():
            self._append(rows, properties)
        if self.table.version() == before + 1:
            self._seen = (before + 1, version)
        self.write_checksum()
        fault("batch.after_append")

    def append_frame(
        self,
        frame: DataFrame,
        batch: int,
        ranges: dict[str, tuple[int, int]] | None = None,
        *,
        partition: Mapping[str, object] | None = None,
        expected: Expected = ANY,
        check: Callable[[Sequence[AddAction | RemoveAction]], None] | None = None,
        save: SaveFiles | None = None,
    ) -> None:
        """Appends a batch whose rows Spark or ``save`` writes. Raises FencedError if another run has taken over.

        ``partition`` contains the values of the table's partition columns, which are equal for all rows. Raises
        StalledError and commits nothing if an executor does not share the table's folder, or if the number of rows is
        not ``expected``. ``check`` receives the written files. If ``check`` raises an exception, the files are deleted
        and nothing is committed.
        """
        version = self._version_of(batch)
        fault("batch.before_append")
        self._require_turn(version)
        commit = self._commit_of(batch, ranges or {})
        given = partition or {}
        require_executors(self.warehouse, frame.sparkSession)
        try:
            written = write_files(
                self.warehouse, self.path, self.table, frame, job=self.job, run=self.run, partition=given, save=save
            )
        except Exception:
            # If another run has taken over, it has deleted the files of this run, which may be the cause of the error.
            self.require_own_run()
            raise
        expected.require(written.count)
        if check is not None:
            try:
                check(written.actions)
            except BaseException:
                for action in written.actions:
                    self.warehouse.remove(f"{self.path}/{action.path}")
                raise
        fault("batch.written")
        self.prove()
        # Checks for commits of another run since the batch began, because Spark may have taken minutes to write the
        # files. No further check follows.
        self._require_turn(version)
        self._commit_files(written.actions, self._properties(version, commit), list(given))
        self.write_checksum()
        fault("batch.after_append")

    def _commit_files(
        self,
        actions: list[AddAction | RemoveAction],
        properties: CommitProperties,
        partition_by: Sequence[str] = (),
    ) -> None:
        """Commits files as the version after the version of ``table``. Raises FencedError if that version exists."""
        with self._committing():
            self.table.create_write_transaction(
                actions, "append", self.table.schema(), list(partition_by), commit_properties=properties
            )
        self.table.update_incremental()

    def upsert_rows(self, rows: pa.Table, keys: Sequence[str], batch: int) -> None:
        """Replaces the table's rows whose keys are in ``rows``, and adds the rows with new keys.

        Two NULL values in a key count as equal. ``rows`` has one row per key. If ``rows`` has a column KEEP, a row with
        the value false deletes the table's row with its key.
        """
        version = self._version_of(batch)
        fault("batch.before_merge")
        self._require_turn(version)
        merge = self.table.merge(
            rows,
            predicate=same_keys(rows, keys),
            source_alias="s",
            target_alias="t",
            commit_properties=self._properties(version, self._commit_of(batch, {})),
            **without_inexact_min_max(rows.schema),
        )
        if KEEP in rows.column_names:
            merge = (
                merge.when_matched_delete(predicate=f"NOT s.`{KEEP}`")
                .when_matched_update_all(except_cols=[KEEP])
                .when_not_matched_insert_all(predicate=f"s.`{KEEP}`", except_cols=[KEEP])
            )
        else:
            merge = merge.when_matched_update_all().when_not_matched_insert_all()
        with self._committing():
            merge.execute()
        self.write_checksum()
        fault("batch.after_merge")

    def upsert_frame(self, frame: DataFrame, keys: Sequence[str], batch: int, *, rows: int | None = None) -> None:
        """Does the same as :meth:`upsert_rows`, for a batch (of ``rows`` rows, if known) too large for one process.

        The caller must persist the frame. Raises StalledError if an executor does not share the table's folder. On a
        local path, Spark itself commits, and this problem may therefore be detected only after the commit. In this
        case, the table is restored.
        """
        fault("batch.before_merge")
        require_executors(self.warehouse, frame.sparkSession)
        if self.warehouse.is_local:
            self._merge_by_spark(frame, keys, batch, rows)
        else:
            self._merge_files(frame, keys, batch, rows)
        fault("batch.after_merge")

    def _merge_files(self, frame: DataFrame, keys: Sequence[str], batch: int, rows: int | None) -> None:
        """Merges a batch into a table in an object store. delta-rs commits, because Spark could overwrite another
        process's commit."""
        version = self._version_of(batch)
        self._require_turn(version)
        merge = FileMerge(self.warehouse, self.path, self.table, frame, keys, job=self.job, run=self.run)
        has_feed = self.table.metadata().configuration.get(CHANGE_FEED) == "true"
        split = merge.split() if has_feed else []
        if split:
            self._require_turn(version)
            self._commit_files(split, maintenance_properties("split"))
        merged = merge.merged()
        fault("batch.written")
        self._require_turn(version)
        self._commit_files(merged, self._properties(version, self._commit_of(batch, {}, merged=rows)))
        self.write_checksum(recount=True)

    def _merge_by_spark(self, frame: DataFrame, keys: Sequence[str], batch: int, rows: int | None) -> None:
        """Merges a batch into a local table. Spark may commit, because only one process can create a version's file."""
        from delta.tables import DeltaTable as SparkDeltaTable

        version = self._version_of(batch)
        spark = frame.sparkSession
        spark.conf.set("spark.databricks.delta.write.txnAppId", self.job)
        spark.conf.set("spark.databricks.delta.write.txnVersion", str(version))
        spark.conf.set("spark.databricks.delta.commitInfo.userMetadata", self._commit_of(batch, {}).to_json())
        try:
            matched = " AND ".join(f"t.`{key}` <=> s.`{key}`" for key in keys)
            merge = SparkDeltaTable.forPath(spark, self.path).alias("t").merge(frame.alias("s"), matched or "true")
            if KEEP in frame.columns:
                values = {f"`{name}`": f"s.`{name}`" for name in frame.columns if name != KEEP}
                merge = (
                    merge.whenMatchedDelete(f"NOT s.`{KEEP}`")
                    .whenMatchedUpdate(set=dict(values))
                    .whenNotMatchedInsert(condition=f"s.`{KEEP}`", values=dict(values))
                )
            else:
                merge = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll()
            merge.execute()
        finally:
            spark.conf.unset("spark.databricks.delta.write.txnAppId")
            spark.conf.unset("spark.databricks.delta.write.txnVersion")
            spark.conf.unset("spark.databricks.delta.commitInfo.userMetadata")
        self._require_written(version)
        wrong = merge_problem(self.warehouse, self.path, self.table.version(), rows)
        if wrong:
            self.table.restore(
                self.table.version() - 1, commit_properties=self._properties(version - 1, self._mark(batch - 1))
            )
            self.write_checksum(recount=True)
            raise MiscountError(wrong)

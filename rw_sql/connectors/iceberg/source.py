"""An Iceberg table as a source of appended rows. The table is the only split of the source, and an offset is the
sequence number of a snapshot."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rw_sql.connectors.base import RESOLVE_TIMEOUT_SECONDS, Stretch, Upstream, UpstreamSplit
from rw_sql.connectors.iceberg import catalog, history
from rw_sql.connectors.ranged import Encoding, RangedConnector
from rw_sql.connectors.spec import check_option_values, load_spec
from rw_sql.connectors.support.local_frames import local_frame
from rw_sql.errors import OFFSET_OUT_OF_RANGE, UNDEFINED_COLUMN, UPSTREAM_MISSING, UPSTREAM_UNREACHABLE, SqlError
from rw_sql.packages import require_package

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from pyiceberg.table import Table
    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.connectors.base import SplitState
    from rw_sql.connectors.iceberg.history import TableSnapshot
    from rw_sql.connectors.snapshots import ColumnMisfit
    from rw_sql.connectors.spec import ConnectorSpec

SKIP_CHANGES = "iceberg.skip_change_snapshots"
SMALL_ROWS = 100_000
SMALL_BYTES = 16 * 1024 * 1024
"""The maximum number of rows and the maximum size of the files, in bytes, of a read that runs in this process. Larger
reads run in Spark's processes."""

MOST_SNAPSHOTS = 100
"""The maximum number of snapshots in one batch."""


class IcebergConnector(RangedConnector):
    """The connector for an Iceberg table. Offset 0 denotes all rows that the table has at the first read. Any other
    offset is a snapshot's sequence number."""

    executor_packages = ("rw_sql", "pyiceberg", "pyarrow")

    has_small_batches = False
    other_targets = "TO EARLIEST, TO LATEST, TO OFFSET or TO TIMESTAMP"

    @property
    def spec(self) -> ConnectorSpec:
        """The options of ``sources/iceberg.toml``."""
        return load_spec("iceberg")

    def check_options(self, options: Mapping[str, str]) -> None:
        """Checks that the options are consistent and that pyiceberg is installed. Contacts no catalog."""
        require_package("iceberg", "pyiceberg")
        check_option_values(self.spec, options)
        catalog.check_catalog(self.spec, options)

    def look(self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS) -> Upstream:
        """The table as one split, from offset 0 to the offset after its current snapshot."""
        place = catalog.place_of(options)
        if "table.name" not in options:
            return Upstream(cluster=place)
        name = catalog.table_name(options)
        try:
            table = catalog.load_table(self.spec, options, timeout=timeout)
        except catalog.TableMissingError:
            return Upstream(missing=(name,), part="table", remedy="create it in the catalog", cluster=place)
        except catalog.CatalogError as error:
            return Upstream(error=f"{options['catalog.uri']}: {error}")
        if table.format_version < _SEQUENCES:
            return Upstream(error=f"table {name} has format version 1, whose snapshots have no sequence numbers")
        split = UpstreamSplit(
            split=name,
            start=0,
            end=history.end_of(table),
            cluster=place,
            incarnation=str(table.metadata.table_uuid),
        )
        return Upstream(splits={name: split}, cluster=place)

    def stretches(self, options: Mapping[str, str], positions: Mapping[str, SplitState]) -> tuple[Stretch, ...]:
        """The range of the unread snapshots. At a position above 0, the range ends before the first snapshot that
        changed existing rows, and contains at most MOST_SNAPSHOTS snapshots. At the position 0, the range ends at the
        table's end, and one batch must read all of it.

        Raises SqlError if the first unread snapshot changed existing rows, if unread snapshots have expired, or if a
        snapshot was rolled back after it was read.
        """
        name = catalog.table_name(options)
        state = positions.get(name)
        if state is None:
            return ()
        table = self._table(options, state.incarnation)
        end = history.end_of(table)
        if (undone := history.rolled_back(table, state.offset)) is not None:
            raise SqlError(
                UPSTREAM_MISSING,
                f"snapshot {undone} of {name} was read and then rolled back: to continue with the next snapshot, "
                f"INJECT SOURCE OFFSETS … VALUES ('{name}' = {end}); to read the current rows, "
                f"INJECT SOURCE OFFSETS … VALUES ('{name}' = 0)",
                hint="a source only appends rows; a table with refresh_mode = 'FULL_RELOAD' reads the current rows",
            )
        if state.offset >= end:
            return ()
        if state.offset == 0:
            return (Stretch(split=name, start=0, end=end, is_whole=True),)
        upto = state.offset
        for snapshot in self._snapshots(table, options, state.offset, end)[:MOST_SNAPSHOTS]:
            if snapshot.changes:
                if upto == state.offset:
                    raise _refused(name, snapshot)
                break
            upto = snapshot.sequence + 1
        else:
            # If the range has no snapshot of the main branch, its sequence numbers belong to other branches.
            upto = upto if upto > state.offset else end
        return (Stretch(split=name, start=state.offset, end=upto),)

    def _snapshots(self, table: Table, options: Mapping[str, str], start: int, end: int) -> tuple[TableSnapshot, ...]:
        """The snapshots with sequence numbers in ``[start, end)``.

        If ``iceberg.skip_change_snapshots`` is true, the result omits snapshots that change existing rows. Raises
        SqlError if snapshots of the range have expired.
        """
        name = catalog.table_name(options)
        try:
            found = history.snapshots(table, start, end)
        except history.HistoryLostError as error:
            raise SqlError(
                UPSTREAM_MISSING,
                f"EXPIRED {name}: the position is sequence number {start}, but the snapshots before {error.first} have "
                f"expired: to read all rows of the table again, INJECT SOURCE OFFSETS … VALUES ('{name}' = 0) ALLOW "
                "DUPLICATES",
                hint="expire_snapshots should keep snapshots until they are read",
            ) from error
        skips = (options.get(SKIP_CHANGES) or "false").strip().lower() == "true"
        return tuple(each for each in found if not (skips and each.changes))

    def _appends(self, table: Table, options: Mapping[str, str], start: int, end: int) -> list[TableSnapshot]:
        """The snapshots with sequence numbers in ``[start, end)`` that appended rows. Raises SqlError if a snapshot
        changes existing rows."""
        found = self._snapshots(table, options, start, end)
        bad = next((each for each in found if each.changes), None)
        if bad is not None:
            raise _refused(catalog.table_name(options), bad)
        return [each for each in found if each.operation == history.APPEND]

    def offsets_at(
        self,
        options: Mapping[str, str],
        milliseconds: int,
        splits: Sequence[str],
        *,
        timeout: float = RESOLVE_TIMEOUT_SECONDS,
    ) -> Mapping[str, int]:
        """The sequence number of the first snapshot committed at or after ``milliseconds``; the table's end if there is
        no such snapshot.

        Raises SqlError UPSTREAM_UNREACHABLE, or OFFSET_OUT_OF_RANGE if snapshots after that time may have expired.
        """
        try:
            table = self._table(options)
        except OSError as error:
            raise SqlError(
                UPSTREAM_UNREACHABLE,
                f"the catalog does not answer: {error}",
                hint="run the statement again once the catalog answers",
            ) from error
        oldest = history.oldest(table)
        if oldest is not None and oldest.sequence > 1 and oldest.at_ms > milliseconds:
            name = catalog.table_name(options)
            at = datetime.fromtimestamp(oldest.at_ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")
            raise SqlError(
                OFFSET_OUT_OF_RANGE,
                f"{name} no longer has all snapshots since that time: its oldest snapshot has the sequence number "
                f"{oldest.sequence} and was committed at {at}",
                hint=f"INJECT SOURCE OFFSETS SOURCE_NAME VALUES ('{name}' = 0) ALLOW DUPLICATES reads all rows that "
                f"the table has; VALUES ('{name}' = {oldest.sequence}) reads the rows that the existing snapshots "
                "appended",
            )
        return dict.fromkeys(splits, history.first_since(table, milliseconds))

    def record_times(self, options: Mapping[str, str], offsets: Mapping[str, int]) -> Mapping[str, int]:
        """The time of each offset's snapshot.

        The result is empty if the catalog does not respond, or if snapshots have expired. The result omits an offset
        that has no snapshot.
        """
        try:
            table = self._table(options)
            found = {
                split: snapshot.at_ms
                for split, offset in offsets.items()
                for snapshot in history.snapshots(table, offset, offset + 1)
            }
        except (OSError, history.HistoryLostError):
            return {}
        return found

    def sparse_topics(
        self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> Mapping[str, str]:
        """Returns one entry for the source, because an offset identifies a snapshot and does not count records."""
        return {"": "offsets are snapshots of the table"}

    def logged_records(self, options: Mapping[str, str], ranges: Mapping[str, tuple[int, int]]) -> int | None:
        """Returns the number of rows that the snapshots in the range appended, according to the snapshots' manifests.
        For a range that begins at 0, returns the number of rows of the whole table. Returns None if delete files remove
        some of these rows, or if ``ranges`` is empty."""
        from rw_sql.connectors.iceberg import reader

        if not ranges:
            return None
        table = self._table(options)
        (start, end) = next(iter(ranges.values()))
        if start == 0:
            return reader.whole_table_count(table, end)
        return reader.appended_count(table, self._appends(table, options, start, end))

    def read_batch(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        ranges: Mapping[str, tuple[int, int]],
        *,
        with_headers: bool = False,
        columns: Mapping[str, str] | None = None,
        encoding: Encoding | None = None,
        lives: Mapping[str, str | None] | None = None,
    ) -> DataFrame:
        """Reads the rows that the snapshots in the range appended. If the range begins at 0, reads all rows of the
        table as of the last snapshot in the range."""
        from rw_sql.connectors.iceberg import reader
        from rw_sql.connectors.support.typed_records import typed_records

        name = catalog.table_name(options)
        table = self._table(options, next(iter((lives or {}).values()), None))
        (start, end) = next(iter(ranges.values()), (0, 0))
        if (last := history.end_of(table)) < end:
            # The range was computed from an earlier response of the catalog, in which the table had a higher offset.
            raise OSError(
                f"the catalog returns table {name} at offset {last}, but returned it at offset {end} before: the table "
                "was rolled back, or the catalog's answer is outdated"
            )
        row = (encoding or Encoding()).row
        wanted = self._known(table, options, list(columns or ()))
        if start == 0:
            parts, rows = reader.whole_table(table, end, wanted)
        else:
            parts, rows = reader.appended(table, self._appends(table, options, start, end), wanted)
        from pyspark.sql import functions as f

        return typed_records(_frame(spark, table, parts, rows, wanted), name, row, f.col(reader.OFFSET))

    def read_snapshot(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        columns: Mapping[str, str],
        *,
        encode: str = "NATIVE",
        encode_options: Mapping[str, str] | None = None,
    ) -> DataFrame:
        """The rows of the current table. See :class:`rw_sql.connectors.snapshots.SnapshotReader`."""
        from rw_sql.connectors.iceberg import reader
        from rw_sql.connectors.support.typed_records import cast_columns

        table = self._table(options)
        wanted = self._known(table, options, list(columns))
        parts, rows = reader.whole_table(table, history.end_of(table), wanted)
        frame = _frame(spark, table, parts, rows, wanted)
        return cast_columns(frame, columns)

    def column_misfit(self, options: Mapping[str, str], columns: Mapping[str, str]) -> ColumnMisfit | None:
        """The first declared column that the table lacks, or whose type in the table has values that do not fit the
        declared type. None if all columns fit, or if the table cannot be loaded."""
        from rw_sql.connectors.iceberg import columns as iceberg_columns

        try:
            table = catalog.load_table(self.spec, options)
        except (catalog.TableMissingError, catalog.CatalogError):
            return None
        return iceberg_columns.misfit(table, catalog.table_name(options), columns)

    def columns(self, options: Mapping[str, str]) -> Mapping[str, str]:
        """The table's columns with their types. Raises SqlError: UPSTREAM_MISSING if there is no such table, or
        UPSTREAM_UNREACHABLE."""
        from rw_sql.connectors.iceberg import columns as iceberg_columns

        try:
            return iceberg_columns.listed(catalog.load_table(self.spec, options))
        except catalog.TableMissingError as error:
            raise SqlError(UPSTREAM_MISSING, str(error), hint="correct the properties, or create the table") from error
        except catalog.CatalogError as error:
            raise SqlError(
                UPSTREAM_UNREACHABLE, f"the catalog does not answer: {error}", hint="run the statement again"
            ) from error

    def resolve_split(self, options: Mapping[str, str], written: str) -> str:
        """If ``written`` is ``0`` or empty, returns the table's name, which is the id of the only split. Otherwise,
        returns ``written``."""
        return catalog.table_name(options) if written.strip() in ("", "0") else written

    def _table(self, options: Mapping[str, str], incarnation: str | None = None) -> Table:
        """Loads the table. Raises OSError if the table is missing, cannot be loaded, or has another incarnation than
        ``incarnation``. None accepts every incarnation."""
        try:
            table = catalog.load_table(self.spec, options)
        except (catalog.TableMissingError, catalog.CatalogError) as error:
            raise OSError(str(error)) from error
        if incarnation is not None and str(table.metadata.table_uuid) != incarnation:
            raise OSError(f"RECREATED {catalog.table_name(options)}: the table was deleted and created again")
        return table

    def _known(self, table: Table, options: Mapping[str, str], columns: list[str]) -> list[str]:
        """Returns ``columns`` if the table has all of them. Raises SqlError UNDEFINED_COLUMN for a missing column."""
        from rw_sql.connectors.iceberg import columns as iceberg_columns

        missing = iceberg_columns.missing(table, catalog.table_name(options), columns)
        if missing is not None:
            raise SqlError(UNDEFINED_COLUMN, missing.message, hint=missing.hint)
        return columns


def _frame(
    spark: SparkSession, table: Table, parts: list[dict[str, Any]], rows: int, columns: Sequence[str]
) -> DataFrame:
    """The rows of the parts. ``rows`` is the number of these rows.

    At most SMALL_ROWS rows, from files of at most SMALL_BYTES, are read through Arrow in this process. Larger reads run
    in Spark's processes.
    """
    import pyarrow as pa

    from rw_sql.connectors.iceberg import reader
    from rw_sql.connectors.support.arrow_schemas import spark_schema
    from rw_sql.connectors.support.table_reader import read_parts

    schema = reader.arrow_schema(reader.projected(table, columns))
    if rows <= SMALL_ROWS and sum(part["bytes"] for part in parts) <= SMALL_BYTES:
        tables = [found for part in parts for found in reader.read_files(table, part)]
        return local_frame(spark, pa.concat_tables(tables) if tables else schema.empty_table())
    files = catalog.properties_of_files(table)
    return read_parts(spark, reader.IcebergPartReader(), files, parts, spark_schema(schema).json())


def _refused(name: str, snapshot: TableSnapshot) -> SqlError:
    return SqlError(
        UPSTREAM_MISSING,
        f"snapshot {snapshot.sequence} of {name} changes existing rows ({snapshot.changes}): to continue after it, "
        f"INJECT SOURCE OFFSETS … VALUES ('{name}' = {snapshot.sequence + 1}), or set {SKIP_CHANGES} = 'true'",
        hint="a source only appends rows; a table with refresh_mode = 'FULL_RELOAD' reads the current rows",
    )


_SEQUENCES = 2
"""The first format version in which snapshots have sequence numbers."""

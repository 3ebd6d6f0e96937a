"""The JDBC connector. Each REFRESH TABLE reads all rows of a PostgreSQL table or view from one snapshot of the
database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rw_sql.connectors.base import RESOLVE_TIMEOUT_SECONDS, Upstream
from rw_sql.connectors.jdbc.types import BYTES, columns_of, comes_out_of
from rw_sql.connectors.jdbc.url import WaitEnd, connect, conninfo, limits
from rw_sql.connectors.snapshot_only import BatchOnly
from rw_sql.connectors.snapshots import ColumnMisfit
from rw_sql.connectors.spec import check_option_values, load_spec
from rw_sql.connectors.support.connections.interruption import ended_by
from rw_sql.connectors.support.messages import without_password
from rw_sql.errors import INVALID_DEFINITION, UPSTREAM_MISSING, UPSTREAM_UNREACHABLE, SqlError, near_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from psycopg import Connection
    from pyspark.sql import Column, DataFrame, SparkSession

    from rw_sql.connectors.jdbc.types import PostgresColumn
    from rw_sql.connectors.spec import ConnectorSpec

    Misfit = Callable[[str, Column, Mapping[str, Column]], Column]

_KIND = "SELECT relkind::text FROM pg_catalog.pg_class WHERE oid = %s::regclass"
_PAGES = """
SELECT max(pg_catalog.pg_relation_size(t.id) / current_setting('block_size')::bigint)::bigint
FROM (SELECT %s::regclass::oid UNION ALL SELECT relid FROM pg_catalog.pg_partition_tree(%s::regclass)) t (id)
"""
_ROWS = """
SELECT sum(
    CASE WHEN c.relpages > 0 AND c.reltuples >= 0
        THEN c.reltuples / c.relpages * pg_catalog.pg_relation_size(c.oid) / current_setting('block_size')::bigint
        ELSE pg_catalog.pg_relation_size(c.oid) / %s::bigint END
)::bigint
FROM pg_catalog.pg_class c
JOIN (SELECT %s::regclass::oid UNION SELECT relid FROM pg_catalog.pg_partition_tree(%s::regclass)) t (id)
    ON t.id = c.oid
WHERE c.relkind IN ('r', 'p')
"""
_ROW_BYTES = 64
"""The assumed minimum size of a row, in bytes, in a table without statistics."""

_ESTIMATE_LOCK_MS = 2_000
"""The maximum time in milliseconds for which an estimate waits for a lock."""

_PLAIN_TABLES = ("r", "p")
"""The kinds of relations that have pages: ordinary tables and partitioned tables."""

LEAST_PAGES = 512
"""The minimum number of pages in a part, unless ``partition.num`` is set. For 4 MiB or less, one reader is faster than
two."""

_AGAIN = "run the statement again once the database answers"


class JdbcConnector(BatchOnly):
    """See :class:`rw_sql.connectors.base.Connector` and :class:`rw_sql.connectors.snapshots.SnapshotReader`."""

    executor_packages = ("psycopg", "pyarrow")

    @property
    def spec(self) -> ConnectorSpec:
        """The options of ``sources/jdbc.toml``."""
        return load_spec("jdbc")

    def check_options(self, options: Mapping[str, str]) -> None:
        """Checks that the options are consistent."""
        check_option_values(self.spec, options)
        conninfo(options)

    def look(self, options: Mapping[str, str], *, timeout: float = RESOLVE_TIMEOUT_SECONDS) -> Upstream:
        """Checks that the server responds, that the table exists, and that the user may read it. The result has no
        splits."""
        import psycopg

        try:
            with connect(options, timeout) as connection:
                table = self._quoted(options)
                found = connection.execute("SELECT to_regclass(%s) IS NOT NULL", [table]).fetchone()
                if found is None or not found[0]:
                    return Upstream(missing=(f"{self._schema(options)}.{options['table.name']}",))
                granted = connection.execute("SELECT has_table_privilege(%s::regclass, 'SELECT')", [table]).fetchone()
                if granted is None or not granted[0]:
                    return Upstream(error=f"the user lacks the privilege SELECT on table {options['table.name']}")
        except psycopg.Error as error:
            return Upstream(error=without_password(error, options))
        return Upstream()

    def read_snapshot(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        columns: Mapping[str, str],
        *,
        encode: str = "NATIVE",
        encode_options: Mapping[str, str] | None = None,
    ) -> DataFrame:
        """The table's rows in one snapshot of the database. A transaction with this snapshot stays open in this process
        while the DataFrame exists.

        Raises SqlError if the server does not respond or the table lacks a column.
        """
        return self.read_columns(spark, options, columns, jdbc_misfit)

    def read_columns(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        columns: Mapping[str, str],
        misfit: Misfit,
    ) -> DataFrame:
        """Implements :meth:`read_snapshot`. ``misfit`` builds the error message for a value that does not fit its
        declared type.

        The call waits until transactions that have truncated or rewritten the table end. A caller can interrupt this
        wait: see :func:`rw_sql.connectors.support.connections.interruption.interruptible`.
        """
        import weakref

        import psycopg

        from rw_sql.connectors.jdbc import reader as jdbc_reader

        try:
            held = connect(options, RESOLVE_TIMEOUT_SECONDS)
        except psycopg.Error as error:
            raise SqlError(UPSTREAM_UNREACHABLE, without_password(error, options), hint=_AGAIN) from error
        try:
            with ended_by(WaitEnd(held)):
                held.autocommit = True
                jdbc_reader.lift_limits(held)
                table = self._quoted(options)
                _wait_for_rewrites(held, table)
                # The transaction of the snapshot must not lock the table (see require_same_tables). This query locks
                # partitions, so it runs before that transaction. The table may grow afterwards, because the last range
                # includes all further pages.
                parts = self._parts(held, options, spark.sparkContext.defaultParallelism)
                held.autocommit = False
                held.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                held.read_only = True
                snapshot = _one(held, "SELECT pg_catalog.pg_export_snapshot()")
                known = self._require_columns(held, options, columns)
        except (psycopg.Error, SqlError) as error:
            held.close()
            if isinstance(error, SqlError):
                raise
            raise SqlError(UPSTREAM_UNREACHABLE, without_password(error, options), hint=_AGAIN) from error
        made = jdbc_reader.Upstream(
            server=limits(options) | conninfo(options), snapshot=str(snapshot), table=table, columns=known, parts=parts
        )
        frame = jdbc_reader.read_snapshot(spark, made, columns, misfit)
        weakref.finalize(frame, held.close)
        return frame

    def column_misfit(self, options: Mapping[str, str], columns: Mapping[str, str]) -> ColumnMisfit | None:
        """The first declared column that is missing in the table, or whose values in the table cannot be read with the
        declared type. None if there is no such column, or if the server does not respond."""
        import psycopg

        try:
            with connect(options, RESOLVE_TIMEOUT_SECONDS) as connection:
                there = columns_of(connection, self._quoted(options))
        except psycopg.Error:
            return None
        return self._misfit(options, columns, there)

    def row_estimate(self, options: Mapping[str, str]) -> int | None:
        """Returns the planner's estimate of the number of rows, or an estimate from the number of pages. Returns None
        for a view, if the server does not respond, or if another transaction keeps the table locked."""
        import psycopg

        table = self._quoted(options)
        try:
            with connect(options, RESOLVE_TIMEOUT_SECONDS) as connection:
                connection.execute(f"SET lock_timeout = {_ESTIMATE_LOCK_MS}".encode())
                found = _one(connection, _ROWS, str(_ROW_BYTES), table, table)
        except psycopg.Error:
            return None
        return None if found is None else int(found)

    def _misfit(
        self, options: Mapping[str, str], columns: Mapping[str, str], there: Mapping[str, PostgresColumn]
    ) -> ColumnMisfit | None:
        table = options["table.name"]
        for column, kind in columns.items():
            if column not in there:
                near = near_names(column, there)
                meant = f'did you mean "{near[0]}"? ' if near else ""
                return ColumnMisfit(
                    column=column,
                    message=f'table {table} has no column "{column}"',
                    hint=meant + "its columns: " + ", ".join(sorted(there)),
                    is_missing=True,
                )
            if not comes_out_of(kind, there[column]):
                return ColumnMisfit(
                    column=column,
                    message=f'column "{column}" of table {table} is {there[column].name}, '
                    "whose values cannot have the declared type",
                    hint="declare it CHARACTER VARYING, and CAST it in a generated column or a materialized view; "
                    "WITH (…, VALIDATE = false) stores the definition anyway",
                )
        return None

    def _require_columns(
        self, connection: Connection[Any], options: Mapping[str, str], columns: Mapping[str, str]
    ) -> dict[str, PostgresColumn]:
        """The table's columns. Raises SqlError if one of ``columns`` is missing, or if a column is declared BINARY but
        is not ``bytea`` in the table. Other mismatched types are accepted, because the values may still fit."""
        there = columns_of(connection, self._quoted(options))
        found = self._misfit(options, columns, there)
        if found is None:
            return there
        if found.is_missing:
            raise SqlError(UPSTREAM_MISSING, found.message, hint=found.hint)
        bytes_of = [name for name, kind in columns.items() if kind.upper() == "BINARY" and there[name].family != BYTES]
        if bytes_of:  # With any other declared type, the values may still fit.
            raise SqlError(INVALID_DEFINITION, found.message, hint=found.hint)
        return there

    def _parts(self, connection: Connection[Any], options: Mapping[str, str], cores: int) -> list[tuple[int, int]]:
        """Returns one range of pages per part. For a relation that has no pages, such as a view, returns the single
        range ``(0, 0)``, which selects all rows."""
        table = self._quoted(options)
        if _one(connection, _KIND, table) not in _PLAIN_TABLES:
            return [(0, 0)]
        pages = int(_one(connection, _PAGES, table, table) or 0)
        asked = options.get("partition.num")
        count = int(asked) if asked is not None else min(cores, pages // LEAST_PAGES)
        return page_ranges(pages, max(1, count))

    def _schema(self, options: Mapping[str, str]) -> str:
        return self.spec.value(options, "schema.name") or "public"

    def _quoted(self, options: Mapping[str, str]) -> str:
        parts = (self._schema(options), options["table.name"])
        return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def jdbc_misfit(name: str, text: Column, _texts: Mapping[str, Column]) -> Column:
    """The default error text for a value that does not fit."""
    from pyspark.sql import functions as f

    return f.concat(f.lit(f'column "{name}": '), f.substring(text, 1, 60), f.lit(" is not of the declared type"))


def page_ranges(pages: int, count: int) -> list[tuple[int, int]]:
    """Divides the pages into at most ``count`` ranges ``[start, end)``.

    The last range has no upper limit (end 0), because the table may grow.
    """
    size = max(1, -(-pages // count))
    starts = [at * size for at in range(count) if at == 0 or at * size < pages]
    return [(start, start + size) for start in starts[:-1]] + [(starts[-1], 0)]


def _wait_for_rewrites(connection: Connection[Any], table: str) -> None:
    """Waits until all transactions end that have truncated or rewritten a table, its partitions or, for a view, the
    tables of its query. ``table`` is the quoted name.

    A snapshot that was taken before such a transaction commits would see no rows after the commit, because the commit
    removes the snapshot's rows. The function makes the server plan a query, because planning a query takes the same
    locks as running the query. In contrast to LOCK TABLE, planning a query also works for materialized views, and for
    tables of which a view's owner may read only some columns.
    """
    _one(connection, _KIND, table)  # If the table does not exist, this query gives the clearest error.
    connection.execute(f"EXPLAIN SELECT FROM {table}".encode())


def _one(connection: Connection[Any], query: str, *values: str) -> Any:
    row = connection.execute(query.encode(), list(values) or None).fetchone()
    return None if row is None else row[0]

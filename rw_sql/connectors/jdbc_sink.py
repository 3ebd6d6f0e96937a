"""The JDBC sink: a table of PostgreSQL, one transaction a batch.

Rows go through COPY into a temporary table and from there by ``INSERT … ON CONFLICT DO UPDATE`` into the target.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.base import RESOLVE_TIMEOUT_SECONDS
from rw_sql.connectors.jdbc_url import connect, conninfo, told
from rw_sql.connectors.sink_base import DELETE, UPSERT, SinkError, SinkLook
from rw_sql.connectors.sink_rows import json_values, last_per_key, split_by_op
from rw_sql.connectors.spec import check_option_values, load_sink_spec

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from psycopg import Connection

    from rw_sql.connectors.sink_base import SinkShape
    from rw_sql.connectors.spec import ConnectorSpec

_COLUMNS = """
SELECT a.attname, a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' AND a.attgenerated = ''
FROM pg_catalog.pg_attribute a
WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped
"""
# Where nulls are distinct, as they are by default, rows whose key is null conflict with none: each would be put in
# again. A server of before PostgreSQL 15 has no such column.
_UNIQUE = """
SELECT array_agg(a.attname::text),
    bool_and(a.attnotnull) OR coalesce(bool_and((to_jsonb(i) ->> 'indnullsnotdistinct')::boolean), false)
FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
WHERE i.indrelid = %s::regclass AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid
"""


class JdbcSink:
    """See :class:`rw_sql.connectors.sink_base.SinkConnector`."""

    @property
    def spec(self) -> ConnectorSpec:
        """The options of ``sources/jdbc.sink.toml``."""
        return load_sink_spec("jdbc")

    def check_options(self, options: Mapping[str, str]) -> None:
        """Whether the options fit together."""
        check_option_values(self.spec, options)
        conninfo(options)

    def check_shape(self, options: Mapping[str, str], shape: SinkShape) -> None:
        """Nothing to check: nested values become JSON."""

    def look(
        self, options: Mapping[str, str], shape: SinkShape | None, *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> SinkLook:
        """Whether the server answers, and the table has the columns, the key and the rights."""
        import psycopg

        try:
            with connect(options, timeout) as connection:
                return SinkLook() if shape is None else self._look_at_table(connection, options, shape)
        except psycopg.Error as error:
            return SinkLook(error=told(error, options))

    def _look_at_table(self, connection: Connection[Any], options: Mapping[str, str], shape: SinkShape) -> SinkLook:
        table = self.table(options)
        name = ".".join(f'"{part}"' if part != part.lower() else part for part in table)
        quoted = ".".join('"' + part.replace('"', '""') + '"' for part in table)
        found = connection.execute("SELECT to_regclass(%s) IS NOT NULL", [quoted]).fetchone()
        if found is None or not found[0]:
            return SinkLook(missing=f"table {name}", hint="CREATE TABLE it there first: a sink makes none")
        there = dict(connection.execute(_COLUMNS, [quoted]).fetchall())
        columns = shape.columns
        for column in columns:
            if column not in there:
                return SinkLook(
                    misfit=f'table {name} has no column "{column}"',
                    hint=f"ALTER TABLE {name} ADD COLUMN {column} … there, or leave it out here by AS SELECT …",
                )
        needed = [column for column, is_needed in there.items() if is_needed and column not in columns]
        if needed:
            return SinkLook(misfit=f'column "{needed[0]}" of table {name} takes no nulls and has no default')
        rights = ["INSERT"]
        if shape.type == UPSERT:
            rights += ["SELECT", "UPDATE", *(["DELETE"] if shape.deletes else [])]
            found_keys = [(set(row[0]), row[1]) for row in connection.execute(_UNIQUE, [quoted]).fetchall()]
            fitting = [is_sure for columns_of, is_sure in found_keys if columns_of == set(shape.keys)]
            keys = ", ".join(shape.keys)
            if fitting and not any(fitting):
                return SinkLook(
                    misfit=f"table {name} takes rows twice whose ({keys}) is null: to its UNIQUE they differ",
                    hint=f"ALTER TABLE {name} ADD UNIQUE NULLS NOT DISTINCT ({keys}) there, or a PRIMARY KEY",
                )
            if not fitting:
                return SinkLook(
                    misfit=f"table {name} has no PRIMARY KEY or UNIQUE constraint on ({keys})",
                    hint=f"ALTER TABLE {name} ADD PRIMARY KEY ({keys}) there",
                )
        for right in rights:
            granted = connection.execute("SELECT has_table_privilege(%s::regclass, %s)", [quoted, right]).fetchone()
            if granted is None or not granted[0]:
                return SinkLook(misfit=f"the user lacks the right {right} on table {name}", hint=f"GRANT {right} there")
        return SinkLook()

    def table(self, options: Mapping[str, str]) -> tuple[str, str]:
        """The table's schema and name."""
        return self.spec.value(options, "schema.name") or "public", options["table.name"]

    def open(self, options: Mapping[str, str], shape: SinkShape, identity: str) -> JdbcWriter:
        """A connection."""
        import psycopg

        try:
            connection = connect(options, RESOLVE_TIMEOUT_SECONDS)
            seconds = int(self.spec.value(options, "jdbc.query.timeout") or 60)
            connection.execute(f"SET statement_timeout = {seconds * 1000}")
            connection.commit()
        except psycopg.Error as error:
            raise SinkError(told(error, options)) from error
        return JdbcWriter(connection, options, shape, self.table(options))


class JdbcWriter:
    """See :class:`rw_sql.connectors.sink_base.SinkWriter`."""

    def __init__(
        self, connection: Connection[Any], options: Mapping[str, str], shape: SinkShape, table: tuple[str, str]
    ) -> None:
        from psycopg import sql

        self._connection = connection
        self._options = options
        self._shape = shape
        self._target = sql.Identifier(*table)
        self._is_cancelled = False

    def fence(self, run: int, generation: int) -> int | None:
        """The table keeps nothing of batches."""
        return None

    def write(self, rows: pa.Table, batch: int) -> None:
        """One transaction."""
        import psycopg

        changed, gone = split_by_op(last_per_key(rows, self._shape.keys), DELETE)
        try:
            with self._connection.transaction():
                if gone.num_rows and self._shape.type == UPSERT:
                    self._delete(gone)
                if changed.num_rows:
                    self._put(changed)
                if self._is_cancelled:
                    raise SinkError("stopped")
        except psycopg.Error as error:
            raise SinkError("stopped" if self._is_cancelled else told(error, self._options)) from error

    def _copy(self, rows: pa.Table, into: Any, columns: list[str]) -> None:
        from psycopg import sql

        values = [_column(rows, name) for name in columns]
        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(into, _names(columns))
        with self._connection.cursor().copy(statement) as copy:
            for row in zip(*values, strict=True):
                copy.write_row(row)

    def _batch_table(self, columns: list[str]) -> Any:
        from psycopg import sql

        made = sql.Identifier("rw_sql_batch")
        self._connection.execute(
            sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA").format(
                made, _names(columns), self._target
            )
        )
        return made

    def _put(self, rows: pa.Table) -> None:
        from psycopg import sql

        columns = rows.column_names
        if self._shape.type != UPSERT:
            self._copy(rows, self._target, columns)
            return
        batch = self._batch_table(columns)
        self._copy(rows, batch, columns)
        others = [column for column in columns if column not in self._shape.keys]
        updates = sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in others)
        action = sql.SQL("UPDATE SET {}").format(updates) if others else sql.SQL("NOTHING")
        self._connection.execute(
            sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} ON CONFLICT ({}) DO {}").format(
                self._target, _names(columns), _names(columns), batch, _names(list(self._shape.keys)), action
            )
        )
        self._connection.execute(sql.SQL("DROP TABLE {}").format(batch))

    def _delete(self, rows: pa.Table) -> None:
        from psycopg import sql

        keys = list(self._shape.keys)
        batch = self._batch_table(keys)
        self._copy(rows, batch, keys)
        matched = sql.SQL(" AND ").join(sql.SQL("t.{0} = s.{0}").format(sql.Identifier(key)) for key in keys)
        self._connection.execute(sql.SQL("DELETE FROM {} t USING {} s WHERE {}").format(self._target, batch, matched))
        if any(rows[key].null_count for key in keys):
            same = sql.SQL(" AND ").join(
                sql.SQL("t.{0} IS NOT DISTINCT FROM s.{0}").format(sql.Identifier(key)) for key in keys
            )
            null = sql.SQL(" OR ").join(sql.SQL("s.{0} IS NULL").format(sql.Identifier(key)) for key in keys)
            self._connection.execute(
                sql.SQL("DELETE FROM {} t USING {} s WHERE ({}) AND {}").format(self._target, batch, null, same)
            )
        self._connection.execute(sql.SQL("DROP TABLE {}").format(batch))

    def cancel(self) -> None:
        """The transaction that is going on is rolled back."""
        import psycopg

        self._is_cancelled = True
        with suppress(psycopg.Error):  # the server is gone, and with it the transaction
            self._connection.cancel_safe(timeout=2)

    def close(self) -> None:
        """Leaves the server."""
        self._is_cancelled = True
        self._connection.close()


def _names(columns: list[str]) -> Any:
    from psycopg import sql

    return sql.SQL(", ").join(sql.Identifier(column) for column in columns)


def _column(rows: pa.Table, name: str) -> list[Any]:
    """A column's values as COPY takes them: nested ones as JSON, arrays of plain values as arrays."""
    import pyarrow as pa

    kind = rows.schema.field(name).type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if pa.types.is_nested(kind.value_type if is_list else kind):
        return [None if value is None else json.dumps(value) for value in json_values(rows, name)]
    values: list[Any] = rows.column(name).to_pylist()
    return values

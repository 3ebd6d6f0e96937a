"""The JDBC sink: a PostgreSQL table, one transaction per batch. :mod:`rw_sql.connectors.jdbc.writer` writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rw_sql.connectors.base import RESOLVE_TIMEOUT_SECONDS
from rw_sql.connectors.jdbc.types import columns_of, fits_into
from rw_sql.connectors.jdbc.url import connect, conninfo
from rw_sql.connectors.jdbc.writer import JdbcWriter
from rw_sql.connectors.sink import UPSERT, SinkError, SinkLook
from rw_sql.connectors.spec import check_option_values, load_sink_spec
from rw_sql.connectors.support.messages import without_password
from rw_sql.errors import near_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from psycopg import Connection

    from rw_sql.connectors.sink import SinkShape
    from rw_sql.connectors.spec import ConnectorSpec

# If nulls are distinct, which is the default, rows with a null key never conflict and would be inserted again and
# again. Servers before PostgreSQL 15 lack the column indnullsnotdistinct.
_UNIQUE = """
SELECT array_agg(a.attname::text),
    bool_and(a.attnotnull) OR coalesce(bool_and((to_jsonb(i) ->> 'indnullsnotdistinct')::boolean), false),
    bool_and(i.indimmediate)
FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
WHERE i.indrelid = %s::regclass AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid
"""


class JdbcSink:
    """See :class:`rw_sql.connectors.sink.SinkConnector`."""

    @property
    def spec(self) -> ConnectorSpec:
        """The options of ``sources/jdbc.sink.toml``."""
        return load_sink_spec("jdbc")

    def check_options(self, options: Mapping[str, str]) -> None:
        """Checks that the options are consistent."""
        check_option_values(self.spec, options)
        conninfo(options)

    def check_shape(self, options: Mapping[str, str], shape: SinkShape) -> None:
        """Checks nothing: nested values become JSON."""

    def look(
        self, options: Mapping[str, str], shape: SinkShape | None, *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> SinkLook:
        """Checks that the server answers and the table has the columns, the key and the privileges."""
        import psycopg

        try:
            with connect(options, timeout) as connection:
                return SinkLook() if shape is None else self._look_at_table(connection, options, shape)
        except psycopg.Error as error:
            return SinkLook(error=without_password(error, options))

    def _look_at_table(self, connection: Connection[Any], options: Mapping[str, str], shape: SinkShape) -> SinkLook:
        table = self.table(options)
        name = ".".join(f'"{part}"' if part != part.lower() else part for part in table)
        quoted = ".".join('"' + part.replace('"', '""') + '"' for part in table)
        found = connection.execute("SELECT to_regclass(%s) IS NOT NULL", [quoted]).fetchone()
        if found is None or not found[0]:
            return SinkLook(
                missing=f"table {name}", hint="create the table in the database: a sink does not create tables"
            )
        there = columns_of(connection, quoted)
        columns = shape.columns
        for column in columns:
            if column not in there:
                near = near_names(column, there)
                return SinkLook(
                    misfit=f'table {name} has no column "{column}"',
                    hint=(f'did you mean "{near[0]}"? AS SELECT {column} AS {near[0]} …; or ' if near else "")
                    + f"ALTER TABLE {name} ADD COLUMN {column} … in PostgreSQL; or omit it: CREATE SINK … AS SELECT …",
                )
            if there[column].is_generated:
                return SinkLook(
                    misfit=f'column "{column}" of table {name} is generated and cannot be written',
                    hint="omit it: CREATE SINK … AS SELECT …",
                )
        needed = [column for column, of in there.items() if of.is_needed and column not in columns]
        if needed:
            return SinkLook(misfit=f'column "{needed[0]}" of table {name} does not allow NULL and has no default')
        rights = ["INSERT"]
        if shape.type == UPSERT:
            rights += ["SELECT", "UPDATE", *(["DELETE"] if shape.deletes else [])]
            found_keys = [
                row for row in connection.execute(_UNIQUE, [quoted]).fetchall() if set(row[0]) == set(shape.keys)
            ]
            fitting = [is_sure for _, is_sure, is_immediate in found_keys if is_immediate]
            keys = ", ".join(shape.keys)
            if found_keys and not fitting:
                return SinkLook(
                    misfit=f"the constraint of table {name} on ({keys}) is DEFERRABLE: an upsert cannot use it",
                    hint=f"in the database: ALTER TABLE {name} DROP CONSTRAINT …, ADD UNIQUE ({keys})",
                )
            if fitting and not any(fitting):
                return SinkLook(
                    misfit=f"table {name} accepts several rows with NULL in ({keys}), because its UNIQUE does "
                    "not compare NULLs",
                    hint=f"in the database: ALTER TABLE {name} ADD UNIQUE NULLS NOT DISTINCT ({keys}), or ADD "
                    f"PRIMARY KEY ({keys})",
                )
            if not fitting:
                return SinkLook(
                    misfit=f"table {name} has no PRIMARY KEY or UNIQUE constraint on ({keys})",
                    hint=f"in the database: ALTER TABLE {name} ADD PRIMARY KEY ({keys})",
                )
        for right in rights:
            granted = connection.execute("SELECT has_table_privilege(%s::regclass, %s)", [quoted, right]).fetchone()
            if granted is None or not granted[0]:
                return SinkLook(
                    misfit=f"the user lacks the privilege {right} on table {name}",
                    hint=f"in the database: GRANT {right} …",
                )
        if shape.type == UPSERT:
            granted = connection.execute("SELECT has_database_privilege(current_database(), 'TEMPORARY')").fetchone()
            if granted is None or not granted[0]:
                return SinkLook(
                    misfit="the user lacks the privilege TEMPORARY on the database, which an upsert needs",
                    hint="in the database: GRANT TEMPORARY ON DATABASE …",
                )
        for column, kind in columns.items():
            if not fits_into(kind, there[column]):
                return SinkLook(
                    doubt=f'column "{column}" of table {name} is {there[column].name}, '
                    f"which does not take values of type {kind if isinstance(kind, str) else kind['type']}",
                    hint=f"CAST it in the sink's query: CREATE SINK … AS SELECT CAST({column} AS …) …",
                )
        return SinkLook()

    def table(self, options: Mapping[str, str]) -> tuple[str, str]:
        """The schema and name of the table."""
        return self.spec.value(options, "schema.name") or "public", options["table.name"]

    def open(self, options: Mapping[str, str], shape: SinkShape, identity: str) -> JdbcWriter:
        """Opens a connection."""
        import psycopg

        try:
            connection = connect(options, RESOLVE_TIMEOUT_SECONDS)
            # Python's name of the database's encoding.
            connection.execute("SELECT set_config('client_encoding', current_setting('server_encoding'), false)")
            codec = connection.info.encoding
            connection.execute("SET client_encoding TO 'UTF8'")
            # Otherwise the server's or the role's settings would change how the texts of times and amounts are read.
            connection.execute("SET TIME ZONE 'UTC'")
            connection.execute("SET lc_monetary TO 'C'")
            seconds = int(self.spec.value(options, "jdbc.query.timeout") or 60)
            connection.execute(f"SET statement_timeout = {seconds * 1000}")
            connection.commit()
        except psycopg.Error as error:
            raise SinkError(without_password(error, options)) from error
        return JdbcWriter(connection, options, shape, self.table(options), codec)

"""Checks whether a sink can write its rows to a PostgreSQL table. The checks concern the table's columns, the table's
key and the user's privileges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rw_sql.connectors.jdbc.types import columns_of, fits_into
from rw_sql.connectors.sink import UPSERT, SinkLook
from rw_sql.connectors.support.query_names import in_query
from rw_sql.errors import near_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from psycopg import Connection

    from rw_sql.connectors.jdbc.types import PostgresColumn
    from rw_sql.connectors.sink import SinkShape

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

_USABLE = """
SELECT has_schema_privilege(oid, 'USAGE') FROM pg_catalog.pg_namespace WHERE nspname = %s
"""

_READ_ONLY = "SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'"

_MOST_NAME_BYTES = 63
"""The maximum length of a name in PostgreSQL, which shortens longer names without an error."""


def look_at_table(connection: Connection[Any], table: tuple[str, str], shape: SinkShape) -> SinkLook:
    """Returns the first problem of the table. If there is no problem, all fields of the result are empty. Raises
    psycopg.Error."""
    return next(_problems(connection, table, shape), SinkLook())


def _problems(connection: Connection[Any], table: tuple[str, str], shape: SinkShape) -> Iterator[SinkLook]:
    schema, name = table[0], ".".join(_as_written(connection, table))
    quoted = ".".join('"' + part.replace('"', '""') + '"' for part in table)
    usable = connection.execute(_USABLE, [schema]).fetchone()
    if usable is not None and not usable[0]:
        (in_sql,) = _as_written(connection, [schema])
        yield SinkLook(
            misfit=f"the user lacks the privilege USAGE on schema {in_sql}",
            hint=f"in the database: GRANT USAGE ON SCHEMA {in_sql} TO …",
        )
    found = connection.execute("SELECT to_regclass(%s) IS NOT NULL", [quoted]).fetchone()
    if found is None or not found[0]:
        yield SinkLook(missing=f"table {name}", hint="create the table in the database: a sink does not create tables")
    there = columns_of(connection, quoted)
    yield from _problems_of_columns(connection, name, there, shape)
    if shape.type == UPSERT:
        yield from _problems_of_key(connection, name, quoted, shape)
    yield from _missing_rights(connection, name, quoted, shape)
    yield from _read_only(connection)
    for column, kind in shape.columns.items():
        if not fits_into(kind, there[column]):
            yield SinkLook(
                doubt=f'column "{column}" of table {name} is {there[column].name}, '
                f"which does not accept values of type {kind if isinstance(kind, str) else kind['type']}",
                hint=f"CAST it in the sink's query: CREATE SINK … AS SELECT CAST({in_query(column)} AS …) …",
            )


def _problems_of_columns(
    connection: Connection[Any], name: str, there: dict[str, PostgresColumn], shape: SinkShape
) -> Iterator[SinkLook]:
    for column in shape.columns:
        if len(column.encode()) > _MOST_NAME_BYTES:
            yield SinkLook(
                misfit=f'the name of column "{column}" is longer than {_MOST_NAME_BYTES} bytes, the maximum in '
                "PostgreSQL",
                hint=f"give it a shorter name: CREATE SINK … AS SELECT {in_query(column)} AS shorter …",
            )
        if column not in there:
            near = near_names(column, there)
            (in_sql,) = _as_written(connection, [column])
            yield SinkLook(
                misfit=f'table {name} has no column "{column}"',
                hint=(f'did you mean "{near[0]}"? AS SELECT {in_query(column)} AS {in_query(near[0])} …; or ' if near
                      else "")
                + f"ALTER TABLE {name} ADD COLUMN {in_sql} … in PostgreSQL; or omit it: CREATE SINK … AS SELECT …",
            )  # fmt: skip
        if there[column].is_generated:
            yield SinkLook(
                misfit=f'column "{column}" of table {name} is generated and cannot be written',
                hint="omit it: CREATE SINK … AS SELECT …",
            )
    needed = [column for column, of in there.items() if of.is_needed and column not in shape.columns]
    if needed:
        yield SinkLook(misfit=f'column "{needed[0]}" of table {name} does not allow NULL and has no default')


def _problems_of_key(connection: Connection[Any], name: str, quoted: str, shape: SinkShape) -> Iterator[SinkLook]:
    found = [row for row in connection.execute(_UNIQUE, [quoted]).fetchall() if set(row[0]) == set(shape.keys)]
    fitting = [is_sure for _, is_sure, is_immediate in found if is_immediate]
    keys = ", ".join(_as_written(connection, shape.keys))
    if found and not fitting:
        yield SinkLook(
            misfit=f"the constraint of table {name} on ({keys}) is DEFERRABLE: an upsert cannot use it",
            hint=f"in the database: ALTER TABLE {name} DROP CONSTRAINT …, ADD UNIQUE ({keys})",
        )
    if fitting and not any(fitting):
        yield SinkLook(
            misfit=f"table {name} accepts several rows with NULL in ({keys}), because its UNIQUE "
            "constraint treats NULLs as different",
            hint=f"in the database: ALTER TABLE {name} ADD UNIQUE NULLS NOT DISTINCT ({keys}), or ADD "
            f"PRIMARY KEY ({keys})",
        )
    if not fitting:
        yield SinkLook(
            misfit=f"table {name} has no PRIMARY KEY or UNIQUE constraint on ({keys})",
            hint=f"in the database: ALTER TABLE {name} ADD PRIMARY KEY ({keys})",
        )


def _missing_rights(connection: Connection[Any], name: str, quoted: str, shape: SinkShape) -> Iterator[SinkLook]:
    """Finds the privileges that the user lacks. Every privilege except DELETE can be granted on the table or on single
    columns."""
    columns = list(shape.columns)
    needed: list[tuple[str, list[str]]] = [("INSERT", columns)]
    if shape.type == UPSERT:
        needed.append(("SELECT", columns))
        needed.append(("UPDATE", [column for column in columns if column not in shape.keys]))
        if shape.deletes:
            needed.append(("DELETE", []))
    for right, on in needed:
        granted = connection.execute("SELECT has_table_privilege(%s::regclass, %s)", [quoted, right]).fetchone()
        if granted is not None and granted[0]:
            continue
        lacking = [
            column
            for column, is_granted in connection.execute(
                "SELECT c, has_column_privilege(%s::regclass, c, %s) FROM unnest(%s::text[]) c", [quoted, right, on]
            ).fetchall()
            if not is_granted
        ]
        if right == "DELETE" or (lacking and len(lacking) == len(on)):
            yield SinkLook(
                misfit=f"the user lacks the privilege {right} on table {name}",
                hint=f"in the database: GRANT {right} ON {name} TO …",
            )
        elif lacking:
            columns_in_sql = ", ".join(_as_written(connection, lacking))
            yield SinkLook(
                misfit=f'the user lacks the privilege {right} on column "{lacking[0]}" of table {name}',
                hint=f"in the database: GRANT {right} ({columns_in_sql}) ON {name} TO …",
            )
    if shape.type == UPSERT:
        granted = connection.execute("SELECT has_database_privilege(current_database(), 'TEMPORARY')").fetchone()
        if granted is None or not granted[0]:
            yield SinkLook(
                misfit="the user lacks the privilege TEMPORARY on the database, which an upsert needs",
                hint="in the database: GRANT TEMPORARY ON DATABASE …",
            )


def _read_only(connection: Connection[Any]) -> Iterator[SinkLook]:
    is_standby, is_read_only = connection.execute(_READ_ONLY).fetchone() or (False, False)
    if is_standby:
        yield SinkLook(
            misfit="the server is a standby, which accepts no rows", hint="name its primary server in jdbc.url"
        )
    if is_read_only:
        yield SinkLook(
            misfit="the transactions of the user are read-only",
            hint="in the database: ALTER ROLE … SET default_transaction_read_only = off",
        )


def _as_written(connection: Connection[Any], names: Iterable[str]) -> list[str]:
    """Returns names as they must be written in PostgreSQL's statements. Keywords, and names that are not plain
    identifiers, are quoted."""
    query = "SELECT quote_ident(n) FROM unnest(%s::text[]) WITH ORDINALITY t (n, at) ORDER BY at"
    return [str(row[0]) for row in connection.execute(query, [list(names)]).fetchall()]

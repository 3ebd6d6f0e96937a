"""Reads the definitions of tables from the server's catalog. A definition includes the columns, the primary key, the
replica identity, and the membership in a publication."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.changes import CaptureError, UpstreamColumn, UpstreamTable
from rw_sql.connectors.postgres_cdc.connection import parts_of, quoted
from rw_sql.connectors.postgres_cdc.types import resolve_types
from rw_sql.errors import UPSTREAM_MISSING, near_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from psycopg import Connection

_TABLE = """
SELECT c.oid::bigint, c.relkind::text, c.relreplident::text, c.relpersistence::text, c.relispartition,
    pg_catalog.has_table_privilege(c.oid, 'SELECT') AND pg_catalog.has_schema_privilege(n.oid, 'USAGE'),
    pg_catalog.pg_has_role(c.relowner, 'USAGE'),
    coalesce((SELECT array_agg(a.attname::text ORDER BY k.at)
        FROM pg_catalog.pg_index i, unnest(i.indkey[0:i.indnkeyatts - 1]) WITH ORDINALITY k (number, at),
            pg_catalog.pg_attribute a
        WHERE i.indrelid = c.oid AND i.indisprimary AND a.attrelid = c.oid AND a.attnum = k.number), '{}'),
    coalesce((SELECT string_agg(a.attcollation::text, ',' ORDER BY k.at)
        FROM pg_catalog.pg_index i, unnest(i.indkey[0:i.indnkeyatts - 1]) WITH ORDINALITY k (number, at),
            pg_catalog.pg_attribute a
        WHERE i.indrelid = c.oid AND i.indisprimary AND a.attrelid = c.oid AND a.attnum = k.number), ''),
    EXISTS (SELECT 1 FROM pg_catalog.pg_index i
        WHERE i.indrelid = c.oid AND i.indisprimary AND NOT i.indimmediate),
    (SELECT array_agg(a.attname::text)
        FROM pg_catalog.pg_index i, unnest(i.indkey[0:i.indnkeyatts - 1]) k (number), pg_catalog.pg_attribute a
        WHERE i.indrelid = c.oid AND i.indisreplident AND a.attrelid = c.oid AND a.attnum = k.number),
    CASE WHEN c.relkind = 'p' THEN
        (WITH RECURSIVE part (id) AS (SELECT c.oid
            UNION ALL SELECT i.inhrelid FROM pg_catalog.pg_inherits i JOIN part ON i.inhparent = part.id)
         SELECT sum(greatest(p.reltuples, 0))
         FROM part JOIN pg_catalog.pg_class p ON p.oid = part.id AND p.relkind = 'r')
        ELSE nullif(c.reltuples, -1) END::bigint,
    (SELECT p.oid::bigint || '/' || coalesce((SELECT r.oid::bigint FROM pg_catalog.pg_publication_rel r
            WHERE r.prpubid = p.oid AND r.prrelid = c.oid), 0)
        FROM pg_catalog.pg_publication p WHERE p.pubname = %(publication)s),
    EXISTS (SELECT 1 FROM pg_catalog.pg_publication_tables t
        WHERE t.pubname = %(publication)s AND t.schemaname = n.nspname AND t.tablename = c.relname)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relname = %(name)s AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
"""

_COLUMNS = """
SELECT a.attname::text, a.atttypid::bigint, a.atttypmod::int, pg_catalog.format_type(a.atttypid, a.atttypmod),
    a.attnotnull, a.attgenerated::text <> '', pg_catalog.pg_get_expr(d.adbin, d.adrelid),
    pg_catalog.has_column_privilege(a.attrelid, a.attnum, 'SELECT')
FROM pg_catalog.pg_attribute a
LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = %s::oid AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""
_OTHERS = """
SELECT n.nspname::text || '.' || c.relname::text
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname NOT LIKE 'pg\\_%%' AND n.nspname <> 'information_schema'
ORDER BY 1 LIMIT 1000
"""
_NAMES = """
SELECT pg_catalog.format_type(t.oid, t.modifier)
FROM unnest(%s::oid[], %s::int[]) WITH ORDINALITY t (oid, modifier, at) ORDER BY t.at
"""

_WITH_INCLUDE, _WITH_GENERATED = 110_000, 120_000
"""The first server versions with INCLUDE columns in indexes, and with generated columns."""

_FIRST_WITHOUT_LOCK = {13: 21, 14: 18, 15: 13, 16: 9, 17: 5}
"""For each major version, the first minor version that needs no lock (see :func:`adding_lock`)."""

PLAIN, PARTITIONED = "r", "p"


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogTable:
    """A table or view in the catalog.

    ``identity`` is the replica identity: d (default), n (nothing), f (full) or i (index). ``identity_columns`` are the
    columns of the index that is the replica identity. ``membership`` identifies the publication and the table's entry
    in the publication; None if the publication does not exist. ``is_published`` is true if the publication contains the
    table. ``key_order`` are the collations of the key's columns. ``is_key_deferrable`` is true if the primary key is
    DEFERRABLE. PostgreSQL does not use a deferrable key as the replica identity.
    """

    schema: str
    name: str
    oid: int
    kind: str
    identity: str
    persistence: str
    is_partition: bool
    is_readable: bool
    is_owned: bool
    key: tuple[str, ...]
    key_order: str
    is_key_deferrable: bool
    identity_columns: tuple[str, ...]
    rows_estimated: int | None
    membership: str | None
    is_published: bool

    @property
    def quoted(self) -> str:
        """The table's name in the form that a FROM clause needs. ONLY precedes the name unless the table is
        partitioned, because the stream contains no changes to child tables."""
        return ("" if self.kind == PARTITIONED else "ONLY ") + f"{quoted(self.schema)}.{quoted(self.name)}"

    @property
    def statement_name(self) -> str:
        """The table's quoted name, for statements in hints."""
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    @property
    def stored_identity(self) -> str:
        """The value of :attr:`TableProgress.identity` for this table."""
        return f"{self.oid}/{self.membership}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogColumn:
    """A column in the catalog. ``default`` is the text of the default's expression; None if the column has no
    default."""

    name: str
    type: int
    modifier: int
    type_name: str
    is_required: bool
    is_generated: bool
    default: str | None
    is_readable: bool


def find_table(connection: Connection[Any], table: str, publication: str | None = None) -> CatalogTable | None:
    """The table or view ``schema.table``; None if there is no such table or view.

    Raises psycopg.Error, and CaptureError for an invalid name.
    """
    schema, name = named(table)
    query = _TABLE if connection.info.server_version >= _WITH_INCLUDE else _TABLE.replace("indnkeyatts", "indnatts")
    row = connection.execute(query.encode(), {"schema": schema, "name": name, "publication": publication}).fetchone()
    if row is None:
        return None
    oid, kind, identity, persistence, is_partition, readable, owned, *others = row
    key, order, late, index, rows, membership, published = others
    return CatalogTable(
        schema=schema,
        name=name,
        oid=oid,
        kind=kind,
        identity=identity,
        persistence=persistence,
        is_partition=is_partition,
        is_readable=readable,
        is_owned=owned,
        key=tuple(key),
        key_order=order,
        is_key_deferrable=late,
        identity_columns=tuple(index or ()),
        rows_estimated=rows,
        membership=membership,
        is_published=published,
    )


def adding_lock(table: CatalogTable, version: int) -> str | None:
    """The statement that must precede :func:`adding_statement` in one transaction; None if the server's version needs
    no lock.

    If a transaction writes to a table while the table is added to a publication, older servers continue to omit the
    table's changes, without an error.
    """
    major, minor = divmod(version, 10_000)
    if major > max(_FIRST_WITHOUT_LOCK) or minor >= _FIRST_WITHOUT_LOCK.get(major, 10_000):
        return None
    return f"LOCK TABLE {table.quoted} IN SHARE ROW EXCLUSIVE MODE"


def adding_statement(table: CatalogTable, publication: str) -> str:
    """The statement that adds a table to a publication. The statement contains ONLY unless the table is partitioned.
    Without ONLY, the publication would contain the child tables too, and PostgreSQL would refuse changes to child
    tables that have no key."""
    return f"ALTER PUBLICATION {quoted(publication)} ADD TABLE {table.quoted}"


def adding_hint(connection: Connection[Any], table: CatalogTable, publication: str) -> str:
    """The text that a user must type on the server to add a table to a publication."""
    lock = adding_lock(table, connection.info.server_version)
    statement = adding_statement(table, publication)
    return statement if lock is None else f"BEGIN; {lock}; {statement}; COMMIT"


def named(table: str) -> tuple[str, str]:
    """Splits a table's name into schema and name. Raises CaptureError if the name is invalid."""
    parts = parts_of(table)
    if parts is None:
        raise CaptureError(
            UPSTREAM_MISSING,
            f'invalid Postgres CDC table name "{table}": expected "schema.table"',
            hint="TABLE 'public.t', or TABLE 'public.\"Mixed Case\"'",
        )
    return parts


def require_one_name(tables: Iterable[str]) -> None:
    """Raises CaptureError if two of the names are spellings of one name, because the stream contains each change only
    once."""
    known: dict[tuple[str, str], str] = {}
    for table in tables:
        other = known.setdefault(named(table), table)
        if other != table:
            raise CaptureError(
                UPSTREAM_MISSING,
                f"'{other}' and '{table}' are the same table of the database",
                hint=f"drop the tables of rw_sql that read '{table}', and create them again with TABLE '{other}'",
            )


def columns_of(connection: Connection[Any], oid: int) -> tuple[CatalogColumn, ...]:
    """The columns of a table, in the order of the table. Raises psycopg.Error."""
    has_generated = connection.info.server_version >= _WITH_GENERATED
    query = _COLUMNS if has_generated else _COLUMNS.replace("a.attgenerated::text <> ''", "false")
    return tuple(
        CatalogColumn(
            name=name,
            type=kind,
            modifier=modifier,
            type_name=written,
            is_required=required,
            is_generated=generated,
            default=default,
            is_readable=readable,
        )
        for name, kind, modifier, written, required, generated, default, readable in connection.execute(
            query.encode(), [oid]
        ).fetchall()
    )


def type_names(connection: Connection[Any], columns: Mapping[str, tuple[int, int]]) -> dict[str, str]:
    """Maps columns (name → oid and modifier of the type) to their types in PostgreSQL's notation.

    Raises psycopg.Error.
    """
    oids, modifiers = [oid for oid, _ in columns.values()], [modifier for _, modifier in columns.values()]
    rows = connection.execute(_NAMES.encode(), [oids, modifiers]).fetchall()
    return {name: str(row[0]) for name, row in zip(columns, rows, strict=True)}


def missing_table(connection: Connection[Any], table: str) -> CaptureError:
    """The error for a table that does not exist. The hint lists similar names."""
    others = [str(row[0]) for row in connection.execute(_OTHERS.encode()).fetchall()]
    near = near_names(table, others)
    hint = f"did you mean '{near[0]}'?" if near else "tables: " + (", ".join(others[:8]) or "none")
    return CaptureError(UPSTREAM_MISSING, f'table "{table}" does not exist', hint=hint)


_CONSTANT = (r"^'((?:[^']|'')*)'(?:::[\w \"\[\]().,]+)?$", r"^(-?[0-9.]+)$", r"^\((-?[0-9.]+)\)(?:::\w+)?$")


def constant_default(expression: str | None) -> str | None:
    """The text of a default if the default is a constant; None if the default is a function or an expression, because
    only the server can evaluate a function or an expression."""
    import re

    if expression is None:
        return None
    if expression in ("true", "false"):
        return expression
    for pattern in _CONSTANT:
        if found := re.match(pattern, expression):
            return found[1].replace("''", "'")
    return None


def describe(connection: Connection[Any], table: str) -> UpstreamTable:
    """See :meth:`rw_sql.connectors.changes.ChangeConnector.describe_table`. Raises psycopg.Error or CaptureError."""
    found = find_table(connection, table)
    if found is None:
        raise missing_table(connection, table)
    columns = columns_of(connection, found.oid)
    kinds = resolve_types(connection, (column.type for column in columns))
    return UpstreamTable(
        table=table,
        key=found.key,
        rows_estimated=found.rows_estimated,
        columns=tuple(
            UpstreamColumn(
                name=column.name,
                type=column.type_name,
                canonical=None if column.is_generated else kinds[column.type].canonical(column.modifier),
                family=kinds[column.type].family,
                refusal="PostgreSQL computes generated columns and does not replicate them"
                if column.is_generated
                else None,
                default=None if column.is_generated else constant_default(column.default),
                is_nullable=not column.is_required,
                is_generated=column.is_generated,
                accepts=None if column.is_generated else kinds[column.type].fits_into,
            )
            for column in columns
        ),
    )

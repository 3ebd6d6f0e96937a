"""Checks that an upstream table was not replaced by another table of the same name, and that the stream has all changes
to the table's rows.

Some changes to rows are not in the stream: changes made while the publication omits the table or the kind of change;
partitions that are dropped, detached, attached or truncated; and columns whose values an ALTER TABLE replaces. To
detect them, this module compares the server's catalog with :attr:`TableProgress.traits`: the properties of the table,
its columns, its partitions and the publication at the previous check.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.changes import CaptureError, SchemaChange, other_key
from rw_sql.connectors.postgres_cdc.server import AGAIN
from rw_sql.connectors.postgres_cdc.tables import PARTITIONED, adding_hint, find_table, missing_table
from rw_sql.errors import UPSTREAM_MISSING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from psycopg import Connection

    from rw_sql.connectors.changes import TableProgress
    from rw_sql.connectors.postgres_cdc.tables import CatalogTable

_WITH_FILTERS = 150_000

_PUBLICATION = "SELECT to_json(p), p.xmin::text, p.pubowner::text FROM pg_catalog.pg_publication p WHERE p.pubname = %s"
_ENTRY = """
SELECT to_json(t)->>'rowfilter',
    (SELECT string_agg(n.oid::text, ',') FROM pg_catalog.pg_publication_namespace n
        JOIN pg_catalog.pg_publication p ON p.oid = n.pnpubid JOIN pg_catalog.pg_namespace s ON s.oid = n.pnnspid
        WHERE p.pubname = t.pubname AND s.nspname = t.schemaname)
FROM pg_catalog.pg_publication_tables t WHERE t.pubname = %s AND t.schemaname = %s AND t.tablename = %s
"""
_COLUMNS = """
SELECT a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnum::text, a.xmin::text,
    c.relfilenode::text, c.xmin::text
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
WHERE c.oid = %s::oid AND a.attnum > 0 AND NOT a.attisdropped
"""
"""Queries the columns of a table with their numbers, which are never reused, and the transactions that last altered
each column and the table. (It does not query the columns' defaults: in some versions, such a query waits for locks.)"""

_PARTITIONS = """
WITH RECURSIVE part (id, attached, command) AS (
    SELECT i.inhrelid, i.xmin, i.cmin FROM pg_catalog.pg_inherits i WHERE i.inhparent = %s::oid
    UNION ALL
    SELECT i.inhrelid, CASE WHEN age(i.xmin) < age(part.attached) THEN i.xmin ELSE part.attached END,
        CASE WHEN age(i.xmin) < age(part.attached) THEN i.cmin ELSE part.command END
    FROM pg_catalog.pg_inherits i JOIN part ON i.inhparent = part.id)
SELECT c.oid::bigint, c.oid::regclass::text, part.attached::text, part.command::text, c.relfilenode::text,
    c.xmin::text, (SELECT a.xmin::text FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum = -1),
    coalesce(pg_catalog.pg_relation_size(c.oid), 0) = 0,
    pg_catalog.has_table_privilege(c.oid, 'SELECT') AND pg_catalog.has_schema_privilege(c.relnamespace, 'USAGE')
FROM part JOIN pg_catalog.pg_class c ON c.oid = part.id WHERE c.relkind = 'r'
"""
"""Queries the partitions of a table that contain rows, each with the last transaction that attached the partition or
one of the partitioned tables above it, and with the transaction that created it: no later command changes a system
column's row in the catalog."""


@dataclass(frozen=True, slots=True)
class _Partition:
    oid: int
    name: str
    attached: str
    command: str
    file: str
    altered: str
    created: str
    is_empty: bool
    is_readable: bool

    @property
    def key(self) -> str:
        """The name of the partition's trait."""
        return f"partition {self.oid}"

    @property
    def trait(self) -> str:
        """The value of the partition's trait: the transaction that attached the partition, the file of its rows,
        whether this file is empty, and the partition's name."""
        return f"{self.attached}/{self.file}/{'empty' if self.is_empty else 'rows'}/{self.name}"

    def is_rewritten(self, traits: Mapping[str, str]) -> bool:
        """True if the partition's rows are in another file than according to ``traits``; False if ``traits`` do not
        contain the partition."""
        attached, file, _, _ = traits.get(self.key, "///").split("/", 3)
        return attached == self.attached and file != self.file


def followed(
    connection: Connection[Any], progress: TableProgress, publication: str, position: int
) -> tuple[TableProgress, SchemaChange | None]:
    """The table's progress with its present identity and traits, and the columns whose values an ALTER TABLE replaced.

    Raises CaptureError if the table is missing or was created again, or if changes are not in the stream; also raises
    psycopg.Error.
    """
    name = progress.table
    table = find_table(connection, name, publication)
    if table is None:
        raise missing_table(connection, name)
    _require_key(table, progress)
    _require_logged(table, progress)
    _require_membership(connection, table, progress, publication)
    traits = _publication_traits(connection, table, progress, publication)
    is_parted = table.kind == PARTITIONED
    rows = connection.execute(_PARTITIONS.encode(), [table.oid]).fetchall() if is_parted else []
    partitions = [_Partition(*row) for row in rows]
    change = _replaced_columns(connection, table, progress, traits, partitions, position)
    if is_parted:
        _partition_traits(connection, table, progress, traits, partitions)
    estimated = progress.rows_estimated if progress.rows_estimated is not None else table.rows_estimated
    made = replace(
        progress,
        identity=table.stored_identity,
        key_columns=table.key,
        rows_estimated=estimated,
        traits=traits,
    )
    return made, change


def _require_key(table: CatalogTable, progress: TableProgress) -> None:
    if not table.key:
        raise CaptureError(
            UPSTREAM_MISSING,
            f"table {progress.table} has no primary key, so its rows cannot be identified",
            hint=f"ALTER TABLE {table.statement_name} ADD PRIMARY KEY (…)",
        )
    if progress.key_columns and set(progress.key_columns) != set(table.key):
        raise other_key(progress.table, progress.key_columns, table.key)
    if progress.next_key is not None and not progress.is_done and progress.key_columns != table.key:
        raise CaptureError(
            UPSTREAM_MISSING,
            f"the primary key of table {progress.table} changed from ({', '.join(progress.key_columns)}) to "
            f"({', '.join(table.key)}) while its snapshot was read",
            hint=AGAIN,
        )


def _require_logged(table: CatalogTable, progress: TableProgress) -> None:
    if table.persistence != "p":  # PostgreSQL itself refuses UNLOGGED only for tables that the publication names.
        raise CaptureError(
            UPSTREAM_MISSING,
            f"table {progress.table} is UNLOGGED: its changes are not in the server's log",
            hint=f"ALTER TABLE {table.statement_name} SET LOGGED; then {AGAIN}",
        )


def _require_membership(
    connection: Connection[Any], table: CatalogTable, progress: TableProgress, publication: str
) -> None:
    name = progress.table
    if table.membership is None:
        raise CaptureError(
            UPSTREAM_MISSING,
            f'publication "{publication}" does not exist',
            hint=f'CREATE PUBLICATION "{publication}" FOR TABLE {table.statement_name}',
        )
    if not table.is_published:
        raise CaptureError(
            UPSTREAM_MISSING,
            f'table {name} is not in publication "{publication}"',
            hint=f"{adding_hint(connection, table, publication)}; its changes until then are missing: {AGAIN}",
        )
    if progress.identity is not None and progress.identity != table.stored_identity:
        raise CaptureError(UPSTREAM_MISSING, _not_the_same(name, publication), hint=AGAIN)


def _publication_traits(
    connection: Connection[Any], table: CatalogTable, progress: TableProgress, publication: str
) -> dict[str, str]:
    """Checks that the publication publishes all changes to the table, and that it did so ever since the traits were
    stored. Returns the publication's new traits."""
    (options, xmin, owner), *_ = connection.execute(_PUBLICATION.encode(), [publication]).fetchall() or [({}, "", "")]
    kinds = ("insert", "update", "delete", "truncate")
    left_out = [kind for kind in kinds if not options.get(f"pub{kind}", True)]
    if left_out:
        wanted = ", ".join(kind for kind in kinds if f"pub{kind}" in options)
        raise CaptureError(
            UPSTREAM_MISSING,
            f'publication "{publication}" does not publish {", ".join(left_out)}',
            hint=f"ALTER PUBLICATION \"{publication}\" SET (publish = '{wanted}'); the changes until then are missing: "
            f"{AGAIN}",
        )
    flags = "".join("t" if options.get(f"pub{word}", False) else "f" for word in (*kinds, "viaroot", "alltables"))
    traits = {"publication": f"{xmin}/{owner}/{flags}"}
    before = progress.traits.get("publication", traits["publication"])
    # Two alterations that undo each other are visible only in the catalog row's xmin.
    if before.partition("/")[0] != xmin and before.partition("/")[2] == f"{owner}/{flags}":
        raise CaptureError(
            UPSTREAM_MISSING,
            f'publication "{publication}" was altered and has its earlier options again, so changes of table '
            f"{progress.table} may be missing",
            hint=AGAIN,
        )
    if connection.info.server_version >= _WITH_FILTERS:
        row = connection.execute(_ENTRY.encode(), [publication, table.schema, table.name]).fetchone()
        row_filter, schema_entry = row or (None, None)
        if row_filter:
            raise CaptureError(
                UPSTREAM_MISSING,
                f'publication "{publication}" omits rows of table {progress.table}: WHERE {row_filter}',
                hint=f'ALTER PUBLICATION "{publication}" SET TABLE {table.statement_name}, …; then {AGAIN}',
            )
        if schema_entry is not None and (table.membership or "").endswith("/0"):
            traits["schema"] = schema_entry
            if progress.traits.get("schema", schema_entry) != schema_entry:
                raise CaptureError(UPSTREAM_MISSING, _not_the_same(progress.table, publication), hint=AGAIN)
    return traits


def _replaced_columns(
    connection: Connection[Any],
    table: CatalogTable,
    progress: TableProgress,
    traits: dict[str, str],
    partitions: Sequence[_Partition],
    position: int,
) -> SchemaChange | None:
    """The columns that were dropped and added again, whose names were exchanged, or whose values an ``ALTER COLUMN …
    TYPE … USING`` computed. Existing rows then have other values, but the stream may not contain them.

    Replaced columns with the same type as before count as dropped and added, others as columns whose type changed.
    """
    replaced: dict[str, str] = {}
    rewritten = {each.altered for each in partitions if each.is_rewritten(progress.traits)}
    for name, kind, number, altered, file, table_altered in connection.execute(_COLUMNS.encode(), [table.oid]):
        traits["file"], traits[f"column {name}"] = file, f"{number}/{altered}"
        if progress.traits.get("file", file) != file:
            rewritten.add(table_altered)
        before = progress.traits.get(f"column {name}")
        if before is None or name not in progress.columns:
            continue
        known_number, _, known_altered = before.partition("/")
        # VACUUM FULL and other commands rewrite a table too, but do not alter a column in the same transaction.
        if known_number != number or (known_altered != altered and altered in rewritten):
            replaced[name] = kind
    if not replaced:
        return None
    retyped = {name: kind for name, kind in replaced.items() if progress.columns[name] not in ("", kind)}
    again = {name: kind for name, kind in replaced.items() if name not in retyped}
    return SchemaChange(
        table=progress.table,
        position=position,
        added=again,
        dropped={name: progress.columns[name] for name in again},
        retyped=retyped,
        old={name: progress.columns[name] for name in retyped},
    )


def _partition_traits(
    connection: Connection[Any],
    table: CatalogTable,
    progress: TableProgress,
    traits: dict[str, str],
    partitions: Sequence[_Partition],
) -> None:
    """Adds the partitions' traits to ``traits``. Raises CaptureError if rows were added or removed together with a
    partition, because the stream does not contain these rows."""
    alters = {value.partition("/")[2] for key, value in traits.items() if key.startswith("column ")}
    known = {key: value.split("/", 3) for key, value in progress.traits.items() if key.startswith("partition ")}
    traits |= {each.key: each.trait for each in partitions}
    if progress.identity is None or not progress.traits:
        return
    for key in known.keys() - traits.keys():
        raise _unlogged(progress.table, f"partition {known[key][3]} was dropped or detached")
    # A TRUNCATE of the table itself, which is in the stream, rewrites all partitions.
    is_whole = all(each.is_rewritten(progress.traits) for each in partitions if each.key in known)
    for each in partitions:
        attached, _, content, _ = known.get(each.key, ["", "", "", ""])
        is_new = attached != each.attached
        # No transaction can write to a partition before the one that created it has attached it. An older transaction
        # can write to it afterwards.
        is_older = each.created != each.attached
        if is_new and _has_rows_before(connection, table, each, each.attached, each.command, is_older=is_older):
            raise _unlogged(progress.table, f"partition {each.name} was attached with rows")
        # VACUUM FULL and other commands rewrite a partition too, but the rows keep their xmin. An ALTER of a column
        # rewrites partitions too, but changes the column's traits.
        is_rewritten = each.is_rewritten(progress.traits) and each.altered not in alters and content != "empty"
        if is_rewritten and not is_whole and not _has_rows_before(connection, table, each, each.altered, "0"):
            raise _unlogged(progress.table, f"partition {each.name} was truncated")


def _has_rows_before(
    connection: Connection[Any],
    table: CatalogTable,
    partition: _Partition,
    xid: str,
    command: str,
    *,
    is_older: bool = True,
) -> bool:
    """True if a partition has a row that was written by a command of the transaction ``xid`` before ``command``, or,
    with ``is_older``, by an older transaction."""
    source = f"ONLY {partition.name}" if partition.is_readable else table.quoted
    older = "age(p.xmin) > age(%(xid)s::xid) OR " if is_older else ""
    row = connection.execute(
        f"SELECT EXISTS (SELECT 1 FROM {source} p WHERE p.tableoid = %(oid)s::oid AND ({older}"
        "(p.xmin = %(xid)s::xid AND p.cmin::text::bigint < %(command)s)))".encode(),
        {"oid": partition.oid, "xid": xid, "command": int(command)},
    ).fetchone()
    return bool(row and row[0])


def _unlogged(table: str, what: str) -> CaptureError:
    return CaptureError(
        UPSTREAM_MISSING,
        f"{what}, and the stream does not contain which rows of table {table} it added or removed",
        hint=AGAIN,
    )


def _not_the_same(name: str, publication: str) -> str:
    return (
        f"table {name} is not the table that was read: it was dropped and created again, or was not in publication "
        f'"{publication}" for a time, so changes are missing'
    )

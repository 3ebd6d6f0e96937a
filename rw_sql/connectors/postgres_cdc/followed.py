"""Checks that an upstream table was not replaced by another table of the same name, and that the stream has all changes
to the table's rows.

Some changes to rows are not in the stream:

- changes made while the publication omits the table or the kind of change
- the effects of dropping, detaching, attaching or truncating a partition
- column values that an ALTER TABLE replaces
- changes made while a table or a partition is UNLOGGED

To detect that changes are missing from the stream, this module compares the server's catalog with
:attr:`TableProgress.traits`: the properties of the table, its columns, its partitions and the publication at the
previous check.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.changes import KEY_ORDER, CaptureError, SchemaChange, other_key
from rw_sql.connectors.postgres_cdc.relation_files import own_storage, partitions_of, with_sizes
from rw_sql.connectors.postgres_cdc.server import AGAIN
from rw_sql.connectors.postgres_cdc.tables import PARTITIONED, adding_hint, columns_of, find_table, missing_table
from rw_sql.errors import UPSTREAM_MISSING
from rw_sql.packages import deferred

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set

    import psycopg
    from psycopg import Connection

    from rw_sql.connectors.changes import TableProgress
    from rw_sql.connectors.postgres_cdc.pgoutput import Relation
    from rw_sql.connectors.postgres_cdc.relation_files import Partition, Storage
    from rw_sql.connectors.postgres_cdc.tables import CatalogTable
else:
    psycopg = deferred("psycopg")

BEGIN, COLUMNS_FROM = "begin", "columns from"
"""The names of the traits that store a position. Up to the position BEGIN, a change is ignored if it was made to
another table of the same name, or while the table had another key or other columns. The snapshot contains the ignored
changes. Changes of the columns up to the position COLUMNS_FROM are ignored, because the snapshot reads all rows after
this position."""

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
    a.atthasmissing, coalesce(d.oid::bigint, 0)::text
FROM pg_catalog.pg_attribute a
LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = %s::oid AND a.attnum > 0 AND NOT a.attisdropped
"""
"""Queries the columns of a table with their numbers, which are never reused. For each column, also queries the
transaction that last altered the column, whether the rows that are older than the column have a constant that is only
in the catalog, and the id of the default. (The query does not return the defaults' texts, because in some versions, a
query of these texts waits for locks.)"""

_WITH_CONSTANTS = 110_000
"""The first version with ``atthasmissing``."""


def followed(
    connection: Connection[Any], progress: TableProgress, publication: str, position: int
) -> tuple[TableProgress, SchemaChange | None]:
    """The table's progress with its present identity and traits, and the columns whose values an ALTER TABLE replaced.

    Raises CaptureError if the table is missing or was created again, or if changes are not in the stream; also raises
    psycopg.Error.
    """
    try:
        with connection.transaction():
            # All properties must be read as of one moment. Otherwise, the next check would miss changes made in
            # between.
            connection.execute(b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            return _followed(connection, progress, publication, position)
    except psycopg.errors.LockNotAvailable:
        if not progress.traits or progress.identity is None:
            raise
        # Maintenance of one table must not stop the reading of other tables. The next check compares this table again.
        return with_begin(progress), None


def _followed(
    connection: Connection[Any], progress: TableProgress, publication: str, position: int
) -> tuple[TableProgress, SchemaChange | None]:
    name = progress.table
    table = find_table(connection, name, publication)
    if table is None:
        raise missing_table(connection, name)
    _require_key(table, progress)
    _require_logged(table, progress)
    _require_membership(connection, table, progress, publication)
    traits = _publication_traits(connection, table, progress, publication)
    if progress.key_order is not None and not progress.is_done:
        traits[KEY_ORDER] = progress.key_order
    kept = with_begin(progress).traits
    traits |= {name: kept[name] for name in (BEGIN, COLUMNS_FROM) if name in kept}
    is_parted = table.kind == PARTITIONED
    partitions: Sequence[Partition] = ()
    if is_parted:
        partitions = partitions_of(connection, table.oid)
        stores = [each.storage for each in partitions]
        rewritten = [each.storage for each in partitions if each.is_rewritten(progress.traits)]
    else:
        stores = [own_storage(connection, table.oid)]
        traits["file"] = stores[0].file
        rewritten = [each for each in stores if progress.traits.get("file", each.file) != each.file]
        rewritten = with_sizes(connection, rewritten) if rewritten else []
    change = _replaced_columns(connection, table, progress, traits, rewritten, position)
    _require_always_logged(table, progress, traits, stores, rewritten)
    if is_parted:
        _partition_traits(connection, table, progress, traits, partitions)
    traits |= {each.key: each.others for each in stores}
    estimated = progress.rows_estimated if progress.rows_estimated is not None else table.rows_estimated
    made = replace(
        progress,
        identity=table.stored_identity,
        key_columns=table.key,
        rows_estimated=estimated,
        traits=traits,
    )
    return made, change


def ignored_to(
    connection: Connection[Any],
    relation: Relation,
    names: Mapping[tuple[str, str], str],
    tables: Mapping[str, TableProgress],
    position: int,
) -> int:
    """The position up to which the changes to a relation in the stream are ignored (see BEGIN); -1 if the changes after
    ``position`` are not ignored. ``names`` maps pairs of schema and name to the names in ``tables``. Raises
    psycopg.Error."""
    name = names.get((relation.schema, relation.name))
    found = [each for other, each in tables.items() if other == name or is_of(relation, each)]
    begin = min((int(each.traits.get(BEGIN, -1)) for each in found), default=-1)
    if position > begin or (len(found) == 1 and is_present(connection, relation, name, found[0])):
        return -1
    return begin


def with_begin(progress: TableProgress, position: int | None = None) -> TableProgress:
    """The progress with the highest BEGIN at which no table loses a change. BEGIN is ``position``, or by default the
    stored BEGIN. If tables read only changes, BEGIN is at most the end of the log when the first of these tables was
    created."""
    begin = int(progress.traits.get(BEGIN, 0)) if position is None else position
    if progress.has_live_tables:
        begin = min(begin, progress.live_from)
    made = after_begin(progress)
    return replace(made, traits={**made.traits, BEGIN: str(begin)}) if begin else made


def after_begin(progress: TableProgress) -> TableProgress:
    """The progress without BEGIN. After the first change to the present table, no further change may be ignored. If a
    later change were ignored, a table of rw_sql would keep a row whose insert was read and whose delete was ignored."""
    return replace(progress, traits={name: each for name, each in progress.traits.items() if name != BEGIN})


def is_of(relation: Relation, progress: TableProgress) -> bool:
    """True if a relation in the stream is the table that was read, even if the relation has another name."""
    return (progress.identity or "").partition("/")[0] == str(relation.oid)


def is_present(connection: Connection[Any], relation: Relation, name: str | None, progress: TableProgress) -> bool:
    """True if a relation of the stream is the table ``name`` that is read, and has the table's present key and columns.
    Raises psycopg.Error."""
    if progress.table != name or not is_of(relation, progress):
        return False
    flagged = {column.name for column in relation.columns if column.is_key}
    columns = {column.name: (column.type, column.modifier) for column in relation.columns}
    present = columns_of(connection, relation.oid)
    now = {column.name: (column.type, column.modifier) for column in present if not column.is_generated}
    return columns == now and (relation.identity == "n" or flagged.issuperset(progress.key_columns))


def require_same_relation(relation: Relation, name: str | None, tables: Mapping[str, TableProgress]) -> None:
    """Raises CaptureError if a relation of the stream has the name of one of ``tables`` but is another table, or if the
    relation is one of ``tables`` but has another name. ``name`` is the key of ``tables`` that equals the relation's
    name; None if there is no such key."""
    for other, progress in tables.items():
        if (other == name) == is_of(relation, progress):
            continue
        if other == name:
            raise CaptureError(
                UPSTREAM_MISSING,
                f"table {other} is not the table that was read: that table was dropped or renamed, and another "
                "table has its name now",
                hint=AGAIN,
            )
        raise CaptureError(
            UPSTREAM_MISSING,
            f'table {other} was renamed to "{relation.schema}"."{relation.name}"',
            hint=f'ALTER TABLE "{relation.schema}"."{relation.name}" RENAME TO …, or create a table of the new name '
            "here",
        )


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


def _require_always_logged(
    table: CatalogTable,
    progress: TableProgress,
    traits: Mapping[str, str],
    stores: Sequence[Storage],
    rewritten: Sequence[Storage],
) -> None:
    """Raises CaptureError if a partition is UNLOGGED, or if the rows were probably UNLOGGED for a time since the
    previous check. PostgreSQL prevents a change to UNLOGGED only for tables that the publication names.

    An ALTER TABLE ... SET LOGGED rewrites the rows but changes no column, except that it stores a column's constant in
    the rows. Some other commands, such as those of pg_repack, rewrite the rows in the same way. These commands write
    the index and the TOAST table in different transactions, or change the access method.
    """
    for each in stores:
        if each.persistence != "p":
            partition = each.statement_name
            raise CaptureError(
                UPSTREAM_MISSING,
                f"partition {partition} of table {progress.table} is UNLOGGED: its changes are not in the server's log",
                hint=f"ALTER TABLE {partition} SET LOGGED; then {AGAIN}",
            )
    if table.kind != PARTITIONED and not (table.membership or "").endswith("/0"):
        return
    alters = [
        int(value.split("/")[1])
        for key, value in traits.items()
        if key.startswith("column ") and progress.traits.get(key) != value and not _constant(progress.traits.get(key))
    ]
    for each in rewritten:
        if each.alter is None or any((altered - int(each.alter)) % (1 << 32) < 1 << 31 for altered in alters):
            continue  # The ALTER TABLE, or a later ALTER TABLE, also changed a column.
        has_same_method = progress.traits.get(each.key, "").split("/")[-1] == each.others.split("/")[-1]
        if has_same_method and each.has_other_toast(progress.traits) and not each.is_empty:
            raise CaptureError(
                UPSTREAM_MISSING,
                f"the rows of {each.statement_name} were rewritten by ALTER TABLE: if it was UNLOGGED for a time, "
                f"changes of table {progress.table} are missing",
                hint=AGAIN,
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
    known = progress.identity or progress.continues
    if known is not None and known != table.stored_identity:
        raise CaptureError(UPSTREAM_MISSING, _not_the_same(name, publication), hint=AGAIN)


def _publication_traits(
    connection: Connection[Any], table: CatalogTable, progress: TableProgress, publication: str
) -> dict[str, str]:
    """Checks that the publication publishes all changes to the table, and has published all changes since the traits
    were stored. Returns the publication's new traits."""
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
    rewritten: Sequence[Storage],
    position: int,
) -> SchemaChange | None:
    """Returns three kinds of columns: columns that were dropped and added again, columns whose names were exchanged,
    and columns whose values an ``ALTER COLUMN … TYPE … USING`` computed. Each of these changes replaces the values in
    existing rows, but the stream may not contain the new values.

    Replaced columns with the same type as before count as dropped and added. All other replaced columns count as
    columns whose type changed. If the rows were rewritten, every column that was altered counts as replaced, because
    the catalog does not show which alteration rewrote the rows.
    """
    replaced: dict[str, str] = {}
    altered_columns: dict[str, str] = {}
    alters: set[str] = set()
    query = _COLUMNS
    if connection.info.server_version < _WITH_CONSTANTS:
        query = query.replace("a.atthasmissing", "false")
    for name, kind, number, altered, has_constant, default in connection.execute(
        query.encode(), [table.oid]
    ).fetchall():
        traits[f"column {name}"] = f"{number}/{altered}" + (f"/{default}" if has_constant else "")
        before = progress.traits.get(f"column {name}")
        if before is None or name not in progress.columns or progress.ignores_columns:
            continue
        known_number, known_altered = before.split("/")[:2]
        # Every command that rewrites the rows stores the constant in them. An ALTER of the type also creates the
        # default again.
        is_only_stored = not has_constant and default != "0" and _constant(before) == default
        if known_number != number:
            replaced[name] = kind
        elif known_altered != altered and not is_only_stored:
            altered_columns[name] = kind
            alters.add(altered)
    if altered_columns and any(_has_new_values(connection, table, progress, each, alters) for each in rewritten):
        replaced |= altered_columns
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


def _constant(trait: str | None) -> str | None:
    """The id of a column's default, from the trait of the column. The trait contains the id only if the column's
    default is a constant that is stored only in the server's catalog, not in the rows."""
    return None if trait is None else next(iter(trait.split("/")[2:]), None)


def _has_new_values(
    connection: Connection[Any], table: CatalogTable, progress: TableProgress, storage: Storage, alters: Set[str]
) -> bool:
    """True if an ALTER TABLE rewrote the rows of a table or partition whose file has changed. ``alters`` are the
    transactions that altered columns."""
    if storage.key not in progress.traits:
        return storage.altered in alters
    if storage.is_empty or storage.is_moved(progress.traits):
        return False
    if storage.others.split("/")[0] != "0":
        return storage.has_other_toast(progress.traits)
    if storage.has_other_toast(progress.traits):
        return True
    # Without a TOAST table, the xmin of the rows shows which command rewrote them: ALTER TABLE writes all rows with its
    # own xmin, but VACUUM FULL keeps the earlier xmin. Rows that were written later are in the stream.
    last = str(1 << 32)
    return _has_rows_before(connection, table, storage, storage.rewritten, last, is_older=False) and not (
        _has_rows_before(connection, table, storage, storage.rewritten, "0")
    )


def _partition_traits(
    connection: Connection[Any],
    table: CatalogTable,
    progress: TableProgress,
    traits: dict[str, str],
    partitions: Sequence[Partition],
) -> None:
    """Adds the partitions' traits to ``traits``. Raises CaptureError if rows were added or removed together with a
    partition, because the stream does not contain these rows."""
    alters = {value.split("/")[1] for key, value in traits.items() if key.startswith("column ")}
    known = {key: value.split("/", 3) for key, value in progress.traits.items() if key.startswith("partition ")}
    traits |= {each.key: each.trait for each in partitions}
    if (progress.identity is None and progress.continues is None) or not progress.traits:
        return
    for key in known.keys() - traits.keys():
        raise _unlogged(progress.table, f"partition {known[key][3]} was dropped or detached")
    # A TRUNCATE of the table itself, which is in the stream, rewrites all partitions.
    is_whole = all(each.is_rewritten(progress.traits) for each in partitions if each.key in known)
    for each in partitions:
        attached, _, content, _ = known.get(each.key, ["", "", "", ""])
        is_new = attached != each.attached
        # No transaction can write to a partition before the transaction that created the partition has attached it.
        # Afterwards, an older transaction can write to the partition.
        is_older = each.created != each.attached
        storage = each.storage
        if is_new and _has_rows_before(connection, table, storage, each.attached, each.command, is_older=is_older):
            raise _unlogged(progress.table, f"partition {each.name} was attached with rows")
        # VACUUM FULL and other commands rewrite a partition too, but the rows keep their xmin. An ALTER of a column
        # rewrites partitions too, but changes the column's traits.
        rewriter = storage.rewriter(progress.traits)
        is_rewritten = each.is_rewritten(progress.traits) and not storage.is_moved(progress.traits)
        if is_rewritten and content != "empty" and not is_whole and rewriter not in alters:
            if storage.is_empty:  # After VACUUM FULL of a partition without rows, the catalog is the same.
                raise _unlogged(progress.table, f"partition {each.name} was truncated, or was empty and rewritten")
            if not _has_rows_before(connection, table, storage, rewriter, "0"):
                raise _unlogged(progress.table, f"partition {each.name} was truncated")


def _has_rows_before(
    connection: Connection[Any],
    table: CatalogTable,
    storage: Storage,
    xid: str,
    command: str,
    *,
    is_older: bool = True,
) -> bool:
    """True if a table or partition has a row that the transaction ``xid`` wrote before its command ``command``. If
    ``is_older`` is true, a row that an older transaction wrote counts too.

    The age of a row that was written more than 2^31 transactions ago is negative.
    """
    source = f"ONLY {storage.statement_name}" if storage.is_readable else table.quoted
    older = "age(p.xmin) > age(%(xid)s::xid) OR age(p.xmin) < 0 OR " if is_older else ""
    row = connection.execute(
        f"SELECT EXISTS (SELECT 1 FROM {source} p WHERE p.tableoid = %(oid)s::oid AND ({older}"
        "(p.xmin = %(xid)s::xid AND p.cmin::text::bigint < %(command)s)))".encode(),
        {"oid": storage.oid, "xid": xid, "command": int(command)},
    ).fetchone()
    return bool(row and row[0])


def _unlogged(table: str, what: str) -> CaptureError:
    return CaptureError(
        UPSTREAM_MISSING,
        f"{what}, and the stream does not show which rows of table {table} were added or removed",
        hint=f"{AGAIN}; to read only this table again, drop the tables of rw_sql that read it, and create them again: "
        f"CREATE TABLE … (*) FROM SOURCE_NAME TABLE '{table}'",
    )


def _not_the_same(name: str, publication: str) -> str:
    return (
        f"table {name} is not the table that was read: it was dropped and created again, or was not in publication "
        f'"{publication}" for a time, so changes are missing'
    )

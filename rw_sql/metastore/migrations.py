"""Migrates a warehouse's metastore to the newest format that this version of rw_sql knows. Several processes can
migrate the same metastore concurrently."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, TableNotFoundError

from rw_sql.errors import METASTORE_IS_NEWER, NOT_SUPPORTED, SqlError
from rw_sql.metastore.catalog import AddColumns, CreateTable
from rw_sql.metastore.table import CommitConflict, StoredTable, create_table, join

if TYPE_CHECKING:
    from rw_sql.metastore.catalog import Catalog

_APPLIED = "migration"


def migrate(directory: str, catalog: Catalog) -> None:
    """Applies the migrations that the warehouse does not have yet, and records them in one commit.

    If the process ends before that commit, the next call applies these migrations again. If the warehouse has a
    migration that ``catalog`` lacks, raises SqlError METASTORE_IS_NEWER and changes nothing.
    """
    uri = join(directory, "migrations")
    table = _opened(uri)
    while True:
        seen = table.transaction(_APPLIED) if table is not None else 0
        if seen > catalog.number:
            raise _newer(directory, seen, catalog)
        if seen == catalog.number:
            return
        rows = []
        for migration in catalog.migrations[seen:]:
            for statement in migration.statements:
                _apply(directory, statement)
            rows.append({"number": migration.number, "name": migration.name, "applied_ms": int(time.time() * 1000)})
        table = table or StoredTable(uri)
        try:
            if table.transaction(_APPLIED) == seen:
                table.append(pa.Table.from_pylist(rows, table.schema), transaction=(_APPLIED, catalog.number))
        except CommitConflict:
            table.refresh()


def require_format(directory: str, catalog: Catalog, *, accepts_older: bool = False) -> None:
    """Checks that the format of the warehouse is the newest format in ``catalog``. Writes nothing.

    Raises SqlError METASTORE_IS_NEWER if the warehouse has a newer format, and NOT_SUPPORTED if the warehouse must be
    migrated first. If ``accepts_older`` is true, a warehouse that must be migrated passes the check.
    """
    seen = StoredTable(join(directory, "migrations")).transaction(_APPLIED)
    if seen > catalog.number:
        raise _newer(directory, seen, catalog)
    if seen < catalog.number and not accepts_older:
        raise SqlError(
            NOT_SUPPORTED,
            f"the metastore at {directory} has format {seen}, this version needs {catalog.number}, and reading "
            "does not migrate it",
            hint="rw-sql serve migrates it; an older rw_sql cannot open it afterwards",
        )


def _newer(directory: str, seen: int, catalog: Catalog) -> SqlError:
    return SqlError(
        METASTORE_IS_NEWER,
        f"the metastore at {directory} has format {seen}, and this version supports up to {catalog.number}",
        hint="upgrade rw_sql to the version that wrote this metastore",
    )


def _opened(uri: str) -> StoredTable | None:
    """The table at ``uri``; None if there is no table. The function does not check first whether the table exists: in
    an object store, the check would open the table too, which takes a dozen requests."""
    try:
        return StoredTable(uri)
    except TableNotFoundError:
        return None


def _apply(directory: str, statement: CreateTable | AddColumns) -> None:
    uri = join(directory, statement.name)
    if isinstance(statement, CreateTable):
        create_table(uri, statement.schema, dict(statement.properties))
        return
    while True:
        table = DeltaTable(uri)
        present = {field.name for field in table.schema().fields}
        missing = [field for field in statement.schema.fields if field.name not in present]
        if not missing:
            return
        try:
            table.alter.add_columns(missing)
        except CommitFailedError:
            continue

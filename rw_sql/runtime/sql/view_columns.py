"""Determines the names of the columns of a view or table, both in the files and in Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltalake import DeltaTable

from rw_sql.metastore.records import TableRecord
from rw_sql.model.definitions import UNKNOWN_COLUMN
from rw_sql.model.relations import schema_columns, stored_columns, stored_name
from rw_sql.syntax.lexing.identifiers import quoted_for_spark

if TYPE_CHECKING:
    from rw_sql.metastore.records import MaterializedViewRecord
    from rw_sql.runtime.support.warehouse import Warehouse


def has_columns(path: str, table: TableRecord) -> bool:
    """True if a table's files have all columns of the table. (If ALTER TABLE adds a column to the catalog, the table's
    job later adds the column to the files.)"""
    known = {column.name for column in DeltaTable(path).schema().fields}
    return known.issuperset(stored for _, stored in stored_columns(table))


def written_columns(view: MaterializedViewRecord) -> str:
    """Returns the select list with which a query over the files of a view or table returns its columns."""
    # In the log, an added column comes after the INCLUDE columns, and a renamed column has its old name.
    if isinstance(view, TableRecord):
        return ", ".join(
            f"{quoted_for_spark(stored)} AS {quoted_for_spark(name)}" for name, stored in stored_columns(view)
        )
    if not view.maintenance.hidden:
        return "*"
    return ", ".join(quoted_for_spark(name) for name, _ in schema_columns(view.schema))


def unknown_values(warehouse: Warehouse, table: TableRecord) -> str:
    """Returns the clause (``UNION ALL …``) that extends a query for decode errors. The clause adds a row for each
    unknown value in a table. The result is empty if the table cannot have unknown values."""
    path = warehouse.data(table.id, table.generation)
    if not warehouse.list_names(f"{path}/_delta_log"):
        return ""
    if UNKNOWN_COLUMN[0] not in {column.name for column in DeltaTable(path).schema().fields}:
        return ""
    keys = ", ".join(quoted_for_spark(stored_name(table, key)) for key in table.primary_key)
    return (
        f" UNION ALL SELECT CAST(to_json(struct({keys})) AS BINARY), NULL, NULL, concat('column \"', path, "
        "'\": the value did not change, and no record that was read has it: NULL') "
        f"FROM delta.{quoted_for_spark(path)} LATERAL VIEW explode({UNKNOWN_COLUMN[0]}) AS path"
    )

"""Gives rows the columns and types of a table's files."""

from __future__ import annotations

import pyarrow as pa


def as_stored(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Returns rows with the columns and types of ``schema``, in the order of ``schema``. If the table's files still
    have a column that the table's definition no longer has, the rows lack this column, and it is NULL in the result."""
    columns = [
        rows[column.name] if column.name in rows.column_names else pa.nulls(rows.num_rows, column.type)
        for column in schema
    ]
    return pa.table(columns, names=schema.names).cast(schema)

"""Converts rows to the form in which a table's files store rows."""

from __future__ import annotations

import pyarrow as pa


def as_stored(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Returns rows with the columns of a table's files, in the order of the files. If the table's definition no longer
    has a column, the rows lack this column, and the column is NULL in the result."""
    columns = [
        rows[column.name] if column.name in rows.column_names else pa.nulls(rows.num_rows, column.type)
        for column in schema
    ]
    return pa.table(columns, names=schema.names).cast(schema)

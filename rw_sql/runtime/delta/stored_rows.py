"""Rows in the form in which a table's files store them."""

from __future__ import annotations

import pyarrow as pa


def as_stored(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with the columns of a table's files, in the files' order. Columns that the rows lack, because the table's
    definition no longer has them, are NULL."""
    columns = [
        rows[column.name] if column.name in rows.column_names else pa.nulls(rows.num_rows, column.type)
        for column in schema
    ]
    return pa.table(columns, names=schema.names).cast(schema)

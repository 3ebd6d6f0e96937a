"""Compares the columns that a user declared with the columns of an Iceberg table."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa

from rw_sql.connectors.iceberg.reader import arrow_schema
from rw_sql.connectors.snapshots import ColumnMisfit
from rw_sql.errors import near_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyiceberg.table import Table

_WHOLE = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
"""Maps each integer type to the number of digits that a NUMERIC needs for its values."""

_DOUBLES = ("float", "int", "smallint", "tinyint")
"""The types whose values DOUBLE PRECISION represents exactly."""

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def missing(table: Table, name: str, columns: Iterable[str]) -> ColumnMisfit | None:
    """The first declared column that the table lacks; None if the table has all of them. Names are not
    case-sensitive."""
    known = {field.name.lower(): field.name for field in table.schema().fields}
    for column in columns:
        if column.lower() not in known:
            near = near_names(column.lower(), known)
            return ColumnMisfit(
                column=column,
                message=f'table {name} has no column "{column}"',
                hint=(f'did you mean "{known[near[0]]}"? ' if near else "")
                + f"its columns: {', '.join(sorted(known.values()))}",
                is_missing=True,
            )
    return None


def misfit(table: Table, name: str, columns: Mapping[str, str]) -> ColumnMisfit | None:
    """The first declared column (name → Spark type) that the table lacks, or whose declared type cannot represent every
    value of the table's type. Returns None if there is no such column."""
    if (found := missing(table, name, columns)) is not None:
        return found
    there = {field.name.lower(): spark_text(field.type) for field in arrow_schema(table.schema())}
    for column, text in columns.items():
        has = there[column.lower()]
        if not holds(_plain(text), _plain(has)):
            return ColumnMisfit(
                column=column,
                message=f'column "{column}" of table {name} is {has.upper()}',
                hint="declare that type or a wider one, and CAST it in a materialized view",
            )
    return None


def listed(table: Table) -> dict[str, str]:
    """Maps the table's columns, in the order of the table, to the SQL names of their types."""
    return {field.name: sql_text(field.type) for field in list(arrow_schema(table.schema()))[1:]}


def sql_text(kind: pa.DataType) -> str:
    """The canonical SQL name of a type."""
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(f'{_name(field.name)} {sql_text(field.type)}' for field in kind)}>"
    if pa.types.is_list(kind):
        return f"{sql_text(kind.value_type)}[]"
    if pa.types.is_map(kind):
        return f"MAP({sql_text(kind.key_type)}, {sql_text(kind.item_type)})"
    if pa.types.is_decimal(kind):
        return f"NUMERIC({kind.precision}, {kind.scale})"
    text = spark_text(kind)
    return _SQL.get(text, text.upper())


_SQL = {
    "string": "CHARACTER VARYING",
    "binary": "BYTEA",
    "float": "REAL",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "timestamp_ntz": "TIMESTAMP",
}
"""The SQL names of the types whose SQL name differs from Spark's name."""


def _name(field: str) -> str:
    return '"' + field.replace('"', '""') + '"'


def holds(declared: str, has: str) -> bool:
    """True if the type ``declared`` can represent every value of the type ``has``. For nested types, True only if both
    types are equal."""
    if declared == has:
        return True
    if declared in _WHOLE and has in _WHOLE:
        return _WHOLE[declared] >= _WHOLE[has]
    if declared == "double":
        return has in _DOUBLES
    if (wide := _DECIMAL.fullmatch(declared)) is None:
        return False
    digits = int(wide[1]) - int(wide[2])
    if has in _WHOLE:
        return digits >= _WHOLE[has]
    narrow = _DECIMAL.fullmatch(has)
    return narrow is not None and digits >= int(narrow[1]) - int(narrow[2]) and int(wide[2]) >= int(narrow[2])


def spark_text(kind: pa.DataType) -> str:
    """Spark's name for a type, in lower case and without spaces."""
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{field.name.lower()}:{spark_text(field.type)}' for field in kind)}>"
    if pa.types.is_list(kind):
        return f"array<{spark_text(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{spark_text(kind.key_type)},{spark_text(kind.item_type)}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    return _NAMES.get(str(kind), str(kind))


_NAMES = {
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "date32[day]": "date",
}
"""Spark's names of the types whose Spark name differs from the Arrow name. The types float, double, string and binary
have the same name in Spark and Arrow."""


def _plain(text: str) -> str:
    return re.sub(r"[\s`]", "", text.lower()).replace("integer", "int")

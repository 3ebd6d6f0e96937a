"""Describes the columns of a PostgreSQL table, and compares their types with rw_sql's types, both for writing and for
reading."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from psycopg import Connection

_COLUMNS = """
SELECT a.attname::text,
    pg_catalog.format_type(a.atttypid, a.atttypmod),
    b.typname::text, b.typtype::text, e.typname::text,
    a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' AND a.attgenerated = '',
    a.attgenerated <> '' OR a.attidentity = 'a'
FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
JOIN pg_catalog.pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
LEFT JOIN pg_catalog.pg_type e ON e.oid = b.typelem AND b.typcategory = 'A'
WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""

BOOLEAN, WHOLE, NUMERIC, FLOAT, MONEY, TEXT, BYTES = "boolean", "whole", "numeric", "float", "money", "text", "bytes"
DATE, TIMESTAMP, JSON, ARRAY, COMPOSITE, OTHER = "date", "timestamp", "json", "array", "composite", "other"
UNKNOWN = "unknown"
"""The family of a domain whose base type is another domain. This module does not resolve such a domain further."""

_FAMILIES = {
    "bool": BOOLEAN,
    **dict.fromkeys(("int2", "int4", "int8", "oid"), WHOLE),
    "numeric": NUMERIC,
    **dict.fromkeys(("float4", "float8"), FLOAT),
    "money": MONEY,
    **dict.fromkeys(("text", "varchar", "bpchar", "name", "citext"), TEXT),
    "bytea": BYTES,
    "date": DATE,
    **dict.fromkeys(("timestamp", "timestamptz"), TIMESTAMP),
    **dict.fromkeys(("json", "jsonb", "hstore"), JSON),
}
_KINDS = {"c": COMPOSITE, "d": UNKNOWN}


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresColumn:
    """A column of a table. ``name`` is the column's type in PostgreSQL's notation, and ``family`` is the family of this
    type. ``element`` is the family of an array's elements; None for other types.

    ``is_needed`` is true if the column is NOT NULL and has no default. ``is_generated`` is true if the database
    computes the column. No statement can write to such a column.
    """

    name: str
    family: str
    element: str | None = None
    is_needed: bool = False
    is_generated: bool = False


def columns_of(connection: Connection[Any], table: str) -> dict[str, PostgresColumn]:
    """The columns of a table or view by their names, in the order of their definition. ``table`` is the quoted name.
    Raises psycopg.Error."""
    return {
        name: PostgresColumn(
            name=spelled,
            family=ARRAY if element is not None else _KINDS.get(kind) or _FAMILIES.get(base, OTHER),
            element=None if element is None else _FAMILIES.get(element, OTHER),
            is_needed=is_needed,
            is_generated=is_generated,
        )
        for name, spelled, base, kind, element, is_needed, is_generated in connection.execute(
            _COLUMNS.encode(), [table]
        ).fetchall()
    }


_INTO = {
    "boolean": (BOOLEAN, TEXT),
    **dict.fromkeys(("byte", "short", "integer", "long"), (WHOLE, NUMERIC, FLOAT, MONEY, TEXT)),
    **dict.fromkeys(("float", "double"), (FLOAT, NUMERIC, MONEY, TEXT)),
    "decimal": (NUMERIC, FLOAT, MONEY, TEXT),
    "string": (TEXT, JSON, ARRAY, COMPOSITE, OTHER),
    "binary": (BYTES, TEXT),
    "date": (DATE, TIMESTAMP, TEXT),
    **dict.fromkeys(("timestamp", "timestamp_ntz"), (DATE, TIMESTAMP, TEXT)),
}


def fits_into(kind: Any, column: PostgresColumn) -> bool:
    """True if a column accepts values of type ``kind`` (in Spark's JSON form).

    However, the column may still refuse single values, for example a string that is too long for the column.
    """
    if isinstance(kind, str):
        return _word_fits(kind, column.family)
    if column.family == UNKNOWN or kind["type"] == "udt":
        return True
    inner = kind.get("elementType")
    if inner is None or not isinstance(inner, str):  # The value is written as JSON.
        return column.family in (JSON, TEXT, OTHER)
    if column.family != ARRAY:
        return column.family in (TEXT, OTHER)
    return column.element is None or _word_fits(inner, column.element)


def _word_fits(word: str, family: str) -> bool:
    if family == WHOLE and word.startswith("decimal(") and word.endswith(",0)"):
        return True
    families = _INTO.get("decimal" if word.startswith("decimal") else word)
    return families is None or family == UNKNOWN or family in families


_NUMBERS = (WHOLE, NUMERIC, FLOAT, MONEY)
_TIMES = (DATE, TIMESTAMP)
_OUT_OF = {
    "BOOLEAN": (BOOLEAN, WHOLE),
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL"), _NUMBERS),
    "BINARY": (BYTES,),
    **dict.fromkeys(("DATE", "TIMESTAMP", "TIMESTAMP_NTZ"), _TIMES),
    "ARRAY": (ARRAY, JSON),
    "STRUCT": (COMPOSITE, JSON),
    "MAP": (JSON,),
}


def comes_out_of(kind: str, column: PostgresColumn) -> bool:
    """True if a column's values can be read as ``kind`` (in Spark DDL). Text is never read as a number or time."""
    text = kind.strip().upper()
    if column.family == ARRAY and text.startswith("ARRAY<"):
        # An int[] column accepts arrays of any number of dimensions.
        while text.startswith("ARRAY<"):
            text = text.removeprefix("ARRAY<")[:-1].strip()
        families = _OUT_OF.get(_word(text))
        return families is None or column.element in (None, OTHER) or column.element in families
    families = _OUT_OF.get(_word(text))
    return families is None or column.family == UNKNOWN or column.family in families


def _word(text: str) -> str:
    return re.split("[(<]", text, maxsplit=1)[0].strip()

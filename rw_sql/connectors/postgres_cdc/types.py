"""Describes PostgreSQL's types. For each type, the module has the corresponding rw_sql type, the compatible declared
types, and the conversion of PostgreSQL's text.

Every type has a text form, so a column of any type can be declared CHARACTER VARYING.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.postgres_cdc.texts import (
    array_converter,
    bare_element,
    boolean_element,
    money_converter,
    text_element,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from psycopg import Connection

TYPES_QUERY = """
SELECT t.oid::bigint, t.typname::text, t.typtype::text, t.typcategory::text, t.typelem::bigint, t.typbasetype::bigint,
    t.typdelim::text, t.typlen::int, t.typtypmod::int
FROM pg_catalog.pg_type t WHERE t.oid = ANY (%s::oid[])
"""

BOOLEAN, WHOLE, NUMERIC, FLOAT, MONEY, TEXT, BYTES = "boolean", "whole", "numeric", "float", "money", "text", "bytes"
DATE, TIMESTAMP, TIMESTAMPTZ, TIME, INTERVAL = "date", "timestamp", "timestamptz", "time", "interval"
JSON, BIT, ARRAY, OTHER = "json", "bit", "array", "other"
"""The families of types.

OTHER includes enums, ranges, composite types, shapes, addresses, PostGIS and other extensions' types, which are all
represented as PostgreSQL's text.
"""

_VARYING = "CHARACTER VARYING"

BUILT_IN: Mapping[str, tuple[str, str]] = {
    "bool": ("BOOLEAN", BOOLEAN),
    "int2": ("SMALLINT", WHOLE),
    "int4": ("INT", WHOLE),
    "int8": ("BIGINT", WHOLE),
    "oid": ("BIGINT", WHOLE),
    "float4": ("REAL", FLOAT),
    "float8": ("DOUBLE", FLOAT),
    "numeric": ("NUMERIC", NUMERIC),
    "money": ("NUMERIC", MONEY),
    **dict.fromkeys(("text", "varchar", "bpchar", "name", "citext", "char", "xml", "uuid"), (_VARYING, TEXT)),
    "bytea": ("BYTEA", BYTES),
    "json": ("JSONB", JSON),
    "jsonb": ("JSONB", JSON),
    "date": ("DATE", DATE),
    "timestamp": ("TIMESTAMP", TIMESTAMP),
    "timestamptz": ("TIMESTAMP WITH TIME ZONE", TIMESTAMPTZ),
    # Spark has no type for a time of day or for an interval with months.
    "time": (_VARYING, TIME),
    "timetz": (_VARYING, TIME),
    "interval": (_VARYING, INTERVAL),
    "bit": (_VARYING, BIT),
}
"""Maps the name of a PostgreSQL type to rw_sql's canonical type and the family. A type whose name is missing has the
canonical type CHARACTER VARYING and the family OTHER.
"""

_INTO: Mapping[str, tuple[str, ...]] = {
    BOOLEAN: ("BOOLEAN",),
    WHOLE: ("SMALLINT", "INT", "BIGINT", "SERIAL", "NUMERIC", "DOUBLE", "RW_INT256", "RW_UINT256"),
    NUMERIC: ("NUMERIC", "REAL", "DOUBLE", "RW_INT256", "RW_UINT256"),
    MONEY: ("NUMERIC",),
    FLOAT: ("REAL", "DOUBLE"),
    TEXT: ("CHARACTER", "UUID"),
    BYTES: ("BYTEA",),
    JSON: ("JSONB",),
    DATE: ("DATE", "TIMESTAMP"),
    TIMESTAMP: ("TIMESTAMP",),
    TIMESTAMPTZ: ("TIMESTAMP WITH TIME ZONE",),
    BIT: ("BOOLEAN",),
}
"""The compatible declared types of each family, besides CHARACTER VARYING, which accepts any text.

A single value may still not fit; the table's decoder then reports the column and the row.
"""

_WIDTHS = {
    "int2": 2, "int4": 4, "int8": 8, "oid": 8, "float4": 4, "float8": 8,
    "SMALLINT": 2, "INT": 4, "BIGINT": 8, "SERIAL": 8, "REAL": 4,
}  # fmt: skip
"""The widths in bytes of PostgreSQL's and rw_sql's types. A declared type must not be narrower than PostgreSQL's type.
A type that is not listed counts as wide as the widest type."""

_WIDEST_DECIMAL = 38


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresType:
    """A type. A domain is replaced by its base type. ``name`` is the name of the type, and ``element`` is the type of
    an array's elements.

    ``modifier`` is the modifier of a domain's base type (``atttypmod``); -1 if the base type has no modifier.
    """

    name: str
    family: str
    element: PostgresType | None = None
    delimiter: str = ","
    modifier: int = -1

    def canonical(self, modifier: int = -1) -> str:
        """The canonical type that a column of this type and modifier (``atttypmod``) gets from the column list
        ``(*)``."""
        if self.element is not None:
            # If the element's type is a domain over an array, the element keeps the text form of PostgreSQL.
            return (_VARYING if self.element.element is not None else self.element.canonical(modifier)) + "[]"
        if self.name == "numeric":
            return _numeric(self.modifier if modifier < 0 else modifier)
        if self.name == "money":
            return "NUMERIC(20, 4)"
        return BUILT_IN.get(self.name, (_VARYING, OTHER))[0]

    def converter(self, money_sample: str) -> Callable[[str], str] | None:
        """The function that converts PostgreSQL's text to the text in the records' ``row``; None if no conversion is
        needed. ``money_sample`` is the ``sample`` of :func:`money_converter`."""
        if self.element is None:
            return money_converter(money_sample) if self.family == MONEY else None
        element: Callable[[str], str]
        match self.element.family:
            case "whole" | "numeric" | "float":
                element = bare_element
            case "boolean":
                element = boolean_element
            case "money":
                element = money_converter(money_sample)
            case _:
                element = text_element
        return array_converter(self.element.delimiter, element)

    def fits_into(self, declared: str) -> bool:
        """True if values of this type can be read as a declared (canonical) type."""
        if declared == _VARYING or declared.startswith(_VARYING + "("):
            return True
        if declared.endswith("[]"):
            inner = declared
            while inner.endswith("[]"):
                inner = inner[:-2]
            if self.element is not None:
                return self.element.fits_into(inner) or (self.element.family == JSON and inner.startswith("STRUCT<"))
            return self.family == JSON
        if declared.startswith(("STRUCT<", "MAP(")):
            return self.family == JSON
        word = re.split(r"\(", declared, maxsplit=1)[0].strip()
        if self.element is not None or word not in _INTO.get(self.family, ()):
            return False
        return _WIDTHS.get(word, 8) >= _WIDTHS.get(self.name, 0)


def _numeric(modifier: int) -> str:
    """Returns NUMERIC with a column's precision and scale, if Spark supports that many digits."""
    if modifier < 4:
        return "NUMERIC"
    precision = ((modifier - 4) >> 16) & 0xFFFF
    scale = (((modifier - 4) & 0x7FF) ^ 1024) - 1024  # Since PostgreSQL 15 a scale may be negative.
    if scale < 0 or scale > precision or precision > _WIDEST_DECIMAL:
        return "NUMERIC" if scale <= 10 and precision - scale <= 28 else _VARYING
    return f"NUMERIC({precision}, {scale})"


def resolve_types(connection: Connection[Any], oids: Iterable[int]) -> dict[int, PostgresType]:
    """The types with these oids. A dropped type counts as OTHER. Raises psycopg.Error."""
    wanted = set(oids)
    rows: dict[int, tuple[Any, ...]] = {}
    ask = set(wanted)
    while ask:
        found = connection.execute(TYPES_QUERY.encode(), [sorted(ask)]).fetchall()
        rows |= {row[0]: row for row in found}
        below = {row[5] for row in found if row[2] == "d"} | {row[4] for row in found if _is_array(row)}
        ask = below - set(rows)
    return {oid: _resolved(oid, rows) for oid in wanted}


def _is_array(row: tuple[Any, ...]) -> bool:
    return bool(row[3] == "A" and row[4] and row[7] == -1)


def _resolved(oid: int, rows: Mapping[int, tuple[Any, ...]]) -> PostgresType:
    row = rows.get(oid)
    if row is None:
        return PostgresType(name="unknown", family=OTHER)
    _, name, kind, _, element, base, delimiter, _, modifier = row
    if kind == "d":
        below = _resolved(base, rows)
        own = modifier if modifier >= 0 else below.modifier
        return PostgresType(
            name=below.name, family=below.family, element=below.element, delimiter=below.delimiter, modifier=own
        )
    if _is_array(row):
        return PostgresType(name=name, family=ARRAY, element=_resolved(element, rows), delimiter=delimiter)
    family = BUILT_IN.get(name, (_VARYING, OTHER))[1] if kind == "b" else OTHER
    return PostgresType(name=name, family=family, delimiter=delimiter)

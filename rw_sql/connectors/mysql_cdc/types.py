"""The types of MySQL and MariaDB. For each type, this module determines the corresponding rw_sql type, and the declared
types into which the values of the type fit.

Every type has a text form, so a column of any type can be declared CHARACTER VARYING.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

WHOLE, NUMERIC, FLOAT, BIT, TEXT, BYTES, JSON = "whole", "numeric", "float", "bit", "text", "bytes", "json"
DATE, TIMESTAMP, TIMESTAMPTZ, TIME, YEAR = "date", "timestamp", "timestamptz", "time", "year"
LABEL, LABELS, OTHER = "enum", "set", "other"
"""Families of types. The values of all types of a family have the same text form."""

_VARYING = "CHARACTER VARYING"
_WIDEST_DECIMAL = 38

_WHOLE = {"tinyint": ("SMALLINT", "SMALLINT"), "smallint": ("SMALLINT", "INT"), "mediumint": ("INT", "INT"),
          "int": ("INT", "BIGINT"), "integer": ("INT", "BIGINT"), "bigint": ("BIGINT", "NUMERIC(20, 0)")}  # fmt: skip
_PLAIN = {
    "float": ("REAL", FLOAT),
    "double": ("DOUBLE", FLOAT),
    "date": ("DATE", DATE),
    # Spark has no type for these times, which go from -838:59:59 to 838:59:59.
    "time": (_VARYING, TIME),
    "datetime": ("TIMESTAMP", TIMESTAMP),
    "timestamp": ("TIMESTAMP WITH TIME ZONE", TIMESTAMPTZ),
    "year": ("INT", YEAR),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), (_VARYING, TEXT)),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), ("BYTEA", BYTES)),
    "enum": (_VARYING, LABEL),
    "set": (_VARYING, LABELS),
    "json": ("JSONB", JSON),
    **dict.fromkeys(("inet4", "inet6", "uuid"), (_VARYING, TEXT)),
}
_SHAPES = (
    "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
    "geometrycollection", "geomcollection",
)  # fmt: skip

_INTO = {
    WHOLE: ("SMALLINT", "INT", "BIGINT", "NUMERIC", "RW_INT256", "RW_UINT256"),
    NUMERIC: ("NUMERIC", "RW_INT256", "RW_UINT256"),
    FLOAT: ("REAL", "DOUBLE"),
    TEXT: ("CHARACTER", "UUID"),
    BYTES: ("BYTEA",),
    JSON: ("JSONB",),
    DATE: ("DATE", "TIMESTAMP"),
    TIMESTAMP: ("TIMESTAMP",),
    TIMESTAMPTZ: ("TIMESTAMP WITH TIME ZONE",),
    YEAR: ("SMALLINT", "INT", "BIGINT", "NUMERIC"),
}
_RANKS = {"SMALLINT": 2, "INT": 4, "BIGINT": 8, "REAL": 4, "DOUBLE": 8, "NUMERIC": 9}


@dataclass(frozen=True, slots=True, kw_only=True)
class MysqlType:
    """A column's type. ``canonical`` is the type that the column gets from the column list ``(*)``; None if rw_sql
    cannot read the values."""

    name: str
    canonical: str | None
    family: str
    refusal: str | None = None

    @property
    def also(self) -> tuple[str, ...]:
        """Types with which the column can be declared, in addition to ``canonical`` and wider types."""
        if self.family not in (WHOLE, NUMERIC):
            return ()
        # In a column BIGINT, a value of BIGINT UNSIGNED from 2^63 is an error.
        return ("DOUBLE", *{"tinyint": ("BOOLEAN",), "bigint": ("BIGINT",)}.get(self.name, ()))

    def fits_into(self, declared: str) -> bool:
        """True if values of this type can be read as a declared (canonical) type."""
        if self.canonical is None:
            return False
        if declared in (_VARYING, self.canonical) or declared.startswith(_VARYING + "("):
            return True
        if self.family == JSON and (declared.endswith("[]") or declared.startswith(("STRUCT<", "MAP("))):
            return True
        word = declared.partition("(")[0].strip()
        if word in self.also:
            return True
        own = "SMALLINT" if self.family == YEAR else self.canonical.partition("(")[0].strip()
        if self.family == BIT:
            return word == own
        return word in _INTO.get(self.family, ()) and _RANKS.get(word, 9) >= _RANKS.get(own, 0)


def type_of(data_type: str, column_type: str, precision: int | None, scale: int | None, *, is_json: bool) -> MysqlType:
    """The type of a column, from ``information_schema``. ``is_json`` is true if the column is a text column and MariaDB
    checks that its values are JSON."""
    name, written = data_type.lower(), column_type.lower()
    if is_json:
        return MysqlType(name="json", canonical="JSONB", family=JSON)
    if name in _WHOLE:
        return MysqlType(name=name, canonical=_WHOLE[name]["unsigned" in written], family=WHOLE)
    if name in ("decimal", "numeric"):
        return MysqlType(name="decimal", canonical=_numeric(precision or 10, scale or 0), family=NUMERIC)
    if name == "bit":
        return MysqlType(name=name, canonical="BOOLEAN" if bits_of(written) == 1 else "BYTEA", family=BIT)
    if name in _SHAPES:
        return MysqlType(name=name, canonical="BYTEA", family=BYTES)
    if name in _PLAIN:
        canonical, family = _PLAIN[name]
        return MysqlType(name=name, canonical=canonical, family=family)
    return MysqlType(name=name, canonical=None, family=OTHER, refusal="rw_sql does not support this type")


def bits_of(column_type: str) -> int:
    """The number of bits of ``bit(n)``."""
    found = re.search(r"\(([0-9]+)\)", column_type)
    return int(found[1]) if found else 1


def _numeric(precision: int, scale: int) -> str:
    if precision <= _WIDEST_DECIMAL:
        return f"NUMERIC({precision}, {scale})"
    return "NUMERIC" if scale <= 10 and precision - scale <= 28 else _VARYING


def labels_of(column_type: str) -> tuple[str, ...]:
    """The labels of ``enum('a','b')`` or ``set('a','b')``."""
    start = column_type.find("(")
    made, at = [], start + 1
    while at < len(column_type) and column_type[at] == "'":
        text = ""
        at += 1
        while True:
            end = column_type.index("'", at)
            text += column_type[at:end]
            at = end + 1
            if column_type[at : at + 1] != "'":
                break
            text += "'"
            at += 1
        made.append(text)
        at += 1
    return tuple(made)

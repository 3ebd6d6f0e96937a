"""Parses column types into sqlglot trees, and finds the fields, elements and keys of a type."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.errors import SqlglotError

if TYPE_CHECKING:
    from collections.abc import Iterable

_T = exp.DataType.Type

_PLAIN = {
    "BOOLEAN": _T.BOOLEAN,
    "TINYINT": _T.TINYINT,
    "SMALLINT": _T.SMALLINT,
    "INT": _T.INT,
    "INTEGER": _T.INT,
    "BIGINT": _T.BIGINT,
    "FLOAT": _T.FLOAT,
    "DOUBLE": _T.DOUBLE,
    "STRING": _T.TEXT,
    "BINARY": _T.BINARY,
    "DATE": _T.DATE,
    "TIMESTAMP": _T.TIMESTAMPTZ,
    "TIMESTAMP_NTZ": _T.TIMESTAMPNTZ,
}
_SCALARS = frozenset([*_PLAIN.values(), _T.DECIMAL, _T.VARCHAR, _T.CHAR, _T.TIMESTAMP, _T.TIMESTAMPLTZ, _T.UTINYINT])
_INTEGERS = frozenset([_T.TINYINT, _T.SMALLINT, _T.INT, _T.BIGINT])
_NUMBERS = _INTEGERS | {_T.FLOAT, _T.DOUBLE, _T.DECIMAL, _T.UTINYINT}
_TEXTS = frozenset([_T.TEXT, _T.VARCHAR, _T.CHAR])
_WITH_PARTS = frozenset([_T.ARRAY, _T.MAP, _T.STRUCT])

_NAMES = {kind: name for name, kind in reversed(_PLAIN.items())}


@lru_cache(maxsize=4096)
def data_type(ddl: str) -> exp.DataType | None:
    """Converts a type from Spark's DDL to a sqlglot type; None if the DDL cannot be parsed."""
    plain = _PLAIN.get(ddl.strip().upper())
    if plain is not None:
        return exp.DataType(this=plain, nested=False)
    if not ddl.strip():
        return None
    try:
        return exp.DataType.build(ddl, dialect="spark")
    except (SqlglotError, ValueError):
        return None


def ddl_of(kind: exp.DataType | None) -> str | None:
    """Converts a sqlglot type to Spark's DDL."""
    if kind is None:
        return None
    return _NAMES.get(kind.this) or kind.sql(dialect="spark")


BOOLEAN, INT, BIGINT = (exp.DataType(this=kind, nested=False) for kind in (_T.BOOLEAN, _T.INT, _T.BIGINT))
DOUBLE, STRING, DATE = (exp.DataType(this=kind, nested=False) for kind in (_T.DOUBLE, _T.TEXT, _T.DATE))
TIMESTAMP = exp.DataType(this=_T.TIMESTAMPTZ, nested=False)


def struct_of(fields: Iterable[tuple[str, exp.DataType]]) -> exp.DataType:
    """Returns the type of a struct that has the given fields."""
    parts = [exp.ColumnDef(this=exp.to_identifier(name), kind=kind.copy()) for name, kind in fields]
    return exp.DataType(this=_T.STRUCT, nested=True, expressions=parts)


WINDOW = struct_of([("start", TIMESTAMP), ("end", TIMESTAMP)])
"""The type of ``window(…)``."""


def is_integer(kind: exp.DataType | None) -> bool:
    return kind is not None and kind.this in _INTEGERS


def is_scalar(kind: exp.DataType) -> bool:
    """True if no part of a value of the type can be selected with a dot."""
    return kind.this in _SCALARS


def is_number(kind: exp.DataType | None) -> bool:
    return kind is not None and kind.this in _NUMBERS


def is_text(kind: exp.DataType | None) -> bool:
    return kind is not None and kind.this in _TEXTS


def has_parts(kind: exp.DataType | None) -> bool:
    """True if the type is an array, a map or a struct."""
    return kind is not None and kind.this in _WITH_PARTS


def fields_of(kind: exp.DataType | None) -> list[tuple[str, exp.DataType | None]] | None:
    """Returns the fields of a struct; None for any other type."""
    if kind is None or kind.this != _T.STRUCT:
        return None
    found = []
    for part in kind.expressions:
        if not isinstance(part, exp.ColumnDef):
            return None
        found.append((part.name, part.args.get("kind")))
    return found


def element_of(kind: exp.DataType | None) -> exp.DataType | None:
    """Returns the type of an array's elements or of a map's values."""
    parts = kind.expressions if kind is not None else []
    if kind is not None and kind.this == _T.ARRAY and len(parts) == 1:
        return _typed(parts[0])
    if kind is not None and kind.this == _T.MAP and len(parts) == 2:
        return _typed(parts[1])
    return None


def key_of(kind: exp.DataType | None) -> exp.DataType | None:
    """The type of a map's keys."""
    return _typed(kind.expressions[0]) if is_map(kind) and kind is not None and kind.expressions else None


def is_array(kind: exp.DataType | None) -> bool:
    return kind is not None and kind.this == _T.ARRAY


def is_map(kind: exp.DataType | None) -> bool:
    return kind is not None and kind.this == _T.MAP


def is_array_or_map(kind: exp.DataType | None) -> bool:
    return is_array(kind) or is_map(kind)


def array_of(kind: exp.DataType | None) -> exp.DataType | None:
    return exp.DataType(this=_T.ARRAY, nested=True, expressions=[kind.copy()]) if kind is not None else None


def _typed(part: object) -> exp.DataType | None:
    return part if isinstance(part, exp.DataType) else None

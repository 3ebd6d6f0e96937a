"""Defines which column names are valid: those that Spark and delta-rs accept everywhere."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rw_sql.errors import INVALID_DEFINITION, SqlError
from rw_sql.syntax.lexing.identifiers import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rw_sql.errors import Span
    from rw_sql.syntax.statements import DataType

_RESERVED = frozenset({"_change_type", "_commit_version", "_commit_timestamp", "_metadata"})
"""Names that change feeds and Spark's file sources use for their own columns."""


_NOT_IN_NAMES = frozenset(",;{}()=")
"""The characters that Delta Lake forbids in column names (Delta protocol, without column mapping); blanks are
allowed."""


def misnamed(name: str) -> str | None:
    """The reason why a column name is invalid, worded as the end of a sentence; None if it is valid."""
    if not name.strip():
        return "has no name"
    if name.lower() in _RESERVED:
        return "has a name that Spark or Delta Lake reserves"
    if "`" in name:
        return "has a backtick in its name, which Spark's SQL uses to quote names"
    refused = next((letter for letter in name if letter in _NOT_IN_NAMES), None)
    if refused is not None:
        return f"has '{refused}' in its name, which Delta Lake does not support"
    odd = next((letter for letter in name if not letter.isprintable()), None)
    return None if odd is None else f"has the character U+{ord(odd):04X} in its name, which cannot be printed"


def require_name(name: str, span: Span, *, hint: str = "") -> None:
    """Raises SqlError INVALID_DEFINITION for an invalid column name."""
    why = misnamed(name)
    if why is not None:
        raise SqlError(INVALID_DEFINITION, f'column "{name}" {why}', span=span, hint=hint or _hint(name))


def require_field_names(column: str, data_type: DataType, span: Span) -> None:
    """Like :func:`require_name`, for all field names in a column's type."""
    for field in _fields_of_type(data_type):
        why = misnamed(field)
        if why is not None:
            raise SqlError(
                INVALID_DEFINITION,
                f'column "{column}": field "{field}" {why}',
                span=span,
                hint=f"declare {quoted(column)} CHARACTER VARYING to keep the JSON text, and extract the field in a "
                "materialized view",
            )


def misnamed_field(schema: str) -> tuple[str, str] | None:
    """The first column or field of a schema (Spark's JSON) with an invalid name, and the reason; None if all are
    valid."""
    for name in _fields_of_schema(json.loads(schema)):
        why = misnamed(name)
        if why is not None:
            return name, why
    return None


def _hint(name: str) -> str:
    better = "".join(
        letter if letter.isprintable() and letter != "`" and letter not in _NOT_IN_NAMES else "_" for letter in name
    )
    if better.lower() in _RESERVED or not better.strip("_ "):
        better = "a_name"
    return f"call it {quoted(better)}"


def _fields_of_type(data_type: DataType) -> Iterator[str]:
    for field in data_type.fields:
        yield field.name
        yield from _fields_of_type(field.data_type)
    for part in (data_type.element, data_type.key, data_type.value):
        if part is not None:
            yield from _fields_of_type(part)


def _fields_of_schema(kind: Any) -> Iterator[str]:
    if not isinstance(kind, dict):
        return
    for field in kind.get("fields", ()):
        yield field["name"]
        yield from _fields_of_schema(field["type"])
    for part in ("elementType", "keyType", "valueType"):
        yield from _fields_of_schema(kind.get(part))

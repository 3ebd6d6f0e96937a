"""Defines which names of columns and fields are valid. A name is valid if Spark and delta-rs accept the name
everywhere."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rw_sql.errors import DUPLICATE_CLAUSE, INVALID_DEFINITION, SqlError
from rw_sql.syntax.lexing.identifiers import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rw_sql.errors import Span
    from rw_sql.syntax.statements import ColumnDefinition, DataType, StructField

_RESERVED = frozenset({"_change_type", "_commit_version", "_commit_timestamp", "_metadata"})
"""The column names that Delta Lake's change data feeds and Spark's file sources use for their own columns."""


_NOT_IN_NAMES = frozenset(",;{}()=")
"""The characters that the Delta protocol forbids in column names of tables without column mapping. The protocol forbids
spaces too, but rw_sql allows spaces, so this set does not contain them."""


def misnamed(name: str) -> str | None:
    """Returns the reason why a column name is invalid, or None if the name is valid. The reason is the predicate of a
    sentence whose subject is the column."""
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


def first_duplicate(names: Iterable[str]) -> tuple[str, int] | None:
    """Finds the first name that Spark and Delta Lake cannot distinguish from an earlier name, because both ignore case.
    Returns the earlier name, and the index of the later name. Returns None if Spark and Delta Lake can distinguish all
    names."""
    seen: dict[str, str] = {}
    for at, name in enumerate(names):
        keys = _keys(name)
        for key in keys:
            if key in seen:
                return seen[key], at
        seen |= dict.fromkeys(keys, name)
    return None


def _keys(name: str) -> tuple[str, str]:
    """Returns the two keys of a name. Two names count as equal if their first keys are equal or if their second keys
    are equal. The first key is the name in lower case: Delta Lake compares all names in lower case, and Spark compares
    column names in lower case. The second key reflects how Spark compares field names: letter by letter, like Java's
    ``equalsIgnoreCase``, which treats ſ as S and ı as I."""
    letters = (upper if len(upper := letter.upper()) == 1 else letter for letter in name)
    # The lower case of İ consists of two characters. Java's comparison uses the first character.
    return f"={name.lower()}", "".join(letter.lower()[0] for letter in letters)


def require_distinct(places: Iterable[tuple[str, Span]]) -> None:
    """Raises SqlError DUPLICATE_CLAUSE at the first column whose name equals the name of an earlier column, ignoring
    case."""
    listed = list(places)
    duplicate = first_duplicate(name for name, _ in listed)
    if duplicate is None:
        return
    first, (name, span) = duplicate[0], listed[duplicate[1]]
    if first == name:
        raise SqlError(
            DUPLICATE_CLAUSE,
            f'column "{name}" is defined more than once',
            span=span,
            hint=f"give one of the two another name: {name}_2",
        )
    raise SqlError(
        DUPLICATE_CLAUSE,
        f'columns "{first}" and "{name}" differ only in case, which Spark and Delta Lake ignore',
        span=span,
        hint=f"omit one of the two, or give it another name: {name}_2",
    )


def require_field_names(column: str, data_type: DataType, span: Span) -> None:
    """Applies the rules of :func:`require_name` and :func:`require_distinct` to all field names in a column's type."""
    for fields in _levels_of_type(data_type):
        duplicate = first_duplicate(field.name for field in fields)
        if duplicate is not None:
            first, second = duplicate[0], fields[duplicate[1]]
            raise SqlError(
                DUPLICATE_CLAUSE,
                f'column "{column}": {_alike(first, second.name)}',
                span=second.span if second.span.end > second.span.start else span,
                hint=f"declare {quoted(column)} JSONB, which keeps both members, and extract them in a materialized "
                "view",
            )
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


def placed(columns: Iterable[ColumnDefinition], span: Span) -> tuple[ColumnDefinition, ...]:
    """Returns the columns with their positions, and the positions of their types, set to ``span``. The statement itself
    does not list these columns. An error in one of them therefore points at ``span``."""
    return tuple(replace(column, span=span, data_type=_placed_type(column.data_type, span)) for column in columns)


def _placed_type(data_type: DataType, span: Span) -> DataType:
    def inner(part: DataType | None) -> DataType | None:
        return None if part is None else _placed_type(part, span)

    fields = (replace(each, span=span, data_type=_placed_type(each.data_type, span)) for each in data_type.fields)
    return replace(
        data_type,
        span=span,
        fields=tuple(fields),
        element=inner(data_type.element),
        key=inner(data_type.key),
        value=inner(data_type.value),
    )


def _alike(first: str, second: str) -> str:
    if first == second:
        return f'field "{second}" is defined more than once'
    return f'fields "{first}" and "{second}" differ only in case, which Spark and Delta Lake ignore'


def duplicate_fields(schema: str) -> str | None:
    """Returns an error if a STRUCT in a schema (Spark's JSON) contains two fields whose names are equal or differ only
    in case; otherwise None. The function does not compare the names of the columns themselves."""
    for names in _levels_of_schema(json.loads(schema), is_row=True):
        duplicate = first_duplicate(names)
        if duplicate is not None:
            return _alike(duplicate[0], names[duplicate[1]])
    return None


def misnamed_field(schema: str) -> tuple[str, str] | None:
    """Returns the first column or field of a schema (Spark's JSON) that has an invalid name, and the reason why the
    name is invalid. Returns None if all names are valid."""
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


def _levels_of_type(data_type: DataType) -> Iterator[tuple[StructField, ...]]:
    """Yields one item per STRUCT in a type, at any depth: the fields of this STRUCT."""
    if data_type.fields:
        yield data_type.fields
    parts = (data_type.element, data_type.key, data_type.value, *(field.data_type for field in data_type.fields))
    for part in parts:
        if part is not None:
            yield from _levels_of_type(part)


def _levels_of_schema(kind: Any, *, is_row: bool = False) -> Iterator[list[str]]:
    if not isinstance(kind, dict):
        return
    fields = kind.get("fields", ())
    if fields and not is_row:
        yield [field["name"] for field in fields]
    for field in fields:
        yield from _levels_of_schema(field["type"])
    for part in ("elementType", "keyType", "valueType"):
        yield from _levels_of_schema(kind.get(part))


def _fields_of_schema(kind: Any) -> Iterator[str]:
    if not isinstance(kind, dict):
        return
    for field in kind.get("fields", ()):
        yield field["name"]
        yield from _fields_of_schema(field["type"])
    for part in ("elementType", "keyType", "valueType"):
        yield from _fields_of_schema(kind.get(part))

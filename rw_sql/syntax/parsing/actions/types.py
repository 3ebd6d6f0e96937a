"""Converts types to the canonical form. Every spelling that RisingWave accepts is accepted here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rw_sql.errors import SYNTAX_ERROR, TOO_COMPLEX, UNSUPPORTED_TYPE, SqlError
from rw_sql.syntax.sql_reader.types import unknown_type
from rw_sql.syntax.statements.common import DataType, StructField

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.syntax.lexing.tokens import Token

CANONICAL = {
    "boolean": "BOOLEAN", "bool": "BOOLEAN",
    "smallint": "SMALLINT", "int2": "SMALLINT",
    "int": "INT", "integer": "INT", "int4": "INT",
    "bigint": "BIGINT", "int8": "BIGINT",
    "real": "REAL", "float4": "REAL",
    "double": "DOUBLE", "float8": "DOUBLE", "float": "DOUBLE",
    "numeric": "NUMERIC", "decimal": "NUMERIC", "dec": "NUMERIC",
    "varchar": "CHARACTER VARYING", "string": "CHARACTER VARYING", "text": "CHARACTER VARYING",
    "char": "CHARACTER", "character": "CHARACTER",
    "bytea": "BYTEA",
    "date": "DATE", "time": "TIME", "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMP WITH TIME ZONE", "timetz": "TIME WITH TIME ZONE",
    "interval": "INTERVAL",
    "jsonb": "JSONB", "json": "JSONB",
    "vector": "VECTOR", "variant": "VARIANT",
    "serial": "SERIAL", "uuid": "UUID", "rw_int256": "RW_INT256", "rw_uint256": "RW_UINT256",
}  # fmt: skip
"""Maps every one-word type name, in lower case, to the type's canonical name."""

_MOST_ARGUMENTS = {"NUMERIC": 2, "CHARACTER": 1, "DOUBLE": 1, "VECTOR": 1}


def named_type(token: Token, *arguments: Token) -> DataType:
    canonical = CANONICAL.get(token.value)
    if canonical is None:
        raise unknown_type(token, CANONICAL, ", ".join(argument.text for argument in arguments))
    if len(arguments) > _MOST_ARGUMENTS.get(canonical, 0) or (arguments and token.value in _NO_ARGUMENTS):
        raise SqlError(
            SYNTAX_ERROR,
            f'type "{token.value}" takes no {"scale" if len(arguments) > 1 else "length"}',
            hint=f"write {token.text}",
            span=token.span,
        )
    numbers = tuple(_whole(argument) for argument in arguments)
    if canonical == "DOUBLE" and numbers:  # float(n): single precision up to 24 bits.
        if not 1 <= numbers[0] <= 53:
            raise SqlError(
                UNSUPPORTED_TYPE,
                "the precision of FLOAT must be between 1 and 53",
                span=arguments[0].span,
                hint="write FLOAT(24) or FLOAT(53)",
            )
        canonical, numbers = ("REAL" if numbers[0] <= 24 else "DOUBLE"), ()
    if canonical == "VECTOR" and not numbers:
        raise SqlError(SYNTAX_ERROR, f'type "{token.value}" needs a length', hint="write VECTOR(3)", span=token.span)
    return DataType(name=canonical, arguments=numbers, span=token.span)


_NO_ARGUMENTS = frozenset({"double", "float8"})


def _whole(token: Token) -> int:
    if not token.text.isascii() or not token.text.isdecimal() or len(token.text) > 9:
        raise SqlError(
            UNSUPPORTED_TYPE,
            f"expected a whole number, found: {token.text}",
            span=token.span,
            hint="write a whole number of at most 9 digits",
        )
    return int(token.text)


MOST_DIMENSIONS = 32


def array_type(element: DataType) -> DataType:
    """An array type. Raises SqlError TOO_COMPLEX for too many dimensions."""
    inner, dimensions = element, 1
    while inner.element is not None:
        inner = inner.element
        dimensions += 1
    if dimensions > MOST_DIMENSIONS:
        raise SqlError(
            TOO_COMPLEX,
            f"an array has more than {MOST_DIMENSIONS} dimensions",
            span=element.span,
            hint=f"remove pairs of [] until {MOST_DIMENSIONS} remain",
        )
    return DataType(name="ARRAY", element=element, span=element.span)


def double_type() -> DataType:
    return DataType(name="DOUBLE")


def varchar_type() -> DataType:
    return DataType(name="CHARACTER VARYING")


def timestamp_type(has_zone: bool | None) -> DataType:
    return DataType(name="TIMESTAMP WITH TIME ZONE" if has_zone else "TIMESTAMP")


def time_type(has_zone: bool | None) -> DataType:
    return DataType(name="TIME WITH TIME ZONE" if has_zone else "TIME")


def struct_field(name: Token, data_type: DataType) -> StructField:
    return StructField(name=name.value, data_type=data_type, span=name.span)


def struct_type(*fields: StructField) -> DataType:
    return DataType(name="STRUCT", fields=fields)


def empty_struct(word: Token, less: Token, greater: Token) -> DataType:
    """The empty struct type, which is written ``STRUCT< >`` with a space, because ``<>`` is a single token."""
    if less.end == greater.start:
        raise SqlError(SYNTAX_ERROR, "expected <, found: <>", hint="write STRUCT< >", span=less.span)
    return DataType(name="STRUCT", span=word.span)


def map_type(key: DataType, value: DataType) -> DataType:
    return DataType(name="MAP", key=key, value=value)


TYPE_RULES: dict[str, Callable[..., Any]] = {
    "named_type": named_type,
    "type_with_precision": named_type,
    "type_with_scale": named_type,
    "array_type": array_type,
    "double_type": double_type,
    "varchar_type": varchar_type,
    "timestamp_type": timestamp_type,
    "time_type": time_type,
    "struct_field": struct_field,
    "struct_type": struct_type,
    "empty_struct": empty_struct,
    "map_type": map_type,
}

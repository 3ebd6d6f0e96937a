"""Builds the Avro schema of a sink's rows, and encodes the rows in Avro's binary form.

Each field is a union of ``null`` and the column's type, because every column may be NULL.
"""

from __future__ import annotations

import datetime
import re
import struct
from typing import TYPE_CHECKING, Any

from rw_sql.errors import NOT_SUPPORTED, SqlError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from decimal import Decimal

    Encoder = Callable[[bytearray, Any], None]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN: dict[str, Any] = {
    "boolean": "boolean",
    "byte": "int",
    "short": "int",
    "integer": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_EPOCH = datetime.datetime(1970, 1, 1)
_EPOCH_UTC = _EPOCH.replace(tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


def schema_of(name: str, namespace: str, columns: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of records with these columns (name → type in Spark's JSON form).

    Raises SqlError for a column name or type that Avro does not support.
    """
    fields = [
        {"name": _checked(column), "type": ["null", _type(kind, column, (column,))], "default": None}
        for column, kind in columns.items()
    ]
    return {"type": "record", "name": name, "namespace": namespace, "fields": fields}


def namespace_of(topic: str) -> str:
    """Converts a topic's name to a valid Avro namespace."""
    parts = (re.sub(r"[^A-Za-z0-9_]", "_", part) for part in topic.split(".") if part)
    return ".".join(part if not part[0].isdigit() else f"_{part}" for part in parts)


def _checked(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise SqlError(
            NOT_SUPPORTED,
            f'column "{name}" cannot be a field of Avro: its names have letters, digits and underscores',
            hint=f'CREATE SINK … AS SELECT "{name}" AS {re.sub(r"[^A-Za-z0-9_]", "_", name) or "a"} …',
        )
    return name


def _type(kind: Any, column: str, path: tuple[str, ...]) -> Any:
    if isinstance(kind, str):
        if (found := _DECIMAL.fullmatch(kind)) is not None:
            return {"type": "bytes", "logicalType": "decimal", "precision": int(found[1]), "scale": int(found[2])}
        if kind in _PLAIN:
            return _PLAIN[kind]
    elif kind["type"] == "array":
        return {"type": "array", "items": ["null", _type(kind["elementType"], column, (*path, "item"))]}
    elif kind["type"] == "map" and kind["keyType"] == "string":
        return {"type": "map", "values": ["null", _type(kind["valueType"], column, (*path, "value"))]}
    elif kind["type"] == "struct":
        inner = [
            {
                "name": _checked(each["name"]),
                "type": ["null", _type(each["type"], column, (*path, each["name"]))],
                "default": None,
            }
            for each in kind["fields"]
        ]
        return {"type": "record", "name": "_".join(path), "fields": inner}
    shown = kind if isinstance(kind, str) else f"map with keys of type {kind.get('keyType')}"
    raise SqlError(
        NOT_SUPPORTED,
        f'cannot encode column "{column}" as Avro: {shown}',
        hint=f"CREATE SINK … AS SELECT CAST({column} AS VARCHAR) AS {column} …",
    )


def encoder_of(schema: Any) -> Encoder:
    """Returns the function that encodes a value of this Avro type and appends the bytes to a ``bytearray``."""
    if isinstance(schema, list):
        return _nullable(encoder_of(schema[1]))
    kind = schema if isinstance(schema, str) else schema["type"]
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    match kind, logical:
        case "bytes", "decimal":
            scale = schema["scale"]
            return lambda out, value: _bytes(out, _unscaled(value, scale))
        case _, "date":
            return lambda out, value: _long(out, value.toordinal() - _EPOCH_DAY)
        case _, "timestamp-micros":
            return lambda out, value: _long(out, (value - _EPOCH_UTC) // _MICROSECOND)
        case _, "local-timestamp-micros":
            return lambda out, value: _long(out, (value - _EPOCH) // _MICROSECOND)
        case "boolean", _:
            return lambda out, value: out.append(1 if value else 0)
        case (("int" | "long"), _):
            return _long
        case (("float" | "double"), _):
            pack = struct.Struct("<f" if kind == "float" else "<d").pack
            return lambda out, value: out.extend(pack(value))
        case "string", _:
            return lambda out, value: _bytes(out, value.encode())
        case "bytes", _:
            return _bytes
        case "array", _:
            return _array(encoder_of(schema["items"]))
        case "map", _:
            return _map(encoder_of(schema["values"]))
        case _:
            return _record([(each["name"], encoder_of(each["type"])) for each in schema["fields"]])


def row_encoder(schema: Mapping[str, Any]) -> Callable[[bytes, Sequence[Any]], bytes]:
    """Returns a function that encodes a row as a prefix and an Avro record. The returned function takes the row's
    values in the order of the schema's fields."""
    encoders = [encoder_of(each["type"]) for each in schema["fields"]]

    def encoded(prefix: bytes, row: Sequence[Any]) -> bytes:
        out = bytearray(prefix)
        for encode, value in zip(encoders, row, strict=True):
            encode(out, value)
        return bytes(out)

    return encoded


def _long(out: bytearray, value: int) -> None:
    """Encodes a number as Avro's variable-length zigzag integer: groups of seven bits, lowest group first."""
    rest = value << 1 if value >= 0 else ((-value) << 1) - 1
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)


def _bytes(out: bytearray, value: bytes) -> None:
    _long(out, len(value))
    out.extend(value)


def _unscaled(value: Decimal, scale: int) -> bytes:
    # Does not use scaleb, which rounds to the 28 digits of Python's default context.
    sign, digits, exponent = value.as_tuple()
    number: int = int("".join(map(str, digits))) * 10 ** (scale + int(exponent))
    number = -number if sign else number
    # The digits need one more bit for the sign.
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)


def _nullable(encode: Encoder) -> Encoder:
    def write(out: bytearray, value: Any) -> None:
        if value is None:
            out.append(0)
        else:
            out.append(2)
            encode(out, value)

    return write


def _array(encode: Encoder) -> Encoder:
    def write(out: bytearray, value: Any) -> None:
        if value:
            _long(out, len(value))
            for item in value:
                encode(out, item)
        out.append(0)

    return write


def _map(encode: Encoder) -> Encoder:
    def write(out: bytearray, value: Any) -> None:
        # Arrow returns a map as pairs.
        pairs = value.items() if isinstance(value, dict) else value
        if pairs:
            _long(out, len(pairs))
            for key, item in pairs:
                _bytes(out, key.encode())
                encode(out, item)
        out.append(0)

    return write


def _record(fields: Sequence[tuple[str, Encoder]]) -> Encoder:
    def write(out: bytearray, value: Any) -> None:
        for name, encode in fields:
            encode(out, value[name])

    return write

"""Writes a sink's rows as Protobuf messages. The module generates the text of the schema, and encodes values in
proto3's binary format.

For the binary format, see https://protobuf.dev/programming-guides/encoding/. The package ``protobuf`` is not needed to
write messages.
"""

from __future__ import annotations

import datetime
import re
import struct
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.schemas.unwritable import UnwritableError
from rw_sql.errors import NOT_SUPPORTED, SqlError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Encoder = Callable[[bytearray, Any], None]
    """A function that encodes a value, without the field's tag, and appends the bytes to a ``bytearray``."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_TIMESTAMP = "google.protobuf.Timestamp"
_PLAIN = {
    "boolean": "bool",
    "byte": "int32",
    "short": "int32",
    "integer": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
    "date": "int32",
    "timestamp": _TIMESTAMP,
    "timestamp_ntz": "string",
}
_KEYS = ("string", "bool", "int32", "int64")
_PACKED = ("bool", "int32", "int64", "float", "double")
_VARINT, _EIGHT, _LENGTH, _FOUR = 0, 1, 2, 5
_WIRE = {"bool": _VARINT, "int32": _VARINT, "int64": _VARINT, "double": _EIGHT, "float": _FOUR}
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)
_ALL_BITS = (1 << 64) - 1


def schema_text(message: str, columns: Mapping[str, Any]) -> str:
    """The text of a schema with one message type, whose fields are these columns (name → type in Spark's JSON form).
    ``message`` is the name of the message type and may begin with a package. The number of a field is the position of
    its column.

    Raises SqlError for a column whose name or type Protobuf does not support.
    """
    package, _, name = message.rpartition(".")
    body = _message(name, _fields(columns.items(), None), "")
    head = ['syntax = "proto3";', *([f"package {package};"] if package else [])]
    if _TIMESTAMP in body:
        head.append('import "google/protobuf/timestamp.proto";')
    return "\n".join([*head, "", body])


def _fields(items: Any, column: str | None) -> list[tuple[str, Any, str]]:
    """Checks the names of fields. Returns the name and the type of each field, and the table's column that contains
    the field."""
    found = []
    for name, kind in items:
        if _NAME.fullmatch(name) is None:
            wanted = re.sub(r"[^A-Za-z0-9_]", "_", name).lstrip("_0123456789") or "a"
            raise SqlError(
                NOT_SUPPORTED,
                f'column "{name}" cannot be a field of Protobuf: its names begin with a letter and have letters, '
                "digits and underscores",
                hint=f'CREATE SINK … AS SELECT "{name}" AS {wanted} …',
            )
        found.append((name, kind, column or name))
    return found


def _inner(kind: Any) -> Any:
    return [(each["name"], each["type"]) for each in kind["fields"]]


def _message(name: str, fields: Sequence[tuple[str, Any, str]], indent: str) -> str:
    taken = {field for field, _, _ in fields}
    lines = [f"{indent}message {name} {{"]
    for number, (field, kind, column) in enumerate(fields, start=1):
        nested = _nested_name(field, taken)
        word, made = _declared(kind, nested, column)
        if made is not None:
            lines.append(_message(nested, _fields(_inner(made), column), indent + "  "))
        lines.append(f"{indent}  {word} {field} = {number};")
    return "\n".join([*lines, f"{indent}}}"])


def _nested_name(field: str, taken: set[str]) -> str:
    """Returns a name for the message type of a nested field. No other name in the enclosing message (``taken``) is
    the same."""
    name = f"{field}_message"
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _declared(kind: Any, nested: str, column: str) -> tuple[str, Any]:
    """Returns the part of a field's declaration that precedes the field's name, such as ``repeated int64``. Also
    returns the struct for which the message type ``nested`` must be declared; None if the field contains no struct."""
    if isinstance(kind, dict) and kind["type"] == "array":
        word, made = _single(kind["elementType"], nested, column)
        return f"repeated {word}", made
    if isinstance(kind, dict) and kind["type"] == "map":
        key, _ = _single(kind["keyType"], nested, column)
        if key in _KEYS and kind["keyType"] in ("string", "boolean", "byte", "short", "integer", "long"):
            word, made = _single(kind["valueType"], nested, column)
            return f"map<{key}, {word}>", made
        raise _refused(column, f"map with keys of type {kind['keyType']}")
    word, made = _single(kind, nested, column)
    return f"optional {word}", made


def _single(kind: Any, nested: str, column: str) -> tuple[str, Any]:
    if isinstance(kind, str):
        if kind.startswith("decimal("):
            return "string", None
        if kind in _PLAIN:
            return _PLAIN[kind], None
    elif kind["type"] == "struct":
        return nested, kind
    shown = kind if isinstance(kind, str) else f"{kind['type']} within an array or map"
    raise _refused(column, shown)


def _refused(column: str, shown: str) -> SqlError:
    return SqlError(
        NOT_SUPPORTED,
        f'cannot encode column "{column}" as Protobuf: {shown}',
        hint=f"CREATE SINK … AS SELECT to_json({column}) AS {column} …",
    )


def row_encoder(columns: Sequence[tuple[str, Any]]) -> Callable[[bytes, Sequence[Any]], bytes]:
    """Returns a function that encodes a row as a prefix and a message. The returned function takes the row's values
    in the order of ``columns``, and raises UnwritableError."""
    encode = _message_encoder(columns)

    def encoded(prefix: bytes, row: Sequence[Any]) -> bytes:
        out = bytearray(prefix)
        encode(out, row)
        return bytes(out)

    return encoded


FIRST_MESSAGE = b"\0"
"""The path of a schema's first message type, as encoded in Confluent's frame after the schema's id."""


def _message_encoder(columns: Sequence[tuple[str, Any]]) -> Callable[[bytearray, Sequence[Any]], None]:
    fields = [_field(number, name, kind) for number, (name, kind) in enumerate(columns, start=1)]

    def write(out: bytearray, values: Sequence[Any]) -> None:
        for encode, value in zip(fields, values, strict=True):
            if value is not None:
                encode(out, value)

    return write


def _field(number: int, name: str, kind: Any) -> Encoder:
    if isinstance(kind, dict) and kind["type"] == "array":
        return _repeated(number, name, kind["elementType"])
    if isinstance(kind, dict) and kind["type"] == "map":
        return _map(number, name, kind["keyType"], kind["valueType"])
    return _tagged(number, *_value(kind))


def _tagged(number: int, wire: int, encode: Encoder) -> Encoder:
    tag = bytearray()
    _varint(tag, number << 3 | wire)

    def write(out: bytearray, value: Any) -> None:
        out.extend(tag)
        encode(out, value)

    return write


def _repeated(number: int, name: str, kind: Any) -> Encoder:
    wire, encode = _value(kind)
    is_packed = isinstance(kind, str) and _PLAIN.get(kind) in _PACKED

    def present(value: Any) -> Any:
        if any(item is None for item in value):
            raise UnwritableError(f"{name}: a repeated field of Protobuf cannot contain NULL")
        return value

    if is_packed:

        def write_packed(out: bytearray, value: Any) -> None:
            if not present(value):
                return
            content = bytearray()
            for item in value:
                encode(content, item)
            _varint(out, number << 3 | _LENGTH)
            _sized(out, content)

        return write_packed
    single = _tagged(number, wire, encode)

    def write(out: bytearray, value: Any) -> None:
        for item in present(value):
            single(out, item)

    return write


def _map(number: int, name: str, key_kind: Any, value_kind: Any) -> Encoder:
    key, item = _tagged(1, *_value(key_kind)), _tagged(2, *_value(value_kind))

    def write(out: bytearray, value: Any) -> None:
        # Arrow returns a map as pairs.
        for name_, content in value.items() if isinstance(value, dict) else value:
            if content is None:
                raise UnwritableError(f"{name}: a map of Protobuf cannot contain NULL")
            entry = bytearray()
            key(entry, name_)
            item(entry, content)
            _varint(out, number << 3 | _LENGTH)
            _sized(out, entry)

    return write


def _value(kind: Any) -> tuple[int, Encoder]:
    """Returns the wire type of values of this type, and the function that encodes them."""
    if not isinstance(kind, str):
        names = [name for name, _ in _inner(kind)]
        fields = _message_encoder(_inner(kind))
        return _LENGTH, _sized_by(lambda out, value: fields(out, [value[name] for name in names]))
    if kind.startswith("decimal("):
        return _LENGTH, lambda out, value: _sized(out, format(value, "f").encode())
    match kind:
        case "string":
            return _LENGTH, lambda out, value: _sized(out, value.encode())
        case "binary":
            return _LENGTH, _sized
        case "timestamp":
            return _LENGTH, _sized_by(_timestamp)
        case "timestamp_ntz":
            return _LENGTH, lambda out, value: _sized(out, value.isoformat(timespec="microseconds").encode())
        case "date":
            return _VARINT, lambda out, value: _varint(out, value.toordinal() - _EPOCH_DAY)
        case "float" | "double":
            pack = struct.Struct("<f" if kind == "float" else "<d").pack
            return _WIRE[kind], lambda out, value: out.extend(pack(value))
        case _:
            return _VARINT, lambda out, value: _varint(out, int(value))


def _sized_by(encode: Encoder) -> Encoder:
    def write(out: bytearray, value: Any) -> None:
        content = bytearray()
        encode(content, value)
        _sized(out, content)

    return write


def _timestamp(out: bytearray, value: datetime.datetime) -> None:
    seconds, micros = divmod((value - _EPOCH) // _MICROSECOND, 1_000_000)
    for number, part in ((1, seconds), (2, micros * 1000)):
        if part:
            out.append(number << 3)
            _varint(out, part)


def _varint(out: bytearray, value: int) -> None:
    """Appends a number as a varint: groups of seven bits, the lowest group first. A negative number is written in 64
    bits."""
    rest = value & _ALL_BITS
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)


def _sized(out: bytearray, content: bytes | bytearray) -> None:
    _varint(out, len(content))
    out.extend(content)

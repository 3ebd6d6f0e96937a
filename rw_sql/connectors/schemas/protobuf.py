"""Reads Protobuf messages. The module reads the descriptors of a schema from a registry or a file, derives columns from
the descriptors, and converts messages to rows.

A schema is stored as a base64 text: the descriptor set of the schema and its imports. The package ``protobuf`` reads
messages, and ``grpcio-tools`` compiles the text of a schema from a registry. The extra ``rw-sql[registry]`` installs
both packages.
"""

from __future__ import annotations

import base64
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.schemas.builtin_protos import builtin_protos
from rw_sql.errors import INVALID_DEFINITION, NOT_SUPPORTED, PACKAGE_MISSING, SqlError, near_names

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    Convert = Callable[[Any], Any]
    WrittenTypes = Mapping[tuple[int, ...], tuple[str, ...]] | str
    """The result of :func:`written_types` for a writer's schema, or the reason why records with this schema cannot
    be read."""

HEAD_BYTES = 5
"""The number of bytes that precede the path of the message's type in Confluent's frame: a zero byte and the schema's
id."""

_ANY = "google.protobuf.Any"
_MAIN = "rw_sql_main.proto"
_TYPES = {
    "bool": "BOOLEAN",
    "string": "CHARACTER VARYING",
    "bytes": "BYTEA",
    "float": "REAL",
    "double": "DOUBLE",
    "enum": "CHARACTER VARYING",
    **dict.fromkeys(("int32", "sint32", "sfixed32"), "INT"),
    **dict.fromkeys(("uint32", "fixed32", "int64", "sint64", "sfixed64"), "BIGINT"),
    **dict.fromkeys(("uint64", "fixed64"), "NUMERIC(20, 0)"),
}
_NUMBERS = {
    1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 6: "fixed64", 7: "fixed32", 8: "bool", 9: "string",
    10: "group", 11: "message", 12: "bytes", 13: "uint32", 14: "enum", 15: "sfixed32", 16: "sfixed64", 17: "sint32",
    18: "sint64",
}  # fmt: skip
"""The names of field types, by their numbers in a descriptor."""


_MAKE_SET = "protoc --include_imports --descriptor_set_out=schema.pb schema.proto makes one"
_PROTOC_SECONDS = 30.0


class NoMessageError(Exception):
    """Raised if the bytes are not a message of the expected type."""


def _missing(error: ModuleNotFoundError) -> SqlError:
    return SqlError(
        PACKAGE_MISSING,
        f"ENCODE PROTOBUF needs the package {error.name}, which is not installed",
        hint="pip install 'rw-sql[registry]'",
    )


def compiled(text: str, imports: Sequence[tuple[str, str]] = ()) -> str:
    """Compiles a schema's text to a descriptor set in base64. ``imports`` contains the file name and the text of each
    schema that ``text`` imports.

    Raises SqlError if protoc rejects the text or the packages are not installed.
    """
    try:
        import grpc_tools
        from grpc_tools import protoc
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    included = Path(grpc_tools.__file__).parent / "_proto"
    with TemporaryDirectory() as folder:
        own, builtin = Path(folder) / "own", Path(folder) / "builtin"
        for name, content in builtin_protos().items():
            _write(builtin / name, content)
        for name, content in ((_MAIN, text), *imports):
            if not (own / name).resolve().is_relative_to(own.resolve()):
                raise SqlError(
                    INVALID_DEFINITION,
                    f"the schema imports {name!r}, which is outside the folder of the schema",
                    hint="import files by relative paths without ..",
                )
            _write(own / name, content)
        out = Path(folder) / "set"
        # A file that the schema references takes precedence over the registry's file with the same name.
        paths = [f"-I{each}" for each in (own, builtin, included)]
        arguments = [*paths, "--include_imports", f"--descriptor_set_out={out}", _MAIN]
        if protoc.main(["protoc", *arguments]) != 0 or not out.is_file():
            reason = _refusal(arguments, own)
            raise SqlError(
                INVALID_DEFINITION,
                f"the Protobuf schema cannot be compiled{f': {reason}' if reason else ''}",
                hint="register a schema that protoc compiles, with its references",
            )
        return base64.b64encode(out.read_bytes()).decode()


def _write(file: Path, content: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content, encoding="utf-8")


def _refusal(arguments: Sequence[str], own: Path) -> str:
    """Runs protoc again in a separate process, and returns the first error that it reports. A separate process is
    necessary because protoc writes errors only to its standard error. Returns the empty string if no error is found.
    ``own`` is the folder that contains the schema."""
    command = [sys.executable, "-m", "grpc_tools.protoc", *arguments]
    try:
        ran = subprocess.run(command, capture_output=True, check=False, timeout=_PROTOC_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return ""
    lines = ran.stderr.decode(errors="replace").replace(f"{own}/", "").splitlines()
    found = next((line.strip() for line in lines if ".proto:" in line and "warning:" not in line), "")
    return re.sub(rf"^{re.escape(_MAIN)}:(?:([0-9]+):[0-9]+:)? ?", lambda at: f"line {at[1]}: " if at[1] else "", found)


@dataclass(slots=True)
class Messages:
    """One message type of a stored schema. ``as_jsonb`` contains the names of message types; fields of these types
    become JSON text."""

    stored: str
    message: str
    as_jsonb: frozenset[str] = frozenset()
    _pool: Any = field(default=None, init=False)

    @property
    def descriptor(self) -> Any:
        """The message's descriptor. Raises SqlError if the schema has no such message."""
        try:
            from google.protobuf import descriptor_pb2, descriptor_pool
        except ModuleNotFoundError as error:
            raise _missing(error) from error
        files = descriptor_pb2.FileDescriptorSet()
        try:
            files.ParseFromString(base64.b64decode(self.stored))
        except Exception as error:
            raise SqlError(
                INVALID_DEFINITION,
                "the schema is not a descriptor set",
                hint=_MAKE_SET,
            ) from error
        if self._pool is None:
            pool = descriptor_pool.DescriptorPool()
            try:
                for file in files.file:
                    pool.Add(file)
            except TypeError as error:
                raise SqlError(
                    INVALID_DEFINITION,
                    f"the descriptor set is not complete: {_first_line(error)}",
                    hint=_MAKE_SET,
                ) from error
            self._pool = pool
        try:
            return self._pool.FindMessageTypeByName(self.message)
        except KeyError:
            names = [f"{f.package}.{m.name}".lstrip(".") for f in files.file for m in f.message_type]
            near = near_names(self.message, names)
            raise SqlError(
                INVALID_DEFINITION,
                f"Cannot find message {self.message} in schema",
                hint=f'did you mean "{near[0]}"?' if near else f"the schema has {', '.join(names[:12])}",
            ) from None

    def columns(self, needed: Collection[str] | None = None) -> tuple[tuple[str, str], ...]:
        """The fields with their canonical types.

        Raises SqlError for a field that no column type can represent. If ``needed`` is not None, only the fields in
        ``needed`` cause this error. All other fields without a column type are left out.
        """
        message = self.descriptor
        found = []
        for each in message.fields:
            try:
                found.append((each.name, self._type(each, (message.full_name,))))
            except SqlError:
                if needed is None or each.name in needed:
                    raise
        return tuple(found)

    def _is_json(self, message: Any) -> bool:
        return message.full_name == _ANY or message.full_name in self.as_jsonb

    def _type(self, each: Any, path: tuple[str, ...]) -> str:
        if _is_map(each):
            key, value = (each.message_type.fields_by_name[name] for name in ("key", "value"))
            return f"MAP({self._single(key, path)}, {self._single(value, path)})"
        return self._single(each, path) + ("[]" if _is_repeated(each) else "")

    def _single(self, each: Any, path: tuple[str, ...]) -> str:
        kind = _NUMBERS[each.type]
        if kind not in ("message", "group"):
            return _TYPES[kind]
        message = each.message_type
        if self._is_json(message):
            return "JSONB"
        if message.full_name in path:
            names = " -> ".join((*path, message.full_name))
            raise SqlError(
                NOT_SUPPORTED,
                f'circular reference detected: {names}. Adding "{message.full_name}" to "messages_as_jsonb" may help.',
                hint=f"messages_as_jsonb = '{message.full_name}'",
            )
        fields = (f'"{part.name}" {self._type(part, (*path, message.full_name))}' for part in message.fields)
        return f"STRUCT<{', '.join(fields) or ' '}>"

    def reader(
        self, columns: Sequence[str], *, is_framed: bool, types: Mapping[bytes, WrittenTypes] | None = None
    ) -> Callable[[bytes], dict[str, Any]]:
        """Returns the function that reads a message as a row of these columns. If ``is_framed`` is true, the frame of
        Confluent's serializer must precede each message. The returned function raises NoMessageError with the reason if
        the bytes are not such a message.

        ``types`` maps the first :data:`HEAD_BYTES` bytes of a record, which contain the id of the writer's schema, to
        the :data:`WrittenTypes` of this schema. If ``types`` is not None, the returned function accepts only messages
        that were written as this message type.

        If the schema distinguishes an absent field from its default value (messages, ``optional`` and ``oneof``), an
        absent field becomes None. Otherwise, it gets its default value.
        """
        from google.protobuf import message as protobuf
        from google.protobuf import message_factory

        found = self.descriptor
        made = message_factory.GetMessageClass(found)
        has_required = _has_required(found, set())
        parts = [(name, self._part(found.fields_by_name[name])) for name in columns]

        def unframed(data: bytes) -> bytes:
            path, at = _message_path(data)
            if types is not None:
                self._require_type(types, data[:HEAD_BYTES], path)
            return data[at:]

        def read(data: bytes) -> dict[str, Any]:
            value = made()
            try:
                value.ParseFromString(unframed(data) if is_framed else data)
            except protobuf.DecodeError as error:
                raise NoMessageError(f"the bytes are not a message {self.message}") from error
            if has_required and not value.IsInitialized():
                missing = value.FindInitializationErrors()
                raise NoMessageError(f"the message has no value for {', '.join(missing)}")
            try:
                return {name: part(value) for name, part in parts}
            except UnicodeError as error:
                raise NoMessageError("the key of a map is not UTF-8") from error

        return read

    def _require_type(self, types: Mapping[bytes, WrittenTypes], head: bytes, path: tuple[int, ...]) -> None:
        id_ = int.from_bytes(head[1:], "big")
        written = types.get(head)
        if written is None:
            raise NoMessageError(f"schema {id_} is not in the registry")
        if isinstance(written, str):
            raise NoMessageError(written)
        names = written.get(path, ())
        if self.message not in names:
            is_what = f"a message {names[0]}" if names else "no message of that schema"
            raise NoMessageError(f"according to schema {id_}, the record is {is_what}, not a message {self.message}")

    def _part(self, each: Any) -> Convert:
        """Returns the function that extracts a field's value from a message."""
        name = each.name
        if _is_map(each):
            key, item = (self._convert(each.message_type.fields_by_name[part]) for part in ("key", "value"))
            return lambda message: [(key(k), item(v)) for k, v in sorted(getattr(message, name).items())]
        convert = self._convert(each)
        if _is_repeated(each):
            return lambda message: [convert(value) for value in getattr(message, name)]
        if each.has_presence:
            return lambda message: convert(getattr(message, name)) if message.HasField(name) else None
        return lambda message: convert(getattr(message, name))

    def _convert(self, each: Any) -> Convert:
        kind = _NUMBERS[each.type]
        if kind in ("uint64", "fixed64"):
            return Decimal
        if kind == "enum":
            names: dict[int, str] = {value.number: value.name for value in each.enum_type.values}

            def named(number: int) -> str:
                if number not in names:
                    raise NoMessageError(f"{each.full_name} has no value {number}")
                return names[number]

            return named
        if kind == "string":

            def text(value: Any) -> str:
                # The library returns bytes for a string of proto2 that is not UTF-8.
                if isinstance(value, str):
                    return value
                raise NoMessageError(f"{each.full_name} is not UTF-8")

            return text
        if kind not in ("message", "group"):
            return lambda value: value
        if self._is_json(each.message_type):
            return self._json
        parts = [(part.name, self._part(part)) for part in each.message_type.fields]
        return lambda message: {name: part(message) for name, part in parts}

    def _json(self, message: Any) -> str:
        from google.protobuf import json_format
        from google.protobuf import message as protobuf

        try:
            return str(json_format.MessageToJson(message, indent=None, descriptor_pool=self._pool))
        except (TypeError, ValueError, RecursionError, json_format.Error, protobuf.Error) as error:
            raise NoMessageError(f"a message cannot be written as JSON: {error}") from error


def _is_repeated(each: Any) -> bool:
    return bool(each.is_repeated if hasattr(each, "is_repeated") else each.label == each.LABEL_REPEATED)


def _has_required(message: Any, seen: set[str]) -> bool:
    """True if a message type, or the type of a message inside it, has a required field (proto2 only)."""
    if message.full_name in seen:
        return False
    seen.add(message.full_name)
    return any(
        each.is_required if hasattr(each, "is_required") else each.label == each.LABEL_REQUIRED
        for each in message.fields
    ) or any(_has_required(each.message_type, seen) for each in message.fields if each.message_type is not None)


def _is_map(each: Any) -> bool:
    return each.message_type is not None and bool(each.message_type.GetOptions().map_entry)


def _message_path(data: bytes) -> tuple[tuple[int, ...], int]:
    """Reads the frame that Confluent's serializer writes before a message: a zero byte, the schema's id, and the path
    of the message's type in the schema. The path is a list of indexes; an empty list denotes the first type. Returns
    the path and the length of the frame. Raises NoMessageError if the bytes do not begin with such a frame."""
    if data[:1] != b"\0":
        raise NoMessageError("failed to match the magic byte 0")
    if len(data) < HEAD_BYTES + 1:
        raise NoMessageError("failed to read the 4-byte schema ID")
    count, at = _varint(data, HEAD_BYTES)
    path = []
    for _ in range(count):
        index, at = _varint(data, at)
        path.append(index)
    return tuple(path) or (0,), at


def written_types(stored: str) -> dict[tuple[int, ...], tuple[str, ...]]:
    """Maps each path in Confluent's frame to the message types of a compiled schema that the path may denote.

    For nested types, a path may be ambiguous: some writers count the types that protoc generates for maps, and others
    do not.
    """
    from google.protobuf import descriptor_pb2

    files = descriptor_pb2.FileDescriptorSet()
    files.ParseFromString(base64.b64decode(stored))
    main = next(file for file in files.file if file.name == _MAIN)
    found: dict[tuple[int, ...], tuple[str, ...]] = {}

    def add(messages: Sequence[Any], path: tuple[int, ...], prefix: str) -> None:
        declared = [message for message in messages if not message.options.map_entry]
        for listed in (messages, declared):
            for index, message in enumerate(listed):
                name = f"{prefix}{message.name}"
                known = found.get((*path, index), ())
                if name not in known:
                    found[(*path, index)] = (*known, name)
                    add(message.nested_type, (*path, index), f"{name}.")

    add(main.message_type, (), f"{main.package}." if main.package else "")
    return found


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Decodes a zigzag number. Also returns the index of the byte after the number."""
    number = shift = 0
    while at < len(data) and shift < 35:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
    raise NoMessageError("failed to read the message indexes")

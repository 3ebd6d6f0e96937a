"""Checks the clause FORMAT … ENCODE …. Some connectors require the clause, and others accept only one fixed clause."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rw_sql.errors import SYNTAX_ERROR, UNKNOWN_PROPERTY, SqlError, near_names
from rw_sql.syntax.statements.common import TextValue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.syntax.statements.common import FormatEncode, Option

_FIXED = {
    "nexmark": ("NATIVE", "NATIVE"),
    "iceberg": ("NONE", "NONE"),
    "adbc_snowflake": ("NONE", "NONE"),
}
_FREE = ("datagen", "delta", "jdbc")


def require_no_slip(options: Iterable[Option]) -> None:
    """Raises SqlError if a WITH list has no ``connector`` but a property with a similar name."""
    for option in options:
        if option.key not in ("connection", "connector") and near_names("connector", [option.key]):
            raise SqlError(
                UNKNOWN_PROPERTY,
                f'unknown property "{option.key}"',
                hint='did you mean "connector"?',
                plain_keys=(option.key,),
                span=option.key_place,
            )


def connector_of(options: tuple[Option, ...]) -> str | None:
    """The connector in the WITH list; None if the list has no connector."""
    for option in options:
        if option.key == "connector":
            return option.value.text if isinstance(option.value, TextValue) else ""
    return None


def require_format(
    connector: str, given: FormatEncode | None, *, is_source: bool, options: tuple[Option, ...] = ()
) -> None:
    """Raises SqlError SYNTAX_ERROR if FORMAT … ENCODE … is missing, or differs from the connector's fixed clause.
    ``options`` is the WITH list, which is examined because other systems name the format there."""
    if given is not None and given.key_encode is not None and given.format != "UPSERT":
        raise SqlError(
            SYNTAX_ERROR,
            "key encode clause is not supported in source schema",
            span=given.span,
            hint="omit KEY ENCODE",
        )
    fixed = _fixed(connector, is_source=is_source)
    if fixed is not None:
        if given is not None and not _is_fixed(connector, given, fixed):
            kind = "CDC" if "-cdc" in connector else connector
            raise SqlError(
                SYNTAX_ERROR,
                f"row format for {kind} connectors should be either omitted or set to "
                f"`FORMAT {fixed[0]} ENCODE {fixed[1]}`",
                span=given.span,
                hint=f"omit FORMAT, or write FORMAT {fixed[0]} ENCODE {fixed[1]}",
            )
    elif given is None and connector not in _FREE:
        _refuse_format_property(options, is_source=is_source)
        raise SqlError(
            SYNTAX_ERROR,
            "expected description of the format",
            hint="end the statement with FORMAT PLAIN ENCODE JSON, or another format of the upstream",
        )


_FORMATS = (
    "FORMAT PLAIN ENCODE JSON after WITH (…) reads rows; for changes, write UPSERT, DEBEZIUM, MAXWELL or CANAL instead "
    "of PLAIN"
)
_IN_A_TABLE = ", and CREATE TABLE with a PRIMARY KEY instead of CREATE SOURCE"
_OF_CHANGES = frozenset({"ogg-json", "ogg-avro"})
"""Formats of change events that no FORMAT clause of rw_sql can read."""

OF_TABLES = "; this format needs CREATE TABLE with a PRIMARY KEY"
"""The end of a hint that proposes a format of change events for a CREATE SOURCE statement."""
_PLAIN_WORD = re.compile(r"[\w.-]{1,40}")
_READ_CHANGES = "read them with CREATE TABLE a_table (id INT PRIMARY KEY, …) WITH (…) FORMAT DEBEZIUM ENCODE JSON"
_FORMAT_KEYS = frozenset({"encode", "format", "value.format", "value_format"})
"""The properties with which Flink SQL and ksqlDB name the format."""

_AVRO, _PROTOBUF = "AVRO (schema.registry = '…')", "PROTOBUF (message = '…', schema.location = '…')"
CLAUSES = {
    "avro": ("PLAIN", _AVRO),
    "avro-confluent": ("PLAIN", _AVRO),
    "avro-debezium-registry": ("DEBEZIUM", _AVRO),
    "avro-registry": ("PLAIN", _AVRO),
    "bytes": ("PLAIN", "BYTES"),
    "canal-json": ("CANAL", "JSON"),
    "csv": ("PLAIN", "CSV"),
    "debezium-avro-confluent": ("DEBEZIUM", _AVRO),
    "debezium-json": ("DEBEZIUM", "JSON"),
    "delimited": ("PLAIN", "CSV"),
    "json": ("PLAIN", "JSON"),
    "maxwell-json": ("MAXWELL", "JSON"),
    "parquet": ("PLAIN", "PARQUET"),
    "proto-registry": ("PLAIN", "PROTOBUF (message = '…', schema.registry = '…')"),
    "protobuf": ("PLAIN", _PROTOBUF),
    "raw": ("PLAIN", "BYTES"),
}
"""Maps the names of formats in Flink SQL and ksqlDB to rw_sql's equivalents: the words after FORMAT and the words after
ENCODE."""


def _refuse_format_property(options: Iterable[Option], *, is_source: bool) -> None:
    for option in options:
        if option.key in _FORMAT_KEYS and isinstance(option.value, TextValue):
            word = option.value.text
            format, encode = CLAUSES.get(word.lower(), ("…", "…"))
            written = f"{option.key} = '{word}'" if word.lower() in CLAUSES else option.key
            is_of_tables = is_source and format not in ("PLAIN", "…")
            more = OF_TABLES if is_of_tables else ""
            if encode == "BYTES":
                more = "; this format needs a single column, of type BYTEA"
            hint = f"omit {written}, and write FORMAT {format} ENCODE {encode} after WITH (…){more}"
            if format == "…":
                read = f"no FORMAT reads {word}" if _PLAIN_WORD.fullmatch(word) else "no FORMAT reads this"
                hint = f"omit {option.key}: {read}; {_FORMATS}{_IN_A_TABLE if is_source else ''}"
                if word.lower() in _OF_CHANGES:
                    hint = (
                        f"omit {option.key}: no FORMAT reads the changes of {word}; let the producer write Debezium, "
                        f"Maxwell or Canal, and {_READ_CHANGES}; FORMAT PLAIN ENCODE JSON reads the records as they are"
                    )
            raise SqlError(
                SYNTAX_ERROR,
                "the format is a clause, not a property",
                hint=hint,
                span=option.key_place,
            )


def _fixed(connector: str, *, is_source: bool) -> tuple[str, str] | None:
    if "-cdc" in connector:
        if is_source:
            return "PLAIN", "JSON"
        return ("DEBEZIUM_MONGO" if "mongodb" in connector else "DEBEZIUM"), "JSON"
    return _FIXED.get(connector)


def _is_fixed(connector: str, given: FormatEncode, fixed: tuple[str, str]) -> bool:
    written = (given.format, given.encode)
    return not given.options and (written == fixed or (connector == "nexmark" and written == ("PLAIN", "BYTES")))

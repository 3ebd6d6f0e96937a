"""The types of Kafka Connect and of Debezium in Avro schemas.

For a type that Avro lacks, the converters of Kafka Connect write the value as a plain number, string or record, and put
the type's name into the schema as ``connect.name``. Debezium's ``timestamp``, for example, is a ``long`` named
``io.debezium.time.MicroTimestamp``. A column can have the type that the name denotes, the plain type, or one of a few
other types that can represent the same values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rw_sql.connectors.schemas.logical_types import logical_of

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE_DECIMAL = "io.debezium.data.VariableScaleDecimal"
"""Debezium's name for decimals whose scale differs from value to value. Each value is a record with the fields
``scale`` and ``value`` (the unscaled number)."""

DECIMAL = "org.apache.kafka.connect.data.Decimal"
CONNECT_TIMESTAMP = "org.apache.kafka.connect.data.Timestamp"

TIME_UNITS: Mapping[str, int] = {
    "io.debezium.time.Time": 1_000,
    "io.debezium.time.MicroTime": 1_000_000,
    "io.debezium.time.NanoTime": 1_000_000_000,
}
"""Debezium's types for a time of day as a number. Each type is mapped to the number of its units per second."""

TIMESTAMP_UNITS: Mapping[str, int] = {
    "io.debezium.time.Timestamp": 1_000,
    "io.debezium.time.MicroTimestamp": 1_000_000,
    "io.debezium.time.NanoTimestamp": 1_000_000_000,
}
"""Debezium's types for a timestamp without a zone as a number. Each type is mapped to the number of its units per
second."""

DATE, ISO_DATE, ISO_TIME, ISO_TIMESTAMP, ZONED_TIMESTAMP = (
    f"io.debezium.time.{name}" for name in ("Date", "IsoDate", "IsoTime", "IsoTimestamp", "ZonedTimestamp")
)

_TEXT, _TIMESTAMP, _TIMESTAMPTZ = "CHARACTER VARYING", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"
_COLUMNS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(TIME_UNITS, (_TEXT,)),
    **dict.fromkeys(TIMESTAMP_UNITS, (_TIMESTAMP, _TIMESTAMPTZ)),
    DATE: ("DATE",),
    ISO_DATE: ("DATE",),
    ISO_TIME: (_TEXT,),
    ISO_TIMESTAMP: (_TIMESTAMP,),
    ZONED_TIMESTAMP: (_TIMESTAMPTZ,),
    CONNECT_TIMESTAMP: (_TIMESTAMPTZ, _TIMESTAMP),
    "io.debezium.data.Json": ("JSONB",),
    VARIABLE_DECIMAL: ("NUMERIC", _TEXT),
}
"""Maps each type's name to the column types that can store its values. The first of these types is used if the
statement does not declare the column. NUMERIC stands for every precision and scale."""

_BASES: Mapping[str, str] = {
    **dict.fromkeys((*TIMESTAMP_UNITS, CONNECT_TIMESTAMP), "long"),
    **dict.fromkeys((ISO_DATE, ISO_TIME, ISO_TIMESTAMP, ZONED_TIMESTAMP, "io.debezium.data.Json"), "string"),
    "io.debezium.time.Time": "int",
    "io.debezium.time.MicroTime": "long",
    "io.debezium.time.NanoTime": "long",
    DATE: "int",
    VARIABLE_DECIMAL: "record",
}
"""Maps the name of each type to the Avro type for which the converters of Kafka Connect write this name. The name is
ignored on any other Avro type."""

TIMES_OF_LOGICAL: Mapping[str, tuple[str, int]] = {
    "date": ("date", 0),
    "time-millis": ("time", 1_000),
    "time-micros": ("time", 1_000_000),
    "timestamp-millis": ("timestamp", 1_000),
    "timestamp-micros": ("timestamp", 1_000_000),
    "local-timestamp-millis": ("timestamp", 1_000),
    "local-timestamp-micros": ("timestamp", 1_000_000),
}
"""Maps each of Avro's logical types for dates and times to the result of :func:`count_of`."""

_SMALL = ("int8", "int16")
_MOST_DIGITS, _NO_DIGITS = 38, 64


def connect_name(schema: Any) -> str | None:
    """The schema's ``connect.name``, if it is a type of Kafka Connect or Debezium that a column can store; otherwise
    None."""
    name = str(schema.get("connect.name")) if isinstance(schema, dict) else ""
    return name if name in _COLUMNS and schema.get("type") == _BASES[name] else None


def is_unnamed_text(schema: Any) -> bool:
    """True for a string type without ``connect.name`` and without a logical type. Its values may be numbers or bytes
    in text form."""
    if isinstance(schema, dict):
        return schema.get("type") == "string" and "connect.name" not in schema and logical_of(schema) is None
    return bool(schema == "string")


def is_small(schema: Any) -> bool:
    """True for an ``int`` that Kafka Connect marks as an integer of 8 or 16 bits."""
    return isinstance(schema, dict) and schema.get("type") == "int" and schema.get("connect.type") in _SMALL


def count_of(schema: Any) -> tuple[str, int] | None:
    """Returns how a whole number represents a time: the kind of time (``timestamp``, ``time`` or ``date``), and the
    number of units per second (0 for days). Returns None if the schema is not a date or time of Debezium, Kafka
    Connect or Avro."""
    if not isinstance(schema, dict):
        return None
    name = str(schema.get("connect.name"))
    for kind, units in (("timestamp", TIMESTAMP_UNITS), ("time", TIME_UNITS)):
        if name in units:
            return kind, units[name]
    return ("date", 0) if name == DATE else TIMES_OF_LOGICAL.get(logical_of(schema) or "")


def column_types(schema: Any) -> tuple[str, ...]:
    """The canonical column types that can store a type of Kafka Connect or Debezium. The first of them is used if
    the statement does not declare the column. The result is empty for any other schema."""
    name = connect_name(schema)
    if name is not None:
        return _COLUMNS[name]
    return ("SMALLINT",) if is_small(schema) else ()


def bounded_decimal(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a decimal's schema with a precision that a column can have. If Kafka Connect's converter does not know
    the number of digits, as for Debezium's ``money``, it writes 64; in this case, the precision becomes 38.
    Otherwise, the schema is unchanged."""
    known = schema.get("connect.parameters") or {}
    is_unknown = schema.get("connect.name") == DECIMAL and "connect.decimal.precision" not in known
    if is_unknown and schema.get("precision") == _NO_DIGITS:
        return {**schema, "precision": _MOST_DIGITS}
    return schema

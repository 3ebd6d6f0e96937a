"""Defines the valid clauses FORMAT … ENCODE … (…): the supported pairs of a FORMAT and an ENCODE, with the meaning and
the options of each pair.

The file ``sources/<name>.toml`` of each connector lists the pairs that the connector accepts. The keywords are the same
as in RisingWave.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql import format_words
from rw_sql.connectors.spec import load_spec

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMATS = format_words.FORMATS
"""The valid words after FORMAT."""

ENCODES = format_words.ENCODES
"""The valid words after ENCODE."""

TIMESTAMPTZ_MODE = "timestamptz.handling.mode"
TIMESTAMP_MODE = "timestamp.handling.mode"
IGNORE_KEY = "ignore_key"
PLACEHOLDER = "unavailable.value.placeholder"
DELIMITER = "delimiter"
WITHOUT_HEADER = "without_header"

GUESS = "guess_number_unit"
"""A value of the options for times in JSON. With this value, the reader guesses the unit of a numeric time from the
magnitude of the number, as RisingWave does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeOption:
    """One option of FORMAT … ENCODE ….

    If ``choices`` is empty, a value is a single character or, if ``is_text`` is true, any text. ``default`` is None if
    the option has no default. If ``is_of_schema`` is true, the option locates the schema, and
    ``sources/schema_registry.toml`` defines the option's valid values.
    """

    key: str
    doc: str
    choices: tuple[str, ...] = ()
    default: str | None = None
    is_text: bool = False
    is_of_schema: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatSpec:
    """One supported pair of FORMAT and ENCODE. If ``has_changes`` is true, the records describe changes to rows, and
    only tables can use the pair."""

    format: str
    encode: str
    doc: str
    options: tuple[EncodeOption, ...] = ()
    has_changes: bool = False

    def option(self, key: str) -> EncodeOption | None:
        """The option with the given key; None if there is no such option."""
        return next((option for option in self.options if option.key == key), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeFault:
    """The message and the hint for an invalid option. ``key`` is the key of the option."""

    key: str
    message: str
    hint: str


_TIMESTAMPTZ = EncodeOption(
    key=TIMESTAMPTZ_MODE,
    doc="How the records represent a TIMESTAMP WITH TIME ZONE: as text with a time zone (`utc_string`), as text in UTC "
    "without a time zone (`utc_without_suffix`), or as a number of milliseconds (`milli`) or microseconds (`micro`) "
    "since 1970-01-01 00:00 UTC. `guess_number_unit` accepts text and numbers, and guesses the unit of a number from "
    "its size: seconds below 10¹¹, milliseconds below 10¹⁴, microseconds below 10¹⁷, otherwise nanoseconds.",
    choices=("utc_string", "utc_without_suffix", "micro", "milli", GUESS),
    default=GUESS,
)
_TIMESTAMP = EncodeOption(
    key=TIMESTAMP_MODE,
    doc="The unit of a TIMESTAMP that a record contains as a number: milliseconds (`milli`) or microseconds (`micro`). "
    "With `guess_number_unit`, rw_sql guesses the unit from the size of the number.",
    choices=("milli", "micro", GUESS),
    default=GUESS,
)
_JSON = (_TIMESTAMPTZ, _TIMESTAMP)

SCHEMA_ENCODES = ("AVRO", "PROTOBUF")
"""The encodings whose records cannot be read without a schema."""

CONNECTION = "connection"
LOCATION = "schema.location"
MESSAGE = "message"
STRATEGY = "schema.registry.name.strategy"
MAP_MODE = "map.handling.mode"
AS_JSONB = "messages_as_jsonb"

SCHEMA = "_rw_schema"
"""The name of an option that only stored definitions have. Its value is the schema with which the records are decoded.

The schema is fixed when the object is created.
"""
KEY_SCHEMA = "_rw_key_schema"
"""The name of the option with the schema of the records' keys. Like :data:`SCHEMA`, only stored definitions have it."""

_OF_ONE_ENCODE = {MAP_MODE: "AVRO", AS_JSONB: "PROTOBUF"}


def _schema_options(encode: str) -> tuple[EncodeOption, ...]:
    found = (
        EncodeOption(
            key=option.key,
            doc=option.doc,
            choices=option.choices,
            default=option.default,
            is_text=not option.choices,
            is_of_schema=True,
        )
        for option in load_spec("schema_registry").options.values()
        if _OF_ONE_ENCODE.get(option.key, encode) == encode and option.key != "key.message"
    )
    stored = "The schema with which the records are decoded, as the catalog stores it."
    return (
        *found,
        EncodeOption(
            key=CONNECTION,
            doc="A connection of type `schema_registry`, which contains the registry's address, user and password.",
            is_text=True,
            is_of_schema=True,
        ),
        *(EncodeOption(key=key, doc=stored, is_text=True, is_of_schema=True) for key in (SCHEMA, KEY_SCHEMA)),
    )


_OF_AVRO, _OF_PROTOBUF, _OF_JSON = (_schema_options(encode) for encode in (*SCHEMA_ENCODES, "JSON"))

_OF_DEBEZIUM = (
    EncodeOption(
        key=IGNORE_KEY,
        doc="Whether to ignore the keys of the records. With `true`, rw_sql also ignores records without a value. With "
        "`false`, a record without a value deletes the row with the record's key.",
        choices=("true", "false"),
        default="false",
    ),
    EncodeOption(
        key=PLACEHOLDER,
        doc="The placeholder that Debezium writes in place of an unchanged value that the database did not provide. "
        "Set this option to the value of Debezium's property of the same name, which may have the prefix `hex:`. "
        "If a record contains the placeholder for a column, the row keeps its value in this column.",
        default="__debezium_unavailable_value",
        is_text=True,
    ),
)

_SPECS = (
    FormatSpec(format="NATIVE", encode="NATIVE", doc="The connector returns rows, not encoded records."),
    FormatSpec(
        format="PLAIN",
        encode="JSON",
        doc="Each record is one JSON object and becomes a new row.",
        options=(*_JSON, *_OF_JSON),
    ),
    FormatSpec(
        format="PLAIN",
        encode="AVRO",
        doc="Each record is one Avro record in Confluent's wire format and becomes a new row. The record's "
        "schema is in a registry.",
        options=_OF_AVRO,
    ),
    FormatSpec(
        format="PLAIN",
        encode="BYTES",
        doc="Each record becomes a row with one BYTEA column, which contains the record's bytes.",
    ),
    FormatSpec(
        format="PLAIN",
        encode="CSV",
        doc="Each record is one line of CSV. The fields of a line are in the order of the columns, unless the header "
        "line of a file gives another order. See [what CSV is read](../reference/formats.md#what-csv-is-read).",
        options=(
            EncodeOption(
                key=DELIMITER,
                doc="The separator between fields: one character other than a double quote or a line break, or `\\t`.",
                default=",",
            ),
            EncodeOption(
                key=WITHOUT_HEADER,
                doc="With `true`, files have no header line. Otherwise, the first line of each file is a header line. "
                "Records of a stream never have a header line.",
                choices=("true", "false"),
            ),
        ),
    ),
    FormatSpec(
        format="PLAIN", encode="PARQUET", doc="Each record is a row of a Parquet file. Columns are matched by name."
    ),
    FormatSpec(
        format="UPSERT",
        encode="JSON",
        doc="Each record is the new state of the row with the record's key. A record without a value deletes the row "
        "with its key.",
        options=(*_JSON, *_OF_JSON),
        has_changes=True,
    ),
    FormatSpec(
        format="PLAIN",
        encode="PROTOBUF",
        doc="Each record is one Protobuf message and becomes a new row. With a registry, the record is in Confluent's "
        "wire format. With `schema.location`, the record consists of the message alone.",
        options=_OF_PROTOBUF,
    ),
    FormatSpec(
        format="UPSERT",
        encode="PROTOBUF",
        doc="This format works like UPSERT JSON, but the value is a Protobuf message. The primary key consists of the "
        "bytes of the record's key.",
        options=_OF_PROTOBUF,
        has_changes=True,
    ),
    FormatSpec(
        format="UPSERT",
        encode="AVRO",
        doc="This format works like UPSERT JSON, but the value is an Avro record. With KEY ENCODE AVRO, the record's "
        "key is Avro too.",
        options=_OF_AVRO,
        has_changes=True,
    ),
    FormatSpec(
        format="DEBEZIUM",
        encode="AVRO",
        doc="Each record is a change event of Debezium, written by an Avro converter. The record's key is Avro too.",
        options=(*_OF_AVRO, *_OF_DEBEZIUM),
        has_changes=True,
    ),
    FormatSpec(
        format="DEBEZIUM",
        encode="JSON",
        doc="Each record is a change event of Debezium, with or without the outer fields `schema` and `payload`.",
        options=(
            *_JSON,
            *_OF_DEBEZIUM,
        ),
        has_changes=True,
    ),
    FormatSpec(
        format="MAXWELL", encode="JSON", doc="Each record is a JSON message of Maxwell's daemon.", has_changes=True
    ),
    FormatSpec(format="CANAL", encode="JSON", doc="Each record is a flat message of Canal or TiCDC.", has_changes=True),
)

SPECS: Mapping[tuple[str, str], FormatSpec] = {(spec.format, spec.encode): spec for spec in _SPECS}
"""The supported pairs, by FORMAT and ENCODE."""

NOT_HERE = (("DEBEZIUM_MONGO", "JSON"),)
"""Pairs of FORMAT and ENCODE that RisingWave supports for connectors that rw_sql also has, but that rw_sql does not
support."""

_INSTEAD = {
    "NONE": "omit FORMAT NONE ENCODE NONE",
    "DEBEZIUM_MONGO": "let Debezium unwrap the documents (ExtractNewDocumentState), and read FORMAT UPSERT ENCODE JSON",
}


def instead_of(format: str, encode: str) -> str | None:
    """Returns advice on what to use instead of a pair of FORMAT and ENCODE that RisingWave supports and rw_sql does not
    support. Returns None for any other pair."""
    return _INSTEAD.get(format) or _INSTEAD.get(encode)


def find_encode_fault(
    format: str, encode: str, options: Mapping[str, str], *, has_header_lines: bool = False
) -> EncodeFault | None:
    """The error in the first invalid option; None if all options are valid. An option is invalid if the pair of FORMAT
    and ENCODE does not have the option, or does not accept the option's value. The pair must be one of :data:`SPECS`.

    ``has_header_lines`` is true if the connector reads files. Only files may begin with a header line.
    """
    spec = SPECS[format, encode]
    for key, value in options.items():
        option = spec.option(key)
        if option is None:
            return EncodeFault(
                key=key,
                message=f"unknown format_encode_options for {format} {encode}: {key}",
                hint=_unknown_hint(spec, key),
            )
        if option.is_of_schema:
            if (wrong := schema_option_fault(key, value)) is not None:
                return wrong
            continue
        if not _is_value(option, value):
            wanted = ", ".join(option.choices) if option.choices else "one character, such as ',' or '\\t'"
            if option.is_text:
                wanted = "text, or hex: and the hexadecimal digits of UTF-8 text"
            return EncodeFault(
                key=key, message=f"unrecognized {key} value {_shown(value)}", hint=f"{key} takes {wanted}"
            )
        if key == WITHOUT_HEADER and value.lower() == "false" and not has_header_lines:
            return EncodeFault(
                key=key,
                message="CSV HEADER is not supported when creating table with Kafka connector",
                hint="set without_header = 'true', because records of a stream have no header line",
            )
    return None


def _unknown_hint(spec: FormatSpec, key: str) -> str:
    keys = [each.key for each in spec.options if not each.key.startswith("_rw_")]
    if near := [near for near in load_spec("schema_registry").near(key) if near in keys]:
        return f'did you mean "{near[0]}"?'
    return f"omit {key}; the options are {', '.join(keys)}" if keys else f"omit {key}: there are no options"


def schema_option_fault(key: str, value: str) -> EncodeFault | None:
    """The error in the value of an option that locates a schema; None for a valid value."""
    known = load_spec("schema_registry").option(key)
    if known is None or (wrong := known.fault(value)) is None:
        return None
    if key == STRATEGY:
        wanted = " or ".join(known.choices)
        return EncodeFault(
            key=key,
            message=f"expect strategy name in {', '.join(known.choices)}, but got {value}",
            hint=f"write {wanted}",
        )
    return EncodeFault(key=key, message=f'property "{key}" {wrong}', hint=known.doc)


def encode_value(format: str, encode: str, options: Mapping[str, str], key: str) -> str:
    """Returns an option's value; if the option is not set, returns its default, or an empty text if it has no default.
    If the option has choices, the result is in lower case. Raises KeyError for an unknown option."""
    option = SPECS[format, encode].option(key)
    if option is None:
        raise KeyError(f"FORMAT {format} ENCODE {encode} does not accept {key}")
    value = options.get(key, option.default or "")
    return value.lower() if option.choices else value


def placeholder_text(value: str) -> str:
    """Returns the text that a value of Debezium's placeholder option denotes. The value may begin with ``hex:``.
    Returns the empty string if the text after ``hex:`` is not the hexadecimal form of UTF-8 text."""
    if not value.startswith("hex:"):
        return value
    try:
        return bytes.fromhex(value.removeprefix("hex:")).decode()
    except ValueError:
        return ""


def _is_value(option: EncodeOption, value: str) -> bool:
    if option.choices:
        return value.lower() in option.choices
    if option.is_text:
        return bool(placeholder_text(value))
    # A quote, a line break and NUL have another meaning in CSV. Spark misreads characters of two UTF-16 units.
    return value == "\\t" or (len(value) == 1 and value not in '"\r\n\0' and value < "\U00010000")


def _shown(value: str) -> str:
    return repr(value if len(value) <= 40 else value[:37] + "...")

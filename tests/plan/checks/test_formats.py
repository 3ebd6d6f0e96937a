"""Every FORMAT with every ENCODE and every option, for every connector, is read or refused; nothing is ignored."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.formats import ENCODES, FORMATS, NOT_HERE, SCHEMA_ENCODES, SPECS, find_encode_fault, instead_of
from rw_sql.connectors.registry import connector, connector_names
from rw_sql.errors import SqlError
from rw_sql.plan.checks.formats import check_source_format, require_rows
from rw_sql.syntax import parse_statement
from rw_sql.syntax.statements import CreateSource, FormatEncode

if TYPE_CHECKING:
    from rw_sql.connectors.spec import ConnectorSpec

# RisingWave's own table of the formats that its connectors read (handler/create_source/validate.rs), for the connectors
# that exist here.
_FILES = {"PLAIN": {"CSV", "JSON", "PARQUET"}}
RISINGWAVE = {
    "kafka": {
        "PLAIN": {"JSON", "PROTOBUF", "AVRO", "BYTES", "CSV"},
        "UPSERT": {"JSON", "AVRO", "PROTOBUF"},
        "DEBEZIUM": {"JSON", "AVRO"},
        "MAXWELL": {"JSON"},
        "CANAL": {"JSON"},
        "DEBEZIUM_MONGO": {"JSON"},
    },
    "datagen": {"NATIVE": {"NATIVE"}, "PLAIN": {"BYTES", "JSON"}},
    "posix_fs": _FILES,
    "s3": _FILES,
    "gcs": _FILES,
    "azblob": _FILES,
}
HERE = {
    "kafka": {
        "PLAIN": {"JSON", "PROTOBUF", "AVRO", "BYTES", "CSV"},
        "UPSERT": {"JSON", "AVRO", "PROTOBUF"},
        "DEBEZIUM": {"JSON", "AVRO"},
        "MAXWELL": {"JSON"},
        "CANAL": {"JSON"},
    },
    "datagen": RISINGWAVE["datagen"],
    "posix_fs": _FILES,
    "s3": _FILES,
    "gcs": _FILES,
    "azblob": _FILES,
}
PAIRS = tuple(product(FORMATS, ENCODES))
CHANGES = ("UPSERT", "DEBEZIUM", "MAXWELL", "CANAL")


def source(format: str, encode: str, options: str = "", columns: str = "id INT, PRIMARY KEY (id)") -> CreateSource:
    """A definition with a pair that no connector may have, because the parser itself checks some pairs."""
    text = f"CREATE SOURCE t ({columns}) WITH (connector = 'kafka') FORMAT PLAIN ENCODE JSON {options}"
    statement = parse_statement(text)
    assert isinstance(statement, CreateSource)
    clause = statement.format
    assert isinstance(clause, FormatEncode)
    key_encode = clause.key_encode
    if encode in SCHEMA_ENCODES and not options:
        message = ", message = 'm'" if encode == "PROTOBUF" else ""
        include = "INCLUDE key AS k" if (format, encode) == ("UPSERT", "PROTOBUF") else ""
        text = text.replace(" WITH ", f" {include} WITH ").replace("(id)", "(k)" if include else "(id)")
        more = parse_statement(f"{text} (schema.registry = 'http://registry:8081'{message})")
        assert isinstance(more, CreateSource)
        assert more.format is not None
        statement = more
        clause, key_encode = more.format, "AVRO" if (format, encode) == ("UPSERT", "AVRO") else None
    return replace(statement, format=replace(clause, format=format, encode=encode, key_encode=key_encode))


def refusal(spec: ConnectorSpec, statement: CreateSource) -> str | None:
    told: SqlError | None = None
    try:
        check_source_format(spec, statement)
    except SqlError as error:
        told = error
    if told is None:
        return None
    assert told.hint
    assert told.span is not None
    return told.message


def test_the_words_are_those_that_the_parser_takes() -> None:
    text = "CREATE SOURCE t (id INT) WITH (connector = 'kafka') FORMAT "
    with pytest.raises(SqlError, match=f"expected {re.escape(' | '.join(FORMATS))} after FORMAT"):
        parse_statement(f"{text} NOTHING ENCODE JSON")
    with pytest.raises(SqlError, match=f"expected {re.escape(' | '.join(ENCODES))} after ENCODE"):
        parse_statement(f"{text} PLAIN ENCODE NOTHING")


@pytest.mark.parametrize("name", connector_names())
def test_every_pair_is_read_or_refused_in_risingwaves_words(name: str) -> None:
    spec = connector(name).spec
    listed = {format: set(encodes) for format, encodes in spec.formats.items()}
    if name in HERE:
        assert listed == HERE[name]
        assert all(encodes <= RISINGWAVE[name][format] for format, encodes in listed.items())
    for format, encode in PAIRS:
        message = refusal(spec, source(format, encode))
        if encode in listed.get(format, ()):
            assert (format, encode) in SPECS
            assert message is None, (format, encode)
        elif format not in listed:
            assert message == f'connector "{name}" does not support format {format}'
        else:
            assert message == f'connector "{name}" does not support format {format} with encode {encode}'


def test_what_risingwave_reads_and_nothing_here_does_is_listed_with_what_to_do() -> None:
    missing = {
        (format, encode)
        for name, formats in RISINGWAVE.items()
        for format, encodes in formats.items()
        for encode in encodes
        if (format, encode) not in SPECS
    }
    assert missing == set(NOT_HERE)
    assert all(instead_of(format, encode) for format, encode in missing)


_VALUES = {
    "timestamptz.handling.mode": ("utc_string", "utc_without_suffix", "micro", "milli", "guess_number_unit"),
    "timestamp.handling.mode": ("micro", "milli", "guess_number_unit"),
    "ignore_key": ("true", "FALSE"),
    "delimiter": (",", ";", "\\t", "\t"),
    "without_header": ("true", "TRUE"),
    "unavailable.value.placeholder": ("gone", "hex:5f5f"),
}
_WRONG = {
    "timestamptz.handling.mode": ("nano", ""),
    "timestamp.handling.mode": ("utc_string",),
    "ignore_key": ("yes",),
    "delimiter": ("tab", ",,", ""),
    "without_header": ("no",),
    "unavailable.value.placeholder": ("", "hex:5", "hex:ff", "hex:"),
}
_TAKES = {
    ("PLAIN", "JSON"): {"timestamptz.handling.mode", "timestamp.handling.mode"},
    ("UPSERT", "JSON"): {"timestamptz.handling.mode", "timestamp.handling.mode"},
    ("DEBEZIUM", "JSON"): {
        "timestamptz.handling.mode",
        "timestamp.handling.mode",
        "ignore_key",
        "unavailable.value.placeholder",
    },
    ("PLAIN", "CSV"): {"delimiter", "without_header"},
    ("DEBEZIUM", "AVRO"): {"ignore_key", "unavailable.value.placeholder"},
}
_UNKNOWN = (
    "nonsense", "schema.registry", "schema.location", "message", "bigint.unsigned.handling.mode", "time.handling.mode",
    "strong_schema", "parquet.case_insensitive", "key.message", "schema.registry.name.strategy",
)  # fmt: skip


@pytest.mark.parametrize("pair", sorted(SPECS), ids=" ".join)
def test_every_option_is_taken_or_refused(pair: tuple[str, str]) -> None:
    taken = _TAKES.get(pair, set())
    assert {option.key for option in SPECS[pair].options if not option.is_of_schema} == taken
    for key, values in _VALUES.items():
        for value in values:
            fault = find_encode_fault(*pair, {key: value})
            if key in taken:
                assert fault is None, (key, value)
            else:
                assert fault is not None
                assert fault.message == f"unknown format_encode_options for {' '.join(pair)}: {key}"
    for key in taken:
        for value in _WRONG[key]:
            fault = find_encode_fault(*pair, {key: value})
            assert fault is not None
            assert fault.message == f"unrecognized {key} value {value!r}"
    for key in _UNKNOWN:
        known = SPECS[pair].option(key)
        if (known is not None and known.is_of_schema) or pair[1] in SCHEMA_ENCODES:
            continue  # tests/plan/statements/source/test_schema_registry.py
        fault = find_encode_fault(*pair, {key: "x"})
        assert fault is not None
        assert fault.hint == (
            f"omit {key}; the options are "
            + ", ".join(option.key for option in SPECS[pair].options if not option.key.startswith("_rw_"))
            if taken
            else f"omit {key}: there are no options"
        )


def test_a_line_of_names_is_for_files() -> None:
    fault = find_encode_fault("PLAIN", "CSV", {"without_header": "false"})
    assert fault is not None
    assert fault.message == "CSV HEADER is not supported when creating table with Kafka connector"
    assert find_encode_fault("PLAIN", "CSV", {"without_header": "false"}, has_header_lines=True) is None


def test_the_caret_is_at_the_option() -> None:
    with pytest.raises(SqlError) as told:
        check_source_format(connector("kafka").spec, source("CANAL", "JSON", "(ignore_key = 'true')"))
    assert told.value.message == "unknown format_encode_options for CANAL JSON: ignore_key"
    assert told.value.span is not None
    assert told.value.span.end - told.value.span.start >= len("ignore_key")


def test_an_option_is_no_secret() -> None:
    with pytest.raises(SqlError) as told:
        check_source_format(connector("kafka").spec, source("PLAIN", "JSON", "(ignore_key = SECRET s)"))
    assert told.value.message == 'property "ignore_key" cannot be a secret'


@pytest.mark.parametrize("format", CHANGES)
def test_only_a_table_follows_changes(format: str) -> None:
    with pytest.raises(SqlError) as told:
        require_rows(source(format, "JSON"))
    assert told.value.message == f"can't CREATE SOURCE with FORMAT {format}"
    assert told.value.hint == "use CREATE TABLE instead, with a PRIMARY KEY"
    require_rows(source("PLAIN", "JSON"))


@pytest.mark.parametrize(
    ("format", "columns", "message"),
    [
        ("UPSERT", "id INT", "INCLUDE KEY clause not set"),
        *((f, "id INT", f"primary key must be specified when creating source with FORMAT {f} ENCODE JSON")
          for f in CHANGES[1:]),
        *((f, "id INT, PRIMARY KEY (gone)", f'column "gone" of the primary key is not in the records, but '
           f"FORMAT {f} needs it to delete rows") for f in CHANGES),
    ],
)  # fmt: skip
def test_changes_need_a_key(format: str, columns: str, message: str) -> None:
    with pytest.raises(SqlError) as told:
        check_source_format(connector("kafka").spec, source(format, "JSON", columns=columns))
    assert told.value.message == message


def included(format: str, key: str, include: str) -> CreateSource:
    text = (
        f"CREATE SOURCE t (id INT{f', PRIMARY KEY ({key})' if key else ''}) INCLUDE {include} "
        f"WITH (connector = 'kafka') FORMAT {format} ENCODE JSON"
    )
    statement = parse_statement(text)
    assert isinstance(statement, CreateSource)
    return statement


@pytest.mark.parametrize(
    ("format", "key", "include", "message"),
    [
        ("UPSERT", "", "key", "primary key must be specified to _rw_kafka_key"),
        ("UPSERT", "id", "key AS k", 'only "k" can be used as primary key'),
        ("UPSERT", "", "offset", "INCLUDE KEY clause not set"),
        *((f, "id", "offset AS o", f"FORMAT {f} forbids additional columns, but got o") for f in CHANGES[1:]),
    ],
)
def test_changes_and_included_columns(format: str, key: str, include: str, message: str) -> None:
    with pytest.raises(SqlError) as told:
        check_source_format(connector("kafka").spec, included(format, key, include))
    assert told.value.message == message


@pytest.mark.parametrize(("key", "include"), [("k", "key AS k"), ("_rw_kafka_key", "key"), ("id", "offset AS o")])
def test_upserts_by_the_records_key_or_by_columns_of_it(key: str, include: str) -> None:
    check_source_format(connector("kafka").spec, included("UPSERT", key, include))


@pytest.mark.parametrize(
    ("columns", "clause", "message"),
    [
        ("id INT PRIMARY KEY", "JSON", None),
        ("id INT PRIMARY KEY", "TEXT", None),
        ("id BYTEA PRIMARY KEY", "BYTES", None),
        ("a INT, b INT, PRIMARY KEY (a, b)", "JSON", None),
        ("a INT, b INT, PRIMARY KEY (a, b)", "TEXT", "KEY ENCODE TEXT needs a primary key of one column, but got a, b"),
        ("id BYTEA PRIMARY KEY", "TEXT", 'KEY ENCODE TEXT does not fit column "id" of type BYTEA'),
        ("id INT PRIMARY KEY", "BYTES", 'KEY ENCODE BYTES does not fit column "id" of type INT'),
        ("id INT PRIMARY KEY", "AVRO", "KEY ENCODE AVRO is not supported"),
        ("id INT, PRIMARY KEY (k)) INCLUDE key AS k --", "BYTES", None),
        ("id INT, PRIMARY KEY (k)) INCLUDE key AS k --", "TEXT",
         'KEY ENCODE TEXT contradicts INCLUDE key: "k" contains the bytes of the key'),
    ],
)  # fmt: skip
def test_keys_are_read_as_declared_or_refused(columns: str, clause: str, message: str | None) -> None:
    text = f"CREATE SOURCE t ({columns})\n WITH (connector = 'kafka') FORMAT UPSERT ENCODE JSON KEY ENCODE {clause}"
    statement = parse_statement(text)
    assert isinstance(statement, CreateSource)
    assert refusal(connector("kafka").spec, statement) == message


@pytest.mark.parametrize("format", ["PLAIN", *CHANGES[1:]])
def test_only_upserts_have_keys_to_declare(format: str) -> None:
    text = "CREATE TABLE t (id INT PRIMARY KEY) WITH (connector = 'kafka')"
    with pytest.raises(SqlError, match="key encode clause is not supported in source schema"):
        parse_statement(f"{text} FORMAT {format} ENCODE JSON KEY ENCODE TEXT")

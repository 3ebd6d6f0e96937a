"""Checks the clause FORMAT … ENCODE … of a source or table. The connector must support the combination of format and
encoding, every option must have an effect, and the key must be valid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.formats import SCHEMA_ENCODES, SPECS, find_encode_fault, instead_of
from rw_sql.connectors.schemas.options import schema_fault
from rw_sql.connectors.spec import check_format, load_spec, plain_keys
from rw_sql.errors import INVALID_DEFINITION, INVALID_PROPERTY, NOT_SUPPORTED, SqlError, either
from rw_sql.model.definitions import connector_of, encode_options, has_changes, include_name, primary_key
from rw_sql.syntax.statements import SecretValue

if TYPE_CHECKING:
    from rw_sql.connectors.spec import ConnectorSpec
    from rw_sql.syntax.statements import CreateSource, FormatEncode


_KEY_ENCODES = ("JSON", "TEXT", "BYTES")


def check_source_format(spec: ConnectorSpec, statement: CreateSource) -> None:
    """Checks that the connector supports the format, that every option has an effect, and that the key is valid. Raises
    SqlError at the first error.

    A source with a change format is always the source of a table. The definition of such a source contains the table's
    primary key, because the key is needed to decode the records.
    """
    check_format_options(spec, statement)
    if statement.format is not None and has_changes(statement):
        _check_key(statement, statement.format)


def check_format_options(spec: ConnectorSpec, statement: CreateSource) -> None:
    """Does the same as :func:`check_source_format`, but does not check the key."""
    clause = statement.format
    if clause is None:
        if "NATIVE" not in spec.formats:
            raise SqlError(
                INVALID_DEFINITION,
                "a source of this connector needs FORMAT and ENCODE",
                span=statement.name.span,
                hint="end the statement with FORMAT PLAIN ENCODE JSON",
            )
        return
    instead = instead_of(clause.format, clause.encode)
    check_format(spec, clause.format, clause.encode, clause.span, hint=instead)
    if (clause.format, clause.encode) not in SPECS:
        raise SqlError(
            NOT_SUPPORTED,
            f"FORMAT {clause.format} ENCODE {clause.encode} is not supported",
            span=clause.span,
            hint=instead or "use FORMAT PLAIN with ENCODE JSON, CSV or BYTES",
        )
    for option in clause.options:
        known = load_spec("schema_registry").option(option.key)
        if known is not None and known.is_secret and not isinstance(option.value, SecretValue):
            raise SqlError(
                INVALID_PROPERTY,
                f'property "{option.key}" accepts only a secret, not a literal value',
                span=option.value.span,
                hint=f"CREATE SECRET s WITH (backend = 'meta') AS '…'; then {option.key} = SECRET s",
                hides_literals=True,
                plain_keys=plain_keys(load_spec("schema_registry"), [each.key for each in clause.options]),
            )
        if isinstance(option.value, SecretValue) and (known is None or not known.is_of_connection):
            raise SqlError(
                INVALID_PROPERTY,
                f'property "{option.key}" cannot be a secret',
                span=option.value.span,
                hint=f"write the value itself: {option.key} = '…'",
            )
    fault = find_encode_fault(
        clause.format, clause.encode, encode_options(statement), has_header_lines="file" in spec.include
    )
    if fault is not None:
        wrong = next(option for option in clause.options if option.key == fault.key)
        is_unknown = fault.message.startswith("unknown ")
        raise SqlError(
            INVALID_DEFINITION,
            fault.message,
            span=wrong.key_place if is_unknown else wrong.value_place,
            hint=fault.hint,
            hides_literals=is_unknown,
        )
    fault = schema_fault(clause.format, clause.encode, encode_options(statement), spec.name)
    if fault is not None:
        places = {option.key: option.span for option in clause.options}
        raise SqlError(
            INVALID_DEFINITION, fault.message, span=places.get(fault.key, statement.name.span), hint=fault.hint
        )


def require_rows(statement: CreateSource) -> None:
    """Raises SqlError for CREATE SOURCE with a change format, because only a table can read a change format."""
    if statement.format is not None and has_changes(statement):
        raise SqlError(
            INVALID_DEFINITION,
            f"can't CREATE SOURCE with FORMAT {statement.format.format}",
            span=statement.format.span,
            hint="use CREATE TABLE instead, with a PRIMARY KEY",
        )


def _check_key(statement: CreateSource, clause: FormatEncode) -> None:
    key = primary_key(statement)
    connector_name = connector_of(statement) or ""
    included = tuple(include_name(connector_name, column) for column in statement.include)
    if clause.format == "UPSERT":
        _check_upsert_key(statement, clause, key)
    elif included:
        raise SqlError(
            INVALID_DEFINITION,
            f"FORMAT {clause.format} forbids additional columns, but got {', '.join(included)}",
            span=statement.include[0].span,
            hint="omit INCLUDE: one record may change several rows",
        )
    elif not key:
        raise SqlError(
            INVALID_DEFINITION,
            f"primary key must be specified when creating source with FORMAT {clause.format} ENCODE {clause.encode}",
            span=clause.span,
            hint="add PRIMARY KEY (column) to the columns",
        )
    declared = [*(column.name for column in statement.columns), *included]
    for name in key:
        if name not in declared:
            raise SqlError(
                INVALID_DEFINITION,
                f'column "{name}" of the primary key is not in the records, but FORMAT {clause.format} needs it to '
                "delete rows",
                span=clause.span,
                hint="choose columns of the records as the primary key",
            )


def _check_upsert_key(statement: CreateSource, clause: FormatEncode, key: tuple[str, ...]) -> None:
    connector_name = connector_of(statement) or ""
    record_key = next((include_name(connector_name, c) for c in statement.include if c.kind == "key"), None)
    if record_key is not None and key != (record_key,):
        message = (
            f'only "{record_key}" can be used as primary key'
            if key
            else f"primary key must be specified to {record_key}"
        )
        raise SqlError(
            INVALID_DEFINITION,
            message,
            span=clause.span,
            hint=f"PRIMARY KEY ({record_key}) is the bytes of the record's key; without INCLUDE key, PRIMARY KEY names "
            "columns of the record's key, which is then a JSON object",
        )
    if clause.encode in SCHEMA_ENCODES and record_key is None and (not key or clause.key_encode != "AVRO"):
        also = "; KEY ENCODE AVRO reads the key as an Avro record" if clause.encode == "AVRO" else ""
        raise SqlError(
            INVALID_DEFINITION,
            "INCLUDE KEY clause not set",
            span=clause.span,
            hint=f"add INCLUDE key AS k and PRIMARY KEY (k) to use the bytes of the record's key{also}",
        )
    if not key:
        raise SqlError(
            INVALID_DEFINITION,
            "INCLUDE KEY clause not set",
            span=clause.span,
            hint="add INCLUDE key AS k and PRIMARY KEY (k); or, if the record's key is a JSON object, a PRIMARY KEY of "
            "its columns; KEY ENCODE TEXT reads a key that is plain text",
        )
    _check_key_encode(statement, clause, key, record_key)


def _check_key_encode(
    statement: CreateSource, clause: FormatEncode, key: tuple[str, ...], record_key: str | None
) -> None:
    """Checks that the value of KEY ENCODE is supported, and that it fits the primary key or INCLUDE key.

    If the statement has no KEY ENCODE, keys are JSON.
    """
    encode = clause.key_encode
    if encode is None or (encode == "AVRO" == clause.encode and record_key is None):
        return
    kind = next((column.data_type.name for column in statement.columns if key == (column.name,)), None)
    message = hint = None
    if encode not in _KEY_ENCODES:
        message = f"KEY ENCODE {encode} is not supported"
        hint = f"KEY ENCODE must be {either(_KEY_ENCODES)}"
    elif record_key is not None:
        if encode != "BYTES":
            message = f'KEY ENCODE {encode} contradicts INCLUDE key: "{record_key}" contains the bytes of the key'
            hint = "omit INCLUDE key and use a declared column as PRIMARY KEY, or omit KEY ENCODE"
    elif encode != "JSON" and len(key) > 1:
        message = f"KEY ENCODE {encode} needs a primary key of one column, but got {', '.join(key)}"
        hint = "KEY ENCODE JSON reads an object of several columns"
    elif (encode == "BYTES") != (kind == "BYTEA") and encode != "JSON":
        message = f'KEY ENCODE {encode} does not fit column "{key[0]}" of type {kind}'
        hint = "KEY ENCODE TEXT supports all types except BYTEA; KEY ENCODE BYTES supports only BYTEA"
    if message is not None:
        raise SqlError(INVALID_DEFINITION, message, span=clause.span, hint=hint)

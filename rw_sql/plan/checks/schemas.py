"""Finds the schema of a new source's or table's records in a schema registry or a file.

If the statement lists no columns, the columns are derived from the schema. Otherwise, the listed columns are compared
with the schema. The object's definition stores the schema.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from rw_sql.connectors.formats import AS_JSONB, KEY_SCHEMA, LOCATION, MAP_MODE, MESSAGE, SCHEMA
from rw_sql.connectors.registry import connector, connector_names
from rw_sql.connectors.schemas import avro, json_schema, protobuf
from rw_sql.connectors.schemas.client import RegisteredSchema
from rw_sql.connectors.schemas.options import subject_of
from rw_sql.errors import (
    INVALID_DEFINITION,
    UNDEFINED_COLUMN,
    UPSTREAM_MISSING,
    UPSTREAM_UNREACHABLE,
    SqlError,
    near_names,
)
from rw_sql.model.definitions import (
    REFRESH_OPTIONS,
    connector_of,
    encode_options,
    field_of,
    has_schema,
    option_text,
    primary_key,
    source_of_table,
    stored_schema,
)
from rw_sql.model.options import registry_options
from rw_sql.plan.checks.column_names import placed
from rw_sql.plan.checks.columns import VALIDATE
from rw_sql.plan.checks.formats import check_format_options
from rw_sql.plan.checks.sources import check_connection, check_properties
from rw_sql.syntax import canonical_type, parse_statement
from rw_sql.syntax.lexing.identifiers import sql_name
from rw_sql.syntax.statements import (
    ColumnDefinition,
    CreateSource,
    CreateTable,
    Option,
    TableConstraint,
    TextValue,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from rw_sql.errors import Span
    from rw_sql.metastore import Snapshot
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.syntax.statements import DataType, FormatEncode

_StatementT = TypeVar("_StatementT", CreateSource, CreateTable)
Typed = tuple[str, str]
"""A column's name and canonical type."""


_TEXTS = ("NUMERIC", "BYTEA")
"""The column types whose values Debezium may write as text although the schema contains no type name. Debezium writes
decimals as text if ``decimal.handling.mode`` is string, and bytes if ``binary.handling.mode`` is base64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSchema:
    """The columns and the text of a schema. ``key`` is the schema of the records' keys, and ``key_text`` is the text of
    this schema in the form that the definition stores. If the key is a single value, ``key`` has one column, which is
    the primary key.

    The types in ``columns`` take Kafka Connect's type names into account. ``plain`` maps each column to the type that
    results from the Avro schema without these type names. ``others`` maps each column to all other types with which a
    statement may declare the column. In ``others``, NUMERIC stands for any NUMERIC type.
    """

    columns: tuple[Typed, ...]
    plain: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    text: str
    key_text: str | None = None
    key: FoundSchema | None = None

    @property
    def key_columns(self) -> tuple[Typed, ...]:
        """The columns that the schema of the records' keys defines; empty if the keys have no schema."""
        return () if self.key is None else self.key.columns


def with_schema(statement: _StatementT, snapshot: Snapshot, inspector: Inspector) -> _StatementT:
    """Adds the schema of the records to a statement. If the statement lists no columns, also adds the columns of this
    schema. Returns the statement unchanged if no schema describes the records.

    Raises SqlError if the registry does not respond, or if the columns do not fit the schema.
    """
    name = connector_of(statement)
    if not has_schema(statement) or name not in connector_names():
        if statement.wildcard is not None:
            raise SqlError(
                INVALID_DEFINITION,
                "Wildcard in user-defined schema is only allowed when there exists columns from external schema",
                span=statement.name.span,
                hint="list the columns, or read a schema: ENCODE AVRO (schema.registry = 'http://registry:8081')",
            )
        return statement
    if stored_schema(statement) is not None:
        return statement
    source = statement if isinstance(statement, CreateSource) else source_of_table(statement)
    kind = connector(name)
    check_format_options(kind.spec, source)
    # The properties are checked before the registry is contacted, so that a wrong property is found even if the
    # registry does not respond.
    of_source = tuple(option for option in source.options if option.key not in (*REFRESH_OPTIONS, VALIDATE))
    check_connection(snapshot, source, name)
    check_properties(snapshot, replace(source, options=of_source), kind)
    plain = [column for column in statement.columns if column.generated is None]
    if statement.wildcard is not None and plain:
        raise SqlError(
            INVALID_DEFINITION,
            'When there\'s a wildcard ("*"), only generated columns are allowed in user-defined schema from SQL',
            span=plain[0].span,
            hint=f"omit {plain[0].name}, or omit *",
        )
    is_taken_over = not plain
    needs_key = _has_key_schema(statement) and not primary_key(statement)
    found = find_schema(source, snapshot, inspector, is_needed=is_taken_over or needs_key)
    return replace(statement, wildcard=None) if found is None else _fitted(statement, found)


def _fitted(statement: _StatementT, found: FoundSchema) -> _StatementT:
    """Returns the statement with the schema. If the statement lists columns, the result has exactly these columns.
    Otherwise, the schema's columns are added. Raises SqlError if the schema lacks one of the listed columns."""
    of_rows = of_rows_and_keys(statement, found)
    plain = [column for column in statement.columns if column.generated is None]
    if plain:
        require_fields(plain, of_rows)
        return _with_key(with_stored_schema(statement, found), found)
    taken: tuple[ColumnDefinition, ...] = columns_named(of_rows.columns, statement.name.span)
    at: int = statement.wildcard or 0
    own: tuple[ColumnDefinition, ...] = statement.columns
    taking = replace(statement, columns=(*own[:at], *taken, *own[at:]), wildcard=None)
    return _with_key(with_stored_schema(taking, found), found)


def _has_key_schema(statement: CreateSource | CreateTable) -> bool:
    clause = statement.format
    if clause is None or clause.encode != "AVRO":
        return False
    return clause.format == "DEBEZIUM" or (clause.format == "UPSERT" and clause.key_encode == "AVRO")


def with_stored_schema(statement: _StatementT, found: FoundSchema) -> _StatementT:
    """Returns the statement with the given schema in the FORMAT clause, in place of any earlier schema."""
    clause = statement.format
    if clause is None:
        raise TypeError("the definition has a schema but no FORMAT clause")
    more: list[Option] = [Option(key=SCHEMA, value=TextValue(text=found.text))]
    if found.key_text is not None:
        more.append(Option(key=KEY_SCHEMA, value=TextValue(text=found.key_text)))
    kept: tuple[Option, ...] = tuple(o for o in clause.options if o.key not in (SCHEMA, KEY_SCHEMA))
    return replace(statement, format=replace(clause, options=(*kept, *more)))


def _with_key(statement: _StatementT, found: FoundSchema) -> _StatementT:
    """Adds a primary key to the statement. The primary key consists of the columns of the key's schema. Returns the
    statement unchanged if the statement already has a primary key or includes the key's bytes."""
    if primary_key(statement) or not found.key_columns:
        return statement
    if statement.format is not None and statement.format.format == "UPSERT" and any(
        column.kind == "key" for column in statement.include
    ):  # fmt: skip
        return statement
    key = TableConstraint(kind="PRIMARY KEY", columns=tuple(name for name, _ in found.key_columns))
    return replace(statement, constraints=(*statement.constraints, key))


def of_rows_and_keys(definition: CreateSource | CreateTable, found: FoundSchema) -> FoundSchema:
    """Returns the schema of the rows of a source. The rows have the columns of the records' values, and the columns
    that only the records' keys have. With FORMAT UPSERT, the values of the primary key's columns come from the records'
    keys. These columns therefore have the types that the keys' schema defines, even if the records' values have fields
    with the same names."""
    key, clause = found.key, definition.format
    if key is None or clause is None:
        return found
    of_key = dict(key.columns)
    from_key = of_key.keys() - dict(found.columns).keys()
    if clause.format == "UPSERT":
        fields = {column.name: field_of(column) for column in definition.columns}
        from_key |= of_key.keys() & {fields.get(name, name) for name in primary_key(definition) or of_key}
    columns = [(name, of_key[name] if name in from_key else kind) for name, kind in found.columns]
    columns += [(name, kind) for name, kind in key.columns if name not in dict(found.columns)]
    return replace(
        found,
        columns=tuple(columns),
        plain={**found.plain, **{name: key.plain[name] for name in from_key}},
        others={**found.others, **{name: key.others[name] for name in from_key}},
    )


def find_schema(
    source: CreateSource, snapshot: Snapshot, inspector: Inspector, *, is_needed: bool = True
) -> FoundSchema | None:
    """The newest schema of a source's records; None if the schema is unknown and ``is_needed`` is False.

    Raises SqlError if the registry or file cannot be read, or has no usable schema.
    """
    clause = source.format
    if clause is None:
        raise TypeError("the definition has a schema but no FORMAT clause")
    options = encode_options(source)
    needed = [column.name for column in source.columns if column.generated is None] or None
    topic = next((option_text(o.value) for o in source.options if o.key == "topic"), "").split(",")[0].strip()
    if LOCATION in options:
        value: RegisteredSchema | None = _in_file(source, inspector, options[LOCATION])
    else:
        value = _subject(source, snapshot, inspector, subject_of(options, topic), is_needed=is_needed)
    if value is None:
        return None
    try:
        if clause.encode == "PROTOBUF":
            text = value.text if LOCATION in options else protobuf.compiled(value.text, value.imports)
        elif clause.encode == "JSON":
            text = json_schema.with_imports(value.text, value.imports)
        else:
            text = _stored(avro.normal_form(value.text, value.imports))
        found = found_in(clause, text, needed)
        if clause.encode != "AVRO":
            return found
        return _with_key_schema(source, snapshot, inspector, found, subject_of(options, topic, is_key=True))
    except SqlError as error:
        error.span = error.span or clause.span
        raise


def found_in(clause: FormatEncode, text: str, needed: Collection[str] | None = None) -> FoundSchema:
    """Parses ``text``, the schema that a definition stores, and returns its columns. The result does not include the
    columns of the keys' schema.

    Raises SqlError for a field that no column type can represent. If ``needed`` is given, only the fields in ``needed``
    cause this error. The result omits all other fields that no column type can represent.
    """
    options = {option.key: option_text(option.value) for option in clause.options}
    if clause.encode == "PROTOBUF":
        return FoundSchema(columns=messages_of(options, text).columns(needed), text=text)
    if clause.encode == "JSON":
        return FoundSchema(columns=json_schema.columns_of(text), text=text)
    schema = json.loads(text)
    row = row_of_envelope(schema) if clause.format == "DEBEZIUM" else schema
    return _of_record(clause, row, text, needed)


def stored_columns(definition: CreateSource | CreateTable) -> FoundSchema:
    """Returns the schema that is stored in a definition, in the form that :func:`of_rows_and_keys` returns. The result
    omits fields that no column type can represent, because the definition has no columns for them."""
    clause, text = definition.format, stored_schema(definition)
    if clause is None or text is None:
        raise TypeError("the definition has no schema")
    found, key_text = found_in(clause, text, ()), stored_schema(definition, of_key=True)
    if key_text is None:
        return found
    key = _of_key(clause, json.loads(key_text), key_text, primary_key(definition))
    return of_rows_and_keys(definition, replace(found, key_text=key_text, key=key))


def _of_record(clause: FormatEncode, schema: avro.Schema, text: str, needed: Collection[str] | None) -> FoundSchema:
    options = {option.key: option_text(option.value) for option in clause.options}
    map_mode = options.get(MAP_MODE, "map").strip().lower()
    return FoundSchema(
        columns=avro.columns_of(schema, map_mode=map_mode, needed=needed),
        plain=dict(avro.columns_of(schema, map_mode=map_mode, needed=needed, is_plain=True)),
        others=avro.other_types(schema, texts=() if clause.format == "PLAIN" else _TEXTS),
        text=text,
    )


def _stored(schema: avro.Schema) -> str:
    return json.dumps(schema, separators=(",", ":"))


def _in_file(source: CreateSource, inspector: Inspector, location: str) -> RegisteredSchema:
    try:
        content = inspector.upstreams.read_schema_file(location)
    except SqlError as error:
        options = source.format.options if source.format is not None else ()
        error.span = next(option.value_place for option in options if option.key == LOCATION)
        raise
    is_binary = source.format is not None and source.format.encode == "PROTOBUF"
    text = base64.b64encode(content).decode() if is_binary else content.decode(errors="replace")
    return RegisteredSchema(id=0, kind="", text=text)


def messages_of(options: Mapping[str, str], stored: str) -> protobuf.Messages:
    """Returns the Protobuf message type that the options of ENCODE PROTOBUF name. The message type is read from the
    stored schema."""
    names = options.get(AS_JSONB, "").split(",")
    return protobuf.Messages(stored, options[MESSAGE], frozenset(name.strip() for name in names if name.strip()))


def _with_key_schema(
    source: CreateSource, snapshot: Snapshot, inspector: Inspector, found: FoundSchema, subject: str
) -> FoundSchema:
    if not _has_key_schema(source):
        return found
    key = _subject(source, snapshot, inspector, subject, is_needed=True)
    if key is None:
        return found
    schema = avro.normal_form(key.text, key.imports)
    text, names = _stored(schema), primary_key(source)
    clause = source.format
    if clause is None:
        raise TypeError("the definition has a schema but no FORMAT clause")
    is_record = isinstance(schema, dict) and schema.get("type") == "record"
    if not is_record and len(names) != 1:
        raise SqlError(
            INVALID_DEFINITION,
            f'the key of subject "{subject}" is a single value, so PRIMARY KEY must name exactly one column',
            hint="name the key's column: PRIMARY KEY (id)",
        )
    return replace(found, key_text=text, key=_of_key(clause, schema, text, names))


def _of_key(clause: FormatEncode, schema: avro.Schema, text: str, names: tuple[str, ...]) -> FoundSchema:
    """The schema of the records' keys; ``names`` are the columns of the primary key. If the key is a single value, the
    primary key is the column for this value."""
    if isinstance(schema, dict) and schema.get("type") == "record":
        return _of_record(clause, schema, text, names or None)
    wrapped = {"type": "record", "name": "key", "fields": [{"name": names[0], "type": schema}]}
    return _of_record(clause, wrapped, text, None)


def row_of_envelope(envelope: avro.Schema) -> avro.Schema:
    """The schema of a row in Debezium's envelope."""
    fields = {each["name"]: each["type"] for each in envelope.get("fields", ())} if isinstance(envelope, dict) else {}
    named = avro.definitions(envelope)
    for part in ("before", "after"):
        branches = fields.get(part) if isinstance(fields.get(part), list) else [fields.get(part)]
        for branch in branches or ():
            row = named.get(branch, branch) if isinstance(branch, str) else branch
            if isinstance(row, dict) and row.get("type") == "record" and "op" in fields:
                return avro.narrowed(row, [each["name"] for each in row["fields"]])
    raise SqlError(
        INVALID_DEFINITION,
        "the Avro schema is not a schema of Debezium's change events: it has no field before, after or op",
        hint="if Debezium unwraps the events, use FORMAT UPSERT",
    )


def _subject(
    source: CreateSource, snapshot: Snapshot, inspector: Inspector, subject: str, *, is_needed: bool
) -> RegisteredSchema | None:
    clause = source.format
    span = clause.span if clause is not None else source.name.span
    look = inspector.upstreams.read_schema(registry_options(snapshot, source), subject, is_needed=is_needed)
    if look.is_unknown:
        return None
    if look.error is not None:
        raise SqlError(
            UPSTREAM_UNREACHABLE,
            f'the schema registry of source "{source.name.key}" does not answer: {look.error}',
            span=span,
            hint="run the statement again when the registry answers; rw-sql dev registry start starts a registry on "
            "this machine",
        )
    if look.schema is None:
        near = near_names(subject, look.present)
        raise SqlError(
            UPSTREAM_MISSING,
            f'the schema registry has no subject "{subject}"',
            span=span,
            hint=f'did you mean "{near[0]}"? schema.registry.name.strategy and the topic determine the subject'
            if near
            else "register the schema first, or let the producer register it",
        )
    encode = clause.encode if clause is not None else ""
    if look.schema.kind != encode:
        raise SqlError(
            INVALID_DEFINITION,
            f'subject "{subject}" has a schema of type {look.schema.kind}, but the statement has ENCODE {encode}',
            span=span,
            hint=f"write ENCODE {look.schema.kind}",
        )
    return look.schema


def columns_named(columns: Sequence[Typed], span: Span) -> tuple[ColumnDefinition, ...]:
    """Creates column definitions from pairs (name, canonical type)."""
    listed = ", ".join(f'"{name}" {kind}' for name, kind in columns)
    made = parse_statement(f"CREATE SOURCE s ({listed}) WITH (connector = 'c') FORMAT PLAIN ENCODE JSON")
    if not isinstance(made, CreateSource):
        raise TypeError("the statement is not CREATE SOURCE")
    return placed(made.columns, span)


def require_fields(columns: Sequence[ColumnDefinition], found: FoundSchema, *, missing_hint: str = "") -> None:
    """Raises SqlError for a column that the schema lacks, or whose declared type the schema cannot provide.

    The error messages are the same as RisingWave's. ``missing_hint`` is the hint about a column that the schema lacks.
    """
    types = dict(found.columns)
    for column in columns:
        field = field_of(column)
        if field not in types:
            near = near_names(field, types)
            listed = ", ".join(list(types)[:12]) + (", …" if len(types) > 12 else "")
            raise SqlError(
                UNDEFINED_COLUMN,
                f'Column "{field}" is defined in SQL but not found in the source',
                span=column.span,
                hint=missing_hint or (f'did you mean "{near[0]}"?' if near else f"the schema has {listed}"),
            )
        if not is_accepted(column, found):
            raise SqlError(
                INVALID_DEFINITION,
                f'Data type mismatch for column "{field}". Defined in SQL as "{canonical_type(column.data_type)}", '
                f'but found in the source as "{types[field]}"',
                span=column.span,
                hint=f"write {column.name} {types[field]}",
            )


def is_accepted(column: ColumnDefinition, found: FoundSchema) -> bool:
    """True if the schema can provide values of the column's declared type. Requires that the schema contains the
    column's field."""
    field, types = field_of(column), dict(found.columns)
    accepted = (types[field], found.plain.get(field, types[field]), *found.others.get(field, ()))
    known = columns_named([(f"c{at}", kind) for at, kind in enumerate(accepted)], column.span)
    return any(_is_same(column.data_type, each.data_type) for each in known)


def require_stored_field(definition: CreateTable, column: ColumnDefinition) -> None:
    """Checks the field of a new column, if records are decoded with a stored schema. Raises SqlError if this schema
    lacks the field, or cannot provide the column's declared type."""
    clause, stored = definition.format, stored_schema(definition)
    if clause is None or stored is None or clause.encode == "JSON":
        return  # JSON is decoded without the schema.
    try:
        found = found_in(clause, stored, [field_of(column)])
    except SqlError as error:
        error.span = column.span
        raise
    require_fields([column], found, missing_hint=f"ALTER TABLE {sql_name(definition.name.key)} REFRESH SCHEMA")


def _is_same(wanted: DataType, found: DataType) -> bool:
    """True if the schema's type ``found`` fits the declared type ``wanted``. NUMERIC without precision in the schema
    fits any declared NUMERIC. Declared NUMERIC without precision fits a type with at most 28 digits before and 10
    digits after the decimal point. All other types must be equal."""
    if wanted.element is not None and found.element is not None:
        return _is_same(wanted.element, found.element)
    if wanted.name == found.name == "NUMERIC" and not found.arguments:
        return True
    if wanted.name == found.name == "NUMERIC" and not wanted.arguments:
        precision, scale = (*found.arguments, 0)[:2]
        return scale <= 10 and precision - scale <= 28
    return canonical_type(wanted) == canonical_type(found)

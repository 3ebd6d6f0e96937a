"""Determines how the newest schema in the schema registry differs from the schema with which a source decodes its
records."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from rw_sql.errors import INVALID_DEFINITION, NOT_SUPPORTED, SqlError
from rw_sql.model.definitions import field_of, has_schema, source_of_table, stored_schema
from rw_sql.plan.checks.schemas import (
    FoundSchema,
    columns_named,
    find_schema,
    is_accepted,
    of_rows_and_keys,
    row_of_envelope,
    stored_columns,
    with_stored_schema,
)
from rw_sql.syntax import canonical_type
from rw_sql.syntax.lexing.identifiers import sql_name
from rw_sql.syntax.statements import CreateSource, CreateTable

if TYPE_CHECKING:
    from collections.abc import Collection

    from rw_sql.errors import Span
    from rw_sql.metastore import Snapshot
    from rw_sql.plan.ports.inspector import Inspector

_StatementT = TypeVar("_StatementT", CreateSource, CreateTable)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChange:
    """The newest schema, and the columns (name, canonical type) to append.

    ``omitted`` are the new fields that get no column, because a user dropped the columns for these fields earlier.
    ``is_same`` is True if the newest schema equals the schema that the definition stores.
    """

    found: FoundSchema
    added: tuple[tuple[str, str], ...]
    omitted: tuple[str, ...] = ()
    is_same: bool


def schema_change(
    definition: CreateSource | CreateTable,
    name: str,
    span: Span,
    snapshot: Snapshot,
    inspector: Inspector,
    *,
    gone: Collection[str] = (),
) -> SchemaChange:
    """The difference between the schema that is stored in a definition and the newest schema in the registry. ``gone``
    are the names of the fields whose columns were dropped, in lower case.

    Raises SqlError if the newest schema would drop columns, change columns, or make older records unreadable. The error
    messages are the same as RisingWave's.
    """
    kind = "source" if isinstance(definition, CreateSource) else "table"
    stored = stored_schema(definition)
    if not has_schema(definition) or stored is None:
        message = (
            "altering a source without schema registry"
            if kind == "source"
            else "tables without schema registry cannot be refreshed"
        )
        raise SqlError(
            NOT_SUPPORTED,
            message,
            span=span,
            hint=f"only a {kind} with ENCODE … (schema.registry = …) has a schema that can be read again; SHOW CREATE "
            f"{kind.upper()} {sql_name(name)} shows the definition",
        )
    source = definition if isinstance(definition, CreateSource) else source_of_table(definition)
    try:
        found = find_schema(source, snapshot, inspector)
    except SqlError as error:
        error.span = span
        raise
    if found is None:
        raise TypeError("find_schema returned no schema, although one is needed")
    of_rows = of_rows_and_keys(source, found)
    before = stored_columns(source)
    new, had = dict(of_rows.columns), dict(before.columns)
    plain = [column for column in definition.columns if column.generated is None]
    known = {field_of(column) for column in plain}
    dropped = [f"({field}: {had[field]})" for field in sorted(known) if field in had and field not in new]
    if dropped:
        raise SqlError(
            NOT_SUPPORTED,
            f"this altering statement will drop columns, which is not supported yet: {', '.join(dropped)}",
            span=span,
            hint="records are still read with the current schema; to read the new schema, create another source",
        )
    retyped = [
        f"({field}: {had[field]} -> {new[field]})"
        for field in sorted(known)
        if field in had and field in new and had[field] != new[field]
    ]
    if retyped:
        raise SqlError(
            NOT_SUPPORTED,
            f"the new schema changes the types of columns, which is not supported yet: {', '.join(retyped)}",
            span=span,
            hint="records are still read with the current schema; to read the new schema, create another source",
        )
    # An older version of rw_sql accepted some columns that do not fit the stored schema. Such columns are read as
    # before.
    unread = [
        column
        for column in plain
        if field_of(column) in new
        and not is_accepted(column, of_rows)
        and (field_of(column) not in had or is_accepted(column, before))
    ]
    # JSON is decoded without the schema, so an added column may have any type.
    if unread and (source.format is None or source.format.encode != "JSON"):
        listed = ", ".join(f"({c.name}: {canonical_type(c.data_type)}, not {new[field_of(c)]})" for c in unread)
        raise SqlError(
            NOT_SUPPORTED,
            f"columns do not have the types of the new schema: {listed}",
            span=span,
            hint=f"SHOW CREATE {kind.upper()} {sql_name(name)} shows the definition; create another {kind} with "
            "the new types",
        )
    more = [(field, kind) for field, kind in found.columns if field not in had and field not in known]
    added = tuple((field, kind) for field, kind in more if field.lower() not in gone)
    _require_defaults(definition, found, [field for field, _ in added], span)
    same_key = found.key_text is None or found.key_text == stored_schema(definition, of_key=True)
    return SchemaChange(
        found=found,
        added=added,
        omitted=tuple(field for field, _ in more if field.lower() in gone),
        is_same=found.text == stored and same_key,
    )


def changed_definition(definition: _StatementT, change: SchemaChange, span: Span) -> _StatementT:
    """Returns the definition with the new schema in place of the stored schema, and with the added columns at the
    end."""
    columns = (*definition.columns, *columns_named(change.added, span))
    return with_stored_schema(replace(definition, columns=columns), change.found)


def _require_defaults(definition: CreateSource | CreateTable, found: FoundSchema, added: list[str], span: Span) -> None:
    """Raises SqlError for a new field without a default. A schema with such a field could not decode older records,
    which lack the field."""
    if definition.format is not None and definition.format.encode != "AVRO":
        return  # A missing field of a JSON object is NULL, and every field of a Protobuf message has a value.
    schema = json.loads(found.text)
    if definition.format is not None and definition.format.format == "DEBEZIUM":
        schema = row_of_envelope(schema)
    for each in schema["fields"]:
        if each["name"] in added and "default" not in each:
            raise SqlError(
                INVALID_DEFINITION,
                f'field "{each["name"]}" of the new schema has no default, so records with an earlier schema could not '
                "be read",
                span=span,
                hint=f'register the schema with a default for the field: {{"name": "{each["name"]}", "type": ["null", '
                f'…], "default": null}}',
            )

"""Finds objects by the names in statements, and makes the errors for unknown names."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from rw_sql.errors import (
    DUPLICATE_OBJECT,
    INVALID_DEFINITION,
    SYNTAX_ERROR,
    UNDEFINED_OBJECT,
    UNDEFINED_OPERATION,
    UNDEFINED_SCHEMA,
    SqlError,
    near_names,
)
from rw_sql.metastore.records import MaterializedViewRecord, SinkRecord, SourceRecord, TableRecord
from rw_sql.syntax.lexing.identifiers import PUBLIC, quoted, spark_name, sql_name
from rw_sql.syntax.query.query_hints import unreadable
from rw_sql.syntax.query.spark_tokens import spark_tokens
from rw_sql.syntax.query.tables_read import replaced_tables, table_places

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.errors import Span
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import ConnectionRecord, ObjectRecord, OperationRecord, SecretRecord
    from rw_sql.syntax.statements import Name

SCHEMA_ALIAS = PUBLIC
SCHEMA_KINDS = ("table", "source", "materialized_view", "sink", "connection", "secret")
"""The kinds of objects that belong to a schema."""

RELATION_KINDS = ("table", "source", "materialized_view")
"""The kinds of objects that a query can read. A table and its source have the same name. In a query, this name refers
to the table."""

ERRORS, REJECTED = "$errors", "$rejected"
"""The suffixes of the names of two kinds of Spark views. The view ``<source>$errors`` shows the records that the source
could not decode. The view ``<sink>$rejected`` shows the rows that the sink's target has refused."""

_LISTED_BY = {
    "table": "SELECT name FROM rw_catalog.rw_tables",
    "source": "SHOW SOURCES",
    "materialized_view": "SHOW MATERIALIZED VIEWS",
    "sink": "SHOW SINKS",
    "connection": "SHOW CONNECTIONS",
    "secret": "SHOW SECRETS",
}


def spoken(kind: str) -> str:
    """The term for a kind of object in messages."""
    return kind.replace("_", " ")


def object_name(name: Name) -> str:
    """The name under which the catalog stores an object: the plain name if the schema is ``public``, and otherwise
    ``schema.name``.

    Raises SqlError if the name has more than two parts.
    """
    if len(name.parts) > 2:
        raise SqlError(
            SYNTAX_ERROR,
            f"the name {name} has {len(name.parts)} parts, but a name consists of a schema and an object",
            span=name.span,
            hint=f"write {'.'.join(quoted(part) for part in name.parts[-2:])}",
        )
    return name.key


def schema_of(snapshot: Snapshot, key: str) -> str:
    """The schema of the object that the catalog stores under the name ``key``."""
    schema, dot, _ = key.partition(".")
    # Warehouses that are older than schemas may contain quoted names with a dot.
    return schema if dot and snapshot.find("schema", schema) is not None else PUBLIC


def is_schema(snapshot: Snapshot, name: str) -> bool:
    """True if the warehouse has a schema with this name."""
    return name == PUBLIC or snapshot.find("schema", name) is not None


def undefined_schema(snapshot: Snapshot, schema: str, span: Span | None) -> SqlError:
    """The error for a schema that does not exist."""
    near = near_names(schema, [PUBLIC, *(record.name for record in snapshot.all("schema"))])
    hint = (
        f'did you mean "{near[0]}"? SHOW SCHEMAS lists all schemas'
        if near
        else "SHOW SCHEMAS lists all schemas; CREATE SCHEMA creates one"
    )
    return SqlError(UNDEFINED_SCHEMA, f'schema "{schema}" does not exist', span=span, hint=hint)


def require_schema(snapshot: Snapshot, name: Name) -> None:
    """Raises SqlError UNDEFINED_SCHEMA if the name of a new object contains a schema that does not exist."""
    object_name(name)
    if name.schema is not None:
        if not is_schema(snapshot, name.schema):
            raise undefined_schema(snapshot, name.schema, name.span)
        if name.schema == PUBLIC or "." not in name.last:
            return
    elif "." not in name.last or schema_of(snapshot, name.last) == PUBLIC:
        return
    raise SqlError(
        INVALID_DEFINITION,
        f'the name "{name.last}" cannot have a dot: it would be read as the name of a schema and an object',
        span=name.span,
        hint=f"use another name: {quoted(name.last.replace('.', '_'))}",
    )


def find_source(snapshot: Snapshot, name: Name) -> SourceRecord:
    """The source with the given name. If it does not exist, raises SqlError UNDEFINED_OBJECT; the error's hint may
    suggest a similar name."""
    record = snapshot.find("source", object_name(name))
    if not isinstance(record, SourceRecord):
        raise undefined(snapshot, "source", name)
    return record


def find_table(snapshot: Snapshot, name: Name) -> TableRecord:
    """The table with the given name. If it does not exist, raises SqlError UNDEFINED_OBJECT; the error's hint may
    suggest a similar name."""
    record = snapshot.find("table", object_name(name))
    if record is None:
        raise undefined(snapshot, "table", name)
    return record


def find_source_of(snapshot: Snapshot, kind: str, name: Name) -> SourceRecord:
    """The source that ``ALTER {SOURCE | TABLE} name`` changes. Raises SqlError if there is no such source."""
    if kind != "TABLE":
        return find_source(snapshot, name)
    table = find_table(snapshot, name)
    source = snapshot.get(table.source_id) if table.source_id is not None else None
    if table.live_from is not None:
        of = snapshot.get(table.inputs[0])
        given, written = (of.name, sql_name(of.name)) if of is not None else ("its source", "a_source")
        raise SqlError(
            INVALID_DEFINITION,
            f'table "{table.name}" has no connector: it is a table of source "{given}"',
            span=name.span,
            hint=f"ALTER SOURCE {written} … changes the source; ALTER TABLE … ADD COLUMN, DROP COLUMN or RENAME COLUMN "
            "changes the columns",
        )
    if not isinstance(source, SourceRecord):
        raise SqlError(
            INVALID_DEFINITION,
            f'table "{table.name}" no longer has a connector',
            span=name.span,
            hint="CREATE TABLE a_name (…) WITH (connector = …) creates a table with a connector",
        )
    return source


def find_view(snapshot: Snapshot, name: Name) -> MaterializedViewRecord:
    """The materialized view with the given name. If it does not exist, raises SqlError UNDEFINED_OBJECT; the error's
    hint may suggest a similar name."""
    record = snapshot.find("materialized_view", object_name(name))
    if not isinstance(record, MaterializedViewRecord):
        raise undefined(snapshot, "materialized_view", name)
    return record


def find_sink(snapshot: Snapshot, name: Name) -> SinkRecord:
    """The sink with the given name. If it does not exist, raises SqlError UNDEFINED_OBJECT; the error's hint may
    suggest a similar name."""
    record = snapshot.find("sink", object_name(name))
    if not isinstance(record, SinkRecord):
        raise undefined(snapshot, "sink", name)
    return record


def find_connection(snapshot: Snapshot, name: Name) -> ConnectionRecord:
    """The connection with the given name. If it does not exist, raises SqlError UNDEFINED_OBJECT; the error's hint may
    suggest a similar name."""
    record = snapshot.find("connection", object_name(name))
    if record is None:
        raise undefined(snapshot, "connection", name)
    return record


def find_secret(snapshot: Snapshot, name: Name) -> SecretRecord:
    """The secret with the given name. If it does not exist, raises SqlError UNDEFINED_OBJECT; the error's hint may
    suggest a similar name."""
    record = snapshot.find("secret", object_name(name))
    if record is None:
        raise undefined(snapshot, "secret", name)
    return record


def find_relation(snapshot: Snapshot, name: str) -> ObjectRecord | None:
    """The table, source or view with the given name; None if there is no such object. Names are unique across these
    three kinds, except that a table's source has the table's name."""
    for kind in RELATION_KINDS:
        record = snapshot.find(kind, name)
        if record is not None:
            return record
    return None


def find_operation(records: Iterable[OperationRecord], number: int, span: Span | None, listing: str) -> OperationRecord:
    """The operation with the given number. If it does not exist, raises SqlError UNDEFINED_OPERATION. The error's hint
    contains ``listing``, which is the statement that lists the operations."""
    for record in records:
        if record.epoch == number:
            return record
    raise SqlError(
        UNDEFINED_OPERATION, f"operation {number} does not exist", span=span, hint=f"{listing} lists the operations"
    )


class OtherKindError(SqlError):
    """Raised if a statement that accepts only objects of the kind ``wanted`` names ``other``, an object of another
    kind.

    ``is_completed`` is true after a caller has determined the hint: the equivalent statement for the kind of ``other``
    or, if there is none, the original hint.
    """

    def __init__(self, wanted: str, other: ObjectRecord, *, hint: str, span: Span) -> None:
        message = f'"{other.name}" is a {spoken(other.kind)}, not a {spoken(wanted)}'
        super().__init__(UNDEFINED_OBJECT, message, hint=hint, span=span)
        self.wanted = wanted
        self.other = other
        self.is_completed = False


def find_of_any_kind(snapshot: Snapshot, name: str) -> ObjectRecord | None:
    """The object with the given name, of any kind; None if there is no such object."""
    return next((record for kind in _LISTED_BY if (record := snapshot.find(kind, name)) is not None), None)


def undefined(snapshot: Snapshot, kind: str, name: Name) -> SqlError:
    """The error for a name that no object of the kind ``kind`` has."""
    if name.schema is not None and not is_schema(snapshot, name.schema):
        return undefined_schema(snapshot, name.schema, name.span)
    known = [record.name for record in snapshot.all(kind)]
    near = near_names(name.key, known)
    listing = f"{_LISTED_BY[kind]} lists all {spoken(kind)}s"
    other = find_of_any_kind(snapshot, name.key)
    hint = f'did you mean "{near[0]}"? {listing}' if near else listing
    if other is not None:
        of_kind = spoken(other.kind)
        shown = f"SHOW CREATE {of_kind.upper()} {sql_name(other.name)} shows the {of_kind}; {hint}"
        return OtherKindError(kind, other, hint=shown, span=name.span)
    if kind == "source":
        known = [record.name for each in RELATION_KINDS for record in snapshot.all(each)]
    hint = in_other_schemas(snapshot, known, name) or hint
    return SqlError(UNDEFINED_OBJECT, f'{spoken(kind)} "{name.key}" does not exist', span=name.span, hint=hint)


def undefined_object(snapshot: Snapshot, name: Name) -> SqlError:
    """The error for a name that no table, source, view or sink has."""
    if find_of_any_kind(snapshot, name.key) is not None:
        return undefined(snapshot, "source", name)
    return undefined_relation(snapshot, name, "SHOW SOURCES and SHOW MATERIALIZED VIEWS list all sources and views")


def undefined_relation(snapshot: Snapshot, name: Name, listing: str) -> SqlError:
    """The error for a name in FROM that no table, source or view has.

    ``listing`` is the end of the error's hint. It names the statements that list the relations.
    """
    if name.schema is not None and not is_schema(snapshot, name.schema):
        return undefined_schema(snapshot, name.schema, name.span)
    known = [record.name for kind in RELATION_KINDS for record in snapshot.all(kind)]
    near = near_names(name.key, known)
    hint = in_other_schemas(snapshot, known, name)
    hint = hint or (f'did you mean "{near[0]}"? {listing}' if near else listing)
    return SqlError(UNDEFINED_OBJECT, f'relation "{name.key}" does not exist', span=name.span, hint=hint)


def in_other_schemas(snapshot: Snapshot, known: Iterable[str], name: Name) -> str | None:
    """The hint for a name that exists in other schemas; None if no other schema has it. ``known`` are names in the
    catalog."""
    found = [key for key in known if key != name.key and bare_name(snapshot, key) == name.last]
    if not found:
        return None
    written = [sql_name(key) if "." in key else f"{PUBLIC}.{sql_name(key)}" for key in sorted(set(found))]
    schemas = [schema_of(snapshot, key) for key in sorted(set(found))]
    where = f"schema {schemas[0]}" if len(schemas) == 1 else f"the schemas {', '.join(schemas)}"
    return f'"{name.last}" is in {where}: write {" or ".join(written)}'


def bare_name(snapshot: Snapshot, key: str) -> str:
    """The plain name, without the schema, of the object that the catalog stores under the name ``key``."""
    schema = schema_of(snapshot, key)
    return key if schema == PUBLIC else key.removeprefix(f"{schema}.")


def other_than_relation(snapshot: Snapshot, name: str, span: Span | None) -> SqlError | None:
    """The error for a query that reads a sink, connection or secret; None if ``name`` is not the name of one of these
    objects."""
    found = find_of_any_kind(snapshot, name)
    if found is None or found.kind in RELATION_KINDS:
        return None
    shown = f"SHOW CREATE {spoken(found.kind).upper()} {sql_name(found.name)}"
    reads = [record.name for id_ in getattr(found, "inputs", ()) if (record := snapshot.get(id_)) is not None]
    if found.kind == "connection":
        shown = unreadable("connection", sql_name(found.name))
    hint = f'SELECT * FROM {spark_name(reads[0])}: "{found.name}" writes these rows to its target' if reads else (
        shown if found.kind == "connection" else
        f"{shown} shows the {spoken(found.kind)}; SHOW SOURCES and SHOW MATERIALIZED VIEWS list the objects that "
        "can be read"
    )  # fmt: skip
    message = f'"{found.name}" is a {spoken(found.kind)}, which a query cannot read'
    return SqlError(UNDEFINED_OBJECT, message, hint=hint, span=span)


def connections_of(snapshot: Snapshot, kind: str) -> str:
    """The hint for a statement that names a connection of the wrong type. The hint lists the connections of the right
    type, ``kind``."""
    names = [record.name for record in snapshot.all("connection") if getattr(record, "connector", "") == kind]
    shown = (
        f"the connections of type '{kind}' are {', '.join(names)}" if names else f"no connection is of type '{kind}'"
    )
    return f"{shown}; SHOW CONNECTIONS lists all connections with their types"


def objects_in(snapshot: Snapshot, schema: str) -> tuple[ObjectRecord, ...]:
    """The objects of a schema, ordered by kind and then by creation. The result does not contain the source of a
    table."""
    return tuple(
        record
        for kind in SCHEMA_KINDS
        for record in snapshot.all(kind)
        if schema_of(snapshot, record.name) == schema
        and not (kind == "source" and snapshot.table_of(record.id) is not None)
    )


def spark_query(text: str, relations: Iterable[str]) -> str:
    """Rewrites a query for a job. In the job, each input is a temporary Spark view with the input's name in the
    catalog.

    ``public.orders`` becomes ``orders``. ``raw.orders`` becomes the single identifier ``raw.orders`` in backquotes,
    with the alias ``orders``. The rest of the text does not change.
    """
    keys = tuple(relations)
    names = {name.lower() for name in keys}
    qualified = {name for name in names if "." in name}
    cut = []
    if not qualified and SCHEMA_ALIAS not in text.lower():
        return text
    tokens = spark_tokens(text)
    for schema, dot, name in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if (schema.text.lower(), dot.text) == (SCHEMA_ALIAS, ".") and name.text.lower() in names:
            cut.append((schema.start, dot.end + 1))
    if qualified:
        for schema, dot, name, after in zip(tokens, tokens[1:], tokens[2:], tokens[3:], strict=False):
            is_column = dot.text == "." and after.text == "."
            if is_column and f"{schema.text}.{name.text}".lower() in qualified:
                cut.append((schema.start, dot.end + 1))
    for start, end in sorted(cut, reverse=True):
        text = text[:start] + text[end:]
    if qualified:
        text = replaced_tables(text, {place.written: place.key for place in table_places(text) if place.key in keys})
    return text


def require_free_of_kind(snapshot: Snapshot, kind: str, name: Name) -> None:
    """Raises SqlError DUPLICATE_OBJECT if an object of the kind ``kind`` has the name, and INVALID_DEFINITION if the
    name is not valid for a new object."""
    require_schema(snapshot, name)
    _require_fit(name)
    if snapshot.find(kind, object_name(name)) is not None:
        raise _taken(snapshot, kind, name)


def require_free(snapshot: Snapshot, name: Name, *, renamed: str | None = None) -> None:
    """Raises SqlError DUPLICATE_OBJECT if a table, source, view or sink has the same name, ignoring case. Raises
    SqlError INVALID_DEFINITION if the name is not valid for a new object. If an existing object is to get the name,
    ``renamed`` is the object's present name in the catalog.
    """
    require_schema(snapshot, name)
    taken = find_relation(snapshot, object_name(name)) or snapshot.find("sink", object_name(name))
    if taken is not None:
        raise _taken(snapshot, taken.kind, name)
    require_new_name(snapshot, name, renamed=renamed)


def require_new_name(snapshot: Snapshot, name: Name, *, renamed: str | None = None) -> None:
    """Makes the checks of :func:`require_free`, except for two that the caller has already made: that the schema
    exists, and that no object has exactly this name."""
    _require_fit(name)
    suffix = next((end for end in (ERRORS, REJECTED) if name.last.lower().endswith(end)), None)
    if suffix is not None:
        raise SqlError(
            INVALID_DEFINITION,
            f'the name "{name.last}" cannot end in {suffix}: the failed records of an object have such a name in Spark',
            span=name.span,
            hint=f"use another name: {quoted(name.last.replace('$', '_'))}",
        )
    alike = _alike(snapshot, object_name(name), renamed)
    if alike is not None:
        raise SqlError(
            DUPLICATE_OBJECT,
            f'the name "{name.key}" differs from that of {spoken(alike.kind)} "{alike.name}" only in upper and lower '
            "case, which Spark does not distinguish",
            span=name.span,
            hint=f"use another name: {sql_name(_free(snapshot, name))}",
        )


def _alike(snapshot: Snapshot, key: str, renamed: str | None) -> ObjectRecord | None:
    """Returns the object whose name equals ``key``, ignoring case; None if there is no such object. The object with the
    present name ``renamed`` is skipped."""
    folded = key.lower()
    records = (record for kind in (*RELATION_KINDS, "sink") for record in snapshot.all(kind))
    return next((found for found in records if found.name.lower() == folded and found.name != renamed), None)


def _require_fit(name: Name) -> None:
    """Raises SqlError INVALID_DEFINITION for a name that contains unprintable characters or only spaces."""
    odd = next((letter for letter in name.last if not letter.isprintable()), None)
    if odd is None and name.last.strip():
        return
    better = "".join(letter if letter.isprintable() else "_" for letter in name.last).strip()
    shown = "".join(letter if letter.isprintable() else f"\\u{ord(letter):04x}" for letter in name.last)
    why = "consists of blanks" if odd is None else f"has the character U+{ord(odd):04X}, which cannot be printed"
    raise SqlError(
        INVALID_DEFINITION,
        f'the name "{shown}" {why}',
        span=name.span,
        hint=f"use another name: {quoted(better) if better.strip('_ ') else 'a_name'}",
    )


def _free(snapshot: Snapshot, name: Name) -> str:
    """Returns a name that no object has. It consists of the given name and a number."""
    key = name.key
    return next(
        other
        for number in count(2)
        if find_of_any_kind(snapshot, other := f"{key}_{number}") is None and _alike(snapshot, other, None) is None
    )


def _taken(snapshot: Snapshot, kind: str, name: Name) -> SqlError:
    """The error for a name that an object of the kind ``kind`` already has. The error's hint suggests a name that no
    object has."""
    free = _free(snapshot, name)
    shown = f"SHOW CREATE {spoken(kind).upper()} {sql_name(name.key)} shows what exists"
    hint = f"use another name: {sql_name(free)}; {shown}"
    return SqlError(DUPLICATE_OBJECT, f'{spoken(kind)} "{name.key}" already exists', span=name.span, hint=hint)

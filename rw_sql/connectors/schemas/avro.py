"""Avro schemas: converts a schema to its normal form and derives the columns of its records.

A schema is JSON as returned by ``json.loads``. In the normal form, every name is a full name, each named type is
defined at its first occurrence, and the schema contains the definitions from the schemas that it references.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.schemas import connect_types
from rw_sql.connectors.schemas.logical_types import decimal_of, logical_of
from rw_sql.errors import INVALID_DEFINITION, NOT_SUPPORTED, UNSUPPORTED_TYPE, SqlError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

Schema = Any
"""A schema, or a part of a schema: a name, a list (a union) or a dict."""

_PRIMITIVES = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "REAL",
    "double": "DOUBLE",
    "string": "CHARACTER VARYING",
    "bytes": "BYTEA",
}
_LOGICAL = {
    ("int", "date"): "DATE",
    ("int", "time-millis"): "CHARACTER VARYING",
    ("long", "time-micros"): "CHARACTER VARYING",
    ("long", "timestamp-millis"): "TIMESTAMP WITH TIME ZONE",
    ("long", "timestamp-micros"): "TIMESTAMP WITH TIME ZONE",
    ("long", "local-timestamp-millis"): "TIMESTAMP",
    ("long", "local-timestamp-micros"): "TIMESTAMP",
    ("string", "uuid"): "CHARACTER VARYING",
}
"""Maps an Avro type and its logical type to the column type. The logical type ``decimal`` is not listed.

A time of day is text, because Spark's tables have no type for a time of day.
"""

_REFUSED_LOGICAL = ("duration", "timestamp-nanos", "local-timestamp-nanos", "big-decimal")
_WIDEST_DECIMAL = 38


@dataclass(slots=True)
class _Names:
    """Collects the named types of a schema during its conversion to normal form."""

    imported: dict[str, Schema]
    defined: set[str] = field(default_factory=set)


def normal_form(text: str, imports: Sequence[tuple[str, str]] = ()) -> Schema:
    """Converts a schema to normal form. ``imports`` contains the pair (name, text) of each schema that ``text``
    references. Raises SqlError for an invalid schema."""
    names = _Names({})
    for _, imported in imports:
        _collect(_parsed(imported), "", names.imported)
    return _normal(_parsed(text), "", names)


def _parsed(text: str) -> Schema:
    try:
        return json.loads(text)
    except ValueError:
        # Confluent's registry also accepts the bare name of a type.
        if text.strip() in _PRIMITIVES:
            return text.strip()
        raise _invalid("it is not JSON") from None


def _invalid(reason: str) -> SqlError:
    return SqlError(
        INVALID_DEFINITION, f"the Avro schema is not valid: {reason}", hint="register a schema that Avro's tools read"
    )


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _collect(schema: Schema, namespace: str, into: dict[str, Schema]) -> None:
    """Adds the named types of a referenced schema to ``into``, by full name. The types are not converted to normal
    form."""
    if isinstance(schema, list):
        for branch in schema:
            _collect(branch, namespace, into)
    if not isinstance(schema, dict):
        return
    kind = schema.get("type")
    if kind in ("record", "error", "enum", "fixed"):
        name = _full(str(schema.get("name")), str(schema.get("namespace") or namespace))
        into.setdefault(name, {**schema, "name": name})
        namespace = name.rpartition(".")[0]
        for each in schema.get("fields") or ():
            _collect(each.get("type"), namespace, into)
    elif kind in ("array", "map"):
        _collect(schema.get("items", schema.get("values")), namespace, into)
    else:
        _collect(kind, namespace, into)


def _normal(schema: Schema, namespace: str, names: _Names) -> Schema:
    if isinstance(schema, str):
        return _named(schema, namespace, names)
    if isinstance(schema, list):
        return [_normal(branch, namespace, names) for branch in schema]
    if not isinstance(schema, dict) or "type" not in schema:
        raise _invalid("a type is neither a name nor an object with a type")
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return _normal(kind, namespace, names)
    rest = {key: value for key, value in schema.items() if key not in ("namespace", "doc")}
    if kind in ("record", "error", "enum", "fixed"):
        name = _full(str(schema.get("name")), str(schema.get("namespace") or namespace))
        space = name.rpartition(".")[0]
        names.defined.add(name)
        made = {**rest, "type": "record" if kind == "error" else kind, "name": name}
        if aliases := schema.get("aliases"):
            made["aliases"] = [_full(alias, space) for alias in aliases]
        if kind in ("record", "error"):
            made["fields"] = [
                {key: value for key, value in each.items() if key != "doc"}
                | {"type": _normal(each["type"], space, names)}
                for each in schema.get("fields") or ()
            ]
        return made
    if kind == "array":
        return {**rest, "items": _normal(schema.get("items"), namespace, names)}
    if kind == "map":
        return {**rest, "values": _normal(schema.get("values"), namespace, names)}
    if kind in _PRIMITIVES or kind == "null":
        return connect_types.bounded_decimal(rest) if len(rest) > 1 else kind
    return _named(kind, namespace, names)


def _named(name: str, namespace: str, names: _Names) -> Schema:
    if name in _PRIMITIVES or name == "null":
        return name
    full = _full(name, namespace)
    for candidate in (full, name):
        if candidate in names.defined:
            return candidate
        if candidate in names.imported:
            return _normal(names.imported[candidate], candidate.rpartition(".")[0], names)
    raise _invalid(f"type {full} is not defined")


def definitions(schema: Schema) -> dict[str, Schema]:
    """The named types of a schema in normal form, by full name."""
    found: dict[str, Schema] = {}
    _collect(schema, "", found)
    return found


def columns_of(
    schema: Schema, *, map_mode: str = "map", needed: Collection[str] | None = None, is_plain: bool = False
) -> tuple[tuple[str, str], ...]:
    """The columns of a schema in normal form, with their canonical types.

    If ``is_plain`` is true, the names of Kafka Connect's and Debezium's types are ignored: a column gets the type of
    the Avro type that stores the values.

    Raises SqlError if the schema is not a record, and for a field that no column type can represent. If ``needed`` is
    not None, only the fields in ``needed`` cause the second error. All other fields without a column type are left out.
    """
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise SqlError(
            NOT_SUPPORTED,
            "the Avro schema is not a record, so it has no columns",
            hint="register a record, or read FORMAT PLAIN ENCODE BYTES",
        )
    types = _Types(definitions(schema), map_mode, is_plain)
    found = []
    for each in schema["fields"]:
        try:
            found.append((each["name"], types.of(each["type"], (_short(schema["name"]),), each["name"])))
        except SqlError:
            if needed is None or each["name"] in needed:
                raise
    return tuple(found)


def plain_type(schema: Schema, named: Mapping[str, Schema]) -> str | None:
    """The canonical type of a scalar type, as Spark reads its values. None for records, arrays, maps and unions of
    several types, and for types that no column type can represent."""
    schema = only_branch(schema, named)
    if isinstance(schema, list) or (isinstance(schema, dict) and schema["type"] in ("record", "array", "map")):
        return None
    try:
        return _Types(named, "map", is_plain=True).of(schema, (), "")
    except SqlError:
        return None


def other_types(schema: Schema, *, texts: Collection[str] = ()) -> dict[str, tuple[str, ...]]:
    """Returns, for each field of a record, the canonical types that a column may have in addition to the type that
    :func:`columns_of` returns.

    ``texts`` are the column types for a field whose Avro type is ``string`` without a name from Kafka Connect. NUMERIC
    stands for every precision and scale.
    """
    named = definitions(schema)

    def of(part: Schema) -> tuple[str, ...]:
        part = only_branch(part, named)
        if isinstance(part, dict) and part.get("type") == "array":
            return tuple(f"{kind}[]" for kind in of(part["items"]))
        found = connect_types.column_types(part)
        return found or (tuple(texts) if connect_types.is_unnamed_text(part) else ())

    return {each["name"]: of(each["type"]) for each in schema["fields"]}


def only_branch(schema: Schema, named: Mapping[str, Schema]) -> Schema:
    """Returns the definition of the only type in a union besides ``null``. A union with several such types is
    returned unchanged. A schema that is not a union is replaced by its definition."""
    if isinstance(schema, list):
        real = [branch for branch in schema if branch != "null"]
        return only_branch(real[0], named) if len(real) == 1 else schema
    return named.get(schema, schema) if isinstance(schema, str) else schema


def _short(name: str) -> str:
    return name.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class _Types:
    named: Mapping[str, Schema]
    map_mode: str
    is_plain: bool = False

    def of(self, schema: Schema, path: tuple[str, ...], column: str) -> str:
        """The canonical type of a value with this schema. ``path`` contains the names of the enclosing records."""
        if isinstance(schema, str) and schema in self.named:
            schema = self.named[schema]
        if isinstance(schema, list):
            return self._union(schema, path, column)
        if not self.is_plain and (types := connect_types.column_types(schema)):
            return types[0]
        kind = schema if isinstance(schema, str) else schema["type"]
        match kind:
            case "record":
                name = _short(schema["name"])
                if name in path:
                    raise SqlError(
                        NOT_SUPPORTED,
                        f"circular reference detected in Avro schema: {' -> '.join((*path, name))}",
                        hint=f'list the columns without "{column}"',
                    )
                inner = [f'"{e["name"]}" {self.of(e["type"], (*path, name), column)}' for e in schema["fields"]]
                return f"STRUCT<{', '.join(inner) or ' '}>"
            case "enum":
                return "CHARACTER VARYING"
            case "array":
                return self.of(schema["items"], path, column) + "[]"
            case "map":
                return (
                    "JSONB"
                    if self.map_mode == "jsonb"
                    else f"MAP(CHARACTER VARYING, {self.of(schema['values'], path, column)})"
                )
            case "fixed" | "bytes" if (found := decimal_of(schema)) is not None:
                if found[0] > _WIDEST_DECIMAL:
                    raise _refused(column, f"a decimal of {found[0]} digits; Spark has at most {_WIDEST_DECIMAL}")
                return f"NUMERIC({found[0]}, {found[1]})"
            case "fixed" if logical_of(schema) not in _REFUSED_LOGICAL:
                return "BYTEA"
        logical = logical_of(schema)
        if logical in _REFUSED_LOGICAL:
            raise _refused(column, f"the Avro type {logical}")
        if kind == "null" or kind not in _PRIMITIVES:
            raise _refused(column, f"the Avro type {kind}")
        return _LOGICAL.get((kind, logical or ""), _PRIMITIVES[kind])

    def _union(self, branches: Sequence[Schema], path: tuple[str, ...], column: str) -> str:
        real = [branch for branch in branches if branch != "null"]
        if len(real) == 1:
            return self.of(real[0], path, column)
        if is_widened(real):
            logical = next((found for found in map(logical_of, real) if found is not None), None)
            if logical is not None:
                raise _refused(column, f"a union of int and long with the logical type {logical}")
            return "BIGINT" if "long" in map(_base, real) else "DOUBLE"
        plain = replace(self, is_plain=True)
        fields = (
            f'"{name}" {plain.of(branch, path, column)}' for name, branch in zip(union_names(real), real, strict=True)
        )
        return f"STRUCT<{', '.join(fields)}>"


def is_widened(branches: Sequence[Schema]) -> bool:
    """True for a union of ``int`` and ``long``, or of ``float`` and ``double``. Spark reads such a union as the
    wider of the two types, and ignores their logical types."""
    return len(branches) == 2 and set(map(_base, branches)) in ({"int", "long"}, {"float", "double"})


def _base(schema: Schema) -> str:
    return str(schema["type"]) if isinstance(schema, dict) else str(schema)


def branch_name(branch: Schema) -> str:
    """The name of a union's branch: the full name of a named type, or Avro's word for any other type."""
    if isinstance(branch, str):
        return branch
    return str(branch["name"] if branch["type"] in ("record", "enum", "fixed") else branch["type"])


def union_names(branches: Sequence[Schema]) -> tuple[str, ...]:
    """The field names of the struct to which a union is converted. Each field has the name of its branch. The namespace
    is omitted, unless two names would then be equal.

    Two names that differ only in case count as equal, as for columns.
    """
    full = [branch_name(branch) for branch in branches]
    short = [_short(name) for name in full]
    folded = [name.lower() for name in short]
    return tuple(name if folded.count(name.lower()) == 1 else whole for name, whole in zip(short, full, strict=True))


def _refused(column: str, what: str) -> SqlError:
    return SqlError(
        UNSUPPORTED_TYPE,
        f'column "{column}" cannot be read: {what} is not supported',
        hint=f'list the columns without "{column}"',
    )


def narrowed(schema: Schema, names: Collection[str]) -> Schema:
    """The schema of a record, reduced to these fields.

    If this removes the first occurrence of a named type, the type's definition moves to the next occurrence.
    """
    return _reduced(schema, {schema["name"]: names})


ROWS_OF_ENVELOPE = ("before", "after")
"""The fields of Debezium's events that contain a row."""


def narrowed_envelope(schema: Schema, names: Collection[str]) -> Schema:
    """The schema of Debezium's events, reduced to the operation and the two rows (:data:`ROWS_OF_ENVELOPE`). Each
    row is reduced to the fields ``names``."""
    named = definitions(schema)
    kept: dict[str, Collection[str]] = {schema["name"]: ("op", *ROWS_OF_ENVELOPE)}
    for each in schema["fields"]:
        row = only_branch(each["type"], named) if each["name"] in ROWS_OF_ENVELOPE else None
        if isinstance(row, dict) and row["type"] == "record":
            kept[row["name"]] = names
    return _reduced(schema, kept)


def with_old_keys(schema: Schema, keys: Collection[str]) -> Schema:
    """The schema of Debezium's events, in which the row ``before`` has only the fields ``keys``. Avro then skips the
    values of all other fields in this row. Thus, none of these values can make the event unreadable.

    The row ``before`` gets its own record type with a new name. Avro accepts the new name: if the reader's union
    contains only one record type, Avro reads every record as this type, whatever its name.
    """
    named = definitions(schema)

    def old(type_: Schema) -> Schema:
        row = only_branch(type_, named)
        if not isinstance(row, dict) or row["type"] != "record":
            return type_
        # Avro would apply the aliases to the row in "after" too.
        made = {key: value for key, value in row.items() if key != "aliases"}
        made |= {"name": f"{row['name']}_rw_before", "fields": [e for e in row["fields"] if e["name"] in keys]}
        return [branch if branch == "null" else made for branch in type_] if isinstance(type_, list) else made

    fields = [{**e, "type": old(e["type"])} if e["name"] == "before" else e for e in schema["fields"]]
    return _reduced({**schema, "fields": fields}, {}, named)


def _reduced(schema: Schema, kept: Mapping[str, Collection[str]], named: Mapping[str, Schema] | None = None) -> Schema:
    """Removes fields from a schema. ``kept`` maps the name of a record type to the fields that it keeps; other
    record types keep all fields. ``named`` are the definitions of named types; if None, those in the schema."""
    known = definitions(schema) if named is None else named
    seen: set[str] = set()

    def defined(part: Schema) -> Schema:
        if isinstance(part, str) and part in known and part not in seen:
            part = known[part]
        if isinstance(part, list):
            return [defined(branch) for branch in part]
        if not isinstance(part, dict):
            return part
        if "name" in part:
            if part["name"] in seen:
                return part["name"]
            seen.add(part["name"])
        made = dict(part)
        if part["type"] == "record":
            names = kept.get(part["name"])
            fields = [each for each in part["fields"] if names is None or each["name"] in names]
            made["fields"] = [{**each, "type": defined(each["type"])} for each in fields]
        for key in ("items", "values"):
            if key in part:
                made[key] = defined(part[key])
        return made

    return defined(schema)

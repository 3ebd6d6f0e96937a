"""Derives the columns of records from a JSON Schema.

The schema determines only the names and types of the columns. Values are decoded as with ENCODE JSON.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rw_sql.errors import INVALID_DEFINITION, NOT_SUPPORTED, SqlError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TYPES = {"string": "CHARACTER VARYING", "integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN"}
_IMPORTS = "_rw_imports"
"""The member in which a stored schema contains the schemas that it references, by name."""

_ANYTHING = "JSONB"
"""The type of a column whose values fit no other column type. The column contains the JSON text of the value."""


def with_imports(text: str, imports: Sequence[tuple[str, str]]) -> str:
    """Combines the schema and the schemas that it references into one string. ``imports`` maps the names of the
    referenced schemas to their text."""
    root = _parsed(text)
    if not imports or not isinstance(root, dict):
        return text
    return json.dumps({**root, _IMPORTS: {name: _parsed(imported) for name, imported in imports}})


def columns_of(text: str) -> tuple[tuple[str, str], ...]:
    """The columns for an object schema: the name and the canonical type of each property.

    ``text`` is a result of :func:`with_imports`, and includes the schemas that it references. Raises SqlError if the
    schema does not describe an object with properties.
    """
    root = _parsed(text)
    documents = root.get(_IMPORTS, {}) if isinstance(root, dict) else {}
    reading = _Reading({**documents, "": root})
    schema, base = reading.resolved(root, "", ())
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or not properties:
        raise SqlError(
            NOT_SUPPORTED,
            "the JSON Schema does not describe an object with properties, so it has no columns",
            hint="list the columns, and read ENCODE JSON without a schema registry",
        )
    return tuple((name, reading.type_of(part, base, ())) for name, part in properties.items())


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise SqlError(
            INVALID_DEFINITION, f"the JSON Schema is not JSON: {error}", hint="register a schema that is JSON"
        ) from error


@dataclass(frozen=True, slots=True)
class _Reading:
    documents: Mapping[str, Any]

    def resolved(self, schema: Any, base: str, path: tuple[str, ...]) -> tuple[Any, str]:
        """Follows the schema's ``$ref``, if it has one. Returns the target schema, and the name of the document that
        contains it.

        Raises SqlError if the target does not exist.
        """
        seen = set[str]()
        while isinstance(schema, dict) and isinstance(schema.get("$ref"), str):
            reference = schema["$ref"]
            document, _, pointer = reference.partition("#")
            base = document or base
            if f"{base}#{pointer}" in seen or base not in self.documents:
                raise _missing(reference)
            seen.add(f"{base}#{pointer}")
            schema = self.documents[base]
            for part in filter(None, pointer.split("/")):
                key = part.replace("~1", "/").replace("~0", "~")
                if not isinstance(schema, dict) or key not in schema:
                    raise _missing(reference)
                schema = schema[key]
        return schema, base

    def type_of(self, schema: Any, base: str, path: tuple[str, ...]) -> str:
        """The canonical type of a value. ``path`` contains each ``$ref`` that was followed on the way to the value's
        schema."""
        if isinstance(schema, dict) and isinstance(schema.get("$ref"), str):
            reference = schema["$ref"] if not schema["$ref"].startswith("#") else base + schema["$ref"]
            if reference in path:
                return _ANYTHING  # The schema contains itself.
            path = (*path, reference)
        schema, base = self.resolved(schema, base, path)
        if not isinstance(schema, dict):
            return _ANYTHING
        for word in ("oneOf", "anyOf"):
            if word in schema:
                real = [part for part in schema[word] if not _is_null(part)]
                return self.type_of(real[0], base, path) if len(real) == 1 else _ANYTHING
        kinds = schema.get("type")
        kinds = [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if kind != "null"]
        if len(kinds) != 1:
            return _ANYTHING
        match kinds[0]:
            case "object":
                return self._struct(schema, base, path)
            case "array" if isinstance(schema.get("items"), dict):
                return self.type_of(schema["items"], base, path) + "[]"
            case None if isinstance(schema.get("enum"), list) and all(isinstance(e, str) for e in schema["enum"]):
                return _TYPES["string"]
            case kind:
                return _TYPES.get(str(kind), _ANYTHING)

    def _struct(self, schema: Mapping[str, Any], base: str, path: tuple[str, ...]) -> str:
        properties = schema.get("properties")
        # As in RisingWave, an object with arbitrary names is JSON.
        if not isinstance(properties, dict) or not properties:
            return _ANYTHING
        fields = (f'"{_quoted(name)}" {self.type_of(part, base, path)}' for name, part in properties.items())
        return f"STRUCT<{', '.join(fields)}>"


def _quoted(name: str) -> str:
    return name.replace('"', '""')


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "null"


def _missing(reference: str) -> SqlError:
    return SqlError(
        INVALID_DEFINITION,
        f"the JSON Schema refers to {reference}, which does not exist",
        hint="register the schema with its references",
    )

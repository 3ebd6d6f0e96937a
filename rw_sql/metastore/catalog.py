"""Reads the migration files ``catalog/NNNN_*.sql``. The results are the schemas of the metastore's Delta tables, and
the metastore's views as templates.

The files contain only CREATE TABLE, ALTER TABLE … ADD COLUMNS and CREATE VIEW, in Spark's SQL. This module reads these
files with a few simple rules instead of a SQL parser. Therefore, opening a metastore needs neither the grammar nor
Spark, and the text of a view is passed to Spark unchanged.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from deltalake import Schema

from rw_sql.assets import list_assets, read_asset
from rw_sql.metastore.location import SCHEMA_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_FILE = re.compile(r"(\d{4})_\w+\.sql")
_TABLE = re.compile(rf"CREATE TABLE {SCHEMA_NAME}\.(\w+)\s*\(", re.I)
_ADD = re.compile(rf"ALTER TABLE {SCHEMA_NAME}\.(\w+)\s+ADD COLUMNS\s*\(", re.I)
_VIEW = re.compile(rf"CREATE (?:OR REPLACE )?VIEW {SCHEMA_NAME}\.(\w+)\s+AS\s+(.+)", re.I | re.S)
_COLUMN = re.compile(r"(\w+)\s+(\w+(?:\s*<.+>)?)(\s+NOT\s+NULL)?(?:\s+COMMENT\s+'((?:[^']|'')*)')?", re.I | re.S)
_PROPERTIES = re.compile(r"\s*TBLPROPERTIES\s*\((.*)\)\s*", re.I | re.S)
_PROPERTY = re.compile(r"'([^']+)'\s*=\s*'([^']*)'")
_SIMPLE = {
    "STRING": "string",
    "BIGINT": "long",
    "INT": "integer",
    "BOOLEAN": "boolean",
    "DOUBLE": "double",
    "BINARY": "binary",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable:
    """A migration step that creates a table with the given schema if the table does not exist."""

    name: str
    schema: Schema
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddColumns:
    """A migration step that adds nullable columns to a table. Columns that exist are skipped."""

    name: str
    schema: Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One migration file, with its steps in the order of the file. Applying a migration again changes nothing."""

    number: int
    name: str
    statements: tuple[CreateTable | AddColumns, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """All migrations and views. ``views`` maps each view to its newest SELECT, which refers to tables as
    ``rw_catalog.<table>``."""

    migrations: tuple[Migration, ...]
    views: Mapping[str, str] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """The number of the newest migration, which is the format of the metastore."""
        return self.migrations[-1].number

    def tables(self) -> tuple[str, ...]:
        """The names of the tables, in creation order."""
        return tuple(s.name for m in self.migrations for s in m.statements if isinstance(s, CreateTable))

    def view_definitions(self, directory: str) -> tuple[tuple[str, str], ...]:
        """Returns each view's name, and its SELECT in Spark's SQL over the Delta tables under ``directory``."""
        quoted = directory.replace("`", "``")
        table = re.compile(rf"\b{SCHEMA_NAME}\.({'|'.join(self.tables())})\b")
        return tuple(
            (name, table.sub(lambda found: f"delta.`{quoted}/{found[1]}`", text)) for name, text in self.views.items()
        )


@cache
def load_catalog() -> Catalog:
    """The catalog of this version of rw_sql. The files are read once in a process.

    The files in ``catalog/views`` contain only views. A view replaces the view of the same name in the numbered files.
    A change in ``catalog/views`` does not change a warehouse's format. Older versions of rw_sql can therefore still
    open the warehouse.
    """
    catalog = parse_catalog((name, read_asset("catalog", name)) for name in list_assets("catalog", ".sql"))
    views = dict(catalog.views)
    for name in list_assets("catalog/views", ".sql"):
        views.update(_views(name, read_asset("catalog/views", name)))
    return replace(catalog, views=MappingProxyType(views))


def parse_catalog(files: Iterable[tuple[str, str]]) -> Catalog:
    """Parses migration files, which are given as pairs (name, text).

    Raises ValueError if a file's name does not have the form ``NNNN_words.sql``, if two files have the same number, if
    a number is missing, and for unsupported statements.
    """
    migrations: dict[int, Migration] = {}
    views: dict[str, str] = {}
    for name, text in sorted(files):
        matched = _FILE.fullmatch(name)
        if matched is None:
            raise ValueError(f"catalog file {name!r} is not named NNNN_words.sql")
        number = int(matched[1])
        if number in migrations:
            raise ValueError(f"catalog files {migrations[number].name!r} and {name!r} have the same number")
        if number != len(migrations) + 1:
            raise ValueError(f"catalog file {name!r} leaves a gap before its number")
        steps: list[CreateTable | AddColumns] = []
        for statement in _statements(text):
            if view := _VIEW.fullmatch(statement):
                views[view[1]] = view[2]
            else:
                steps.append(_table_statement(name, statement))
        migrations[number] = Migration(number=number, name=name, statements=tuple(steps))
    return Catalog(migrations=tuple(migrations.values()), views=views)


def _views(file: str, text: str) -> Iterator[tuple[str, str]]:
    for statement in _statements(text):
        view = _VIEW.fullmatch(statement)
        if view is None:
            raise ValueError(f"catalog file {file!r} has a statement that is no CREATE VIEW: {statement[:60]!r}")
        yield view[1], view[2]


def _table_statement(file: str, statement: str) -> CreateTable | AddColumns:
    for pattern in (_TABLE, _ADD):
        if (head := pattern.match(statement)) is None:
            continue
        end = _closing(statement, head.end())
        schema = _schema(statement[head.end() : end])
        rest = statement[end + 1 :]
        if pattern is _ADD and not rest.strip():
            return AddColumns(name=head[1], schema=schema)
        properties = _PROPERTIES.fullmatch(rest)
        if pattern is _TABLE and (properties or not rest.strip()):
            pairs = _PROPERTY.findall(properties[1]) if properties else []
            return CreateTable(name=head[1], schema=schema, properties=dict(pairs))
    raise ValueError(f"catalog file {file!r} has a statement that is not understood: {statement[:60]!r}")


def _schema(columns: str) -> Schema:
    fields = []
    for text in _split(columns, ","):
        column = _COLUMN.fullmatch(text.strip())
        if column is None:
            raise ValueError(f"not a column: {text.strip()!r}")
        name, written, required, comment = column.groups()
        metadata = {"comment": comment.replace("''", "'")} if comment else {}
        fields.append({"name": name, "type": _type(written), "nullable": not required, "metadata": metadata})
    return Schema.from_json(json.dumps({"type": "struct", "fields": fields}))


def _type(written: str) -> object:
    written = written.strip()
    if written.upper() in _SIMPLE:
        return _SIMPLE[written.upper()]
    outer, _, inner = written.partition("<")
    parts = _split(inner.strip()[:-1], ",")
    match outer.strip().upper(), len(parts):
        case "ARRAY", 1:
            return {"type": "array", "elementType": _type(parts[0]), "containsNull": True}
        case "MAP", 2:
            key, value = map(_type, parts)
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    raise ValueError(f"not a type: {written!r}")


def _statements(text: str) -> Iterator[str]:
    for piece in _split(_without_comments(text), ";"):
        if piece.strip():
            yield piece.strip()


def _without_comments(text: str) -> str:
    return re.sub(r"('(?:[^']|'')*')|--[^\n]*", lambda found: found[1] or "", text)


def _quiet(text: str) -> str:
    """Returns the text with spaces in place of quoted parts. A search in the result thus finds nothing inside quotes.

    The positions of all other characters do not change.
    """
    return re.sub(r"'(?:[^']|'')*'", lambda found: " " * len(found[0]), text)


def _split(text: str, separator: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for at, character in enumerate(_quiet(text)):
        if character in "(<":
            depth += 1
        elif character in ")>" and depth:
            depth -= 1
        elif character == separator and (depth == 0 or separator == ";"):
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


def _closing(text: str, start: int) -> int:
    depth = 1
    for at, character in enumerate(_quiet(text)[start:], start):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return at
    raise ValueError(f"a parenthesis does not close: {text[:60]!r}")

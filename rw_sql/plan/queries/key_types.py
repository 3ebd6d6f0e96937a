"""Finds columns that cannot identify the rows of a view, because the view's job would compare their values differently
from Spark's GROUP BY. These columns are maps, by which Spark can group but which Spark cannot compare, and strings with
a collation, which Arrow and Delta Lake ignore when they compare strings byte by byte."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rw_sql.metastore.records import DeltaTableRecord, MaterializedViewRecord
from rw_sql.model.object_lookup import spoken
from rw_sql.plan.ports.queries import QueryAnalysis
from rw_sql.syntax.query.tables_read import may_use_column

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.metastore.records import ObjectRecord

_COLLATIONS = "__COLLATIONS"
"""The metadata key with which Spark marks fields whose strings are not compared byte by byte."""


def unfit_key(keys: tuple[str, ...], *schemas: str) -> QueryAnalysis | None:
    """Returns the reason to refuse a view if a map or a string with a collation identifies its rows. Returns None if
    the keys can be compared. ``schemas`` are the schemas of the view's visible and hidden columns, in Spark's JSON
    form. A schema may be the empty string."""
    for field in _fields(schemas):
        name = field["name"]
        if name not in keys:
            continue
        what = f'column "{name}"' if not name.startswith("_rw_") else "a grouping expression that is not selected"
        if _has_map(field["type"]):
            return QueryAnalysis(
                refusal=f"{what} contains a map, and a map cannot identify a row, because maps cannot be compared",
                hint="group by array_sort(map_entries(a_map)) in place of the map",
                word=name,
            )
        if _is_collated(field):
            return QueryAnalysis(
                refusal=f"{what} has a collation, and such a string cannot identify a row, because rows are found by "
                "the bytes of their keys",
                hint="group by lower(a_string) in place of a string with a collation",
                word=name,
            )
    return None


def collated_input(query: str, inputs: Iterable[ObjectRecord]) -> QueryAnalysis | None:
    """Returns the reason to refuse a query that reads a column with a collation, because a view's job reads its inputs
    without collations. A column counts as read if the query may use it, or if it is a key of its input. Returns None if
    the query reads no such column."""
    for record in inputs:
        if not isinstance(record, MaterializedViewRecord | DeltaTableRecord):
            continue
        hidden = record.maintenance.hidden if isinstance(record, MaterializedViewRecord) else ""
        keys = record.keys if isinstance(record, MaterializedViewRecord) else ()
        for field in _fields((record.schema, hidden)):
            name = field["name"]
            if _is_collated(field) and (name in keys or _may_use(query, name)):
                named = record.written if isinstance(record, DeltaTableRecord) else f'"{record.name}"'
                return QueryAnalysis(
                    refusal=f'column "{name}" of {spoken(record.kind)} {named} has a collation, but a view compares '
                    "its values by their bytes",
                    hint="remove COLLATE from the definition of that column, and compare lower(a_string) instead",
                    word=name,
                )
    return None


def _may_use(query: str, column: str) -> bool:
    from sqlglot.errors import SqlglotError

    try:
        return may_use_column(query, column)
    except (SqlglotError, RecursionError):
        return True


def _fields(schemas: Iterable[str]) -> list[dict[str, Any]]:
    return [field for schema in schemas if schema for field in json.loads(schema)["fields"]]


def _has_map(kind: object) -> bool:
    match kind:
        case {"type": "map"}:
            return True
        case {"type": "array", "elementType": element}:
            return _has_map(element)
        case {"type": "struct", "fields": [*fields]}:
            return any(_has_map(field["type"]) for field in fields)
        case _:
            return False


def _is_collated(field: dict[str, Any]) -> bool:
    return _COLLATIONS in json.dumps(field)

"""Provides the functions that all listings use: they select objects by the clauses FROM and LIKE, and create the plan
that shows the rows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rw_sql.model.object_lookup import bare_name, schema_of
from rw_sql.plan.result.plan import Plan, Table

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.syntax.statements import ShowObjects, Statement


def listing(statement: Statement, columns: tuple[tuple[str, str], ...], rows: list[tuple[object, ...]]) -> Plan:
    """The plan of a statement that only shows rows. ``columns`` are pairs (name, type)."""
    return Plan(statement=statement, table=Table(columns=columns, rows=tuple(rows)))


def matches(statement: ShowObjects, snapshot: Snapshot, name: str) -> bool:
    """True if the object is in the schema that the statement's FROM clause names, and the object's name matches the
    statement's pattern. The pattern may match the name with or without the schema."""
    if statement.schema is not None and schema_of(snapshot, name) != statement.schema:
        return False
    return is_like(statement, name) or is_like(statement, bare_name(snapshot, name))


def is_like(statement: ShowObjects, name: str) -> bool:
    """True if the name matches the pattern of LIKE or ILIKE, or if the statement has no such pattern."""
    if statement.like is not None and not re.fullmatch(_pattern(statement.like), name):
        return False
    return statement.ilike is None or re.fullmatch(_pattern(statement.ilike), name, re.IGNORECASE) is not None


def _pattern(like: str) -> str:
    """Converts a LIKE pattern to a regular expression. A backslash removes the special meaning of the next
    character."""
    words = {"%": ".*", "_": "."}
    letters = re.findall(r"\\.|.", like, re.DOTALL)
    return "(?s:" + "".join(words.get(letter, re.escape(letter[-1])) for letter in letters) + ")"

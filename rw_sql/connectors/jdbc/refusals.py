"""Classifies PostgreSQL's errors for a batch. There are three classes: the server is unavailable, the server refuses a
row, or the table has changed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.sink import Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg


class Fault(Enum):
    """The cause of a failed batch."""

    AWAY = "the server is unreachable or busy"
    ROW = "the server refuses a row of the batch"
    TABLE = "the table or the user's privileges have changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowConflict(Refusal):
    """The refusal of a row that conflicts with other rows of the database. The table may accept the row after other
    rows of the batch are written. ``is_unique`` is true if the row and another row have the same value in a unique
    index."""

    is_unique: bool = False


_CONFLICTS = ("23503", "23505", "23P01")
"""The SQLSTATE codes for violations of a FOREIGN KEY, UNIQUE or EXCLUDE constraint, in this order. Added rows can
resolve only the violation of a FOREIGN KEY."""

UNIQUE_VIOLATION = "23505"
"""The SQLSTATE code for a value that another row has in a unique index."""

_AWAY_CLASSES = ("08", "0B", "25", "26", "28", "2D", "34", "3B", "3D", "40", "53", "57", "58", "72", "F0", "HV", "XX")
"""SQLSTATE classes (PostgreSQL, appendix A) of errors that concern the connection, the transaction, the server and its
resources."""

_AWAY_CODES = ("55006", "55P03")
"""The SQLSTATE codes for an object in use and for a lock that was not available in time."""

_TABLE_CLASSES = ("0A", "3F", "42", "55")
_TABLE_CODES = ("25006", "428C9")
"""The SQLSTATE codes for a read-only transaction and for a generated column."""

_RAISE = "exec_stmt_raise"
"""The name of the server's function that reports errors of RAISE statements. A trigger may choose any SQLSTATE in a
RAISE statement."""

_COLUMN = re.compile(r"^COPY [^\n]*?, line \d+, column ([^\n]+)", re.MULTILINE)
_CONSTRAINED = """
SELECT string_agg(a.attname::text, ', ' ORDER BY k.at)
FROM pg_catalog.pg_constraint c, unnest(c.conkey) WITH ORDINALITY k (number, at), pg_catalog.pg_attribute a
WHERE c.conrelid = %s::regclass AND c.conname = %s AND a.attrelid = c.conrelid AND a.attnum = k.number
"""
_INDEXED = """
SELECT string_agg(pg_catalog.pg_get_indexdef(i.indexrelid, k, true), ', ' ORDER BY k)
FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid, generate_series(1, i.indnkeyatts) k
WHERE i.indrelid = %s::regclass AND c.relname = %s
"""


def fault_of(error: psycopg.Error) -> Fault:
    """Classifies an error. An SQLSTATE that none of the lists above contains means that the server, a trigger or a
    function refuses a row.

    Errors without an SQLSTATE come from the client: an unsupported value, or a broken connection.
    """
    import psycopg

    state = error.sqlstate
    if state is None:
        return Fault.ROW if isinstance(error, psycopg.DataError) else Fault.AWAY
    if error.diag.source_function == _RAISE:
        return Fault.ROW
    if state == "42501" and "row-level security" in (error.diag.message_primary or ""):
        return Fault.ROW
    if state in _AWAY_CODES:
        return Fault.AWAY
    if state.startswith(_TABLE_CLASSES) or state in _TABLE_CODES:
        return Fault.TABLE
    return Fault.AWAY if state.startswith(_AWAY_CLASSES) else Fault.ROW


def refusal_of(
    error: psycopg.Error,
    connection: psycopg.Connection[Any],
    table: str,
    columns: Sequence[str],
    *,
    is_append_only: bool,
) -> Refusal:
    """Makes the refusal of a single row from the error of its write. ``columns`` are the names of the row's columns.
    ``table`` is the table's quoted name, with which the columns of a violated constraint are queried. If
    ``is_append_only`` is true, the batch changes no existing row of the table."""
    said = error.diag
    reason = said.message_primary or " ".join(str(error).split())
    is_conflict = error.sqlstate in _CONFLICTS
    if said.message_detail and is_conflict:
        reason += f" ({said.message_detail.rstrip('.')})"
    column = said.column_name or _column(error, connection, table, columns)
    if error.sqlstate not in (_CONFLICTS[:1] if is_append_only else _CONFLICTS):
        return Refusal(index=0, column=column, reason=reason)
    return RowConflict(index=0, column=column, reason=reason, is_unique=error.sqlstate == UNIQUE_VIOLATION)


def _column(
    error: psycopg.Error, connection: psycopg.Connection[Any], table: str, columns: Sequence[str]
) -> str | None:
    found = _COLUMN.search(error.diag.context or "")
    if found is not None:
        # In the message, the name of the column is not quoted, and the value follows the name.
        named = [name for name in columns if found[1].startswith((f"{name}: ", f"{name}, null")) or found[1] == name]
        return max(named, key=len, default=None)
    name = error.diag.constraint_name
    if name is None:
        return None
    for query in (_CONSTRAINED, _INDEXED):
        row = connection.execute(query.encode(), [table, name]).fetchone()
        if row is not None and row[0] is not None:
            return str(row[0])
    return None

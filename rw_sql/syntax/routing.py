"""Whose statement is it: ours or Spark's? The first words decide, and where both know them, our clauses and names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from rw_sql.errors import SqlError

if TYPE_CHECKING:
    from rw_sql.syntax.statements.common import Name, Statement


class CatalogView(Protocol):
    """What routing asks of the catalog. Both answers must be quick and raise nothing."""

    def has_object(self, name: Name) -> bool:
        """Whether a source, table, materialized view, sink, connection or secret of ours has this name."""
        ...

    def has_parameter(self, name: str) -> bool:
        """Whether a session parameter of ours has this name (lower case)."""
        ...


_BLANK = r"(?:\s++|--[^\n]*+(?:\n|\Z)|/\*(?:[^*]|\*(?!/))*+\*/)"

_FIRST_WORDS = re.compile(
    rf"""{_BLANK}*+(?:
      CREATE{_BLANK}++(?:(?:OR{_BLANK}++REPLACE|TEMPORARY){_BLANK}++)?+
        (?:SOURCE|SINK|CONNECTION|SECRET|SUBSCRIPTION|MATERIALIZED|TABLE)\b
    | DROP{_BLANK}++(?:SOURCE|SINK|CONNECTION|SECRET|SUBSCRIPTION|MATERIALIZED|TABLE)\b
    | ALTER{_BLANK}++(?:SOURCE|SINK|CONNECTION|SECRET|SUBSCRIPTION|MATERIALIZED|SYSTEM|FRAGMENT|TABLE)\b
    | SHOW{_BLANK}++(?!(?:TABLES|VIEWS|COLUMNS|FUNCTIONS|DATABASES|SCHEMAS|NAMESPACES|PARTITIONS|TBLPROPERTIES)\b)\w
    | REFRESH{_BLANK}++TABLE\b
    | (?:PAUSE|RESUME|INJECT|CONFIRM|UNDO|REWIND|REBUILD|VALIDATE|FLUSH|WAIT|RECOVER|CANCEL|SKIP|REPLACE)\b
    | RESET{_BLANK}++SOURCE\b
    | BEGIN{_BLANK}++UNSAFE\b | COMMIT\b | ROLLBACK\b
    | DESC(?:RIBE)?\b | SET\b | EXPLAIN\b
    )""",
    re.VERBOSE | re.IGNORECASE,
)


def could_be_ours(text: str) -> bool:
    """Whether the first words leave it open that the text is a statement of ours. Takes under a microsecond."""
    return _FIRST_WORDS.match(text) is not None


_OURS_ALONE = re.compile(
    rf"""{_BLANK}*+(?:EXPLAIN{_BLANK}++)?+(?:
      CREATE{_BLANK}++(?:(?:OR{_BLANK}++REPLACE|TEMPORARY){_BLANK}++)?+(?:SOURCE|SINK|CONNECTION|SECRET)\b
    | DROP{_BLANK}++(?:SOURCE|SINK|CONNECTION|SECRET)\b
    | ALTER{_BLANK}++(?:SOURCE|SINK|CONNECTION|SECRET|SYSTEM|FRAGMENT)\b
    | (?:PAUSE|RESUME){_BLANK}++(?:SOURCE|SINK|ALL)\b
    | INJECT\b | CONFIRM\b | FLUSH\b
    | RESET{_BLANK}++SOURCE\b
    | SHOW{_BLANK}++(?:SOURCES?|SINKS?|CONNECTIONS?|SECRETS?|JOBS|UNSAFE|MATERIALIZED)\b
    | SHOW{_BLANK}++CREATE{_BLANK}++(?:SOURCE|SINK|CONNECTION|SECRET|MATERIALIZED)\b
    | (?:CREATE|DROP|ALTER){_BLANK}++MATERIALIZED\b
    )""",
    re.VERBOSE | re.IGNORECASE,
)


def route(text: str, catalog: CatalogView) -> Statement | None:
    """The statement if the text is ours, None if Spark must get it, byte for byte.

    Raises SqlError if the text is ours and wrong: its first words are ours alone, or a clause or object of ours was
    named before the fault.
    """
    from rw_sql.syntax.script import parse_statement
    from rw_sql.syntax.statements import Describe, Explain, SetParameter, ShowCreate

    try:
        statement = parse_statement(text)
    except SqlError:
        if _OURS_ALONE.match(text):
            raise
        return None
    inner = statement.statement if isinstance(statement, Explain) else statement
    if isinstance(inner, SetParameter) and not catalog.has_parameter(inner.parameter):
        return None
    if isinstance(inner, Describe) and not catalog.has_object(inner.name):
        return None
    if isinstance(inner, ShowCreate) and inner.kind in ("TABLE", "VIEW") and not catalog.has_object(inner.name):
        return None
    return statement

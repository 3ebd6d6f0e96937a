"""Decides from the first words of a statement whether it may be an rw_sql statement, and whether it is an EXPLAIN or a
SHOW CREATE."""

from __future__ import annotations

import re

from rw_sql.syntax.lexing.invisible import INVISIBLE

# Invisible characters count as spaces, so that they do not affect routing. After routing, rw_sql's parser reports these
# characters.
BLANK = rf"(?:[\s{INVISIBLE}]++|--[^\n]*+(?:\n|\Z)|/\*(?:[^*]|\*(?!/))*+\*/)"
CREATE = rf"CREATE{BLANK}++(?:OR{BLANK}++REPLACE{BLANK}++)?+(?:TEMP(?:ORARY)?{BLANK}++)?+"
KINDS = "SOURCE|SINK|CONNECTION|SECRET|MATERIALIZED"

_FIRST_WORDS = re.compile(
    rf"""{BLANK}*+(?:
      {CREATE}(?:{KINDS}|TABLE|SCHEMA)\b
    | (?:DROP|ALTER){BLANK}++(?:{KINDS}|TABLE|SCHEMA|SYSTEM|FRAGMENT)\b
    | USE\b
    | SHOW{BLANK}++(?!(?:TABLES|VIEWS|COLUMNS|FUNCTIONS|DATABASES|NAMESPACES|PARTITIONS|TBLPROPERTIES)\b)\w
    | REFRESH{BLANK}++(?:TABLE|MATERIALIZED)\b
    | REPLACE{BLANK}++SINK\b
    | (?:PAUSE|RESUME|INJECT|CONFIRM|UNDO|REWIND|REBUILD|VALIDATE|FLUSH|WAIT|RECOVER|CANCEL|SKIP|COMMIT|ROLLBACK)\b
    | RESET{BLANK}++SOURCE\b
    | BEGIN{BLANK}++UNSAFE\b
    | (?:DESC(?:RIBE)?|SET|EXPLAIN)\b
    )""",
    re.VERBOSE | re.IGNORECASE,
)


_EXPLAIN = re.compile(rf"{BLANK}*+EXPLAIN\b", re.IGNORECASE)
_SHOW_CREATE = re.compile(rf"{BLANK}*+SHOW{BLANK}++CREATE\b", re.IGNORECASE)


def could_be_ours(text: str) -> bool:
    """True if the text's first words may begin an rw_sql statement. The check takes less than a microsecond."""
    return _FIRST_WORDS.match(text) is not None


def is_explain(text: str) -> bool:
    """True if the text is an EXPLAIN statement of rw_sql or of Spark."""
    return _EXPLAIN.match(text) is not None


def is_show_create(text: str) -> bool:
    """True if the text is a SHOW CREATE statement of rw_sql or of Spark."""
    return _SHOW_CREATE.match(text) is not None

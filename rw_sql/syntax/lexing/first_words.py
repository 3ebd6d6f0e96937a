"""Whether the first words of a text leave it open that it is a statement of ours."""

from __future__ import annotations

import re

from rw_sql.syntax.lexing.invisible import INVISIBLE

# A character that is not shown counts as a blank here, so that whose statement it is reads the same with one: ours then
# names it.
BLANK = rf"(?:[\s{INVISIBLE}]++|--[^\n]*+(?:\n|\Z)|/\*(?:[^*]|\*(?!/))*+\*/)"
CREATE = rf"CREATE{BLANK}++(?:OR{BLANK}++REPLACE{BLANK}++)?+(?:TEMP(?:ORARY)?{BLANK}++)?+"
KINDS = "SOURCE|SINK|CONNECTION|SECRET|MATERIALIZED"

_FIRST_WORDS = re.compile(
    rf"""{BLANK}*+(?:
      {CREATE}(?:{KINDS}|TABLE)\b
    | (?:DROP|ALTER){BLANK}++(?:{KINDS}|TABLE|SYSTEM|FRAGMENT)\b
    | SHOW{BLANK}++(?!(?:TABLES|VIEWS|COLUMNS|FUNCTIONS|DATABASES|SCHEMAS|NAMESPACES|PARTITIONS|TBLPROPERTIES)\b)\w
    | REFRESH{BLANK}++TABLE\b
    | REPLACE{BLANK}++SINK\b
    | (?:PAUSE|RESUME|INJECT|CONFIRM|UNDO|REWIND|REBUILD|VALIDATE|FLUSH|WAIT|RECOVER|CANCEL|SKIP|COMMIT|ROLLBACK)\b
    | RESET{BLANK}++SOURCE\b
    | BEGIN{BLANK}++UNSAFE\b
    | (?:DESC(?:RIBE)?|SET|EXPLAIN)\b
    )""",
    re.VERBOSE | re.IGNORECASE,
)


def could_be_ours(text: str) -> bool:
    """Whether the first words leave it open that the text is a statement of ours. Takes under a microsecond."""
    return _FIRST_WORDS.match(text) is not None

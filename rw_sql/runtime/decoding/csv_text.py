"""Finds the records that are not exactly one line of CSV, and reads the fields of all other records. This module uses
only Spark expressions.

Spark's ``from_csv`` never refuses a line because of wrong quotes. It reads ``"a"b`` as a value with the quotes, drops a
space after the last quote, and reads a line break outside quotes as part of a value. Therefore, :func:`fault_of` checks
each record with the grammar of RFC 4180. ``from_csv`` then reads only well-formed lines.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from rw_sql.connectors.files.rows import NO_VALUE as NO_FIELD
from rw_sql.runtime.decoding.json_text import CORRUPT, once

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column

    from rw_sql.runtime.support.deferred_columns import StepsT

EMPTY = "the value is empty"
NO_QUOTE = "a quoted field has no closing quote: each line is one record"
AFTER_QUOTE = "a quoted field has text after its closing quote"
MOST_FIELDS = 20_480
"""The maximum number of fields in a line. Spark's task would fail if it read a line with more fields."""

MORE_FIELDS = f"the value has more than {MOST_FIELDS} fields"
MORE_LINES = "the value has more than one line: each record is one line"
QUOTES_AND_NUL = "the value has quotes and a NUL character"

# Quantified groups are possessive. For other groups, Java's matcher uses recursion, and long text would overflow the
# stack.
_OPEN = r'"[^"]*+(?:""[^"]*+)*+'
_QUOTED = rf'{_OPEN}"'


def one_line(text: Column) -> Column:
    """Removes a line break at the end of a record. The record's writer may have added the line break, and Spark would
    read it as part of a value.

    A writer may cut a file between the two characters of a CRLF. The record then ends with a carriage return, which is
    removed too.
    """
    has_end = f.endswith(text, f.lit("\n")) | f.endswith(text, f.lit("\r"))
    return f.when(has_end, f.regexp_replace(text, r"(?:\r\n|\n|\r)\z", "")).otherwise(text)


def fault_of(line: Column, separator: str) -> Column:
    """The reason why ``line`` is not one line of CSV; NULL if it is one. ``line`` is the result of :func:`one_line`."""
    field, between = _patterns(separator)
    complete = rf"\A(?:{field}{between})*+"
    is_simple = ~(line.contains('"') | line.contains("\n") | line.contains("\r"))
    return (
        f.when(line == "", f.lit(EMPTY))
        .when(is_simple, f.lit(None).cast("string"))
        # Spark may drop a NUL character of a quoted field.
        .when(line.contains('"') & line.contains("\0"), f.lit(QUOTES_AND_NUL))
        .when(line.rlike(rf"{complete}{field}\z"), f.lit(None).cast("string"))
        .when(line.rlike(rf"{complete}{_OPEN}\z"), f.lit(NO_QUOTE))
        .when(line.rlike(rf"{complete}{_QUOTED}[^\r\n]"), f.lit(AFTER_QUOTE))
        .otherwise(f.lit(MORE_LINES))
    )


def readable(line: Column, separator: str) -> Column:
    """Returns ``line``, which is the result of :func:`one_line`; NULL if it has more than MOST_FIELDS fields.

    A line of fewer than MOST_FIELDS bytes cannot have too many fields, so its fields are not counted. For a longer
    line, the result is also NULL if :func:`fault_of` returns a reason, because the fields of such a line cannot be
    counted.
    """
    field, between = _patterns(separator)
    is_wide = line.rlike(rf"\A(?:{field}{between}){{{MOST_FIELDS}}}+")
    is_good = fault_of(line, separator).isNull() & ~is_wide
    return f.when(f.octet_length(line) < MOST_FIELDS, line).when(is_good, line)


def _patterns(separator: str) -> tuple[str, str]:
    """Returns the patterns that match a field and the separator."""
    between = re.escape(separator)
    bare = rf'(?!")[^{between}\r\n]*+'
    return rf"(?:{_QUOTED}|{bare})", between


def read_fields(records: StepsT, names: Sequence[str], separator: str, into: str, text: Column) -> StepsT:
    """Parses ``text`` as a line of CSV, and adds its fields as a new column ``into``, a struct of strings. ``names``
    are the names of the fields."""
    schema = ", ".join(f"`{name.replace('`', '``')}` STRING" for name in (*names, CORRUPT))
    # Spark interprets a backslash in a separator.
    written = separator.replace("\\", "\\\\")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT, "sep": written, "header": "false"}
    # A quote within a quoted field is doubled (RFC 4180). By default, Spark expects a backslash before such a quote.
    options["escape"] = '"'
    # By default, Spark also reads a field of two quotes as NULL.
    options["nullValue"] = NO_FIELD
    return records.withColumn(into, once(f.from_csv(text, schema, options)))

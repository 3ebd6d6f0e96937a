"""Recognizes records that are exactly one line of CSV, and reads the fields of these records. This module uses Spark
expressions.

Spark's ``from_csv`` never refuses a line because of wrong quotes. It reads ``"a"b`` with the quotes, drops a space
after the last quote, and reads a line break outside quotes as part of a value. :func:`fault_of` finds such records
according to the grammar of RFC 4180, so that ``from_csv`` only has to read well-formed lines.
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
"""The greatest number of fields that a line may have. If a line has more fields, the Spark task that reads the line
fails."""

MORE_FIELDS = f"the value has more than {MOST_FIELDS} fields"
MORE_LINES = "the value has more than one line: each record is one line"
QUOTES_AND_NUL = "the value has quotes and a NUL character"

# Quantified groups are possessive. For other groups, Java's matcher uses recursion, and long text would overflow the
# stack.
_OPEN = r'"[^"]*+(?:""[^"]*+)*+'
_QUOTED = rf'{_OPEN}"'


def one_line(text: Column) -> Column:
    """Removes the line break that a record's writer may have added. Spark would read the line break as part of a value.

    If the writer has cut a line between the two characters of a CRLF, the line ends with only a carriage return, which
    is removed too.
    """
    has_end = f.endswith(text, f.lit("\n")) | f.endswith(text, f.lit("\r"))
    return f.when(has_end, f.regexp_replace(text, r"(?:\r\n|\n|\r)\z", "")).otherwise(text)


def fault_of(line: Column, separator: str) -> Column:
    """The reason why the result of :func:`one_line` is not one line of CSV; NULL if the result is one line of CSV."""
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
    """The result of :func:`one_line`, or NULL if the line has more fields than Spark can read.

    Fields are counted only in a long line. The result is also NULL for a long line for which :func:`fault_of` returns a
    reason, because in this case it is unknown where the line's fields begin.
    """
    field, between = _patterns(separator)
    is_wide = line.rlike(rf"\A(?:{field}{between}){{{MOST_FIELDS}}}+")
    is_good = fault_of(line, separator).isNull() & ~is_wide
    return f.when(f.octet_length(line) < MOST_FIELDS, line).when(is_good, line)


def _patterns(separator: str) -> tuple[str, str]:
    """The patterns of a field and of the separator."""
    between = re.escape(separator)
    bare = rf'(?!")[^{between}\r\n]*+'
    return rf"(?:{_QUOTED}|{bare})", between


def read_fields(records: StepsT, names: Sequence[str], separator: str, into: str, text: Column) -> StepsT:
    """Adds the column ``into``, which contains the fields of a CSV line as text."""
    schema = ", ".join(f"`{name.replace('`', '``')}` STRING" for name in (*names, CORRUPT))
    # Spark interprets a backslash in a separator.
    written = separator.replace("\\", "\\\\")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT, "sep": written, "header": "false"}
    # A quote within a quoted field is doubled (RFC 4180). By default, Spark expects a backslash before such a quote.
    options["escape"] = '"'
    # By default, Spark also reads a field of two quotes as NULL.
    options["nullValue"] = NO_FIELD
    return records.withColumn(into, once(f.from_csv(text, schema, options)))

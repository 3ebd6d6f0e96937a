"""Defines the reserved words, and functions that quote names and strings."""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[a-z_][a-z0-9_$]*\Z")

RESERVED = frozenset({
    "ALL", "ANALYSE", "ANALYZE", "AND", "ANY", "ARRAY", "AS", "ASC", "ASYMMETRIC", "AUTHORIZATION", "BINARY", "BOTH",
    "CASE", "CAST", "CHECK", "COLLATE", "COLLATION", "COLUMN", "CONCURRENTLY", "CONSTRAINT", "CREATE", "CROSS",
    "DEFAULT", "DEFERRABLE", "DESC", "DISTINCT", "DO", "ELSE", "END", "EXCEPT", "FALSE", "FETCH", "FOR", "FOREIGN",
    "FREEZE", "FROM", "FULL", "GRANT", "GROUP", "HAVING", "ILIKE", "IN", "INITIALLY", "INNER", "INTERSECT", "INTO",
    "IS", "ISNULL", "JOIN", "LATERAL", "LEADING", "LEFT", "LIKE", "LIMIT", "NATURAL", "NOT", "NOTNULL", "NULL",
    "OFFSET", "ON", "ONLY", "OR", "ORDER", "OUTER", "OVERLAPS", "PLACING", "PRIMARY", "REFERENCES", "RETURNING",
    "RIGHT", "SELECT", "SIMILAR", "SOME", "SYMMETRIC", "TABLE", "TABLESAMPLE", "THEN", "TO", "TRAILING", "TRUE",
    "UNION", "UNIQUE", "USING", "VARIADIC", "VERBOSE", "WHEN", "WHERE", "WINDOW", "WITH",
})  # fmt: skip
"""PostgreSQL's reserved words. A reserved word can be a name only if it is quoted."""

_QUOTED = RESERVED | {
    "CASCADE", "CONNECTOR", "FIXED", "IF", "LOCAL", "NONE", "RESTRICT", "SECRET", "SESSION", "TIME", "WATERMARK",
}  # fmt: skip
"""The words that rw_sql quotes when it prints a name that equals one of them.

These are the reserved words, and words that begin an rw_sql clause at a place where a name is also allowed.
"""


def quoted(name: str) -> str:
    """Returns a name in the form for SQL, quoted only if necessary."""
    if _PLAIN.match(name) and name.upper() not in _QUOTED:
        return name
    return '"' + name.replace('"', '""') + '"'


PUBLIC = "public"
"""The schema of objects whose names are written without a schema."""


def sql_name(key: str) -> str:
    """Converts an object's name in the catalog to the form for SQL, such as ``orders`` or ``raw."Odd one"``."""
    return ".".join(quoted(part) for part in key_parts(key))


def key_parts(key: str) -> tuple[str, ...]:
    """Splits an object's name in the catalog into its parts: ``(orders,)`` for an object in the schema ``public``,
    ``(raw, orders)`` for an object in the schema ``raw``."""
    schema, dot, name = key.partition(".")
    return (schema, name) if dot and schema and name else (key,)


def quoted_for_spark(name: str) -> str:
    """Returns a name in Spark's quotes."""
    return "`" + name.replace("`", "``") + "`"


_PLAIN_IN_SPARK = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def spark_word(name: str) -> str:
    """Returns a name in the form for Spark's SQL, quoted only if necessary."""
    return name if _PLAIN_IN_SPARK.match(name) and name.upper() not in RESERVED else quoted_for_spark(name)


def spark_name(key: str) -> str:
    """Converts an object's name in the catalog to the form for a Spark query, such as ``orders`` or ``raw.`Odd one`
    ``."""
    return ".".join(map(spark_word, key_parts(key)))


def literal(text: str) -> str:
    """Returns the text as an SQL string in single quotes."""
    return "'" + text.replace("'", "''") + "'"

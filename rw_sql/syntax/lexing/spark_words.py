"""Lists the first words of Spark's and Delta Lake's statements, for suggestions and for checks without Spark."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

from rw_sql.errors import near_names
from rw_sql.syntax.lexing.first_words import BLANK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FIRST_WORDS = frozenset({
    "ADD", "ALTER", "ANALYZE", "BEGIN", "CACHE", "CALL", "CLEAR", "COMMENT", "CONVERT", "COPY", "CREATE", "DECLARE",
    "DELETE", "DESC", "DESCRIBE", "DFS", "DROP", "EXECUTE", "EXPLAIN", "FROM", "GENERATE", "GRANT", "IMPORT",
    "INSERT", "LIST", "LOAD", "MAP", "MERGE", "MSCK", "OPEN", "OPTIMIZE", "REDUCE", "REFRESH", "REORG", "REPAIR",
    "REPLACE", "RESET", "RESTORE", "REVOKE", "SELECT", "SET", "SHOW", "TABLE", "TRUNCATE", "UNCACHE", "UNLOCK",
    "UPDATE", "USE", "VACUUM", "VALUES", "WITH",
})  # fmt: skip

_KINDS = frozenset({
    "CATALOG", "DATABASE", "EXTERNAL", "FLOW", "FUNCTION", "GLOBAL", "INDEX", "LIVE", "MACRO",
    "NAMESPACE", "ROLE", "SCHEMA", "STREAMING", "TABLE", "TEMP", "TEMPORARY", "UNIQUE", "VARIABLE", "VIEW",
})  # fmt: skip
_SHOWN = frozenset({
    "ALL", "CACHED", "CATALOGS", "COLLATIONS", "COLUMNS", "COMPACTIONS", "CREATE", "CURRENT", "DATABASES", "EXPORT",
    "EXTERNAL", "FUNCTIONS", "GRANT", "INDEX", "INDEXES", "LOCKS", "NAMESPACES", "PARTITIONS", "PRINCIPALS",
    "PROCEDURES", "ROLE", "ROLES", "SCHEMAS", "SYSTEM", "TABLE", "TABLES", "TBLPROPERTIES", "TRANSACTIONS", "USER",
    "VIEWS",
})  # fmt: skip

SECOND_WORDS: Mapping[str, frozenset[str]] = {
    "CREATE": _KINDS | {"OR"},
    "DROP": _KINDS,
    "ALTER": _KINDS,
    "SHOW": _SHOWN,
}
"""Maps a first word to all words that can follow it. After a first word that is not a key here, any word is
accepted."""


CLAUSES = frozenset({
    "AND", "AS", "ASC", "BETWEEN", "BY", "CASE", "CROSS", "DESC", "DISTINCT", "ELSE", "END", "EXCEPT", "EXISTS",
    "FROM", "FULL", "GROUP", "HAVING", "INNER", "INTERSECT", "INTO", "JOIN", "LATERAL", "LEFT", "LIKE", "LIMIT",
    "NOT", "NULL", "OFFSET", "ON", "OR", "ORDER", "OUTER", "OVER", "PARTITION", "RIGHT", "SELECT", "SET", "TABLE",
    "THEN", "UNION", "USING", "VALUES", "WHEN", "WHERE", "WINDOW", "WITH",
})  # fmt: skip
"""The keywords of queries, for comparison with a mistyped word."""

_CLAUSE_STARTS = frozenset({
    "EXCEPT", "FROM", "GROUP", "HAVING", "INTERSECT", "JOIN", "LATERAL", "LIMIT", "OFFSET", "ORDER", "SELECT", "UNION",
    "VALUES", "WHERE", "WINDOW", "WITH",
})  # fmt: skip
_SHORTEST = 3
_VERY_NEAR = 0.75


def near_clause(word: str) -> str | None:
    """The query keyword that is most similar to a mistyped word; None if no keyword is similar, or if the word itself
    is a keyword."""
    if word.upper() in CLAUSES or len(word) < _SHORTEST:
        return None
    near = get_close_matches(word.upper(), sorted(CLAUSES), n=1, cutoff=_VERY_NEAR)
    return near[0] if near else None


def clause_expected(near: str, word: str) -> str:
    """The error message for ``word``, which is a misspelling of the query keyword ``near``."""
    what = "a clause" if near in _CLAUSE_STARTS else "a keyword"
    return f"expected {what} such as {near}, found: {word}"


def words_after(words: Sequence[str]) -> frozenset[str]:
    """The words that Spark and Delta Lake accept after a statement's first ``words``, which are in upper case.

    The result is empty if any word is accepted.
    """
    if words[:1] == ["EXPLAIN"]:
        words = words[1:]
    if not words:
        return FIRST_WORDS
    if words == ["SHOW", "CREATE"]:
        return frozenset({"TABLE"})
    if words == ["CREATE", "OR", "REPLACE"]:
        return _KINDS
    return SECOND_WORDS.get(words[0], frozenset()) if len(words) == 1 else frozenset()


_WORDS = re.compile(rf"{BLANK}*+(?:([A-Za-z]++)(?:{BLANK}++([A-Za-z]++)(?:{BLANK}++([A-Za-z]++))?+)?+)?+")


_FOLLOWING = re.compile(rf"{BLANK}++([A-Za-z]++)")
_EXPLAIN = re.compile(
    rf"{BLANK}*+EXPLAIN{BLANK}++(?:(?:EXTENDED|CODEGEN|COST|FORMATTED|LOGICAL){BLANK}++)?+", re.IGNORECASE
)


def could_be_sparks(text: str) -> bool:
    """True if the words can be the first words of a statement of Spark or Delta Lake. This function is used for checks
    without Spark."""
    found = _WORDS.match(text)
    if found is None or found[1] is None:
        return found is None or text[found.end() : found.end() + 1] in ("", "(")
    first, second, third = (word.upper() if word else None for word in found.groups())
    if first == "EXPLAIN":
        explained = _EXPLAIN.match(text)
        return explained is None or could_be_sparks(text[explained.end() :])
    if first == "BEGIN" and second is not None and third is None and near_names(second, ["UNSAFE"]):
        return False
    if first == "SHOW" and third == "FUNCTIONS":
        return True  # SHOW SYSTEM, USER or ALL FUNCTIONS
    if (first, second) == ("SHOW", "CREATE") or (first, second, third) == ("CREATE", "OR", "REPLACE"):
        following = _FOLLOWING.match(text, found.end())
        given = third if second == "CREATE" else following[1].upper() if following is not None else None
        return given is None or given in words_after(
            ["SHOW", "CREATE"] if second == "CREATE" else ["CREATE", "OR", "REPLACE"]
        )
    known = SECOND_WORDS.get(first or "")
    return first in FIRST_WORDS if known is None or second is None else second in known

"""Defines the words that suggest a secret, such as ``password``, and regular expressions that find the values after
these words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rw_sql.masking.lexemes import NEXT_STATEMENT, STARTS

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET_WORDS = (
    r"pass(?:w|phrase)|pwd|secret|token|credential|jaas|jwt|nkey|sas[._]?key|key[._]pem"
    r"|(?:private|client|account|api)[._]?key"
)
"""A pattern for words that suggest a secret. If the name of a property or variable contains such a word, its value may
be secret."""

TELLING_KEY = re.compile(rf"{SECRET_WORDS}|[._-](?:pass|pw)\Z|\A(?:seed|identified)\Z", re.IGNORECASE)
SECRET_KEYS = frozenset({"backend", "name", "path", "field", "auth_method", "mount", "addr", "namespace"})
"""The options of CREATE SECRET whose values are not secret."""

BETWEEN = frozenset({"OR", "REPLACE", "TEMP", "TEMPORARY", "IF", "NOT", "EXISTS", "A", "NEW"})
IF_EXISTS = frozenset({"IF", "NOT", "EXISTS"})
BEFORE_CONTENT = frozenset({"AS", "TO", "SET", "VALUE", "IDENTIFIED", "BY", "=", ":", ">"})
OTHER_CHANGES = frozenset({"RENAME", "OWNER", "SCHEMA"})
OF_QUERIES = frozenset({
    "SELECT", "FROM", "WHERE", "ON", "HAVING", "VALUES", "USING", "MERGE", "UPDATE", "DELETE", "INSERT", "WHEN",
})  # fmt: skip
HARMLESS = frozenset({"TRUE", "FALSE", "NULL", "DEFAULT"})
KEYWORDS = frozenset({
    *STARTS, *OF_QUERIES, *BETWEEN, *BEFORE_CONTENT, *OTHER_CHANGES, *HARMLESS, "CHECKPOINT", "COMMENT", "CONNECTION",
    "CONNECTOR", "EXPECTED", "FILE", "FOUND", "IDENTIFIER", "MATERIALIZED", "NAME", "OFFSET", "OFFSETS", "OMIT",
    "PASSWORD", "PROPERTY", "QUOTES", "REASON", "REQUIRES", "SECRET", "SINK", "SOURCE", "STATEMENT", "STRING",
    "SUBSCRIPTION", "TABLE", "TEXT", "TOPIC", "TYPE", "USER", "VIEW", "WITH", "WRITE",
})  # fmt: skip
"""Words that are never masked in messages, even if a secret consists of the same word."""

_SERVER = re.compile(r"(?:\A|[._])(?:servers?|registry|brokers?|url|uri|hostname|host|endpoint|address(?:es)?)\Z")

LITERAL = (
    r"(?:\$(?P<tag>\w*)\$.*?(?:\$(?P=tag)\$|\Z)"
    r"|[eE]'(?:[^'\\]|\\.|'')*(?:'|\Z)|'(?:[^']|'')*(?:'|\Z)|\"[^\"]*(?:\"|\Z))"
)
_STATEMENT = re.compile(r"\b(?:CREATE|ALTER)\s+SECRET\b", re.IGNORECASE)
_CONTENT = re.compile(
    rf"{_STATEMENT.pattern}(?:'(?:[^']|'')*+'|(?!{_STATEMENT.pattern})[^;'])*?\bAS\b\s*(?P<value>{LITERAL}|[^\s;]+)",
    re.IGNORECASE | re.DOTALL,
)
TELLING = re.compile(
    rf"(?<![\w.])(?:(?=[\w.]*(?:{SECRET_WORDS}))[\w.]++|seed)[\\\"'`]*+\s*[=:]*+\s*\\?(?P<value>{LITERAL})",
    re.IGNORECASE | re.DOTALL,
)
_SPLIT_WORDS = "|".join(r"[\s'\"`$*/-]{0,3}".join(word) for word in ("secret", "passw", "token"))
TAIL = re.compile(
    rf"(?:{SECRET_WORDS}|{_SPLIT_WORDS})[\w.]*+(?:\s+(?:IF\s+NOT\s+EXISTS\s+)?[\w.]++(?=\s+(?:WITH|AS)\b))?+"
    rf"(.*?)(?={NEXT_STATEMENT}|\Z)",
    re.IGNORECASE | re.DOTALL,
)
"""Matches the part of a statement that follows a word that suggests a secret. In CREATE SECRET, this part begins after
the secret's name."""

RUN = re.compile(
    r"[\w.]++(?=[\"'`]?\s*=(?!=|['\"`]\s|['\"`]*\s*(?:[,;)]|\Z)))|'(?:meta|env|file)'|(?P<run>[^\s,()=;]++)",
    re.IGNORECASE,
)
QUOTED_RUN = re.compile(r"(?<![^\s,()=;])(?P<run>(?=[eE]?['\"$])[^\s,()=;]++|[^\s,()=;]*['\"$](?!\w))")


def told_values(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Returns the spans of possible secrets between ``start`` and ``end``. Possible secrets are the literals after
    words that suggest a secret, and the values in CREATE SECRET and ALTER SECRET."""
    for match in TELLING.finditer(text, start, end):
        yield match.span("value")
    done = start
    for begun in _STATEMENT.finditer(text, start, end):
        content = _CONTENT.match(text, begun.start(), end) if begun.start() >= done else None
        if content is not None:
            yield content.span("value")
            done = content.end()


def names_server(key: str) -> bool:
    """True if ``key``, in lower case, is the name of a property whose value contains a server's address."""
    return _SERVER.search(key) is not None

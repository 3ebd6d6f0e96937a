"""Determines how the statements in the log affect tables. Parses only the first words and the names of a statement."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOKEN = re.compile(
    r"/\*!(?:M?[0-9]+)?|\*/|/\*.*?\*/|(?:--\s|#)[^\n]*|`(?:[^`]|``)*`|\"(?:[^\"\\]|\"\"|\\.)*\"|'(?:[^'\\]|''|\\.)*'"
    r"|[\w$\u0080-\uffff]+|\S",
    re.DOTALL,
)
_CHANGES = ("INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "MERGE", "SELECT", "DO", "CALL")
"""The first words of statements that the log may contain instead of rows; a SELECT may call a function that changes
rows."""

_NO_COLUMNS = ("INDEX", "KEY", "PRIMARY", "FOREIGN", "CONSTRAINT", "CHECK", "PARTITION", "PERIOD", "SYSTEM")
"""Words after DROP and RENAME in an ALTER TABLE that name something other than a column."""

Did = Literal[
    "truncated", "dropped", "renamed", "created", "altered", "emptied", "ignored", "versioned", "database", "changed"
]


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of a statement on a table. ``did`` is one of these words:

    ``truncated``, ``dropped``, ``renamed`` (to ``other``), ``created``, ``altered`` (the definition was changed;
    ``columns`` are the previous names of the columns that were dropped or renamed), ``emptied`` (rows that the log does
    not contain were added or removed, for example with a partition), ``ignored`` (the definition was changed with
    IGNORE, so that rows with duplicate keys were deleted), ``versioned`` (system versioning was added or dropped),
    ``database`` (the database was dropped with all its tables), ``changed`` (the log contains the statement instead of
    the changed rows; ``table`` is empty if unknown).
    """

    did: Did
    database: str
    table: str = ""
    other: tuple[str, str] | None = None
    columns: tuple[str, ...] = ()


def effects_of(text: str, database: str) -> tuple[Effect, ...]:
    """The effects of a statement whose default database is ``database``; empty if the statement changes no table."""
    return tuple(_effects(_Words(text), database))


class _Words:
    """The words of a statement without its comments. The server executes comments with a version (``/*!40000 … */``),
    so the words of these comments are included.
    """

    def __init__(self, text: str) -> None:
        self.words: list[str] = []
        for found in _TOKEN.finditer(text):
            word = found[0]
            if word == "*/" or word.startswith(("/*", "--", "#")):
                continue
            self.words.append(word)
            if len(self.words) > 4_000:
                break
        self.at = 0

    def peek(self, ahead: int = 0) -> str:
        """The word that comes ``ahead`` words after the next word, in upper case. The result is empty after the last
        word."""
        place = self.at + ahead
        return self.words[place].upper() if place < len(self.words) else ""

    def take(self, *words: str) -> bool:
        """Skips these words if they come next."""
        if all(self.peek(ahead) == word for ahead, word in enumerate(words)):
            self.at += len(words)
            return True
        return False

    def name(self, database: str) -> tuple[str, str]:
        """Takes the name of a table, and returns its database and name; ``database`` is the default database."""
        first = self._part()
        if self.peek() == ".":
            self.at += 1
            return first, self._part()
        return database, first

    def _part(self) -> str:
        word = self.words[self.at] if self.at < len(self.words) else ""
        self.at += 1
        return _unquoted(word)

    def rest(self) -> list[str]:
        """All words that have not been taken yet, in upper case."""
        return [word.upper() for word in self.words[self.at :]]


def _unquoted(word: str) -> str:
    if word[:1] in ("`", '"') and len(word) > 1:
        return word[1:-1].replace(word[0] * 2, word[0])
    return word


def _effects(words: _Words, database: str) -> Iterator[Effect]:
    if words.take("SET", "STATEMENT"):  # MariaDB: SET STATEMENT variable = value FOR …
        while words.peek() and not words.take("FOR"):
            words.at += 1
    if words.take("TRUNCATE"):
        words.take("TABLE")
        yield Effect("truncated", *words.name(database))
    elif words.take("DROP"):
        yield from _dropped(words, database)
    elif words.take("RENAME"):
        if words.take("TABLE") or words.take("TABLES"):
            _if_exists(words)
            yield from _renamed(words, database)
    elif words.take("CREATE"):
        yield from _created(words, database)
    elif words.take("ALTER"):
        yield from _altered(words, database)
    elif words.peek() in _CHANGES:
        yield Effect("changed", database)


def _if_exists(words: _Words) -> None:
    if not words.take("IF", "EXISTS"):
        words.take("IF", "NOT", "EXISTS")


def _dropped(words: _Words, database: str) -> Iterator[Effect]:
    if words.take("DATABASE") or words.take("SCHEMA"):
        _if_exists(words)
        yield Effect("database", words.name("")[1])
        return
    if words.peek() == "TEMPORARY" or not (words.take("TABLE") or words.take("TABLES")):
        if words.peek() in ("INDEX",):
            while words.peek() and not words.take("ON"):
                words.at += 1
            yield Effect("altered", *words.name(database))
        return
    _if_exists(words)
    while words.peek():
        yield Effect("dropped", *words.name(database))
        if not words.take(","):
            return


def _renamed(words: _Words, database: str) -> Iterator[Effect]:
    while words.peek():
        before = words.name(database)
        while words.peek() and not words.take("TO"):  # MariaDB: WAIT n, NOWAIT
            words.at += 1
        yield Effect("renamed", *before, other=words.name(database))
        if not words.take(","):
            return


def _created(words: _Words, database: str) -> Iterator[Effect]:
    words.take("OR", "REPLACE")
    if words.peek() == "TEMPORARY" or not words.take("TABLE"):
        return
    has_condition = words.peek() == "IF"
    _if_exists(words)
    name = words.name(database)
    if not has_condition:
        yield Effect("created", *name)


def _altered(words: _Words, database: str) -> Iterator[Effect]:
    words.take("ONLINE") or words.take("OFFLINE")
    is_ignoring = words.take("IGNORE")
    if not words.take("TABLE"):
        return
    _if_exists(words)
    database, table = words.name(database)
    if not words.take("NOWAIT") and words.take("WAIT"):  # MariaDB: WAIT n, NOWAIT
        words.at += 1
    rest = words.rest()
    pairs = set(pairwise(rest))
    if ("SYSTEM", "VERSIONING") in pairs:
        yield Effect("versioned", database, table)
        return
    parts = {(word, "PARTITION") for word in ("TRUNCATE", "DROP", "EXCHANGE", "IMPORT", "DISCARD", "CONVERT")}
    spaces = {("IMPORT", "TABLESPACE"), ("DISCARD", "TABLESPACE"), ("CONVERT", "TABLE")}
    if pairs & (parts | spaces):
        yield Effect("emptied", database, table)
        if ("EXCHANGE", "PARTITION") in pairs and ("WITH", "TABLE") in pairs:
            words.at += next(at for at, pair in enumerate(pairwise(rest)) if pair == ("WITH", "TABLE"))
            words.at += 2
            yield Effect("emptied", *words.name(database))
        return
    for at, word in enumerate(rest):
        if word == "RENAME" and (at == 0 or rest[at - 1] == ","):
            after = rest[at + 1 : at + 2]
            if after and after[0] in ("COLUMN", "INDEX", "KEY"):
                continue
            words.at += at + 1
            if not words.take("TO"):
                words.take("AS") or words.take("=")
            yield Effect("renamed", database, table, other=words.name(database))
            return
    if is_ignoring:
        yield Effect("ignored", database, table)
        return
    yield Effect("altered", database, table, columns=tuple(_columns_gone(words.words[words.at :])))


def _columns_gone(words: list[str]) -> Iterator[str]:
    """The previous names of the columns that the clauses of an ALTER TABLE drop or rename."""
    depth, start = 0, 0
    for at, word in enumerate([*words, ","]):
        depth += (word == "(") - (word == ")")
        if word == "," and not depth:
            yield from _column_gone(words[start:at])
            start = at + 1


def _column_gone(clause: list[str]) -> Iterator[str]:
    upper = [word.upper() for word in clause]
    if not upper or upper[0] not in ("DROP", "CHANGE", "RENAME"):
        return
    at = 1 + (upper[1:2] == ["COLUMN"])
    if at == 1 and (upper[0] == "RENAME" or (upper[1:2] and upper[1] in _NO_COLUMNS)):
        return
    at += 2 * (upper[at : at + 2] == ["IF", "EXISTS"])
    names = [_unquoted(word) for word in clause[at : at + 2]]
    if names and not (upper[0] == "CHANGE" and len(names) > 1 and names[0].lower() == names[1].lower()):
        yield names[0]

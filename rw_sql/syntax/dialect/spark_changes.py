"""Finds the names of the objects that a statement of Spark or Delta Lake would drop, write to, alter or create.

This module scans the text itself, because Spark's parser would need a call to the JVM for every statement. For most
statements that only read, the first word already shows that they change nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.errors import Span
from rw_sql.syntax.lexing.first_words import BLANK
from rw_sql.syntax.parsing.script import without_strings

if TYPE_CHECKING:
    from collections.abc import Iterator

DROP_DATABASE = "DROP DATABASE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A name or path that a statement would change. ``verb`` contains the statement's words before the name, such as
    ``DROP VIEW``.

    A path that is only a quoted text has one part. A path such as ``delta.`/path` `` has two parts: the format and the
    path.
    """

    verb: str
    parts: tuple[str, ...]
    span: Span
    is_path: bool = False


_PART = r"(?:`(?:[^`]|``)++`|\"(?:[^\"]|\"\")++\"|[\w$]++)"
_FIRST = re.compile(
    rf"""{BLANK}*+(?:(?P<changes>DROP|DELETE|UPDATE|MERGE|INSERT|TRUNCATE|ALTER|CREATE|REPLACE|OPTIMIZE|VACUUM|RESTORE
        |REORG|COPY|LOAD|MSCK|CACHE)
    | (?P<may_insert>WITH|FROM)
    | (?P<holds>BEGIN|EXECUTE)
    )\b""",
    re.VERBOSE | re.IGNORECASE,
)
_TARGET = re.compile(
    rf"""\b(?:
      (?P<drop>DROP{BLANK}++(?:VIEW|TABLE|DATABASE|SCHEMA|NAMESPACE)){BLANK}++(?:IF{BLANK}++EXISTS{BLANK}++)?+
    | (?P<create>CREATE{BLANK}++(?:OR{BLANK}++REPLACE{BLANK}++(?:TEMP(?:ORARY)?{BLANK}++(?=VIEW))?+)?+
        (?:(?:EXTERNAL|STREAMING){BLANK}++)?+(?:VIEW|TABLE)|REPLACE{BLANK}++TABLE){BLANK}++
        (?:IF{BLANK}++NOT{BLANK}++EXISTS{BLANK}++)?+
    | (?P<verb>DELETE{BLANK}++FROM|UPDATE|TRUNCATE{BLANK}++TABLE|ALTER{BLANK}++(?:TABLE|VIEW)|OPTIMIZE|VACUUM
        |RESTORE(?:{BLANK}++TABLE)?+|REORG{BLANK}++TABLE|COPY{BLANK}++INTO|MSCK{BLANK}++REPAIR{BLANK}++TABLE
        |CACHE{BLANK}++(?:LAZY{BLANK}++)?+TABLE(?!{BLANK}++{_PART}{BLANK}++AS\b)
      ){BLANK}++
    | (?P<index>CREATE{BLANK}++INDEX){BLANK}++(?:IF{BLANK}++NOT{BLANK}++EXISTS{BLANK}++)?+
        (?:{_PART}{BLANK}++)?ON{BLANK}++(?:TABLE{BLANK}++)?+
    | (?P<into>MERGE|INSERT|LOAD)\b(?:{BLANK}++(?:WITH{BLANK}++SCHEMA{BLANK}++EVOLUTION|DATA|LOCAL|INPATH|'[^']*'))*+
        {BLANK}++(?:INTO|OVERWRITE)\b(?:{BLANK}++(?:INTO|LOCAL)\b)?+(?:{BLANK}++(?:TABLE|DIRECTORY)\b)?+{BLANK}*+
    )
    (?:IDENTIFIER{BLANK}*+\({BLANK}*+\\?+(?P<mark>['"])(?P<quoted>[^'"\\]*+)\\?+(?P=mark){BLANK}*+\)
      |'(?P<path>[^'\\]*+)'
      |(?P<name>{_PART}(?:{BLANK}*+\.{BLANK}*+{_PART})*+))""",
    re.VERBOSE | re.IGNORECASE,
)
_PARTS = re.compile(rf"{BLANK}++|\.|(?P<part>{_PART})")
_INSERT = re.compile(r"\bINSERT\b", re.IGNORECASE)


def changed_names(text: str) -> Iterator[Changed]:
    """The names that a Spark statement would change; empty if the statement only reads."""
    first = _FIRST.match(text)
    if first is None:
        return
    if first["changes"]:
        found = _TARGET.match(text, first.start("changes"))
        if found is not None:
            yield _changed(text, found)
    elif first["holds"]:
        # The text is a block of several statements, or a statement that contains another statement in a string, so the
        # whole text is searched.
        yield from (_changed(text, found) for found in _TARGET.finditer(text, first.start("holds")))
    elif _INSERT.search(text):
        told = without_strings(text)
        yield from (_changed(text, found) for found in _TARGET.finditer(told) if found["into"])


def _changed(text: str, found: re.Match[str]) -> Changed:
    head = found["drop"] or found["create"] or found["index"] or found["verb"] or found["into"]
    verb = re.sub(rf"{BLANK}++", " ", head, flags=re.VERBOSE).upper()
    name = next(group for group in ("quoted", "path", "name") if found[group] is not None)
    start, end = found.span(name)
    line_start = text.rfind("\n", 0, start) + 1
    span = Span(start, end, text.count("\n", 0, start) + 1, start - line_start + 1)
    if verb in ("DROP SCHEMA", "DROP NAMESPACE"):
        verb = DROP_DATABASE
    parts = (found["path"],) if name == "path" else _split(found[name])
    return Changed(verb=verb, parts=parts, span=span, is_path=name == "path" or (len(parts) == 2 and "/" in parts[1]))


def _split(name: str) -> tuple[str, ...]:
    parts = (found["part"] for found in _PARTS.finditer(name) if found["part"])
    return tuple(part[1:-1].replace(part[0] * 2, part[0]) if part[0] in '`"' else part for part in parts)

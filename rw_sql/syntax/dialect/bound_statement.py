"""A Spark statement with the arguments of the call to ``spark.sql``. The arguments may contain the names of the
statement's objects, as in ``IDENTIFIER(:name)``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rw_sql.syntax.dialect.markers import Edit, bare, edited, marker_edits, without_fields
from rw_sql.syntax.lexing.first_words import BLANK
from rw_sql.syntax.lexing.identifiers import spark_word
from rw_sql.syntax.lexing.tokens import span_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rw_sql.errors import Span

_CLAUSE = re.compile(r"\bIDENTIFIER\s*+\((?P<inside>[^()]*+)\)", re.IGNORECASE)
_PIECE = re.compile(
    rf"""{BLANK} | \|\|
    | (?P<raw>[rR](?:'[^']*+'|"[^"]*+"))
    | (?P<text>'(?:[^'\\]|\\.|'')*+'|"(?:[^"\\]|\\.|"")*+")
    | :{BLANK}*+(?P<named>[^\W\d]\w*+)
    | (?P<positional>\?)
    | \{{(?P<field>[^{{}}]*+)\}}""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)|''|\"\"", re.DOTALL)
_NAME = re.compile(r"\s*+(?:`(?:[^`]|``)++`|\w++)(?:\s*+\.\s*+(?:`(?:[^`]|``)++`|\w++))*+\s*+")
_PART = re.compile(r"`(?P<quoted>(?:[^`]|``)++)`|(?P<plain>\w++)")


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundStatement:
    """A Spark statement and its arguments.

    ``named`` is the statement with each clause ``IDENTIFIER(…)`` replaced by the name that the clause denotes, if this
    name is known. ``args`` are the arguments for the markers that remain in ``named``. ``complete`` is ``named`` with
    literals in place of these markers (see :func:`rw_sql.syntax.dialect.markers.with_values`).
    """

    text: str
    named: str
    args: Any
    complete: str
    edits: tuple[Edit, ...]

    def place(self, span: Span) -> Span:
        """Converts a range in ``complete`` to the corresponding range in ``text``."""
        return span_of(self.text, self._place(span.start, is_end=False), self._place(span.end, is_end=True))

    def _place(self, at: int, *, is_end: bool) -> int:
        shift = 0
        for edit in self.edits:
            start = edit.start + shift
            end = start + len(edit.text)
            if at < start or (at == start and is_end):
                break
            if at < end or (at == end and is_end):
                return edit.end if is_end else edit.start
            shift = end - edit.end
        return at - shift


def bound_statement(text: str, args: Any = None, fields: Mapping[str, object] | None = None) -> BoundStatement:
    """Binds a statement to the arguments ``args`` and the keyword arguments ``fields`` of a call to ``spark.sql``."""
    known = args if isinstance(args, dict | list) else None
    clauses = list(_clauses(text, known, fields or {})) if "identifier" in text.casefold() else []
    markers = [edit for edit in marker_edits(text, known) if not any(c.start <= edit.start < c.end for c in clauses)]
    edits = tuple(sorted((*clauses, *markers), key=lambda edit: edit.start))
    return BoundStatement(
        text=text,
        named=edited(text, clauses),
        args=_left(text, known, clauses) if clauses and known else args,
        complete=edited(without_fields(text), edits),
        edits=edits,
    )


def _clauses(
    text: str, args: Mapping[str, object] | list[object] | None, fields: Mapping[str, object]
) -> Iterator[Edit]:
    """Returns the edits that replace each clause ``IDENTIFIER(…)`` with the name that the clause denotes, if this name
    is known without Spark."""
    shown = bare(text)
    for found in _CLAUSE.finditer(shown):
        value = _value(text, *found.span("inside"), shown, args, fields)
        if value is None or _NAME.fullmatch(value) is None:
            continue
        parts = [part["plain"] or part["quoted"].replace("``", "`") for part in _PART.finditer(value)]
        name = ".".join(map(spark_word, parts))
        if fields and ("{" in name or "}" in name):
            continue  # Python would read the braces in the name as a field.
        is_joined = re.match(r"\w", text[found.end() :]) is not None
        yield Edit(found.start(), found.end(), name + " " * is_joined)


def _value(
    text: str,
    start: int,
    end: int,
    shown: str,
    args: Mapping[str, object] | list[object] | None,
    fields: Mapping[str, object],
) -> str | None:
    """The value of an expression of strings and markers, joined with ``||``; None for any other expression."""
    parts: list[object] = []
    at = start
    while at < end:
        piece = _PIECE.match(text, at, end)
        if piece is None:
            return None
        match piece.lastgroup:
            case "raw":
                parts.append(piece["raw"][2:-1])
            case "text":
                parts.append(_plain(piece["text"]))
            case "named":
                parts.append(args.get(piece["named"]) if isinstance(args, dict) else None)
            case "positional":
                number = shown.count("?", 0, at)
                parts.append(args[number] if isinstance(args, list) and number < len(args) else None)
            case "field":
                parts.append(fields.get(piece["field"]))
            case _:
                pass
        at = piece.end()
    strings = [part for part in parts if isinstance(part, str)]
    return "".join(strings) if len(strings) == len(parts) else None


def _plain(literal: str) -> str | None:
    """The value of a string literal; None if the literal escapes a letter, a digit, ``_`` or ``%``, because names need
    no such escape."""
    mark, inside = literal[0], literal[1:-1]
    if any(found[1] and (found[1].isalnum() or found[1] in "_%") for found in _ESCAPE.finditer(inside)):
        return None
    return _ESCAPE.sub(lambda found: found[1] or (mark if found[0] == mark * 2 else found[0]), inside)


def _left(text: str, args: dict[str, object] | list[object], clauses: list[Edit]) -> dict[str, object] | list[object]:
    """The arguments of the markers that are outside the replaced ``IDENTIFIER(…)`` clauses."""
    shown = bare(text)
    if isinstance(args, list):
        used = {
            shown.count("?", 0, at) for clause in clauses for at in range(clause.start, clause.end) if shown[at] == "?"
        }
        return [value for number, value in enumerate(args) if number not in used]
    inside = {found for clause in clauses for found in _names(shown[clause.start : clause.end])}
    outside = _names(edited(shown, [Edit(clause.start, clause.end, " ") for clause in clauses]))
    return {name: value for name, value in args.items() if name not in inside - outside}


def _names(text: str) -> set[str]:
    return set(re.findall(r":\s*([^\W\d]\w*+)", text))

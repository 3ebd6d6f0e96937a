"""Suggests the right statement if a statement names an object of the wrong kind, such as ``DROP SINK`` for a source."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rw_sql.errors import SqlError
from rw_sql.metastore.records import SourceRecord
from rw_sql.model.object_lookup import spoken
from rw_sql.syntax import parse_statement, render
from rw_sql.syntax.lexing.identifiers import sql_name
from rw_sql.syntax.parsing.unsupported import unsupported

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import ObjectRecord
    from rw_sql.model.object_lookup import OtherKindError
    from rw_sql.syntax.statements import Statement

_LONGEST = 120
_CONSENT = re.compile(r"'|\b(?:ALLOW|CASCADE|REASON|VALIDATE)\b")
"""Parts of a statement that a hint must not repeat: quoted strings may be secrets, and words of consent must be the
user's own decision. A hint shortens a statement that contains one of these parts."""


def with_the_right_statement(error: OtherKindError, statement: Statement, snapshot: Snapshot) -> OtherKindError:
    """Returns the error. If the object's actual kind has an equivalent statement, this statement becomes the error's
    hint."""
    if error.is_completed:  # the lowering of an inner statement has already set the hint
        return error
    error.is_completed = True
    text = " ".join(render(statement).split())
    instead = _of_its_kind(error, text) or _of_its_source(error, text, snapshot)
    if instead is not None:
        error.hint = instead
    return error


def _of_its_kind(error: OtherKindError, text: str) -> str | None:
    wanted, found = spoken(error.wanted).upper(), spoken(error.other.kind).upper()
    place = rf"\b{wanted}(?P<between> (?:IF EXISTS )?(?:\w+\.)?{re.escape(sql_name(error.other.name))}(?!\w))"
    instead, count = re.subn(place, rf"{found}\g<between>", text, count=1)
    return _shortened(instead, error.other.name) if count and _is_meant(instead) else None


def _is_meant(text: str) -> bool:
    try:
        return unsupported(parse_statement(text)) is None
    except SqlError:
        return False


def _of_its_source(error: OtherKindError, text: str, snapshot: Snapshot) -> str | None:
    """Returns the statement in which the object's name is replaced with the name of the only source that the object
    reads, directly or through other objects."""
    if error.wanted != "source":
        return None
    name, sources = error.other.name, sources_below(snapshot, error.other)
    if len(sources) == 1:
        source = sql_name(sources[0])
        instead = re.sub(rf"(?<!\w){re.escape(sql_name(name))}(?!\w)", lambda _: source, text, count=1)
        return f'{_shortened(instead, sources[0])}: "{name}" reads that source'
    return f'"{name}" reads the sources {", ".join(sources)}' if sources else None


def sources_below(snapshot: Snapshot, record: ObjectRecord) -> list[str]:
    """The names of the sources that an object reads, directly or through other objects."""
    found: dict[int, ObjectRecord] = {}
    left = list(getattr(record, "inputs", ()))
    while left:
        other = snapshot.get(left.pop())
        if other is not None and other.id not in found:
            found[other.id] = other
            left += getattr(other, "inputs", ())
    return sorted(other.name for other in found.values() if isinstance(other, SourceRecord))


def _shortened(text: str, name: str) -> str:
    """A statement for a hint.

    A long statement is shortened: it ends after the object's name. A statement with a string or a word of consent
    (ALLOW, CASCADE) is shortened too, because hints never repeat strings and words of consent.
    """
    if len(text) <= _LONGEST and not _CONSENT.search(text):
        return text
    place = re.search(rf"(?<!\w){re.escape(sql_name(name))}(?!\w)", text)
    return f"{text[: place.end()]} …" if place is not None else text[:_LONGEST]

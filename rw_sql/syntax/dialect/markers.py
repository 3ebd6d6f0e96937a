"""Handles markers: the places ``:name``, ``?`` and ``{name}`` in a Spark statement that receive arguments of
``spark.sql``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from rw_sql.syntax.parsing.script import without_strings

if TYPE_CHECKING:
    from collections.abc import Sequence

_QUOTED = re.compile(r"`(?:[^`]|``)*+`")
_NAMED = re.compile(r"(?<![\w:)\]]):(?P<name>[^\W\d]\w*+)")
_POSITIONAL = re.compile(r"\?")
_FORMATTED = re.compile(r"\{[^{}]*+\}")


def without_fields(text: str) -> str:
    """Returns the statement with each ``{name}`` outside strings replaced by a word of equal length."""
    if "{" not in text:
        return text
    for found in _FORMATTED.finditer(bare(text)):
        text = text[: found.start()] + "_" * len(found[0]) + text[found.end() :]
    return text


def with_values(text: str, args: Mapping[str, object] | Sequence[object] | None) -> str:
    """Returns the statement with literals in place of its markers, for a parser that does not get the arguments.

    Text values are inserted unchanged, because they may name a relation, as in ``IDENTIFIER(:name)``. Other values
    become NULL.
    """
    return edited(without_fields(text), marker_edits(text, args))


class Edit(NamedTuple):
    """An edit of a statement: a text that replaces the range ``[start, end)``."""

    start: int
    end: int
    text: str


def edited(text: str, edits: Sequence[Edit]) -> str:
    """Returns the statement after the edits. The edits must be in ascending order of position."""
    for edit in reversed(edits):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def marker_edits(text: str, args: Mapping[str, object] | Sequence[object] | None) -> list[Edit]:
    """The edits that :func:`with_values` makes."""
    if not args:
        return []
    shown = bare(text)
    if isinstance(args, Mapping):
        found = [match for match in _NAMED.finditer(shown) if match["name"] in args]
        values = [args[match["name"]] for match in found]
    else:
        found = list(_POSITIONAL.finditer(shown))
        values = [*args, *[None] * len(found)][: len(found)]
    return [Edit(*match.span(), _literal(value)) for match, value in zip(found, values, strict=True)]


def bare(text: str) -> str:
    """Returns the statement with strings, comments and quoted names replaced by spaces. The text's length does not
    change."""
    return _QUOTED.sub(lambda found: " " * len(found[0]), without_strings(text))


def _literal(value: object) -> str:
    if not isinstance(value, str):
        return "NULL"
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"

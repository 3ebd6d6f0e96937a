"""Masks the secrets of a statement in messages that quote the statement."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from rw_sql.masking.addresses import stars
from rw_sql.masking.finding import masked, secrets_in
from rw_sql.masking.refused import hidden_spans
from rw_sql.masking.telling import KEYWORDS

if TYPE_CHECKING:
    from collections.abc import Collection

_DOLLAR_QUOTED = re.compile(r"\$(?P<tag>\w*)\$(?P<content>.*)\$(?P=tag)\$", re.DOTALL)
_QUOTE = re.compile(r"['\"`$]+")
_LONGEST_TOLD = 1000
"""The maximum length of a hidden span that is searched for in messages. Compiling the pattern of a much longer text
takes seconds."""

_SHORTEST_CONTENT = 4
_SHORTEST_UNQUOTED = 8
_KEPT = 4


def without_secrets_of(statement: str, message: str, *, plain: Collection[str] | None = None) -> str:
    """Returns ``message``, which is about ``statement``, with asterisks in place of the statement's secrets.

    A word is not replaced if it is a keyword, or if the statement also contains it outside its secrets. If ``plain`` is
    given, asterisks also replace the texts that :func:`masked` hides when it gets this ``plain``.
    """
    keys = None if plain is None else frozenset(plain)

    def hide(found: re.Match[str]) -> str:
        text = found[0]
        is_shown = text.upper() in KEYWORDS or re.search(_word(text, "i"), masked(statement, plain=keys)) is not None
        return text if is_shown else stars(text)

    pattern = _told_secrets(statement, keys)
    return message if pattern is None else pattern.sub(hide, message)


@lru_cache(maxsize=_KEPT)
def _told_secrets(statement: str, plain: frozenset[str] | None) -> re.Pattern[str] | None:
    """Returns a pattern that finds the secrets of a statement in messages about the statement; None if the statement
    has no secret."""
    patterns: dict[str, str] = {}
    found = secrets_in(statement)
    for start, end in hidden_spans(statement, plain, with_comments=False) if plain is not None else ():
        raw = statement[start:end]
        content = raw.strip("'\"`$;")
        if len(raw) > _LONGEST_TOLD or not any(character.isalnum() for character in content):
            continue
        if content == raw:
            if len(raw) >= _SHORTEST_CONTENT or any(character.isdigit() for character in raw):
                patterns[raw] = _word(raw, "i")
            continue
        patterns |= {form: re.escape(form) for form in (raw, f"'{content}'")}
        pieces = (piece for piece in _QUOTE.split(content) if len(piece) >= _SHORTEST_CONTENT)
        patterns |= {piece: _word(piece) for piece in pieces}
    for start, end in found.told:
        raw = statement[start:end]
        if len(raw) < 2 or not any(character.isalnum() for character in raw):
            continue
        content = raw.strip("'\"`$;\\")
        # Messages may show an unquoted word in lower case.
        flags = "i" if content == raw else ""
        patterns[raw] = _word(raw, flags)
        if content != raw and len(content) >= _SHORTEST_CONTENT:
            tagged = _DOLLAR_QUOTED.fullmatch(raw)
            forms = (content, content.replace("''", "'"), tagged["content"] if tagged else "")
            patterns |= {form: _word(form) for form in forms if len(form) >= _SHORTEST_CONTENT}
    for start, end in found.compared:
        # The content of a literal may by chance be the name of a column, so the content alone is not always replaced.
        content = statement[start:end].strip("'\"")
        if content:
            patterns |= {form: re.escape(form) for form in (statement[start:end], f"'{content}'")}
        if len(content) >= _SHORTEST_UNQUOTED or any(character.isdigit() for character in content):
            # Spark shows the literals of an expression without quotes.
            patterns.setdefault(content, rf"(?<=[ (]){re.escape(content)}(?=[),\s]|\Z)")
    longest_first = sorted(patterns, key=len, reverse=True)
    return re.compile("|".join(patterns[form] for form in longest_first)) if patterns else None


def _word(form: str, flags: str = "") -> str:
    """A pattern for a text that is not part of a longer word."""
    before, after = r"(?<!\w)" if form[0].isalnum() else "", r"(?!\w)" if form[-1].isalnum() else ""
    return f"{before}(?{flags}:{re.escape(form)}){after}"

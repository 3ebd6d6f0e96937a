"""Splits the name of a database's table into its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def two_parts(table: str, quotes: str) -> tuple[str, str] | None:
    """The two parts of ``schema.table``, each of which may be in one of the ``quotes``; None if the text is not
    such a name. Within quotes, a doubled quote stands for one quote."""
    parts = list(_parts(table, quotes))
    return (parts[0], parts[1]) if len(parts) == 2 and all(parts) else None


def _parts(text: str, quotes: str) -> Iterator[str]:
    at = 0
    while at <= len(text):
        quote = text[at : at + 1]
        if quote and quote in quotes:
            made, at = "", at + 1
            while True:
                end = text.find(quote, at)
                if end < 0:
                    yield ""
                    return
                made += text[at:end]
                at = end + 1
                if text[at : at + 1] != quote:
                    break
                made += quote
                at += 1
            if at < len(text) and text[at] != ".":
                yield ""
                return
            yield made
        else:
            end = text.find(".", at)
            end = len(text) if end < 0 else end
            yield text[at:end].strip()
            at = end
        at += 1

"""Splits the name of a database table into its parts, and brings all spellings of a name into one form."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def two_parts(table: str, quotes: str) -> tuple[str, str] | None:
    """Returns the two parts of ``schema.table``; None if the text is not such a name. Each part may be enclosed in
    one of the quotation marks in ``quotes``. Inside the quotes, two quotation marks in a row stand for one."""
    parts = list(_parts(table, quotes))
    return (parts[0], parts[1]) if len(parts) == 2 and all(parts) else None


def plain_name(table: str, quotes: str) -> str:
    """Returns ``schema.table`` with quotes only around the parts that need them. Thus, all spellings of a name have
    the same plain name. The quotes are the first quotation mark in ``quotes``. A text that :func:`two_parts` cannot
    split is returned unchanged."""
    parts = two_parts(table, quotes)
    return table if parts is None else ".".join(_plain(part, quotes) for part in parts)


def _plain(part: str, quotes: str) -> str:
    if part == part.strip() and not any(each in part for each in f".{quotes}"):
        return part
    quote = quotes[0]
    return f"{quote}{part.replace(quote, quote * 2)}{quote}"


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

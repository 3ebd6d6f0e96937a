"""Extracts sentences, names and expressions from the messages of Spark's errors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_LONGEST_HINT = 240
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_BEHIND = re.compile(r"\s*(?:SQLSTATE: \w{5}|\n\n|\nJVM stacktrace|\n?== SQL|; line \d+ pos \d+|\(line \d+, pos \d+\))")
_SENTENCE_END = re.compile(r"(?<=[^.\s])\.\s+(?=[A-Z])")
_INTERNAL = re.compile(r"(?:[`\w]+\.)*`?(?P<name>_rw_\w+)`?(?:#\d+L?)?")
_ID = re.compile(r"(?<=[\w`])#\d+L?\b")
_EMPTY_ITEMS = re.compile(r"(?:(?<=[\[(])(?:,\s*)+)|,\s*(?=,|[\])])()")
_QUALIFIERS = re.compile(r"(?:(?:\w+|`[^`]+`)\.){2,}(?=[\w`])")
_LISTED = re.compile(r"(?:`(?:[^`]|``)+`\.?)+|[\w$]+(?:\.[\w$]+)*")
_NAME_PART = re.compile(r"`((?:[^`]|``)+)`|([^`.\s]+)")


def condensed(message: str, text: str = "") -> tuple[str, str | None]:
    """Returns the first sentence of Spark's message, and the rest of the message's first paragraph. Both texts are
    returned without query plans and without internal columns."""
    told = _CONDITION.sub("", message.strip())
    told = _BEHIND.split(told)[0]
    told = " ".join(_internal_names_out(told, text).split())
    sentences = _SENTENCE_END.split(told, maxsplit=1)
    first = sentences[0].strip().rstrip(".:; ")
    rest = sentences[1].strip() if len(sentences) > 1 else ""
    if first[:1].isupper() and first[1:2].islower():
        first = first[0].lower() + first[1:]
    return first or "Spark refuses the statement", _shortened(rest) or None


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_HINT else text[: _LONGEST_HINT - 2].rsplit(" ", 1)[0] + " …"


def _internal_names_out(message: str, text: str) -> str:
    """Removes the names of hidden columns from a message. A name that the statement's text contains is kept."""

    def keep(found: re.Match[str]) -> str:
        return found[0] if found["name"].lower() in text.lower() else ""

    return _ID.sub("", _EMPTY_ITEMS.sub(r"\1", _INTERNAL.sub(keep, message)))


def name_parts(name: str) -> tuple[str, ...]:
    """The parts of a name in a Spark message. Each part may be in backquotes."""
    return tuple((quoted or bare).replace("``", "`") for quoted, bare in _NAME_PART.findall(name))


def listed_names(names: str) -> list[str]:
    """The names in a message's list of names."""
    return _LISTED.findall(names)


def visible_names(names: Iterable[str]) -> list[str]:
    """The names without the names of hidden columns and without duplicates."""
    return [name for name in dict.fromkeys(names) if not name.lower().startswith("_rw_")]


def called_function(shown: str) -> str:
    """The name of the function that an expression in a message calls."""
    return expression_of(shown).partition("(")[0].lower()


def expression_of(shown: str) -> str:
    """An expression in a message, without surrounding quotes and without column ids."""
    plain = _ID.sub("", shown.strip())
    plain = plain[1:-1] if len(plain) > 1 and plain[0] == plain[-1] == '"' else plain
    plain = _QUALIFIERS.sub("", plain)
    return plain.replace("`", "") if re.fullmatch(r"[`\w.]+", plain) else plain

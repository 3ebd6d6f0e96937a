r"""Converts PostgreSQL's text of values that Spark cannot cast: arrays become JSON arrays, and amounts of money become
plain numbers.

Numbers and booleans in an array become bare JSON values, except NaN and infinities; every other element becomes a JSON
string with PostgreSQL's text of the element (for ``bytea``: ``\x…``). See PostgreSQL's documentation, "Array Input and
Output Syntax".
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_BOUNDS = re.compile(r"(?:\[[+-]?[0-9]+:[+-]?[0-9]+\])+=")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_BOOLEANS = {"t": "true", "f": "false"}
_MOST_DIMENSIONS = 6
"""The maximum number of array dimensions in PostgreSQL (MAXDIM)."""


def array_converter(delimiter: str, element: Callable[[str], str]) -> Callable[[str], str]:
    """Returns a function that converts an array's text to JSON, and raises ValueError if the text is not an array.

    ``element`` converts an element's text to JSON.
    """
    plain = re.compile(r'[^{}"\\' + re.escape(delimiter) + r"]+")

    def convert(text: str) -> str:
        found = _BOUNDS.match(text)
        at = found.end() if found else 0
        made: list[str] = []
        depth = 0
        size = len(text)
        while at < size:
            letter = text[at]
            if not depth and letter != "{":
                raise ValueError("no array")
            if letter == "{":
                made.append("[")
                depth += 1
                at += 1
            elif letter == "}":
                made.append("]")
                depth -= 1
                at += 1
            elif letter == delimiter:
                made.append(",")
                at += 1
            elif letter == '"':
                end = _end_of_quoted(text, at + 1)
                inner = text[at + 1 : end]
                made.append(element(re.sub(r"\\(.)", r"\1", inner, flags=re.DOTALL) if "\\" in inner else inner))
                at = end + 1
            else:
                bare = plain.match(text, at)
                if bare is None:
                    raise ValueError("no array")
                made.append("null" if bare[0] == "NULL" else element(bare[0]))
                at = bare.end()
            if not 0 <= depth <= _MOST_DIMENSIONS or (depth == 0 and at < size):
                raise ValueError("no array")
        if depth or not made:
            raise ValueError("no array")
        return "".join(made)

    return convert


def _end_of_quoted(text: str, at: int) -> int:
    while True:
        quote = text.find('"', at)
        if quote < 0:
            raise ValueError("no array")
        backslash = text.find("\\", at, quote)
        if backslash < 0:
            return quote
        at = backslash + 2


def bare_element(text: str) -> str:
    """A number as JSON. NaN and infinities become strings, which Spark reads correctly."""
    return text if _NUMBER.fullmatch(text) else json.dumps(text)


def boolean_element(text: str) -> str:
    """Returns ``t`` and ``f`` as JSON booleans."""
    return _BOOLEANS[text]


def text_element(text: str) -> str:
    """``text`` as a JSON string."""
    return json.dumps(text, ensure_ascii=False)


def money_converter(sample: str) -> Callable[[str], str]:
    """Returns a function that converts the text of a MONEY value to a number.

    ``sample`` is the server's text for the amount 1234567.89. This text depends on ``lc_monetary`` and shows the number
    of fractional digits.
    """
    fraction = max(0, sum(letter.isdigit() for letter in sample) - 7)

    def convert(text: str) -> str:
        digits = "".join(letter for letter in text if letter in "0123456789")
        if not digits:
            raise ValueError("no amount")
        sign = "-" if "-" in text or "(" in text else ""
        whole = int(digits)
        return f"{sign if whole else ''}{Decimal(whole).scaleb(-fraction):f}"

    return convert

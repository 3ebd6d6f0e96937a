"""Handles invisible characters. A byte-order mark at the start of the text is ignored. Any other invisible character
causes an error that names the character.

Invisible characters often come from editors or web pages. The message names the character, because the character itself
would be invisible in the message too.
"""

from __future__ import annotations

import unicodedata

from rw_sql.errors import SYNTAX_ERROR, Span, SqlError

BYTE_ORDER_MARK = "\ufeff"

INVISIBLE = (
    r"\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u034f\u061c\u17b4\u17b5\u180b-\u180f"
    r"\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb"
)
"""The control and format characters, in the form for the inside of a character class (``[…]``) of a regular expression.

Space characters of any width are excluded, because they separate words, as in Spark, and occur in stored queries.
"""

# Characters without a name in ``unicodedata``.
_CONTROLS = {"\x00": "NUL", "\x08": "BACKSPACE", "\x1b": "ESCAPE", "\x7f": "DELETE"}


def name_of(character: str) -> str:
    """Returns a character's name for messages, such as ``U+200B ZERO WIDTH SPACE``."""
    if character == BYTE_ORDER_MARK:
        name = "BYTE ORDER MARK"
    else:
        name = unicodedata.name(character, _CONTROLS.get(character, "CONTROL CHARACTER"))
    return f"U+{ord(character):04X} {name}"


def invisible_error(character: str, span: Span) -> SqlError:
    """The error for an invisible character between two tokens."""
    message = f"the invisible character {name_of(character)} is here"
    return SqlError(SYNTAX_ERROR, message, hint="delete the character", span=span)

"""Escapes control characters in text from upstreams. A terminal then does not execute them."""

from __future__ import annotations

import re

# The control characters of ISO 6429 except line feed and tab, and the characters that change the direction of writing.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Returns the text with its control characters, except line feed and tab, replaced by escapes such as ``\\x1b``.

    Characters that change the direction of writing are escaped too.

    If a record's value were printed unchanged, a terminal would execute the value's control sequences. A control
    sequence can clear the screen or overwrite earlier lines. psql escapes control characters in the same way.
    """
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text.replace("\r\n", "\n"))

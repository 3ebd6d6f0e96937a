"""Makes text from upstreams harmless for a terminal."""

from __future__ import annotations

import re

# The control characters of ISO 6429 except line feed and tab, and the characters that change the direction of writing.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Returns the text, in which each control character except line feed and tab is written as an escape such as
    ``\\x1b``.

    If control characters were printed unchanged, a terminal would execute the control sequences in a record's value.
    Such a sequence could clear the screen or replace the lines above. psql escapes control characters in the same way.
    """
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text.replace("\r\n", "\n"))

"""Compares subjects with wildcards. The wildcard ``*`` matches one part of a name, and ``>`` at the end matches one or
more further parts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


_APART = " \t\r\n\0"
"""The characters that a subject must not contain. They are the characters that separate words in NATS's protocol, and
NUL, which JetStream refuses."""


def is_valid(subject: str) -> bool:
    """True if a consumer can use the text as a subject filter."""
    parts = subject.split(".")
    return all(parts) and not any(letter in subject for letter in _APART) and ">" not in parts[:-1]


def is_covered(subject: str, other: str) -> bool:
    """True if ``other`` matches everything that ``subject`` matches."""
    ours, theirs = subject.split("."), other.split(".")
    for at, their in enumerate(theirs):
        if their == ">":
            return at < len(ours)
        if at >= len(ours) or ours[at] == ">" or their not in ("*", ours[at]):
            return False
    return len(ours) == len(theirs)


def common(one: str, other: str) -> str | None:
    """Returns the intersection of two subjects, which is a subject that matches exactly the names that both subjects
    match. Returns None if no name matches both subjects."""
    ours, theirs = one.split("."), other.split(".")
    found: list[str] = []
    for at, our in enumerate(ours):
        if at == len(theirs):
            return None
        their = theirs[at]
        if our == ">" or their == ">":
            return ".".join([*found, *(theirs[at:] if our == ">" else ours[at:])])
        if our != their and "*" not in (our, their):
            return None
        found.append(their if our == "*" else our)
    return ".".join(found) if len(ours) == len(theirs) else None


def least(subjects: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the subjects without duplicates, and without the subjects that another subject covers."""
    once = tuple(dict.fromkeys(subjects))
    return tuple(each for each in once if not any(other != each and is_covered(each, other) for other in once))


def matcher(subject: str) -> Callable[[str], object]:
    """A function that returns a truthy value for each name that the subject matches."""
    parts = {"*": r"[^.]+", ">": r".+"}
    return re.compile(r"\.".join(parts.get(part) or re.escape(part) for part in subject.split("."))).fullmatch

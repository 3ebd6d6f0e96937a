"""What there is to say of one statement of a script."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rw_sql.errors import SqlError

SPARK = "spark"
"""The kind of a statement that is Spark's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsafeNote:
    """What an unsafe statement needs so that it runs. ``switch`` is what turns unsafe operations on, None where the
    catalog has that on; ``accepts`` are the words that its ALLOW takes, ``allows`` those that it names."""

    switch: str | None
    accepts: tuple[str, ...]
    allows: tuple[str, ...]

    def describe(self) -> str:
        """The note as a line says it."""
        needs = [self.switch] if self.switch is not None else []
        lacking = [word for word in self.accepts if word not in self.allows]
        if lacking:
            words = " and ".join(lacking)
            needs.append(f"ALLOW {', '.join(lacking)} where its preview predicts {words} and --yes is to cover that")
        needs.append("a confirmation: of a person, --yes, or --confirm with the token of its refusal")
        return "unsafe: it needs " + "; ".join(needs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A statement, at ``[start, end)`` of its file's text, and what is wrong with it.

    ``kind`` are its words (``CREATE SOURCE``), or SPARK. ``unchecked`` is what only an upstream, Spark or the warehouse
    can tell; ``blocked_by`` are objects that it names and whose own statements have errors: what follows from these is
    not looked at.
    """

    file: str
    line: int
    column: int
    start: int
    end: int
    kind: str
    errors: tuple[SqlError, ...] = ()
    unchecked: tuple[str, ...] = ()
    blocked_by: tuple[str, ...] = ()
    unsafe: UnsafeNote | None = None

    @property
    def error(self) -> SqlError | None:
        """The first of its errors."""
        return self.errors[0] if self.errors else None


def kind_of(statement: object) -> str:
    """A statement's words: ``AlterSourceUnsafeSet`` is ALTER SOURCE UNSAFE SET."""
    return re.sub(r"(?<!^)(?=[A-Z])", " ", type(statement).__name__).upper()


def first_words(text: str) -> str:
    """The first two words of a text that does not parse."""
    bare = re.sub(r"--[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
    return " ".join(re.findall(r"[A-Za-z_]+", bare)[:2]).upper()

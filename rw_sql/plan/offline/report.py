"""Defines the report on one statement of a script."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rw_sql.errors import SqlError

SPARK = "spark"
"""The value of :attr:`Checked.kind` for a Spark statement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsafeNote:
    """The conditions under which an unsafe statement runs.

    ``switch`` is the statement that enables unsafe operations; None if the catalog already allows unsafe operations.
    ``accepts`` are the words that the ALLOW clause of the statement may contain, and ``allows`` are the words that it
    contains.
    """

    switch: str | None
    accepts: tuple[str, ...]
    allows: tuple[str, ...]

    def describe(self) -> str:
        """Returns the note as one line of text."""
        needs = [self.switch] if self.switch is not None else []
        lacking = [word for word in self.accepts if word not in self.allows]
        if lacking:
            words = " and ".join(lacking)
            needs.append(f"ALLOW {', '.join(lacking)} if its preview predicts {words} and you confirm with --yes")
        needs.append("a confirmation: by a person, by --yes, or by --confirm with the token of the refused statement")
        return "unsafe: it needs " + "; ".join(needs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A checked statement, with its errors. The statement is at ``[start, end)`` in the text of its file.

    ``kind`` contains the words that name the kind of the statement, such as ``CREATE SOURCE``, or is SPARK.
    ``unchecked`` are the facts that only an upstream, Spark or the warehouse can provide. ``blocked_by`` are the
    objects to which the statement refers and whose own statements have errors. An error of this statement is not
    reported if it may be a mere consequence of those errors.
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
        """The first error of the statement; None if the statement has no errors."""
        return self.errors[0] if self.errors else None


def kind_of(statement: object) -> str:
    """Returns the words that name the kind of a statement. The words are derived from the name of the statement's
    class. For an ``AlterSourceUnsafeSet``, the words are ALTER SOURCE UNSAFE SET."""
    return re.sub(r"(?<!^)(?=[A-Z])", " ", type(statement).__name__).upper()


def first_words(text: str) -> str:
    """The first two words of a statement that does not parse."""
    bare = re.sub(r"--[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
    return " ".join(re.findall(r"[A-Za-z_]+", bare)[:2]).upper()

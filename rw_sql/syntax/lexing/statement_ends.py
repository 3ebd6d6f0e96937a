"""Finds the ``;`` that ends a statement, which may be a block ``BEGIN … END`` of Spark's SQL scripting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.syntax.lexing.first_words import could_be_ours
from rw_sql.syntax.lexing.invisible import BYTE_ORDER_MARK
from rw_sql.syntax.lexing.lexemes import OURS, SPARKS, lexemes
from rw_sql.syntax.lexing.spark_words import FIRST_WORDS

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator

_COMPOUND = frozenset({"CASE", "FOR", "IF", "LOOP", "REPEAT", "WHILE"})
"""The statements of a block that end with END and their first word, such as END IF."""

_BEFORE_STATEMENT = frozenset({";", "BEGIN", "DO", "ELSE", "LOOP", "REPEAT", "THEN"})
_FIRST_IN_BLOCK = FIRST_WORDS | _COMPOUND | {"CLOSE", "END", "FETCH", "ITERATE", "LEAVE", "SIGNAL", "("}


class StatementEnd:
    """Reads the lexemes of one statement, and recognizes the ``;`` that ends it.

    A block begins with BEGIN and a word that begins one of Spark's statements, so BEGIN UNSAFE and BEGIN TRANSACTION
    begin no block. In a block, every statement ends with ``;``, and the END of the block follows such a ``;``.
    """

    __slots__ = ("_before", "_depth", "_has_handler", "_is_after_end", "_is_label", "_state")

    def __init__(self) -> None:
        self._state = "first"
        self._depth = 0
        self._before = ""
        self._is_label = self._is_after_end = self._has_handler = False

    @property
    def is_in_block(self) -> bool:
        """True between the BEGIN of a block and its END."""
        return self._depth > (1 if self._is_after_end else 0)

    def reads(self, match: re.Match[str], *, is_comment: bool) -> bool:
        """Reads the next lexeme; True if the statement ends with it."""
        if self._state == "plain":
            return match["end"] is not None
        word = match[0]
        if is_comment or word.isspace() or (self._state == "first" and word == BYTE_ORDER_MARK):
            return False
        word = word.upper()
        if self._state != "block":
            self._begin(word)
        else:
            self._read(word)
        self._before = word
        return match["end"] is not None and not self._depth

    def _begin(self, word: str) -> None:
        """Reads the first words, which decide whether the statement is a block."""
        if self._state == "first":
            self._state = "second" if word == "BEGIN" else "plain"
        elif self._state == "second" and word not in _FIRST_IN_BLOCK:
            self._state = "label" if word.isidentifier() else "plain"
        elif self._state == "second":
            self._state, self._depth = "block", 1
            self._read(word)
        elif word == ":":
            self._state, self._depth, self._is_label = "block", 1, True
        else:
            self._state = "plain"

    def _read(self, word: str) -> None:
        if self._is_after_end:
            # END IF, END CASE and the like end no block.
            self._is_after_end = False
            if word not in _COMPOUND:
                self._depth -= 1
        begins = self._before in _BEFORE_STATEMENT or (self._before == ":" and self._is_label)
        if word == "BEGIN" and (begins or self._has_handler):
            self._depth += 1
        elif word == "END" and self._before in (";", "BEGIN"):
            self._is_after_end = True
        self._has_handler = word != ";" and (self._has_handler or word == "HANDLER")
        if word != ":":
            self._is_label = begins and word.isidentifier() and word not in _FIRST_IN_BLOCK


def statement_lexemes(text: str, position: int) -> Iterator[tuple[re.Match[str], int, bool, bool]]:
    """The lexemes of the statement that begins at ``position``, up to the ``;`` that ends it: of each, the match of its
    beginning, the position of its end, whether it is a comment, and whether it ends the statement.

    The statement's first words decide which quoting rules apply.
    """
    statement = StatementEnd()
    pattern = OURS if could_be_ours(text[position : position + 4096]) else SPARKS
    for match, end, is_comment in lexemes(pattern, text, position):
        is_end = statement.reads(match, is_comment=is_comment)
        yield match, end, is_comment, is_end
        if is_end:
            return


def block_without_end(text: str) -> int | None:
    """The position of the BEGIN if a Spark statement is a block ``BEGIN … END`` whose END is missing; None for other
    statements."""
    statement = StatementEnd()
    begin = None
    for match, _, is_comment in lexemes(SPARKS, text, 0):
        statement.reads(match, is_comment=is_comment)
        if begin is None and match[0].upper() == "BEGIN":
            begin = match.start()
    return begin if statement.is_in_block else None

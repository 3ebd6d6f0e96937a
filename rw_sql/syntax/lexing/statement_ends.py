"""Finds the ``;`` that ends a statement. The statement may be a block ``BEGIN … END`` of Spark's SQL scripting."""

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
"""The first words of those statements inside a block that end with END and the statement's own first word, as IF ends
with END IF."""

_BEFORE_STATEMENT = frozenset({";", "BEGIN", "DO", "ELSE", "LOOP", "REPEAT", "THEN"})
_IN_CASE = frozenset({"ELSE", "THEN"})
_FIRST_IN_BLOCK = FIRST_WORDS | _COMPOUND | {"CLOSE", "END", "FETCH", "ITERATE", "LEAVE", "SIGNAL", "("}
_BEGIN_NOT = "BEGIN NOT"
"""The text that represents the two lexemes BEGIN and NOT, which begin a block if ATOMIC follows."""


class StatementEnd:
    """Reads the lexemes of one statement, and recognizes the ``;`` that ends the statement.

    A block begins with BEGIN NOT ATOMIC, or with BEGIN and a word that begins one of Spark's statements. BEGIN UNSAFE
    and BEGIN TRANSACTION therefore do not begin a block. In a block, every statement ends with ``;``, and the END of
    the block follows the ``;`` of the last statement.
    """

    __slots__ = ("_before", "_cases", "_depth", "_has_handler", "_is_after_end", "_is_label", "_state", "begins")

    def __init__(self) -> None:
        self._state = "first"
        self._depth = self._cases = 0
        self._before = ""
        self._is_label = self._is_after_end = self._has_handler = False
        self.begins = False
        """True if the latest lexeme, ignoring spaces and comments, begins a statement inside a block, or the label of
        such a statement."""

    @property
    def is_plain(self) -> bool:
        """True after the first words have shown that the statement is not a block."""
        return self._state == "plain"

    @property
    def is_in_block(self) -> bool:
        """True between the BEGIN of a block and its END."""
        return self._depth > (1 if self._is_after_end else 0)

    def reads(self, match: re.Match[str], *, is_comment: bool) -> bool:
        """Reads the next lexeme. Returns True if the statement ends with this lexeme."""
        if self._state == "plain":
            return match["end"] is not None
        word = match[0]
        if is_comment or word.isspace() or (self._state == "first" and word == BYTE_ORDER_MARK):
            return False
        word = word.upper()
        self.begins = False
        if self._state != "block":
            self._begin(word)
        else:
            self._read(word)
        return match["end"] is not None and not self._depth

    def _begin(self, word: str) -> None:
        """Reads the first words, which decide whether the statement is a block."""
        match self._state:
            case "first":
                self._state = "second" if word == "BEGIN" else "plain"
            case "second" if word == "NOT":
                self._state = "not"
            case "second" if word not in _FIRST_IN_BLOCK:
                self._state = "label" if _is_name(word) else "plain"
            case "second":
                self._state, self._depth = "block", 1
                self._read(word)
            case "not" if word == "ATOMIC":
                self._state, self._depth = "block", 1
                word = "BEGIN"
            case "label" if word == ":":
                self._state, self._depth, self._is_label = "block", 1, True
            case _:
                self._state = "plain"
        self._before = word

    def _read(self, word: str) -> None:
        if self._is_after_end:
            self._is_after_end = False
            if word in _COMPOUND:  # END IF, END CASE and the like do not end a block.
                return
            self._depth -= 1
        before = self._before
        begins = (before in _BEFORE_STATEMENT and not (self._cases and before in _IN_CASE)) or (
            before == ":" and self._is_label
        )
        if word == "BEGIN" and (begins or self._has_handler):
            self._depth += 1
        elif word == "END" and before in (";", "BEGIN"):
            self._is_after_end = True
        elif word == "END":
            self._cases -= self._cases > 0 and before != "."
        elif word == "CASE":
            self._cases += not begins and before != "."
        elif word == ";":
            self._cases = 0
        self._has_handler = word != ";" and (self._has_handler or word == "HANDLER")
        if word != ":":
            self._is_label = begins and _is_name(word) and word not in _FIRST_IN_BLOCK
        self.begins = begins
        if before == "BEGIN" and word == "NOT":
            word = _BEGIN_NOT
        elif before == _BEGIN_NOT and word == "ATOMIC":
            word = "BEGIN"
        self._before = word


def _is_name(word: str) -> bool:
    """True if the lexeme is a name. The name may be quoted."""
    return word[0] in '`"' or ((word[0].isalnum() or word[0] == "_") and not word.isdecimal())


def statement_lexemes(text: str, position: int) -> Iterator[tuple[re.Match[str], int, bool, bool]]:
    """Returns the lexemes of the statement that begins at ``position``, up to the ``;`` that ends the statement. Each
    element has four values: the match of the regular expression at the beginning of the lexeme, the position of the
    lexeme's end, whether the lexeme is a comment, and whether the lexeme ends the statement.

    The statement's first words decide whether the quoting rules of rw_sql or of Spark apply.
    """
    statement = StatementEnd()
    pattern = OURS if could_be_ours(text[position : position + 4096]) else SPARKS
    for match, end, is_comment in lexemes(pattern, text, position):
        is_end = statement.reads(match, is_comment=is_comment)
        yield match, end, is_comment, is_end
        if is_end:
            return


def starts_in_block(text: str) -> Iterator[int]:
    """Returns the positions at which the statements of a block ``BEGIN … END`` of Spark begin. The statements in inner
    blocks, in IF, in CASE and in loops are included. For a statement that is not a block, the result is empty. If a
    statement has a label, the position is that of the statement, not of the label."""
    statement = StatementEnd()
    begin = None
    for match, _, is_comment in lexemes(SPARKS, text, 0):
        if is_comment or match[0].isspace():
            continue
        statement.reads(match, is_comment=False)
        if statement.is_plain:
            return
        if begin is not None and match[0] != ":":
            yield begin
        begin = match.start() if statement.begins else None


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

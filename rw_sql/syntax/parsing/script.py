"""Splits and parses scripts. A script consists of one or more statements that are separated by ``;``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.errors import SYNTAX_ERROR, Span, SqlError
from rw_sql.syntax.lexing.first_words import BLANK
from rw_sql.syntax.lexing.invisible import BYTE_ORDER_MARK, INVISIBLE, invisible_error
from rw_sql.syntax.lexing.lexemes import SPARKS, lexemes
from rw_sql.syntax.lexing.statement_ends import block_without_end, statement_lexemes
from rw_sql.syntax.lexing.tokens import (
    END,
    PUNCTUATION,
    Token,
    end_of_comment,
    scan,
    span_of,
    unclosed_comment,
    unterminated,
)
from rw_sql.syntax.parsing.parser import Parser
from rw_sql.syntax.statements.common import Statement

if TYPE_CHECKING:
    from collections.abc import Iterator


def parse_script(text: str, file: str | None = None) -> tuple[Statement, ...]:
    """All statements of a script, in order. Empty statements are skipped.

    Raises SqlError for the first invalid statement, with its position in the script and ``file``.
    """
    try:
        tokens = scan(text)
        return tuple(_parse(text, tokens, first, last) for first, last in _segments(tokens))
    except SqlError as error:
        error.hides_literals = True
        raise error.located(text, file)  # noqa: B904 - the same error, with its position


def parse(text: str) -> tuple[Statement, ...]:
    """All statements of ``text``, in order. Raises SqlError."""
    return parse_script(text)


def parse_statement(text: str) -> Statement:
    """Returns the single statement of ``text``. A ``;`` and comments may follow the statement. Raises SqlError."""
    try:
        tokens = scan(text)
        segments = list(_segments(tokens))
        if not segments:
            raise SqlError(
                SYNTAX_ERROR,
                "the text contains no statement",
                span=tokens[-1].span,
                hint="write a statement, such as SHOW SOURCES",
            )
        if len(segments) > 1:
            second = tokens[segments[1][0]]
            raise SqlError(
                SYNTAX_ERROR,
                "the text contains more than one statement",
                span=second.span,
                hint="run the statements one by one, or as a script",
            )
        return _parse(text, tokens, *segments[0])
    except SqlError as error:
        error.hides_literals = True
        raise error.located(text)  # noqa: B904 - the same error, with its position


def _segments(tokens: list[Token]) -> Iterator[tuple[int, int]]:
    first = 0
    for at, token in enumerate(tokens):
        if token.kind == END or (token.kind == PUNCTUATION and token.text == ";"):
            if at > first:
                yield first, at
            first = at + 1


def _parse(text: str, tokens: list[Token], first: int, last: int) -> Statement:
    statement = Parser(text, tokens, first, last).parse()
    start = tokens[first]
    # No other code has the new statement yet, so the statement is modified in place, which is cheaper than a copy.
    object.__setattr__(statement, "span", Span(start.start, tokens[last - 1].end, start.line, start.column))
    assert isinstance(statement, Statement)
    return statement


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptStatement:
    """One statement of a script, which is a statement of rw_sql or of Spark. The fields contain the statement's text,
    without ``;``, and the text's position in the script."""

    text: str
    start: int
    line: int
    column: int

    def locate(self, error: SqlError, script: str, file: str | None = None) -> SqlError:
        """Changes an error's position from the statement to the script. If the error has not been located in a text
        before, asterisks replace the secrets of the statement and of the script in the error's message and hint."""
        if error.span is not None:
            is_located = error.text is not None
            error.located(self.text)
            if not is_located:
                error.text = None  # moved_into then also hides the secrets of the script.
            error.moved_into(script, self.start, self.line, self.column, file)
            error.statement_range = error.statement_range or (self.start, self.start + len(self.text))
            return error
        error.located(script)
        error.text, error.file = script, file
        return error


_CLOSED = re.compile(
    r"""[rR]'[^']*+'|[rR]"[^"]*+"|'(?:[^'\\]|\\.|'')*+'|"(?:[^"\\]|\\.|"")*+"|`(?:[^`]|``)*+`""", re.DOTALL
)
_INVISIBLE = re.compile(f"[{INVISIBLE}]")
_FREE_TEXT = re.compile(rf"{BLANK}*+(?:ADD|LIST|RESET|SET)\b", re.IGNORECASE)
_WIDEST_STRING = 20


def split_script(text: str) -> tuple[ScriptStatement, ...]:
    """Splits a script into its statements of rw_sql and Spark, without parsing these statements.

    A ``;`` in a string, a quoted name, a comment, dollar quotes or a block ``BEGIN … END`` of Spark does not end a
    statement. The first words of a statement decide which quoting rules apply. Pieces that contain only comments, and a
    byte-order mark before a statement, are skipped. This function never raises an error. An unterminated token or block
    extends to the end of the script, and the parser reports the error later. To make this report possible, an
    unterminated comment is kept as part of a statement, or as a separate statement.
    """
    found: list[ScriptStatement] = []
    start = counted = 0
    line = 1
    while start < len(text):
        end, first, last = _piece(text, start)
        if first is not None:
            line_start = text.rfind("\n", 0, first) + 1
            line_start += text[line_start] == BYTE_ORDER_MARK  # Editors do not count this mark as a column.
            line += text.count("\n", counted, first)
            counted = first
            found.append(ScriptStatement(text=text[first:last], start=first, line=line, column=first - line_start + 1))
        start = end + 1
    return tuple(found)


def _piece(text: str, start: int) -> tuple[int, int | None, int]:
    """Returns the end of the statement that starts at ``start`` (the position of its ``;``), and the statement's range.
    The range excludes surrounding white space and comments, but includes an unterminated comment."""
    first, last = None, start
    for match, end, is_comment, is_end in statement_lexemes(text, start):
        if is_end:
            return match.start(), first, last
        is_mark = first is None and match[0] == BYTE_ORDER_MARK
        is_open = end == len(text) and bool(match["block"]) and end_of_comment(text, match.start()) < 0
        if is_open or (not is_comment and not is_mark and not match[0].isspace()):
            first = match.start() if first is None else first
            last = end
    return len(text), first, last


def without_strings(text: str) -> str:
    """Returns a Spark statement with its strings and comments replaced by spaces. The text's length does not change."""
    pieces = []
    for match, end, is_comment in lexemes(SPARKS, text, 0):
        hidden = is_comment or match[0][-1] in "'\"" or match["dollar"]
        pieces.append(" " * (end - match.start()) if hidden else match[0])
    return "".join(pieces)


def open_quote(text: str) -> Span | None:
    """The opening mark of the unterminated string, quoted name or comment in a Spark statement; None if there is
    none."""
    for match, end, _ in lexemes(SPARKS, text, 0):
        mark = re.match(r"[rR]?['\"`]|/\*", match[0])
        if mark is None or end < len(text):
            continue
        if end_of_comment(text, match.start()) < 0 if match["block"] else _CLOSED.fullmatch(match[0]) is None:
            return span_of(text, match.start() + len(mark[0]) - 1 - bool(match["block"]), match.start() + len(mark[0]))
    return None


def open_bracket(text: str) -> Span | None:
    """The last unmatched ``(`` in a Spark statement; None if there is also an unmatched ``)``."""
    opened: list[int] = []
    for match, _, _ in lexemes(SPARKS, text, 0):
        if match[0] == "(":
            opened.append(match.start())
        elif match[0] == ")":
            if not opened:
                return None
            opened.pop()
    return span_of(text, opened[-1], opened[-1] + 1) if opened else None


def unclosed_quote(text: str) -> SqlError | None:
    """The error for an unterminated string, quoted name or comment in a Spark statement; None if the statement contains
    no unterminated part."""
    quote = open_quote(text)
    if quote is None:
        return None
    mark = text[quote.start : quote.end]
    if mark == "/*":
        return unclosed_comment(text, quote.start)
    line = text[quote.start :].partition("\n")[0]
    shown = span_of(text, quote.start, quote.start + min(len(line), _WIDEST_STRING))
    return unterminated("quoted name" if mark == "`" else "string", mark, shown)


def unclosed_bracket(text: str) -> SqlError | None:
    """The error for an unmatched ``(`` in a Spark statement; None if there is no unmatched ``(``."""
    bracket = open_bracket(text)
    if bracket is None:
        return None
    clause = re.search(r"\b(?:FROM|WHERE|GROUP|HAVING|ORDER|LIMIT)\b", without_strings(text)[bracket.end :], re.I)
    is_query = re.match(r"\s*(?:SELECT|WITH|VALUES)\b", text[bracket.end :], re.I)
    hint = f"write ) before {clause[0].upper()}" if clause and not is_query else "write ) at the end"
    return SqlError(SYNTAX_ERROR, "this ( has no )", hint=hint, span=bracket)


def unclosed_block(text: str) -> SqlError | None:
    """The error for a block ``BEGIN … END`` of Spark whose END is missing; None for other statements."""
    begin = block_without_end(text)
    if begin is None:
        return None
    span = span_of(text, begin, begin + len("BEGIN"))
    return SqlError(SYNTAX_ERROR, "this BEGIN has no END", hint="write END; at the end", span=span)


def refuse_unclosed(text: str) -> None:
    """Raises SqlError if a string, quoted name, comment, ``(`` or block of a Spark statement does not end.

    Spark accepts an unclosed part in a statement that contains free text, such as a path. This function refuses an
    unclosed quote even in a statement with free text, because the following statements of the script would become part
    of the quoted text.
    """
    is_free = _FREE_TEXT.match(text) is not None
    error = unclosed_quote(text)
    if error is None and not is_free:
        error = unclosed_bracket(text) or unclosed_block(text)
    if error is not None and not (is_free and error.span is not None and ";" not in text[error.span.start :]):
        raise error


def refuse_invisible(text: str) -> None:
    """Raises SqlError at an invisible character outside strings and comments of a Spark statement.

    Spark refuses the character too, but Spark's message does not show it.
    """
    for match, _, _ in lexemes(SPARKS, text, 0):
        if _INVISIBLE.fullmatch(match[0]):
            at = match.start()
            column = at - text.rfind("\n", 0, at)
            raise invisible_error(match[0], Span(at, at + 1, text.count("\n", 0, at) + 1, column))

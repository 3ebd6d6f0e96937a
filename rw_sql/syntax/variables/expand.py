"""Replaces the variables of a script and executes its backslash commands, as psql does.

``:v`` stands for a variable's value, ``:'v'`` for the value as a string, ``:"v"`` for the value as a name, and
``:{?v}`` for TRUE if the variable is set. ``\\set``, ``\\unset``, ``\\i``, ``\\ir``, ``\\echo``, ``\\if``, ``\\elif``,
``\\else`` and ``\\endif`` must each be on a separate line. Inside strings, quoted names, comments and dollar quotes,
nothing is replaced.

If the caller requests it, references to an environment's variables (``${v}``) are replaced everywhere except in
comments. Comments that begin with ``rw:`` are instructions, such as ``-- rw: renamed from ${env}_orders``. In comments
that begin with ``rw:``, ``${v}`` is replaced too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from rw_sql.errors import INVALID_COMMAND, SqlError, near_names
from rw_sql.syntax.lexing.first_words import could_be_ours
from rw_sql.syntax.lexing.invisible import BYTE_ORDER_MARK
from rw_sql.syntax.lexing.lexemes import OURS, SPARKS, lexeme_at, lexemes
from rw_sql.syntax.lexing.statement_ends import StatementEnd
from rw_sql.syntax.variables.arguments import Argument, ArgumentError, read_arguments
from rw_sql.syntax.variables.references import (
    BRACED,
    NAME,
    Reference,
    Style,
    braced_value,
    reference_at,
    replacement,
)
from rw_sql.syntax.variables.source_map import Echo, Expanded, Fault, Origin, Piece

ReadFile = Callable[[str], str]
"""Returns the text of a file included by ``\\i``. Raises SqlError if the file cannot be read."""

COMMANDS = ("set", "unset", "i", "ir", "include", "include_relative", "echo", "if", "elif", "else", "endif")
_LONG_NAMES = {"include": "i", "include_relative": "ir"}
_MOST_INCLUDED = 32
_FIRST_WORDS = 4096
"""The number of characters at the beginning of a statement that decide whether the statement is for rw_sql or for
Spark."""

_NOTE = re.compile(r"--\s*rw:")
_COMMAND = re.compile(r"\\([^\s\\]*)")
_QUERY = re.compile(
    r"(?:EXPLAIN\s+)?CREATE\b(?:(?!\bAS\b).)*\b(?:MATERIALIZED\s+VIEW|SINK)\b.*?\bAS\b[\s(]*(?:SELECT|WITH|VALUES|FROM)\b",
    re.IGNORECASE | re.DOTALL,
)
"""Matches a CREATE statement up to the start of the view's or sink's query.

From the start of the query on, Spark's quoting rules apply, because Spark runs the query.
"""

_OPTIONS = re.compile(r"\bWITH\s*\(", re.IGNORECASE)
"""Matches the beginning of the options after a sink's query. From this position on, rw_sql's quoting rules apply again.
(A WITH inside the query is followed by a name.)"""

_TRUE, _FALSE = ("true", "on", "yes", "1"), ("false", "off", "no", "0")


def expand(
    text: str,
    variables: Mapping[str, str] | None = None,
    read_file: ReadFile | None = None,
    *,
    file: str | None = None,
    on_error: Callable[[SqlError], None] | None = None,
    braced: Mapping[str, str] | None = None,
) -> Expanded:
    """Replaces the variables and executes the backslash commands of a script.

    ``variables`` are the variables that are set in advance. The call does not modify this mapping. ``file`` is the file
    that contains the text. Paths of ``\\ir`` are relative to this file. ``braced`` are the values of ``${name}``. If
    ``braced`` is None, ``${name}`` is left unchanged. Raises SqlError, located in the file with the error. If
    ``on_error`` is given, this function receives the errors, no error is raised, and the faulty text is left unchanged
    (:attr:`Expanded.faults` has the positions).
    """
    expander = _Expander(_Scope(variables or {}), read_file, on_error, braced)
    expander.file(Origin(file=file, text=text), ())
    return expander.expanded()


def has_variables(text: str) -> bool:
    """True if a statement contains variables or backslash commands outside strings. The parser may refuse a statement
    with variables until they are replaced."""
    for match, end, is_comment in lexemes(OURS, text, 0):
        at, piece = match.start(), match[0]
        if is_comment:
            continue
        if (piece == ":" and reference_at(text, at) is not None) or (piece == "\\" and _begins_line(text, at)):
            return True
        if piece.endswith("$") and BRACED.match(text, end - 1):
            return True
    return False


class _Scope(Mapping[str, str]):
    """The current variables: the variables that are set in advance, with the changes that the script's ``\\set`` and
    ``\\unset`` have made so far."""

    def __init__(self, before: Mapping[str, str]) -> None:
        self._before = before
        self.own: dict[str, str | None] = {}

    def __getitem__(self, name: str) -> str:
        value = self.own[name] if name in self.own else self._before[name]
        if value is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return (name for name in dict.fromkeys([*self._before, *self.own]) if name in self)

    def __contains__(self, name: object) -> bool:
        return self.own[name] is not None if name in self.own else name in self._before

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(slots=True)
class _Branch:
    """One open ``\\if``: its position, and whether its current branch is active."""

    start: int
    end: int
    is_outer_read: bool
    is_read: bool = False
    was_read: bool = False
    has_else: bool = False


class _Expander:
    def __init__(
        self,
        scope: _Scope,
        read_file: ReadFile | None,
        on_error: Callable[[SqlError], None] | None,
        braced: Mapping[str, str] | None,
    ) -> None:
        self._scope = scope
        self._read_file = read_file
        self._on_error = on_error
        self._braced = braced
        self._out: list[str] = []
        self._size = 0
        self._pieces: list[Piece] = []
        self._echoes: list[Echo] = []
        self._faults: list[Fault] = []
        self._statement, self._statement_at = 0, 0
        self._is_open = False
        self._statement_end = StatementEnd()
        self._pattern: re.Pattern[str] | None = None

    def expanded(self) -> Expanded:
        return Expanded(
            text="".join(self._out),
            pieces=tuple(self._pieces),
            echoes=tuple(self._echoes),
            settings=dict(self._scope.own),
            faults=tuple(self._faults),
        )

    def file(self, origin: Origin, within: tuple[str, ...]) -> bool:
        """Expands one file and the files that it includes. Returns True if the last statement lacks a ``;``."""
        text = origin.text
        self._append("", origin, 0, 0, is_copied=True)
        branches: list[_Branch] = []
        is_apart = False
        at = copied = 0
        has_braced = self._braced is not None and "${" in text
        if not within and not has_braced and ":" not in text and "\\" not in text:
            at = len(text)
        while at < len(text):
            is_read = not branches or branches[-1].is_read
            match, end, is_comment = lexeme_at(self._rules(text, copied, is_apart=is_apart), text, at)
            piece = match[0]
            is_command = piece == "\\" and _begins_line(text, at)
            is_end = not is_command and self._statement_end.reads(match, is_comment=is_comment)
            if is_command:
                if is_read:
                    self._append(text[copied:at], origin, copied, at, is_copied=True)
                end = copied = _line_end(text, at)
                self._command(origin, at, end, branches, within)
                self._pattern, is_apart = None, False
                if not self._is_open:
                    self._statement_end = StatementEnd()
            elif not is_read:
                if is_end:
                    copied, self._pattern, is_apart = end, None, True
                    self._statement_end = StatementEnd()
            elif piece == "\\" and text.startswith(":", end):
                self._append(text[copied:at], origin, copied, at, is_copied=True)
                end = copied = end + 1
                self._append(":", origin, at, end, is_copied=False)
            elif piece == ":" and (reference := reference_at(text, at)) is not None:
                self._append(text[copied:at], origin, copied, at, is_copied=True)
                end = copied = reference.end
                self._refer(reference, origin)
            elif (
                has_braced
                and (not is_comment or _NOTE.match(piece))
                and (found := BRACED.search(text, at))
                and found.start() < end
            ):
                # A string or a quoted name is one piece, which may contain several variables. Outside quotes, a
                # variable may extend beyond the end of its piece.
                while found is not None and found.start() < end:
                    self._append(text[copied : found.start()], origin, copied, found.start(), is_copied=True)
                    copied = found.end()
                    self._refer_braced(found, origin)
                    end = max(end, copied)
                    found = BRACED.search(text, copied)
                self._is_open |= not is_comment
            elif is_end:
                self._append(text[copied:end], origin, copied, end, is_copied=True)
                copied = end
                self._begin_statement()
            elif not (is_comment or piece.isspace() or (piece == BYTE_ORDER_MARK and not self._is_open)):
                self._is_open = True
            at = end
        if branches:
            hint = r"\endif ends it, in the same file"
            error = SqlError(INVALID_COMMAND, r"\if starts here and does not end", hint=hint)
            self._fail(error, origin, branches[-1].start, branches[-1].end)
        else:
            self._append(text[copied:], origin, copied, len(text), is_copied=True)
        return self._is_open

    def _begin_statement(self) -> None:
        self._statement, self._statement_at = len(self._out), self._size
        self._is_open = False
        self._statement_end = StatementEnd()
        self._pattern = None

    def _so_far(self) -> str:
        return "".join(self._out[self._statement :])

    def _rules(self, text: str, copied: int, *, is_apart: bool) -> re.Pattern[str]:
        """The quoting rules of the current statement. If ``is_apart`` is true, the statement begins at ``copied`` in
        ``text``; otherwise, it began earlier and continues there."""
        if self._pattern is None:
            words = ("" if is_apart else self._so_far()) + text[copied : copied + _FIRST_WORDS]
            self._pattern = OURS if could_be_ours(words[:_FIRST_WORDS]) else SPARKS
        return self._pattern

    def _style(self) -> Style:
        """Returns the style in which values are quoted at the place in the text that the expansion has reached."""
        if self._pattern is SPARKS:
            return "spark"
        so_far = self._so_far()
        query = _QUERY.search(so_far)
        return "spark" if query is not None and not _OPTIONS.search(so_far, query.end()) else "ours"

    def _refer(self, reference: Reference, origin: Origin) -> None:
        try:
            value = replacement(reference, self._scope, self._style())
        except SqlError as error:
            self._fail(error, origin, reference.start, reference.end)
            value = origin.text[reference.start : reference.end]
        self._append(value, origin, reference.start, reference.end, is_copied=False)
        self._is_open = True
        if self._size - self._statement_at < _FIRST_WORDS:
            self._pattern = None  # a variable in the first words may decide whether the statement is rw_sql's

    def _refer_braced(self, found: re.Match[str], origin: Origin) -> None:
        assert self._braced is not None
        try:
            value = braced_value(found[1], self._braced)
        except SqlError as error:
            self._fail(error, origin, found.start(), found.end())
            value = found[0]
        self._append(value, origin, found.start(), found.end(), is_copied=False)

    def _append(self, text: str, origin: Origin, start: int, end: int, *, is_copied: bool) -> None:
        last = self._pieces[-1] if self._pieces else None
        goes_on = (
            is_copied
            and last is not None
            and last.is_copied
            and last.origin is origin
            and last.start + self._size - last.at == start
        )
        if last is None or (text and not goes_on):
            self._pieces.append(Piece(at=self._size, origin=origin, start=start, end=end, is_copied=is_copied))
        self._out.append(text)
        self._size += len(text)

    def _fail(self, error: SqlError, origin: Origin, start: int, end: int) -> None:
        error.span, error.text, error.file = origin.span(start, end), origin.text, origin.file
        if self._on_error is None:
            raise error
        self._faults.append(Fault(at=self._size, error=error))
        self._on_error(error)

    def _command(self, origin: Origin, at: int, end: int, branches: list[_Branch], within: tuple[str, ...]) -> None:
        """Executes the command on a line.

        In an inactive branch, only commands that begin or end a branch are executed.
        """
        found = _COMMAND.match(origin.text, at)
        assert found is not None
        name = _LONG_NAMES.get(found[1], found[1])
        is_read = not branches or branches[-1].is_read
        try:
            if name in ("if", "elif", "else", "endif"):
                self._branch(name, origin.text, at, end, found.end(), branches)
            elif is_read:
                arguments = self._arguments(origin.text, found.end(), end)
                self._carry_out(name, arguments, origin, at, end, within)
        except ArgumentError as wrong:
            self._fail(wrong.error, origin, wrong.start, wrong.end)

    def _arguments(self, text: str, start: int, end: int) -> list[Argument]:
        return read_arguments(text, start, end, self._scope)

    def _carry_out(
        self, name: str, arguments: list[Argument], origin: Origin, at: int, end: int, within: tuple[str, ...]
    ) -> None:
        match name:
            case "set":
                variable = _name_of(arguments, r"\set NAME VALUE", at, end)
                self._scope.own[variable] = "".join(argument.value for argument in arguments[1:])
            case "unset":
                self._scope.own[_name_of(arguments, r"\unset NAME", at, end)] = None
            case "echo":
                self._echoes.append(Echo(at=self._size, text=" ".join(argument.value for argument in arguments)))
            case "i" | "ir":
                if len(arguments) != 1:
                    raise _wrong(rf"\{name} takes one file", rf"\{name} 'a file.sql'", at, end)
                self._include(name, arguments[0], origin, at, end, within)
            case _:
                near = near_names(name, COMMANDS, most=1)
                listed = ", ".join(rf"\{known}" for known in COMMANDS if known not in _LONG_NAMES)
                hint = rf"did you mean \{near[0]}?" if near else f"the commands are {listed}"
                raise _wrong(rf"there is no command \{name}", hint, at, min(end, at + 1 + len(name)))

    def _include(
        self, name: str, argument: Argument, origin: Origin, at: int, end: int, within: tuple[str, ...]
    ) -> None:
        path = argument.value
        if name == "ir" and origin.file is not None:
            path = os.path.join(os.path.dirname(origin.file), path)
        if self._read_file is None:
            raise _wrong("files cannot be included here", "put the statements here", at, end)
        if self._is_open:
            raise _wrong(rf"\{name} is inside a statement", "end the statement before it with ;", at, end)
        files = within or ((os.path.abspath(origin.file),) if origin.file is not None else ())
        if os.path.abspath(path) in files or len(files) > _MOST_INCLUDED:
            raise _wrong(f'"{path}" includes itself', "remove one of the two", argument.start, argument.end)
        try:
            text = self._read_file(path)
        except SqlError as error:
            raise ArgumentError(error, argument.start, argument.end) from None
        if self.file(Origin(file=path, text=text), (*files, os.path.abspath(path))):
            self._append("\n;", origin, at, end, is_copied=False)
        self._begin_statement()

    def _branch(self, name: str, text: str, at: int, end: int, words: int, branches: list[_Branch]) -> None:
        if name == "if":
            is_outer_read = not branches or branches[-1].is_read
            branch = _Branch(start=at, end=end, is_outer_read=is_outer_read)
            branches.append(branch)
            if is_outer_read:
                branch.was_read = branch.is_read = self._is_true(text, at, words, end)
            return
        if not branches:
            raise _wrong(rf"\{name} has no \if before it", r"\if begins a branch", at, end)
        branch = branches[-1]
        if name == "endif":
            branches.pop()
            return
        if branch.has_else:
            raise _wrong(rf"\{name} comes after \else", r"\endif ends the branch", at, end)
        branch.has_else = name == "else"
        branch.is_read = False
        if branch.is_outer_read and not branch.was_read:
            branch.was_read = branch.is_read = name == "else" or self._is_true(text, at, words, end)

    def _is_true(self, text: str, at: int, words: int, end: int) -> bool:
        value = " ".join(argument.value for argument in self._arguments(text, words, end))
        for is_true, spellings in ((True, _TRUE), (False, _FALSE)):
            folded = value.lower()
            if folded and folded != "o" and any(spelling.startswith(folded) for spelling in spellings):
                return is_true
        raise _wrong(f'"{value}" is neither true nor false', r"\if true, or \if :{?variable}", at, end)


def _name_of(arguments: list[Argument], usage: str, at: int, end: int) -> str:
    if not arguments:
        raise _wrong("the command needs the name of a variable", usage, at, end)
    first = arguments[0]
    if not NAME.match(first.value):
        raise _wrong(
            f'"{first.value}" is not a valid name of a variable',
            "a name consists of letters, digits and _",
            first.start,
            first.end,
        )
    return first.value


def _wrong(message: str, hint: str, start: int, end: int) -> ArgumentError:
    return ArgumentError(SqlError(INVALID_COMMAND, message, hint=hint), start, end)


def _begins_line(text: str, at: int) -> bool:
    before = text[text.rfind("\n", 0, at) + 1 : at].removeprefix(BYTE_ORDER_MARK)
    return (not before or before.isspace()) and not text.startswith(":", at + 1)


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end

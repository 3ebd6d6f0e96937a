"""Handles backslash commands as in psql. The module finds the commands in the typed text, and maps each listing command
to its statement."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rw_sql.errors import INVALID_COMMAND, SqlError, near_names
from rw_sql.syntax.lexing.identifiers import literal
from rw_sql.syntax.lexing.statement_ends import statement_lexemes
from rw_sql.syntax.lexing.tokens import end_of_comment
from rw_sql.syntax.variables.expand import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Mapping

_COMMAND = re.compile(r"\\([A-Za-z]+\+?|[!?])[ \t]*([^\n]*)")
_OF_SCRIPTS = frozenset(COMMANDS)
"""Commands that are also available in scripts.

These commands are processed before statements are parsed (``rw_sql/syntax/variables``).
"""

LISTS: Mapping[str, str] = {
    "ds": "SHOW SOURCES",
    "dm": "SHOW MATERIALIZED VIEWS",
    "dt": "SHOW TABLES",
    "dk": "SHOW SINKS",
    "dc": "SHOW CONNECTIONS",
    "dj": "SHOW JOBS",
}
"""Commands that list objects. A pattern after the command selects objects whose name matches."""

HELP: tuple[tuple[str, str], ...] = (
    (r"\d [NAME]", "all objects, or the columns of one; \\d+ NAME adds its definition"),
    (r"\ds \dm \dt [PATTERN]", "sources, materialized views, tables with a connector; * and ? in a pattern"),
    (r"\dk \dc \dj [PATTERN]", "sinks, connections, jobs with their state and lag"),
    (r"\do [NAME]", "unsafe operations, of one object or of all"),
    (r"\dl [NAME]", "the lineage of one object or of all"),
    (r"\h [STATEMENT]", "the form of a statement, with an example"),
    (r"\g, \gx", "run the typed text, or the last statement again; \\gx prints one column per line"),
    (r"\watch [SECONDS]", "run the last statement every 2 seconds, or every SECONDS, until Ctrl-C"),
    (r"\e [FILE]", "edit the last statement, or a file, in $VISUAL or $EDITOR"),
    (r"\i FILE, \ir FILE", "run a file; \\ir is relative to the file that includes it"),
    (r"\o [FILE]", "write results to a file; without a name, to the terminal again"),
    (r"\x [on|off|auto]", "print each column on its own line: always, never, or if a table is too wide or tall"),
    (r"\timing [on|off]", "show how long statements take"),
    (r"\pager [on|off]", "show long results in $PAGER"),
    (r"\set NAME VALUE, \unset NAME", "set a variable, used as :NAME, :'NAME', :\"NAME\" in statements; unset it"),
    (r"\echo TEXT", "print a text"),
    (r"\c [WAREHOUSE]", "switch to another warehouse, or show the current one"),
    (r"\! [COMMAND]", "run a system command, or start a system shell"),
    (r"\? \q", "this list; exit"),
)
NAMES = tuple(sorted({*COMMANDS, *(name for usage, _ in HELP for name in re.findall(r"\\([a-z]+|[!?])", usage))}))
"""The names of all commands, without their backslash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of the typed text. The part consists of statements, or of one command with its argument. ``has_plus`` is
    True if the command's name ends in ``+``."""

    kind: Literal["statements", "command"]
    text: str
    name: str = ""
    has_plus: bool = False


def split_commands(text: str) -> tuple[Piece, ...]:
    """The pieces of the typed text, in order.

    A backslash inside a string, a quoted name or a comment does not begin a command. A command of scripts (see
    _OF_SCRIPTS) at the beginning of a line stays in the text of the statements.
    """
    pieces: list[Piece] = []
    start = at = 0
    while at < len(text):
        for match, end, _, is_end in statement_lexemes(text, at):
            at = end
            found = _COMMAND.match(text, match.start()) if match[0] == "\\" else None
            if found is not None and not (found[1] in _OF_SCRIPTS and _begins_line(text, match.start())):
                pieces += _statements(text, start, match.start())
                argument = found[2].strip() if found[1] == "!" else found[2].strip().removesuffix(";").rstrip()
                name = found[1].removesuffix("+")
                pieces.append(Piece(kind="command", text=argument, name=name, has_plus=found[1].endswith("+")))
                start = at = found.end()
                break
            if found is not None:  # the rest of the command's line, which may contain quotes
                at = found.end()
                break
            if is_end:
                break
    return (*pieces, *_statements(text, start, len(text)))


def _statements(text: str, start: int, end: int) -> list[Piece]:
    """Returns the part ``[start, end)`` of ``text`` as a list of one piece, with the line numbers of ``text``. The list
    is empty if the part is blank."""
    lines = "\n" * text.count("\n", 0, start)
    return [Piece(kind="statements", text=lines + text[start:end])] if text[start:end].strip() else []


def is_open(text: str) -> bool:
    """True if the text ends inside a statement, a string or a comment.

    A backslash command ends the statement before it.
    """
    at, is_inside = 0, False
    while at < len(text):
        for match, end, is_comment, is_end in statement_lexemes(text, at):
            at = end
            if match[0] == "\\" and (found := _COMMAND.match(text, match.start())) is not None:
                at, is_inside = found.end(), False
                break
            if is_end:
                is_inside = False
                break
            if match["block"] and end_of_comment(text, match.start()) < 0:
                return True
            is_inside = is_inside or not (is_comment or match[0].isspace())
    return is_inside


def _begins_line(text: str, at: int) -> bool:
    return not text[text.rfind("\n", 0, at) + 1 : at].strip()


def listing(name: str, pattern: str) -> str | None:
    """The statement that a listing command runs; None for other commands."""
    if name == "do":
        return f"SHOW UNSAFE OPERATIONS FOR {pattern}" if pattern else "SHOW UNSAFE OPERATIONS"
    if name == "dl":
        return f"SHOW LINEAGE OF {pattern}" if pattern else "SHOW LINEAGE"
    statement = LISTS.get(name)
    if statement is None or not pattern:
        return statement
    return f"{statement} LIKE {literal(_like(pattern))}"


def _like(pattern: str) -> str:
    return re.sub(r"[\\%_]", r"\\\g<0>", pattern).replace("*", "%").replace("?", "_")


def switched(argument: str, before: bool, usage: str) -> bool:
    """Returns the new value of a switch. An empty ``argument`` inverts the value ``before``. Raises SqlError
    INVALID_COMMAND if ``argument`` is neither empty, nor ``on``, nor ``off``."""
    match argument.lower():
        case "":
            return not before
        case "on":
            return True
        case "off":
            return False
        case other:
            raise SqlError(INVALID_COMMAND, f'"{other}" is neither on nor off', hint=usage)


def unknown(name: str) -> SqlError:
    """The error of a command that does not exist."""
    near = near_names(name, NAMES, most=1)
    hint = rf"did you mean \{near[0]}? \? lists all commands" if near else r"\? lists all commands"
    return SqlError(INVALID_COMMAND, rf"there is no command \{name}", hint=hint)

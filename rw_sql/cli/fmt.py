"""``rw-sql fmt``: writes statements in canonical form; comments and Spark's own statements stay unchanged."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rw_sql.cli.sql_files import files_of
from rw_sql.cli.text_input import read_exactly, unix_lines
from rw_sql.errors import SqlError
from rw_sql.model.parameters import SESSION_PARAMETERS
from rw_sql.plan.offline.pieces import parse_piece
from rw_sql.syntax import render, split_script
from rw_sql.syntax.lexing.tokens import has_comments
from rw_sql.syntax.variables.expand import has_variables

if TYPE_CHECKING:
    from rw_sql.syntax.statements import Statement


class NoCatalog:
    """The catalog for reading a file without a warehouse: it has no objects, and every parameter may be rw_sql's."""

    def has_object(self, name: object) -> bool:
        """Always False: a name alone makes no statement rw_sql's."""
        return False

    def has_parameter(self, name: str) -> bool:
        """True if the name is a parameter of rw_sql."""
        return name in SESSION_PARAMETERS


def format_text(text: str, file: str | None = None) -> str:
    """The formatted text of a file, with the file's line ends. Raises SqlError like :func:`format_script`."""
    plain = unix_lines(text)
    if plain == text:
        return format_script(text, file)
    # If all line ends of a file are alike, a statement that is split into several lines gets the same ones.
    for end in ("\r\n", "\r"):
        if plain.replace("\n", end) == text:
            return format_script(plain, file).replace("\n", end)
    return format_script(text, file)


def format_script(text: str, file: str | None = None) -> str:
    """The script with every rw_sql statement in canonical form. Formatting the result again changes nothing.

    Four parts stay unchanged: text between statements (a byte-order mark included), Spark's statements, statements with
    comments, and statements that parse only with the values of their variables. Raises SqlError for any other statement
    that does not parse and is not Spark's.
    """
    pieces: list[str] = []
    done = 0
    for part in split_script(text):
        pieces.append(text[done : part.start])
        try:
            pieces.append(_formatted(part.text))
        except SqlError as error:
            raise part.locate(error, text, file)  # noqa: B904 - the same error, located in the file
        done = part.start + len(part.text)
    return "".join(pieces) + text[done:]


def _formatted(text: str) -> str:
    try:
        statement = statement_of(text)
    except SqlError:
        if has_variables(text):
            return text
        raise
    return text if statement is None or has_comments(text) else render(statement)


def statement_of(text: str) -> Statement | None:
    """A script's statement, read without a warehouse; None if it is Spark's. Raises SqlError if neither reads it."""
    return parse_piece(text, NoCatalog())


def run_fmt(paths: list[str], *, check: bool = False) -> int:
    """Formats files in place (standard input to standard output); returns the exit status.

    With ``check`` nothing is written: the differences are printed, and the status is 1 if there are any. A file with an
    error stays unchanged, the error goes to standard error, and the status is 1.
    """
    status = 0
    for path in paths:
        try:
            before = read_exactly(path)
            after = format_text(before, path if path != "-" else None)
        except SqlError as error:
            sys.stderr.write(error.render() + "\n")
            status = 1
            continue
        if check:
            if after != before:
                status = 1
                sys.stdout.writelines(_difference(path, before, after))
        elif path == "-":
            sys.stdout.write(after)
        elif after != before:
            Path(path).write_bytes(after.encode())
    return status


def _difference(path: str, before: str, after: str) -> list[str]:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"{path} as it is", f"{path} formatted"
    )
    return [line if line.endswith("\n") else line + "\n" for line in lines]


def fmt_command(
    files: Annotated[
        list[str], typer.Argument(metavar="PATHS|-", help="SQL files, or folders of them; - is standard input.")
    ],
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit with 1 if a file would change.")] = False,
) -> None:
    """Rewrite the statements of SQL files in canonical form; for ``-``, write them to standard output. Needs no
    Spark."""
    raise typer.Exit(run_fmt(files_of(files), check=check))

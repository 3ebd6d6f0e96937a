"""``rw-sql fmt``: statements in canonical form, comments and Spark's own statements left as they are."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rw_sql.cli.sql_files import files_of
from rw_sql.errors import FILE_UNREADABLE, SqlError
from rw_sql.model.parameters import SESSION_PARAMETERS
from rw_sql.plan.offline.pieces import parse_piece
from rw_sql.runtime.support.text_files import decode_text
from rw_sql.syntax import render, split_script
from rw_sql.syntax.lexing.tokens import has_comments
from rw_sql.syntax.variables.expand import has_variables

if TYPE_CHECKING:
    from rw_sql.syntax.statements import Statement


class NoCatalog:
    """A file is read without a warehouse: no object is known, every parameter might be ours."""

    def has_object(self, name: object) -> bool:
        """Never: names alone make no statement ours."""
        return False

    def has_parameter(self, name: str) -> bool:
        """Whether it is one of ours."""
        return name in SESSION_PARAMETERS


def read_text(path: str) -> str:
    """A file's text, or standard input's for ``-``, each line ended by ``\\n``. Raises SqlError FILE_UNREADABLE."""
    return _unix(read_exactly(path))


def read_exactly(path: str) -> str:
    """A file's text, or standard input's for ``-``: byte-order mark and line ends as they are. Raises SqlError."""
    name = "standard input" if path == "-" else f'"{path}"'
    try:
        if path != "-":
            read = Path(path).read_bytes()
        elif (buffer := getattr(sys.stdin, "buffer", None)) is not None:
            read = buffer.read()
        else:
            read = sys.stdin.read().encode()
    except OSError as error:
        raise SqlError(FILE_UNREADABLE, f"cannot read {name}: {error.strerror}") from error
    return decode_text(read, name)


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def format_text(text: str, file: str | None = None) -> str:
    """A file's script formatted, with the line ends that the file has. Raises SqlError as :func:`format_script`."""
    plain = _unix(text)
    if plain == text:
        return format_script(text, file)
    # Where all line ends are alike those of a statement that is put on several lines are, too.
    for end in ("\r\n", "\r"):
        if plain.replace("\n", end) == text:
            return format_script(plain, file).replace("\n", end)
    return format_script(text, file)


def format_script(text: str, file: str | None = None) -> str:
    """The script with every statement of ours in canonical form. Formatting it again changes nothing.

    What stands between statements, a byte-order mark included, and statements that are Spark's, hold comments, or are
    statements only with the values of their variables, stays as it is written. Raises SqlError for any other statement
    that does not parse and is not Spark's.
    """
    pieces: list[str] = []
    done = 0
    for part in split_script(text):
        pieces.append(text[done : part.start])
        try:
            pieces.append(_formatted(part.text))
        except SqlError as error:
            raise part.locate(error, text, file)  # noqa: B904 - the same error, told where it stands
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
    """A script's statement read without a warehouse; None where it is Spark's. Raises SqlError where it is nobody's."""
    return parse_piece(text, NoCatalog())


def run_fmt(paths: list[str], *, check: bool = False) -> int:
    """Formats files in place (standard input to standard output); the exit status.

    With ``check`` nothing is written: the differences are printed and the status is 1 if there are any. A file with an
    error is left alone, its error goes to standard error, and the status is 1.
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
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit 1 if a file would change.")] = False,
) -> None:
    """Rewrite SQL files with their statements in canonical form; - goes to standard output. Needs no Spark."""
    raise typer.Exit(run_fmt(files_of(files), check=check))

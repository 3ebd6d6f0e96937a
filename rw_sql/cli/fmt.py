"""``rw-sql fmt``: statements in canonical form, comments and Spark's own statements left as they are."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path
from typing import Annotated

import typer

from rw_sql.errors import FILE_UNREADABLE, SqlError
from rw_sql.syntax import could_be_ours, render, route, split_script
from rw_sql.syntax.scan import has_comments


class NoCatalog:
    """A file is read without a warehouse: no object is known, every parameter might be ours."""

    def has_object(self, name: object) -> bool:
        """Never: names alone make no statement ours."""
        return False

    def has_parameter(self, name: str) -> bool:
        """Whether it looks like one of ours: Spark's are dotted."""
        return "." not in name


def read_text(path: str) -> str:
    """A file's text, or standard input's for ``-``. Raises SqlError FILE_UNREADABLE."""
    if path == "-":
        return sys.stdin.read()
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise SqlError(FILE_UNREADABLE, f'cannot read "{path}": {reason}') from error


def format_script(text: str, file: str | None = None) -> str:
    """The script with every statement of ours in canonical form. Formatting it again changes nothing.

    What stands between statements, and statements that are Spark's or hold comments, stays as it is written. Raises
    SqlError for a statement of ours that does not parse.
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
    statement = route(text, NoCatalog()) if could_be_ours(text) else None
    return text if statement is None or has_comments(text) else render(statement)


def run_fmt(paths: list[str], *, check: bool = False) -> int:
    """Formats files in place (standard input to standard output); the exit status.

    With ``check`` nothing is written: the differences are printed and the status is 1 if there are any. A file with an
    error is left alone, its error goes to standard error, and the status is 1.
    """
    status = 0
    for path in paths:
        try:
            before = read_text(path)
            after = format_script(before, path if path != "-" else None)
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
            Path(path).write_text(after, encoding="utf-8")
    return status


def _difference(path: str, before: str, after: str) -> list[str]:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"{path} as it is", f"{path} formatted"
    )
    return [line if line.endswith("\n") else line + "\n" for line in lines]


def fmt_command(
    files: Annotated[list[str], typer.Argument(metavar="FILES|-", help="SQL files; - is standard input.")],
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit 1 if a file would change.")] = False,
) -> None:
    """Rewrite SQL files with their statements in canonical form; - goes to standard output. Needs no Spark."""
    raise typer.Exit(run_fmt(files, check=check))

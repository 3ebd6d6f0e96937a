"""Implements ``rw-sql fmt``, which formats rw_sql's statements and queries.

The queries are Spark queries. Comments, and Spark statements other than queries, are left unchanged.
"""

from __future__ import annotations

import difflib
import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from rw_sql.cli.interface.exit_codes import DONE, FAILED, exit_status
from rw_sql.cli.interface.options import output_option, require_output
from rw_sql.cli.sql_files import files_of
from rw_sql.cli.text_input import read_exactly, replace_text, unix_lines
from rw_sql.errors import SqlError

if TYPE_CHECKING:
    from rw_sql.syntax.statements import Statement

OUTPUTS = ("text", "json")


class NoCatalog:
    """The catalog for reading a file without a warehouse. This catalog contains no objects, but all of rw_sql's
    parameters."""

    def has_object(self, name: object) -> bool:
        """Returns False. Without a catalog, rw_sql cannot recognize its own statements by the names of their
        objects."""
        return False

    def has_parameter(self, name: str) -> bool:
        """True if rw_sql has a parameter with this name."""
        from rw_sql.model.parameters import SESSION_PARAMETERS

        return name in SESSION_PARAMETERS


def format_text(text: str, file: str | None = None, *, is_canonical: bool = False) -> str:
    """Formats the text of a file and keeps its line breaks. Raises SqlError like :func:`format_script`."""
    plain = unix_lines(text)
    if plain == text:
        return format_script(text, file, is_canonical=is_canonical)
    # If all line breaks of a file are of the same kind, formatting adds line breaks of this kind.
    for end in ("\r\n", "\r"):
        if plain.replace("\n", end) == text:
            return format_script(plain, file, is_canonical=is_canonical).replace("\n", end)
    return format_script(text, file, is_canonical=is_canonical)


def format_script(text: str, file: str | None = None, *, is_canonical: bool = False) -> str:
    """Formats every rw_sql statement and every query of a script. Formatting the result again changes nothing.

    Comments keep their places, and types keep their spelling unless ``is_canonical`` is set. The following parts are
    left unchanged: text between statements (including a byte-order mark), Spark statements other than queries, and text
    that becomes a statement only when its variables are replaced. Raises SqlError for any other text that is neither a
    valid rw_sql statement nor a Spark statement.
    """
    from rw_sql.syntax import split_script

    pieces: list[str] = []
    done = 0
    for part in split_script(text):
        pieces.append(text[done : part.start])
        try:
            pieces.append(_formatted(part.text, is_canonical=is_canonical))
        except SqlError as error:
            raise part.locate(error, text, file)  # noqa: B904 - the same error, located in the file
        done = part.start + len(part.text)
    return "".join(pieces) + text[done:]


def _formatted(text: str, *, is_canonical: bool) -> str:
    from rw_sql.cli.formatting.statement import format_query, format_statement
    from rw_sql.syntax.variables.expand import has_variables

    try:
        statement = statement_of(text)
    except SqlError:
        if has_variables(text):
            return text
        raise
    if statement is not None:
        return format_statement(text, is_canonical=is_canonical)
    return text if has_variables(text) else format_query(text)


def statement_of(text: str) -> Statement | None:
    """Parses a statement of a script without a warehouse; returns None for a Spark statement. Raises SqlError for a
    text that is neither an rw_sql statement nor a Spark statement.
    """
    from rw_sql.plan.offline.pieces import parse_piece

    return parse_piece(text, NoCatalog())


def run_fmt(paths: list[str], *, check: bool = False, is_canonical: bool = False, output: str = "text") -> int:
    """Formats files in place. Text from standard input is formatted to standard output. Returns the exit status.

    If ``check`` is true, no file is written. The differences are printed, and the status is 1 if there are differences.
    If a file has an error, the file is left unchanged, and the error is printed to standard error. The status is then
    1, or 2 if no file could be read. If the output format is ``json``, one document is printed. For each file, the
    document contains the file's error, and whether the file was (or would be) changed.
    """
    statuses: set[int] = set()
    results: list[dict[str, object]] = []
    is_json = output == "json"
    for path in paths:
        try:
            before = read_exactly(path)
            after = format_text(before, path if path != "-" else None, is_canonical=is_canonical)
        except SqlError as error:
            sys.stderr.write(error.render() + "\n")
            results.append({"file": path, "is_changed": False, "error": error.render()})
            statuses.add(exit_status(error))
            continue
        results.append({"file": path, "is_changed": after != before, "error": None})
        statuses.add(FAILED if check and after != before else DONE)
        if is_json and path == "-" and not check:
            results[-1]["text"] = after
        elif check:
            if after != before and not is_json:
                sys.stdout.writelines(_difference(path, before, after))
        elif path == "-":
            sys.stdout.write(after)
        elif after != before:
            try:
                replace_text(path, after)
            except OSError as error:
                results[-1] = {"file": path, "is_changed": False, "error": f"cannot write: {error.strerror}"}
                sys.stderr.write(f'cannot write "{path}": {error.strerror}\n')
                statuses.add(FAILED)
    if is_json:
        sys.stdout.write(json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    statuses = statuses or {DONE}
    return statuses.pop() if len(statuses) == 1 else FAILED


def _difference(path: str, before: str, after: str) -> list[str]:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"{path} unformatted", f"{path} formatted"
    )
    return [line if line.endswith("\n") else line + "\n" for line in lines]


def fmt_command(
    files: Annotated[
        list[str], typer.Argument(metavar="PATHS|-", help="SQL files, or folders of them; - is standard input.")
    ],
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit with status 1 if a file would change.")
    ] = False,
    canonical: Annotated[
        bool,
        typer.Option(
            "--canonical", help="Write types with their canonical names, such as CHARACTER VARYING instead of VARCHAR."
        ),
    ] = False,
    output: Annotated[str, output_option(*OUTPUTS)] = "text",
) -> None:
    """Rewrite the statements of SQL files in canonical form. The file name ``-`` stands for standard input; the
    statements from standard input are written to standard output. Does not start Spark."""
    require_output(output, OUTPUTS)
    raise typer.Exit(run_fmt(files_of(files), check=check, is_canonical=canonical, output=output))

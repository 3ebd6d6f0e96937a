"""``rw-sql check``: are these files' statements right? Without Spark, Java or a warehouse."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rw_sql.cli.fmt import read_text, statement_of
from rw_sql.errors import INVALID_OPTION, SqlError
from rw_sql.syntax import split_script
from rw_sql.syntax.parsing.unsupported import unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rw_sql.syntax import ScriptStatement


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What is to say of one statement. ``kind`` is its words (``CREATE SOURCE``), ``spark`` if it is Spark's own."""

    file: str
    line: int
    column: int
    kind: str
    error: SqlError | None = None

    def as_json(self) -> dict[str, Any]:
        """The one JSON object that ``--format json`` prints for it."""
        error = self.error
        return {
            "file": self.file,
            "line": error.line if error is not None and error.line is not None else self.line,
            "column": error.column if error is not None and error.column is not None else self.column,
            "kind": self.kind,
            "ok": error is None,
            "code": error.code if error is not None else None,
            "message": error.message if error is not None else None,
            "hint": error.hint if error is not None else None,
        }


def check_script(text: str, file: str) -> Iterator[Checked]:
    """Every statement of a script, in order, with its error if it has one."""
    for part in split_script(text):
        kind, error = _check(text, part, file)
        yield Checked(file=file, line=part.line, column=part.column, kind=kind, error=error)


def _check(script: str, part: ScriptStatement, file: str) -> tuple[str, SqlError | None]:
    """A statement's kind, and what is wrong with it."""
    try:
        statement = statement_of(part.text)
    except SqlError as error:
        return _first_words(part.text), part.locate(error, script, file)
    if statement is None:
        return "spark", None
    refusal = unsupported(statement)
    return kind_of(statement), part.locate(refusal, script, file) if refusal is not None else None


def kind_of(statement: object) -> str:
    """A statement's words: ``AlterSourceUnsafeSet`` is ALTER SOURCE UNSAFE SET."""
    return re.sub(r"(?<!^)(?=[A-Z])", " ", type(statement).__name__).upper()


def _first_words(text: str) -> str:
    bare = re.sub(r"--[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
    return " ".join(re.findall(r"[A-Za-z_]+", bare)[:2]).upper()


def run_check(paths: list[str], *, output: str = "text") -> int:
    """Checks files and prints what is wrong (``text``) or an object a statement (``json``); 1 on any error, else 0."""
    status = 0
    for path in paths:
        try:
            text = read_text(path)
        except SqlError as error:
            sys.stderr.write(error.render() + "\n")
            status = 1
            continue
        for checked in check_script(text, path):
            if checked.error is not None:
                status = 1
            if output == "json":
                sys.stdout.write(json.dumps(checked.as_json(), ensure_ascii=False) + "\n")
            elif checked.error is not None:
                sys.stdout.write(checked.error.render() + "\n")
    return status


def check_command(
    files: Annotated[list[str], typer.Argument(metavar="FILES|-", help="SQL files; - is standard input.")],
    output: Annotated[
        str, typer.Option("--format", metavar="text|json", help="Errors as text, or one JSON object per statement.")
    ] = "text",
) -> None:
    """Check the statements of SQL files; exit 1 on any error. Needs no Spark and no Java."""
    if output not in ("text", "json"):
        raise SqlError(INVALID_OPTION, f'--format must be text or json, found: "{output}"')
    raise typer.Exit(run_check(files, output=output))

"""Reports the error that ends a command. The error is printed as text on standard error. If JSON output was requested,
the error is also printed as JSON on standard output."""

from __future__ import annotations

import json
import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from rw_sql.cli.interface.standard_streams import OutputError
from rw_sql.masking import masked

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.errors import SqlError

_output: ContextVar[str] = ContextVar("output", default="text")


def remember_output(output: str) -> None:
    """Stores the output format that the user has requested for the running command."""
    _output.set(output)


def report_error(error: SqlError) -> None:
    """Prints the error that ends a command on standard error.

    If JSON output was requested, also prints ``{"error": …}`` as one line on standard output. Without this line, a
    program that reads JSON would find nothing on standard output. If a command's own JSON output already contains the
    error, the command must not call this function.
    """
    from rw_sql.cli.terminal.output import print_error

    print_error(error.render())
    if _output.get() == "json" and not isinstance(error, OutputError):
        sys.stdout.write(json.dumps({"error": error_as_json(error)}, ensure_ascii=False) + "\n")


def error_as_json(error: SqlError, hide: Callable[[str], str] = str) -> dict[str, Any]:
    """Converts an error to a dictionary for JSON output. ``hide`` replaces the secrets that are not in the error's
    statement, such as the values of variables, with asterisks."""
    return {
        "code": error.code,
        "sqlstate": error.sqlstate,
        "message": hide(error.message),
        "hint": None if error.hint is None else hide(error.hint),
        "detail": None if error.detail is None else hide(masked(error.detail)),
        "file": error.file,
        "line": error.line,
        "column": error.column,
    }


def interrupt_as_json(interrupt: KeyboardInterrupt, hint: str) -> dict[str, Any]:
    """Converts a Ctrl-C to a dictionary with the same keys as an error. The code is None, because Ctrl-C is not an
    error of rw_sql. The SQLSTATE is that of a cancelled query."""
    message = f"cancelled: {interrupt}" if str(interrupt) else "cancelled"
    shown = dict.fromkeys(("code", "sqlstate", "message", "hint", "detail", "file", "line", "column"))
    return {**shown, "sqlstate": "57014", "message": message, "hint": hint}

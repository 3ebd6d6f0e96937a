"""Defines the exit statuses of all commands, by class of error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql import errors
from rw_sql.cli.interface.standard_streams import OutputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rw_sql.errors import SqlError

DONE, FAILED, UNUSABLE, REFUSED, UNREACHABLE, INTERRUPTED = 0, 1, 2, 3, 4, 130
DIFFERS = UNUSABLE
"""The exit status of ``diff --exit-code`` if there is a difference. ``terraform plan`` uses the same status for a
difference.

With ``--exit-code``, every error has status 1.
"""

MEANINGS = {
    DONE: "Success.",
    FAILED: "A statement, a check or a test failed, or standard output cannot be written. With `fmt --check`, a file "
    "would change.",
    UNUSABLE: "Nothing was done: the command line, a file, a variable or a catalog is invalid. With "
    "`diff --exit-code`, there is a difference (an error then has status 1).",
    REFUSED: "A confirmation is missing, or unsafe operations are disabled. Nothing unsafe was done.",
    UNREACHABLE: "A broker or another upstream does not respond, or the jobs have not applied a statement in time. The "
    "same command may succeed later. In `run`, `shell` and `test`, such a statement counts as failed: the status is 1.",
    INTERRUPTED: "Ctrl-C.",
}
"""The meaning of each status, for the reference page."""

_UNUSABLE = frozenset(
    code.code
    for code in (
        errors.FILE_UNREADABLE,
        errors.INVALID_COMMAND,
        errors.INVALID_OPTION,
        errors.PACKAGE_MISSING,
        errors.UNDEFINED_VARIABLE,
        errors.UNKNOWN_OPTION,
    )
)
_REFUSED = frozenset({errors.CONFIRMATION_NEEDED.code, errors.UNSAFE_OPERATIONS_OFF.code})
_UNREACHABLE = frozenset({errors.UPSTREAM_UNREACHABLE.code, errors.NOT_APPLIED_YET.code})


def is_refused(error: SqlError) -> bool:
    """True if the error means that a confirmation is missing."""
    return error.code in _REFUSED


def tells_difference(words: Sequence[str]) -> bool:
    """True if the exit status 2 of a command line means that there is a difference. ``words`` is the command line,
    without the program's name."""
    return "diff" in words[:1] and "--exit-code" in words


def exit_status(error: SqlError, words: Sequence[str] = ()) -> int:
    """The exit status for an error that ends a command. ``words`` is the command line, without the program's name."""
    if tells_difference(words):
        return FAILED
    if is_refused(error):
        return REFUSED
    if isinstance(error, OutputError):
        return FAILED  # Only the output is lost: the command may have taken effect.
    if error.code in _UNREACHABLE:
        return UNREACHABLE
    return UNUSABLE if error.code in _UNUSABLE else FAILED

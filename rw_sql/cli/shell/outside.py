"""Starts external programs for the shell: the pager, the editor, and system commands."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rw_sql.errors import FILE_UNREADABLE, SqlError

if TYPE_CHECKING:
    from collections.abc import Iterator

_LESS = "FRSX"
"""The flags for ``less`` if the user has not set flags: quit if the text fits on one screen, keep colours, do not wrap,
leave the text on the screen."""


@contextmanager
def quiet_interrupts() -> Iterator[None]:
    """A context manager for running an external program. Ctrl-C stops the external program, which has the default
    handler for Ctrl-C, but does not stop the shell."""
    before = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def pager() -> list[str] | None:
    """Returns the pager's command: ``$RW_SQL_PAGER``, otherwise ``$PAGER``, otherwise less.

    Returns None if the variable is empty, or if no variable is set and less is not installed.
    """
    named = os.environ.get("RW_SQL_PAGER", os.environ.get("PAGER"))
    if named is not None:
        return shlex.split(named) or None
    return ["less"] if shutil.which("less") else None


def show_paged(text: str, *, is_long: bool) -> None:
    """Writes ``text`` to standard output. A long text is shown through the pager."""
    command = pager() if is_long else None
    if command is not None:
        try:
            with quiet_interrupts():
                subprocess.run(
                    command, input=text.encode(), check=False, env={"LESS": _LESS, "LESSCHARSET": "utf-8", **os.environ}
                )
            return
        except OSError:
            pass  # the pager does not exist
    sys.stdout.write(text)
    sys.stdout.flush()


def edited(text: str, path: str | None = None) -> str:
    """Opens the file ``path`` or, if ``path`` is None, a temporary file with ``text`` in the user's editor
    (``$VISUAL``, otherwise ``$EDITOR``, otherwise vi), and returns the edited text. Raises SqlError if the editor does
    not start or the file cannot be read."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(path) if path is not None else Path(folder) / "statement.sql"
        try:
            if path is None:
                file.write_text(text, encoding="utf-8")
            with quiet_interrupts():
                subprocess.run([*shlex.split(editor), str(file)], check=False)
            return file.read_text(encoding="utf-8").rstrip()
        except (OSError, UnicodeError) as error:
            reason = (getattr(error, "strerror", None) or str(error)).lower()
            raise SqlError(
                FILE_UNREADABLE,
                f'"{file}" cannot be edited with {editor}: {reason}',
                hint="export EDITOR=vi, or another editor",
            ) from error


def run_command(command: str) -> None:
    """Runs a system command. If no command is given, starts the user's shell."""
    with quiet_interrupts():
        subprocess.run(command or os.environ.get("SHELL", "/bin/sh"), shell=True, check=False)

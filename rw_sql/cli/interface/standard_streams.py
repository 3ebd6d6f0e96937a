"""Opens the standard streams that a command's parent process has closed, and reports errors of writes to standard
output.

Without this module, two things could go wrong. If standard output is a file on a full disk, the command would report an
error of the warehouse's file system. If a standard stream stayed closed, the next opened file or socket would get the
number of this stream, and the JVM would write into that file or socket.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rw_sql.errors import FILE_UNREADABLE, SqlError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import ReadableBuffer

_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


class OutputError(SqlError):
    """Raised if standard output cannot be written.

    This class does not derive from OSError, because commands treat an OSError as an error of the warehouse or of their
    files.
    """

    def __init__(self, cause: OSError) -> None:
        super().__init__(
            FILE_UNREADABLE,
            f"cannot write to standard output: {cause.strerror}",
            hint="send the output to another file; the changes that the command has already made remain",
        )


class _Descriptor(io.FileIO):
    """A file descriptor whose errors are raised as OutputError. A BrokenPipeError, which means that the reading process
    has ended, is raised unchanged."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(error) from error


@contextmanager
def usable_streams() -> Iterator[None]:
    """A context manager. Inside the context, all three standard streams are open, and each error of standard output is
    raised as an OutputError. This includes an error of the last write, at the end of the ``with`` block. If the
    encoding of standard output lacks a character, as in an ISO-8859 locale, the character is written as an escape that
    JSON and Spark can read."""
    _open_closed()
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors=_ESCAPES)
    before = sys.stdout
    checked = _checked(before)
    if checked is None:
        yield
        return
    sys.stdout = checked
    try:
        try:
            yield
        finally:
            checked.flush()
    except OutputError:
        # Redirects the stream to the null device. Otherwise, writing the rest would fail again when Python closes the
        # stream.
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, checked.fileno())
        os.close(nothing)
        raise
    finally:
        if sys.stdout is checked:
            sys.stdout = before


def _escaped(error: UnicodeError) -> tuple[str, int]:
    r"""Writes characters as ``\uXXXX``, because JSON supports neither the form ``\xXX`` nor the form ``\UXXXXXXXX`` of
    backslashreplace."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)), error.end


_ESCAPES = "rw_sql.escapes"
codecs.register_error(_ESCAPES, _escaped)


def _open_closed() -> None:
    for number, (name, mode) in enumerate(_STREAMS):
        if getattr(sys, name) is not None:
            continue
        try:
            os.fstat(number)
        except OSError:
            nothing = os.open(os.devnull, os.O_RDWR)
            if nothing != number:
                os.dup2(nothing, number)
                os.close(nothing)
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - until the exit


def _checked(stream: object) -> io.TextIOWrapper | None:
    """Returns a copy of the process's standard output. Returns None if standard output is a terminal, or if ``stream``
    has replaced the standard output of the process."""
    if stream is not sys.__stdout__ or not isinstance(stream, io.TextIOWrapper) or stream.isatty():
        return None
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Descriptor(stream.fileno(), "w", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )

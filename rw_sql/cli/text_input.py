"""Reads SQL from files and standard input, writes files, and converts errors about files to SqlErrors."""

from __future__ import annotations

import errno
import os
import stat
import sys
from pathlib import Path
from uuid import uuid4

from rw_sql.errors import FILE_UNREADABLE, SqlError


def read_text(path: str) -> str:
    """Reads a file (``-``: standard input). All line breaks become ``\\n``. Raises SqlError FILE_UNREADABLE."""
    return unix_lines(read_exactly(path))


def read_exactly(path: str) -> str:
    """Reads a file (``-``: standard input). The byte-order mark and the line breaks are kept. Raises SqlError
    FILE_UNREADABLE if the file cannot be read or decoded."""
    name = "standard input" if path == "-" else f'"{path}"'
    try:
        if path != "-":
            read = Path(path).read_bytes()
        elif (buffer := getattr(sys.stdin, "buffer", None)) is not None:
            read = buffer.read()
        else:
            read = sys.stdin.read().encode()
    except OSError as error:
        raise SqlError(
            FILE_UNREADABLE,
            f"cannot read {name}: {error.strerror}",
            hint="give a file that this process can read, or - for standard input",
        ) from error
    from rw_sql.runtime.support.text_files import decode_text

    return decode_text(read, name)


def unusable_file(error: OSError) -> SqlError | None:
    """Returns the error for a file or folder that a command could not use, or for a deleted current folder. Returns
    None if the exception does not concern a file."""
    from rw_sql.metastore.location import require_current_folder

    try:
        require_current_folder()
    except SqlError as deleted:
        return deleted
    if not isinstance(error.filename, str) or error.strerror is None:
        return None
    return SqlError(
        FILE_UNREADABLE,
        f'cannot use "{error.filename}": {error.strerror}',
        hint="give a file or folder that this process can read and write",
    )


def unix_lines(text: str) -> str:
    """The text with all line breaks replaced by ``\\n``."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def as_before(text: str, before: str) -> str:
    """Returns the text with the byte-order mark and the line breaks of ``before``, which is the text that will be
    replaced. If ``before`` has several kinds of line breaks, all line breaks of the result are ``\\n``."""
    mark = "\ufeff" if before.startswith("\ufeff") else ""
    plain = unix_lines(before)
    end = next((end for end in ("\r\n", "\r") if plain != before and plain.replace("\n", end) == before), "\n")
    return mark + text.replace("\n", end)


def replace_text(path: str, text: str) -> None:
    """Replaces the content of a file. Usually, a new file replaces the old file, so a failed write or a killed process
    leaves the former content.

    The file keeps its mode and group, and links are followed. Writes in place if the file does not exist, cannot be
    replaced in its folder, is not a regular file, or has several hard links, another owner or an access control list. A
    failed write in place may leave an incomplete file. Raises OSError.
    """
    named, data = Path(path), text.encode()
    if not named.is_file() or not _is_own(named):
        # The name stays as it is, because the link /dev/stdout or /dev/fd/63 of a pipe leads to no path.
        named.write_bytes(data)
        return
    target = Path(os.path.realpath(named))
    fresh = target.with_name(f".{uuid4().hex}.tmp")
    target.open("r+b").close()  # A file without the permission to write is not replaced.
    try:
        out = fresh.open("xb")
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        target.write_bytes(data)
        return
    try:
        with out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        try:
            _make_like(fresh, target)
            fresh.replace(target)
        except OSError:  # A single file may be mounted into a container, or have a group of other users.
            target.write_bytes(data)
    finally:
        fresh.unlink(missing_ok=True)


def _make_private(named: Path) -> None:
    """Lets only the owner of a file read and write it, and creates the file if it does not exist. Leaves devices and
    pipes unchanged. Raises OSError."""
    if not named.exists():
        os.close(os.open(named, os.O_WRONLY | os.O_CREAT, stat.S_IRUSR | stat.S_IWUSR))
    elif named.is_file():
        named.chmod(stat.S_IRUSR | stat.S_IWUSR)


def _is_own(target: Path) -> bool:
    found = target.stat()
    return found.st_nlink == 1 and found.st_uid == os.geteuid() and not _has_access_list(target)


def _has_access_list(target: Path) -> bool:
    try:
        return sys.platform == "linux" and "system.posix_acl_access" in os.listxattr(target)
    except OSError:  # The file system has no attributes.
        return False


def _make_like(fresh: Path, target: Path) -> None:
    """Gives a file the group and the mode of another file."""
    wanted = target.stat()
    if fresh.stat().st_gid != wanted.st_gid:
        os.chown(fresh, -1, wanted.st_gid)
    fresh.chmod(stat.S_IMODE(wanted.st_mode))


def write_text(path: str, text: str, *, is_private: bool = False) -> None:
    """Replaces the content of a file with :func:`replace_text`. If ``is_private`` is True, only the owner of the file
    can read it. Raises SqlError FILE_UNREADABLE if the file cannot be written."""
    try:
        if is_private:
            _make_private(Path(path))
        replace_text(path, text)
    except OSError as error:
        raise SqlError(
            FILE_UNREADABLE,
            f'cannot write "{path}": {error.strerror}',
            hint="give a file in a folder that exists and can be written",
        ) from error

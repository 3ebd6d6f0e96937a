"""Finds the reason why nothing can be written to a warehouse, and the action that removes this reason.

The reason comes from the error of a failed write, or from a check that leaves the warehouse unchanged. On a local file
system, the check examines mount flags, free space and permissions. In an object store, the check attempts to create an
object that already exists, which the store always refuses.
"""

from __future__ import annotations

import errno
import os
import pwd
import re
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.runtime.support.processes import credentials_of

if TYPE_CHECKING:
    from rw_sql.runtime.support.warehouse import Warehouse

_NUMBER = re.compile(r"(?:\bos error |\[Errno )(\d+)")
"""Matches the number of an operating system's error in the message of a Rust or Python error."""

_JVM_TEXTS = {os.strerror(code): code for code in (errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM)}
_JVM_TEXT = re.compile("|".join(map(re.escape, _JVM_TEXTS)))
"""Matches the operating system's text of an error. Messages of the JVM contain this text, but not the error's
number."""

_REFUSED = re.compile(r"Access ?Denied|\b403 Forbidden\b|AuthorizationPermissionMismatch|lacked the necessary")
"""Matches an object store's error for a request that the access keys do not permit."""

_STORE_FULL = re.compile(r"XMinioStorageFull|InsufficientStorage|QuotaExceeded")
"""Matches an object store's error for a write to a store without free space."""

_LEAST_BYTES = 1 << 18
"""A file system with less than this number of free bytes counts as full. A heartbeat needs fewer bytes than this
number, and a batch needs more."""

_TRIED_BYTES = 1 << 16
_WRITE, _SEARCH = 2, 1
_LEASE = "rw_catalog/runtime_lease"
_WRITTEN = (f"{_LEASE}/_delta_log", _LEASE, "rw_catalog/runtime_job_status/_delta_log", "data", "checkpoints")
"""The folders of the warehouse in which the owner must be permitted to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """A reason why nothing can be written to the warehouse. ``problem`` is the cause, and ``remedy`` is the action that
    removes the cause."""

    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.problem}: {self.remedy}"


def obstacle_of(error: object, uri: str) -> Obstacle | None:
    """The obstacle that the error of a failed write to the warehouse at ``uri`` reveals; None if the error reveals no
    obstacle. If the URI is not known, ``uri`` is empty, and the remedy contains no path.

    A temporary error, such as the error of a store that does not respond, is not an obstacle.
    """
    text = str(error)
    if not uri or "://" in uri:
        if _REFUSED.search(text):
            return _REFUSES
        if _STORE_FULL.search(text):
            return _FULL_STORE
        if uri:
            return _REFUSES if isinstance(error, PermissionError) else None
    code = _number_in(text)
    if code is None and isinstance(error, OSError):
        code = error.errno
    return None if code is None else _of_number(code, uri)


def _number_in(text: str) -> int | None:
    if (number := _NUMBER.search(text)) is not None:
        return int(number[1])
    words = _JVM_TEXT.search(text)
    return None if words is None else _JVM_TEXTS[words[0]]


def _of_number(number: int, uri: str) -> Obstacle | None:
    match number:
        case errno.EROFS:
            return _read_only(uri)
        case errno.ENOSPC:
            return _full(uri)
        case errno.EDQUOT:
            return _OVER_QUOTA
        case errno.EACCES | errno.EPERM:
            return _forbidden(uri, os.geteuid())
    return None


def visible_obstacle(warehouse: Warehouse, pid: int | None = None, *, is_here: bool = True) -> Obstacle | None:
    """The obstacle to writing that the operating system reports for a warehouse on a local path, without an attempt to
    write. None if there is no obstacle, or if the warehouse is in an object store.

    ``pid`` is the id of the process that writes to the warehouse. The check uses the mounts of that process and the
    permissions of its user. If ``pid`` is None, permissions are not checked. ``is_here`` is false if that process is on
    another machine. A read-only mount of this machine then does not count as an obstacle, because the mounts of the two
    machines may differ.
    """
    if not warehouse.is_local:
        return None
    uri = warehouse.uri
    place = _seen_by(pid, uri)
    user, groups = credentials_of(pid or os.getpid())
    try:
        told = os.statvfs(place)
    except OSError:
        return None
    if told.f_flag & os.ST_RDONLY and is_here:
        return _read_only(uri)
    blocks, inodes = (told.f_bfree, told.f_ffree) if user == 0 else (told.f_bavail, told.f_favail)
    if blocks * told.f_frsize < _LEAST_BYTES or (told.f_files > 0 and inodes == 0):
        return _full(uri)
    if pid is not None and any(not _may_write(f"{place}/{folder}", user, groups) for folder in _WRITTEN):
        return _forbidden(uri, user)
    return None


def try_to_write(warehouse: Warehouse) -> OSError | None:
    """Tries to write to the catalog's folder on a local path. Returns the error; None if the write succeeds. Leaves no
    file."""
    path = f"{warehouse.uri}/{_LEASE}/.{uuid.uuid4().hex}.writing"
    try:
        with open(path, "xb") as file:
            file.write(bytes(_TRIED_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error
    finally:
        with suppress(OSError):
            os.unlink(path)
    return None


def refusal(warehouse: Warehouse) -> OSError | None:
    """Returns the error with which an object store refuses writes of this process. None if the store accepts writes, or
    if this cannot be determined.

    The function requests to write an existing object under the condition that this object does not exist. A store that
    permits writes to this process reports that the object exists, and changes nothing. If a store ignores conditions,
    the request replaces the object with identical bytes. If a store responds that it does not support conditions, the
    result is None, because this response does not show whether the store accepts unconditional writes.
    """
    folder = f"{warehouse.uri}/{_LEASE}/_delta_log"
    names = [name for name in warehouse.list_names(folder) if name.endswith(".json")]
    if not names:
        return None
    path = f"{folder}/{max(names)}"
    text = warehouse.read_text(path)
    try:
        warehouse.write_new_text(path, text)
    except FileExistsError:
        return None
    except OSError as error:
        return None if error.errno == errno.ENOSYS else error
    return None


def _seen_by(pid: int | None, path: str) -> str:
    """Returns the path at which this process finds the folder that the process ``pid`` sees at ``path``. The two paths
    differ if that process has its own mounts, such as a service of systemd. If ``pid`` is None, returns ``path``."""
    seen = f"/proc/{pid}/root{path}"
    return seen if pid is not None and os.path.isdir(seen) else path


def _may_write(folder: str, user: int, groups: frozenset[int]) -> bool:
    """True if a user may create files in a folder, or if the folder does not exist or cannot be examined."""
    if user == os.geteuid():
        return os.access(folder, os.W_OK | os.X_OK, effective_ids=True) or not os.path.isdir(folder)
    try:
        told = os.stat(folder)
    except OSError:
        return True
    shift = 6 if told.st_uid == user else 3 if told.st_gid in groups else 0
    needed = _WRITE | _SEARCH
    return user == 0 or (told.st_mode >> shift) & needed == needed


def _read_only(uri: str) -> Obstacle:
    typed = f" (mount -o remount,rw {_mount_point(uri)})" if uri else ""
    return Obstacle(problem="the file system of the warehouse is read-only", remedy=f"mount it writable{typed}")


def _full(uri: str) -> Obstacle:
    typed = f" (df -h {uri})" if uri else ""
    return Obstacle(problem="the file system of the warehouse is full", remedy=f"free some space{typed}")


def _forbidden(uri: str, user: int) -> Obstacle:
    name = _user_name(user)
    typed = f" (chown -R {name} {uri})" if uri else ""
    return Obstacle(
        problem=f"user {name} may not write in the warehouse's folder",
        remedy=f"give {name} the right to read and write it{typed}",
    )


_REFUSES = Obstacle(
    problem="the store of the warehouse refuses requests with this process's keys",
    remedy="allow them to list, read, put and delete objects in it",
)
_OVER_QUOTA = Obstacle(
    problem="this user's quota on the file system of the warehouse is used up",
    remedy="free some space, or raise the quota",
)
_FULL_STORE = Obstacle(problem="the store of the warehouse is full", remedy="free some space, or raise its quota")


def _mount_point(path: str) -> str:
    while path not in ("", "/") and not os.path.ismount(path):
        path = os.path.dirname(path)
    return path or "/"


def _user_name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)

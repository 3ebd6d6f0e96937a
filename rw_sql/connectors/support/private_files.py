"""Files that only this user can read, for values that must not appear in Spark's options, logs and web pages.

Each process has its own folder for these files and deletes the folder at exit. New processes delete the folders that
killed processes left behind.

On a cluster, executors on other hosts need some of the files, at the paths that the files have on the driver's host.
The driver sends these files in a task (see :mod:`rw_sql.runtime.spark.executors`), and the executor keeps a copy of the
folder. Each folder contains a file for each of its *holders*: the process that made the folder, and the executors that
use the folder or its copy. Other processes delete a folder only if all of its holders have ended. This package is not
necessarily installed on executors, so the functions that they call are sent by value. These functions use only the
standard library, and no variables of this module that can change.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import shutil
import socket
import stat
import tempfile
import threading
import uuid
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_PREFIX = "rw_sql-secrets-"
_REMOVED = f"{_PREFIX}removed-"
_HOLDER = ".held-by-"
_ALIVE = "alive"

_for_executors: dict[str, str] = {}
"""Maps the path of each file that executors need to its contents."""

_making = threading.Lock()


class SecretText(str):
    """The value of an option that is secret. The methods that are inherited from ``str`` return ordinary strings,
    which are not marked as secret."""

    __slots__ = ()


def private_file(value: str) -> Path:
    """Returns the path of a file with this value, and creates the file if necessary. Equal values share one file,
    whose content never changes."""
    file = _folder() / hashlib.sha256(value.encode()).hexdigest()[:32]
    if not file.exists():
        _write(str(_present_folder() / file.name), value)
    return file


def _present_folder() -> Path:
    """Returns this process's folder. If the folder was deleted, this function creates it again."""
    folder = _folder()
    if not folder.exists():  # Some systems delete folders in /tmp after several days.
        folder.mkdir(mode=0o700, exist_ok=True)
        hold(str(folder), os.getpid(), is_driver=True)
    return folder


@contextlib.contextmanager
def temporary_private_file(data: bytes) -> Iterator[Path]:
    """A context manager that creates a file with ``data``, yields its path, and deletes it at the end of the
    ``with`` block."""
    handle, path = tempfile.mkstemp(dir=_present_folder(), prefix=".")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        yield Path(path)
    finally:
        Path(path).unlink(missing_ok=True)


def share_with_executors(values: Iterable[object]) -> None:
    """Marks private files as needed on executors. ``values`` are the options of a reader that runs on executors.
    Values that are not paths of this process's private files are ignored."""
    if not _made_folder.cache_info().currsize:
        return
    folder = str(_folder())
    for value in values:
        path = str(value).removeprefix("fs://")
        if os.path.dirname(path) == folder and path not in _for_executors:
            with contextlib.suppress(OSError):
                _for_executors[path] = Path(path).read_bytes().decode()


def files_for_executors() -> dict[str, str]:
    """Maps the path of each file that executors need to its contents. All of these files are in one folder."""
    return dict(_for_executors)


def _folder() -> Path:
    with _making:  # ``cache`` alone calls the function once per thread if several threads begin at once.
        return _made_folder()


@cache
def _made_folder() -> Path:
    remove_abandoned(tempfile.gettempdir())
    # The name has no process id, because version 0.1.0 deletes folders by the process id in their names.
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}held-"))  # Readable by this user only.
    hold(str(folder), os.getpid(), is_driver=True)
    return folder


@atexit.register
def _remove_own() -> None:
    """Deletes this process's folder at exit. The jobs must have ended by then, because they use and create files in
    it. Python runs exit functions in the reverse order of their registration. The function that stops the jobs is
    registered later than this one, and therefore runs first."""
    if _made_folder.cache_info().currsize:
        shutil.rmtree(_made_folder(), ignore_errors=True)


def receive(files: Mapping[str, str], pid: int) -> str:
    """Writes the files of a driver at the same paths on this host, for the executor with this process id.

    The content of existing files is not changed. Returns the reason why the executor cannot use the files; the empty
    string if it can use them.
    """
    folder = os.path.dirname(next(iter(files)))
    try:
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        found = os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode):
            return f"{folder} is not a folder"
        if found.st_uid != os.geteuid():
            # Even files that this user can read are not used, because the other user could replace them.
            return f"{folder} belongs to the user with the id {found.st_uid}, and the executor's user is {os.geteuid()}"
        os.chmod(folder, 0o700)
        hold(folder, pid, is_driver=False)
        for path, text in files.items():
            if os.path.exists(path):
                os.utime(path)  # Some systems delete files in /tmp that were not used for several days.
            else:
                _write(path, text)
    except OSError as error:
        return f"it cannot write {error.filename or folder}: {(error.strerror or str(error)).lower()}"
    return ""


def discard(folder: str) -> None:
    """Deletes this host's copy of a driver's folder. Does nothing on the driver's own host, where the folder is not
    a copy."""
    with contextlib.suppress(OSError):
        holders = _holders(folder)
        if holders and not any(holder.get("is_driver") for holder in holders):
            _remove(folder)


def remove_abandoned(parent: str) -> None:
    """Deletes each of this user's folders of private files if all of the folder's holders have ended."""
    with contextlib.suppress(OSError):
        for name in os.listdir(parent):
            path = os.path.join(parent, name)
            if not name.startswith(_PREFIX):
                continue
            with contextlib.suppress(OSError):  # The folder was just deleted.
                if os.lstat(path).st_uid == os.getuid() and _is_abandoned(path):
                    _remove(path)


def hold(folder: str, pid: int, *, is_driver: bool) -> None:
    """Records that a process on this host is a holder of a folder. After all recorded processes have ended, other
    processes may delete the folder."""
    host, boot, space = _place()
    note = {"host": host, "boot": boot, "space": space, "pid": pid, "start": _start(pid), "is_driver": is_driver}
    text = json.dumps(note, sort_keys=True)
    path = os.path.join(folder, f"{_HOLDER}{hashlib.sha256(text.encode()).hexdigest()[:16]}")
    if not os.path.exists(path):
        _write(path, text)


def executor_pid() -> int:
    """Returns the process id of the executor to which this Python process belongs. The executor is the nearest JVM
    among this process's three closest ancestors. If there is no JVM among them, or if the system has no /proc, the
    result is the parent process."""
    pid = os.getppid()
    with contextlib.suppress(OSError, IndexError, ValueError):
        for _ in range(3):
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                name, _, fields = file.read().rpartition(")")
            if name.partition("(")[2] == "java":
                return pid
            pid = int(fields.split()[1])
    return os.getppid()


def _write(path: str, text: str) -> None:
    """Writes a file atomically: other processes never see an incomplete file."""
    handle, made = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".")  # Readable by this user only.
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        os.replace(made, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(made)
        raise


def _remove(folder: str) -> None:
    # The folder disappears at once, so that no other process begins to use a part of it.
    gone = os.path.join(os.path.dirname(folder), f"{_REMOVED}{uuid.uuid4().hex}")
    os.rename(folder, gone)
    shutil.rmtree(gone, ignore_errors=True)


def _is_abandoned(folder: str) -> bool:
    if os.path.basename(folder).startswith(_REMOVED):
        return True
    if holders := _holders(folder):
        return all(_has_ended(holder) for holder in holders)
    # Version 0.1.0 names the only holder in the name of the folder.
    pid = os.path.basename(folder).removeprefix(_PREFIX).partition("-")[0]
    return pid.isdecimal() and not _start(int(pid))


def _holders(folder: str) -> list[dict[str, object]]:
    found = []
    for name in os.listdir(folder):
        if name.startswith(_HOLDER):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                text = file.read()
            try:
                found.append(dict(json.loads(text)))
            except ValueError:
                # Notes are written atomically. Only a crash of the host can leave a part of a note. Such a crash also
                # ends the holder.
                found.append({})
    return found


def _has_ended(holder: Mapping[str, object]) -> bool:
    """True if a holder has certainly ended. A process on another host or in another container counts as running."""
    if not holder:
        return True
    host, boot, space = _place()
    if boot and holder["boot"] and boot != holder["boot"]:
        return host == holder["host"]  # This host was started again.
    if (boot, space) != (holder["boot"], holder["space"]) or (not boot and host != holder["host"]):
        return False
    now = _start(int(str(holder["pid"])))
    return not now or now not in (holder["start"], _ALIVE)


def _place() -> tuple[str, str, str]:
    """Returns the host's name, the id of its current boot, and the id of this process's PID namespace. On systems
    other than Linux, the two ids are empty."""
    boot = space = ""
    with contextlib.suppress(OSError):
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        space = os.readlink("/proc/self/ns/pid")
    return socket.gethostname(), boot, space


def _start(pid: int) -> str:
    """The start time of a process, in the form that :func:`rw_sql.runtime.support.processes.process_start` returns."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return "" if fields[0] in ("Z", "X") else fields[19]
    except (OSError, IndexError):
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except OSError:
        return _ALIVE
    return "" if os.path.exists("/proc/self") else _ALIVE

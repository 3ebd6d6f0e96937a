"""Defines a task that runs on each executor. The task prepares the executor for rw_sql's jobs, and reports the files
and packages that the executor lacks.

Executors receive this module by value, because rw_sql need not be installed on executors. The module therefore imports
only the standard library and functions that are also sent by value.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import os
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.support.private_files import discard, executor_pid, receive, remove_abandoned

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

OWN_PACKAGE, OWN_DISTRIBUTION = "rw_sql", "rw-sql"


def answer(
    number: int,
    rows: Iterable[object],
    *,
    folder: str,
    token: str,
    packages: Sequence[str],
    version: str,
    seconds: float,
) -> dict[str, Any]:
    """Prepares and checks the executor on which this function runs as task ``number``. Runs for at least ``seconds``
    seconds, because otherwise one executor could run all tasks.

    If the first of the task's ``rows`` is a byte string, it contains the private files that the executor needs, as
    JSON. ``folder`` is the folder in which the driver has written a file with ``token``; it is empty if the executor
    need not see a folder. ``packages`` are the packages that the executor's Python processes import. ``version`` is the
    driver's version of rw_sql, or empty.

    The result states where the executor runs, and which file it has written into the folder (``name``). The result also
    contains the executor's problems: ``unshared`` with the folder, ``unwritten`` with the private files, and
    ``missing`` with packages. ``version`` is the executor's version of rw_sql if it differs from the driver's. Each of
    these values is empty if there is no problem.
    """
    name, unshared = _checked(folder, token, number) if folder else ("", "")
    given = next(iter(rows), None)
    files: dict[str, str] = json.loads(given) if isinstance(given, bytes) else {}
    if files:
        remove_abandoned(os.path.dirname(os.path.dirname(next(iter(files)))))
    unwritten = receive(files, executor_pid()) if files else ""
    importlib.invalidate_caches()
    missing = [package for package in packages if not _is_installed(package)]
    other = _other_version(version) if version and OWN_PACKAGE in packages and OWN_PACKAGE not in missing else ""
    try:
        place = os.getcwd()
    except OSError:
        place = "a folder that was deleted"
    time.sleep(seconds)  # Prevents one executor from taking all tasks.
    return {
        "host": socket.gethostname(),
        "process": executor_pid(),
        "place": place,
        "name": name,
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "executable": sys.executable,
        "unshared": unshared,
        "unwritten": unwritten,
        "missing": missing,
        "version": other,
    }


def remove(folder: str, seconds: float) -> list[None]:
    """Deletes, on the executor on which this function runs, the copy of the driver's folder of private files. Runs for
    at least ``seconds`` seconds, because otherwise one executor could run all tasks."""
    discard(folder)
    time.sleep(seconds)
    return []


def _checked(folder: str, token: str, number: int) -> tuple[str, str]:
    """Returns the name of the file that this task has written into the folder, and the problem that the executor has
    with the folder. The problem is empty if there is none."""
    name = f"task-{number}-{os.getpid()}"
    try:
        with open(f"{folder}/driver", encoding="utf-8") as file:
            if file.read() != token:
                return name, "the file that it sees is not the one that the driver wrote"
    except OSError as error:
        return name, f"it does not see what the driver wrote: {(error.strerror or str(error)).lower()}"
    try:
        with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
            file.write(token)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return name, f"it cannot write there: {(error.strerror or str(error)).lower()}"
    return name, ""


def _is_installed(package: str) -> bool:
    try:
        found = importlib.util.find_spec(package)
    except (ImportError, ValueError):  # The package above it is missing.
        return False
    # An empty folder, such as pip may leave behind, is a package without origin.
    return found is not None and found.origin is not None


def _other_version(version: str) -> str:
    """Returns the version of rw_sql on this executor, if this version differs from ``version``. Returns the empty
    string if the two versions are equal, or if the executor's version is not known."""
    try:
        found = importlib.metadata.version(OWN_DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return ""
    return "" if found == version else found

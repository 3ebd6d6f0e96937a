"""Files that only this user can read, for values that must not appear in Spark's options, logs and web pages.

Each process has its own folder for these files and deletes the folder at exit. New processes delete the folders that
killed processes left behind.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

_PREFIX = "rw_sql-secrets-"


class SecretText(str):
    """Marks an option's value as secret. Methods inherited from ``str`` return unmarked strings."""

    __slots__ = ()


def private_file(value: str) -> Path:
    """A file that contains a value. Equal values share one file, and a file never changes after its creation."""
    folder = _folder()
    file = folder / hashlib.sha256(value.encode()).hexdigest()[:32]
    if not file.exists():
        folder.mkdir(mode=0o700, exist_ok=True)  # Some systems delete folders in /tmp after several days.
        handle, path = tempfile.mkstemp(dir=folder)  # Readable by this user only.
        with os.fdopen(handle, "w", encoding="utf-8") as made:
            made.write(value)
        Path(path).replace(file)
    return file


@cache
def _folder() -> Path:
    _remove_those_of_the_dead()
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))  # Readable by this user only.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _remove_those_of_the_dead() -> None:
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        pid = left.name.removeprefix(_PREFIX).partition("-")[0]
        try:
            is_ours = left.stat().st_uid == os.getuid()
            if is_ours and pid.isdecimal():
                os.kill(int(pid), 0)
        except ProcessLookupError:
            shutil.rmtree(left, ignore_errors=True)
        except OSError:
            continue  # The folder belongs to another user, or was just deleted.

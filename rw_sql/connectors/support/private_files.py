"""Files that only this user can read, for values that must not stand in an option, a log or a page.

They live in a folder of this process, which goes when it ends; folders of processes that were killed go when the next
one makes its own.
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
    """A secret's value among options. What is made from it with ``str``'s methods is a plain text again."""

    __slots__ = ()


def private_file(value: str) -> Path:
    """A file that holds a value. Equal values share one; a file never changes once it is there."""
    folder = _folder()
    file = folder / hashlib.sha256(value.encode()).hexdigest()[:32]
    if not file.exists():
        handle, path = tempfile.mkstemp(dir=folder)  # for this user alone
        with os.fdopen(handle, "w", encoding="utf-8") as made:
            made.write(value)
        Path(path).replace(file)
    return file


@cache
def _folder() -> Path:
    _remove_those_of_the_dead()
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))  # for this user alone
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _remove_those_of_the_dead() -> None:
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        pid = left.name.removeprefix(_PREFIX).partition("-")[0]
        try:
            is_ours = left.stat().st_uid == os.getuid()
            if is_ours and pid.isdigit():
                os.kill(int(pid), 0)
        except ProcessLookupError:
            shutil.rmtree(left, ignore_errors=True)
        except OSError:
            continue  # another user's, or gone meanwhile

"""Keeps a Kafka client's secrets out of Spark's options, logs and pages.

The JVM gets references instead of values, and reads the values itself by Kafka's own ``DirectoryConfigProvider`` from
files that only this user can read. They live in a folder of this process, which goes when it ends; folders of
processes that were killed go when the next one makes its own.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

HIDDEN = frozenset({"kafka.sasl.jaas.config", "kafka.ssl.keystore.key"})
"""Spark's option names whose values are secrets."""

_PROVIDER = "rw_sql"
_PREFIX = "rw_sql-secrets-"


def hide(options: Mapping[str, str]) -> dict[str, str]:
    """The same options with references in place of secrets."""
    made = dict(options)
    secrets = {key: value for key, value in options.items() if key in HIDDEN}
    if secrets:
        folder = _folder()
        made |= {key: f"${{{_PROVIDER}:{folder}:{_stored(folder, value)}}}" for key, value in secrets.items()}
        made["kafka.config.providers"] = _PROVIDER
        made[f"kafka.config.providers.{_PROVIDER}.class"] = (
            "org.apache.kafka.common.config.provider.DirectoryConfigProvider"
        )
    return made


def _stored(folder: Path, value: str) -> str:
    """The name of the file that holds a value. Equal values share one; a file never changes once it is there."""
    name = hashlib.sha256(value.encode()).hexdigest()[:32]
    if not (folder / name).exists():
        handle, path = tempfile.mkstemp(dir=folder)  # for this user alone
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(value)
        Path(path).replace(folder / name)
    return name


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

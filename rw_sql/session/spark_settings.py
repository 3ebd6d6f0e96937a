"""Spark's settings for a session that rw_sql starts.

The caller's settings take precedence over ``spark-defaults.conf``, which takes precedence over rw_sql's own settings.

``spark-defaults.conf`` has the format of ``java.util.Properties`` that Spark reads. Each line has a key and a value,
separated by spaces, ``=`` or ``:``. Lines that begin with ``#`` are comments.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from rw_sql.errors import INVALID_OPTION, SqlError
from rw_sql.runtime.spark.jar_cache import spark_defaults_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TIME_ZONE = "spark.sql.session.timeZone"

_LISTS = ("spark.sql.extensions", "spark.jars.packages", "spark.jars.excludes", "spark.jars")
"""The settings whose values are lists. rw_sql appends its own items to the user's list instead of replacing the
list."""

_OWN = {
    "spark.app.name": "rw_sql",
    "spark.scheduler.mode": "FAIR",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # The defaults (50 tasks in Delta, 200 in Spark) are meant for clusters; on one machine, these defaults cost seconds
    # per query.
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.shuffle.partitions": "8",
    # Spark generates dozens of classes for each view; if the cache is too small, each batch compiles these classes
    # again.
    "spark.sql.codegen.cache.maxEntries": "2000",
    # A stream adds several executions per second, each with the text of its plan. Spark's default of 1000 executions
    # would fill the heap.
    "spark.sql.ui.retainedExecutions": "50",
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "1000",
}


def session_settings(
    needed: Mapping[str, str],
    given: Mapping[str, str],
    *,
    warehouse_dir: str | None,
    defaults: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Returns the settings of a new session. The settings in ``given`` and in ``spark-defaults.conf`` override rw_sql's
    own settings.

    ``needed`` are the settings that Delta needs; if the value of such a setting is a list, the list is merged with the
    user's list. ``warehouse_dir`` is the default of ``spark.sql.warehouse.dir``. ``defaults`` are further defaults,
    which the user's settings override.
    """
    own = {**_OWN, **(defaults or {})}
    if warehouse_dir is not None:
        own["spark.sql.warehouse.dir"] = warehouse_dir
    if "MASTER" not in os.environ:
        own["spark.master"] = "local[*]"
    users = {**defaults_of_file(), **given}
    settings = {key: value for key, value in own.items() if key not in users} | dict(given)
    for key, value in needed.items():
        known = users.get(key) if key in _LISTS else None
        settings[key] = _joined(known, value) if known else value
    return settings


def defaults_of_file() -> dict[str, str]:
    """The settings in ``spark-defaults.conf``; empty if the file does not exist."""
    file = spark_defaults_file()
    if file is None:
        return {}
    found: dict[str, str] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        text = line.strip()
        if text and not text.startswith(("#", "!")):
            key, *value = re.split(r"\s*[=:]\s*|\s+", text, maxsplit=1)
            found[key] = value[0] if value else ""
    return found


def settings_of(master: str | None, settings: Iterable[str], driver_memory: str | None) -> dict[str, str]:
    """The settings from the options ``--master``, ``--conf KEY=VALUE`` and ``--driver-memory``.

    Raises SqlError INVALID_OPTION.
    """
    found: dict[str, str] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key.startswith("spark."):
            raise SqlError(
                INVALID_OPTION,
                f"--conf takes KEY=VALUE with a key of Spark's, not {setting!r}",
                hint="--conf spark.executor.memory=4g",
            )
        found[key] = value
    if driver_memory is not None:
        if re.fullmatch(r"\d+[kmgt]b?", driver_memory, re.IGNORECASE) is None:
            raise SqlError(
                INVALID_OPTION, f"--driver-memory takes a size, not {driver_memory!r}", hint="--driver-memory 4g"
            )
        found["spark.driver.memory"] = driver_memory
    if master is not None:
        found["spark.master"] = master
    return found


def _joined(known: str, value: str) -> str:
    parts = [part.strip() for part in known.split(",") if part.strip()]
    return ",".join([*parts, *(part for part in value.split(",") if part not in parts)])

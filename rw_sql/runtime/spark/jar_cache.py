"""Caches the jars of Maven coordinates on this machine, because resolving them with Ivy takes seconds."""

from __future__ import annotations

import os
import re
import tempfile
from contextlib import suppress
from errno import ENOENT
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


CLASS_PATH = "spark.driver.extraClassPath"
"""Spark's setting for jars that precede Spark's own jars on the class path of the driver's JVM."""

_VERSION = re.compile(r"-\d+\..*")
"""Matches the end of a jar's file name, from the version on."""


def remembered_jars(package: str) -> list[str] | None:
    """The paths of the cached jars of a Maven coordinate; None if the coordinate was never resolved on this machine, or
    if one of its jars was deleted."""
    try:
        jars = _file(package).read_text(encoding="utf-8").split("\n")
    except OSError:
        return None
    return jars if all(Path(jar).is_file() for jar in jars) else None


def remember_jars(package: str, found: Sequence[str]) -> None:
    """Stores the paths of the jars of a coordinate. ``found`` contains paths or ``file:`` URIs.

    If the paths cannot be stored, the coordinate is resolved again at the next use.
    """
    jars = [jar.removeprefix("file://").removeprefix("file:") for jar in found]
    if not jars or not all(Path(jar).is_file() for jar in jars):
        return
    with suppress(OSError):
        keep_file(_file(package), "\n".join(jars).encode())


def keep_file(file: Path, content: bytes) -> None:
    """Writes a file of the cache folder completely or not at all. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as made:
        made.write(content)
    Path(made.name).replace(file)


def jar_settings(package: str, config: Mapping[str, str], *, starts_jvm: bool = False) -> dict[str, str]:
    """Spark's settings for a session with a package's jars.

    If the jars are cached and no setting in the caller's ``config`` conflicts, the settings refer to the cached files.
    Otherwise, the settings refer to the coordinate, which Ivy resolves. If this process starts a JVM (``starts_jvm``)
    that is both driver and executor, the settings put the cached files on the JVM's class path, because Java archives
    only classes from the class path (see :mod:`rw_sql.session.class_archive`). In any other process, Spark copies the
    cached files to the executors.
    """
    jars = remembered_jars(package) if are_jars_ours(config) else None
    if jars is None:
        return {"spark.jars.packages": package}
    jars = without_jars_of_spark(jars)
    is_free = CLASS_PATH not in config and "SPARK_CLASSPATH" not in os.environ
    if starts_jvm and is_free and _is_one_process(config) and not any(os.pathsep in jar for jar in jars):
        return {CLASS_PATH: os.pathsep.join(jars)}
    return {"spark.jars": ",".join(jars)}


def without_jars_of_spark(jars: Sequence[str]) -> list[str]:
    """Returns the jars that Ivy has resolved, without those that Spark itself has, in any version.

    Spark's class loaders prefer Spark's own jars. Ivy's copies of these jars would be copied to every executor and
    never used. Of Delta's 86 MB of jars, this function removes 70 MB.
    """
    spark = {_VERSION.sub("", jar.name) for jar in (spark_folder() / "jars").glob("*.jar")}
    # Ivy names a jar's file group_artifact-version.jar, and Spark names it artifact-version.jar.
    return [jar for jar in jars if _VERSION.sub("", Path(jar).name.partition("_")[2]) not in spark]


def _is_one_process(config: Mapping[str, str]) -> bool:
    """True if driver and executor are one process, according to the Spark master in ``config`` or in the
    environment."""
    master = config.get("spark.master") or os.environ.get("MASTER") or "local[*]"
    return master == "local" or master.startswith("local[")


def are_jars_ours(config: Mapping[str, str]) -> bool:
    """True if only rw_sql determines the jars with which Spark starts. If ``PYSPARK_SUBMIT_ARGS``, ``config`` or
    ``spark-defaults.conf`` may also determine jars, returns False, because rw_sql's ``spark.jars`` would replace those
    jars."""
    if "PYSPARK_SUBMIT_ARGS" in os.environ or any(key.startswith("spark.jars") for key in config):
        return False
    return spark_defaults_file() is None


def spark_defaults_file() -> Path | None:
    """The path of ``spark-defaults.conf`` in ``SPARK_CONF_DIR`` or, if this variable is not set, in the folder ``conf``
    of :func:`spark_folder`. None if the file does not exist."""
    file = Path(os.environ.get("SPARK_CONF_DIR") or spark_folder() / "conf") / "spark-defaults.conf"
    return file if file.is_file() else None


def spark_folder() -> Path:
    """The folder of the Spark installation that this process uses: ``SPARK_HOME`` or, if this variable is not set, the
    folder of the installed PySpark."""
    home = os.environ.get("SPARK_HOME")
    found = find_spec("pyspark") if home is None else None
    return Path(home) if home is not None else Path(found.origin).parent if found and found.origin else Path()


def cache_folder() -> Path:
    """The folder for files that this user's processes can create again if they are lost: ``rw_sql`` in the user's cache
    folder.

    Raises FileNotFoundError if the user has no cache folder.
    """
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rw_sql"
    except RuntimeError as error:
        raise FileNotFoundError(ENOENT, "the user has no home folder", "~") from error


def _file(package: str) -> Path:
    return cache_folder() / (re.sub(r"[^\w.=-]+", "-", package) + ".classpath")

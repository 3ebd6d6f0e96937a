"""Manages an archive of the classes of a JVM. Later JVMs load these classes from the archive, which is faster than
loading them from the jars.

By the end of its first statement, a JVM of Spark has read and checked about 20,000 classes. When a Java process ends,
Java can write the classes of the process into a file (a dynamic CDS archive, JEP 350). Java can then map this file into
later processes. :func:`class_archive` returns the JVM options that make Java write and map this file. The archives are
files in the user's cache folder, one for each combination of a Java version, a set of jars and a set of options.

A JVM of Java 17 that maps a damaged archive ends with a fatal error. Therefore, a short-lived JVM first maps each new
archive. If this succeeds, the archive gets its final name. The name contains the file's size in bytes, so that a file
that is truncated later is not used.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rw_sql.runtime.spark.jar_cache import CLASS_PATH, cache_folder, spark_folder
from rw_sql.runtime.spark.jvm import java_class
from rw_sql.session.java import java_program, java_version
from rw_sql.session.spark_settings import defaults_of_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

VARIABLE = "RW_SQL_CLASS_ARCHIVE"
"""The environment variable that disables archives if its value is ``off``."""

JAVA_OPTIONS = "spark.driver.extraJavaOptions"

_MEMORY = "spark.driver.memory"
_VARIABLES = ("SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")
"""The environment variables with options of Spark's JVM."""

_CLASS_PATHS = ("SPARK_DIST_CLASSPATH", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CLASSPATH")
"""The environment variables that add folders to the class path. Java does not write an archive if the class path
contains a folder with files."""

_IN_CI = "CI"
"""The environment variable that CI services set. The machines of CI services are discarded after the job, so an archive
that is made there would never be used. An archive that the CI service restores with the cache folder is used."""

_CONFLICTING = re.compile(r"-Xshare|SharedArchiveFile|ArchiveClassesAtExit|AutoCreateSharedArchive|-XX:AOT")
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
"""The JVM options that keep Java from reporting on standard output why it cannot use or write an archive."""

_MOST_BYTES = 600_000_000
"""A new archive is written only if at least this number of bytes is free on the disk. An archive has a size of about
200 MB."""

_KEPT = 4
_UNUSED_SECONDS = 30 * 86_400.0
_ABANDONED_SECONDS = 3_600.0


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The JVM options that concern the class archive.

    ``class_path_file`` is set if the JVM will write a new archive when it ends. :meth:`remember` stores the JVM's class
    path in this file. The short-lived JVM that maps the archive first gets the same class path.
    """

    options: str
    class_path_file: Path | None = None

    @property
    def is_made(self) -> bool:
        """True if the JVM will write a new archive when it ends."""
        return self.class_path_file is not None

    def remember(self, spark: SparkSession) -> None:
        """Stores the class path of the JVM that will write the archive. Does nothing if no archive will be written."""
        if self.class_path_file is not None:
            found = str(java_class(spark, "java.lang.System").getProperty("java.class.path"))
            with suppress(OSError):
                self.class_path_file.write_text(found, encoding="utf-8")


def class_archive(config: Mapping[str, str], class_path: Sequence[Path] = ()) -> ClassArchive | None:
    """Returns the archive for a JVM of Spark with these settings and with the settings in ``spark-defaults.conf``.

    ``class_path`` are the jars on the JVM's class path in addition to Spark's own jars. Returns None if archives are
    disabled, if the options of the JVM already name an archive, or if the class path may contain a folder with files.
    Also returns None if the cache folder cannot be written or is not private to this user. If a new archive would have
    to be written, also returns None in each of these cases: this process runs in CI, the disk of the cache folder has
    too little free space, or the path of the cache folder contains spaces. Raises SqlError JAVA_MISSING.
    """
    settings = {**defaults_of_file(), **config}
    given = " ".join([settings.get(JAVA_OPTIONS, ""), *(os.environ.get(name, "") for name in _VARIABLES)])
    if os.environ.get(VARIABLE, "").lower() == "off" or _CONFLICTING.search(given):
        return None
    if any(os.environ.get(name) for name in _CLASS_PATHS) or CLASS_PATH in settings:
        return None
    try:
        return _archive(given, settings.get(_MEMORY, ""), class_path)
    except OSError:
        return None


def with_archive(config: Mapping[str, str], archive: ClassArchive | None) -> dict[str, str]:
    """The settings, extended with the JVM options of an archive."""
    if archive is None:
        return dict(config)
    known = config.get(JAVA_OPTIONS, defaults_of_file().get(JAVA_OPTIONS, ""))
    return {**config, JAVA_OPTIONS: f"{known} {archive.options}".strip()}


def _archive(given: str, memory: str, class_path: Sequence[Path]) -> ClassArchive | None:
    conf = Path(os.environ.get("SPARK_CONF_DIR") or spark_folder() / "conf")
    if conf.is_dir() and any(conf.iterdir()):
        return None
    folder = cache_folder() / "classes"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_private(folder):
        return None
    jars = sorted((spark_folder() / "jars").glob("*.jar"))
    key = _key(given, memory, [*class_path, *jars])
    made = _usable(folder, key)
    if made is None:
        made = _accepted(folder, key, given)
    if made is not None:
        with suppress(OSError):
            os.utime(made)
        return ClassArchive(f"-XX:SharedArchiveFile={made} {_QUIET}")
    if os.environ.get(_IN_CI):
        return None
    _remove_old(folder)
    if shutil.disk_usage(folder).free < _MOST_BYTES or re.search(r"\s", str(folder)):
        return None
    new = folder / f"{key}.{os.getpid()}.new"
    return ClassArchive(f"-XX:ArchiveClassesAtExit={new} {_QUIET}", new.with_suffix(".classpath"))


def _is_private(folder: Path) -> bool:
    """True if only this user can write to the folder. No other user may write to the folder, because an archive
    determines the code that the JVM runs."""
    found = folder.stat()
    return not hasattr(os, "getuid") or (found.st_uid == os.getuid() and not found.st_mode & 0o022)


def _key(given: str, memory: str, jars: list[Path]) -> str:
    """A digest of the values that Java compares before it uses an archive: the Java program and version, the options
    and the jars."""
    found = hashlib.sha256()
    for part in (str(java_program()), java_version(), given, memory):
        found.update(f"{part}\0".encode())
    for jar in jars:
        stat = jar.stat()
        found.update(f"{jar}\0{stat.st_size}\0{stat.st_mtime_ns}\0".encode())
    return found.hexdigest()[:20]


def _usable(folder: Path, key: str) -> Path | None:
    for file in folder.glob(f"{key}-*.jsa"):
        if file.name == f"{key}-{file.stat().st_size}.jsa":
            return file
    return None


def _accepted(folder: Path, key: str, given: str) -> Path | None:
    """Returns the archive that an earlier JVM has written, if a JVM can map it. Otherwise, deletes the file and returns
    None."""
    for new in folder.glob(f"{key}.*.new"):
        class_path = new.with_suffix(".classpath")
        size = new.stat().st_size
        if _is_mappable(new, class_path, given):
            made = folder / f"{key}-{size}.jsa"
            new.replace(made)
            class_path.unlink(missing_ok=True)
            return made
        # If a JVM is still writing the file, the disk space is freed when that JVM ends.
        new.unlink(missing_ok=True)
        class_path.unlink(missing_ok=True)
    return None


def _is_mappable(file: Path, class_path: Path, given: str) -> bool:
    """True if a JVM with this class path can map the archive, and the archive's checksums are correct."""
    try:
        command = [
            str(java_program()),
            *(word for word in given.split() if word.startswith("-XX:")),
            *("-Xshare:on", "-XX:+VerifySharedSpaces", f"-XX:SharedArchiveFile={file}"),
            # Otherwise, a JVM that ends with SIGBUS writes a report into the current folder.
            *("-XX:ErrorFile=/dev/null", "-XX:-CreateCoredumpOnCrash"),
            *("-cp", class_path.read_text(encoding="utf-8")),
            "-version",
        ]
        return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0
    except (OSError, UnicodeDecodeError, subprocess.TimeoutExpired):
        return False


def _remove_old(folder: Path) -> None:
    """Deletes unused files. These are all archives except the newest few archives, and files that a JVM began to write
    but did not complete."""
    now = time.time()
    with suppress(OSError):
        archives = sorted(folder.glob("*.jsa"), key=lambda file: file.stat().st_mtime, reverse=True)
        for place, file in enumerate(archives):
            if place >= _KEPT - 1 or now - file.stat().st_mtime > _UNUSED_SECONDS:
                file.unlink(missing_ok=True)
        for file in (*folder.glob("*.new"), *folder.glob("*.classpath")):
            if now - file.stat().st_mtime > _ABANDONED_SECONDS:
                file.unlink(missing_ok=True)

"""Manages archives of the classes that Spark's JVM loads. A later JVM loads these classes faster from the archive than
from the jars.

By the end of its first statement, Spark's JVM has read and verified about 20,000 classes. When a Java process ends,
Java can write its classes into a file (a dynamic CDS archive, JEP 350), and can later map this file into other
processes. :func:`class_archive` returns the JVM options that make Java write a new archive or map an existing one. The
archives are in the user's cache folder. There is one archive for each combination of a Java version, jars and JVM
options.

A JVM of Java 17 that maps a damaged archive ends with a fatal error. Therefore, a short-lived JVM first tests a new
archive by mapping it. If the test succeeds, the archive gets its final name, which contains the file's size in bytes.
If the file is truncated later, its size differs from the size in its name, and the file is not used.
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
"""The environment variables that contain options for Spark's JVM."""

_CLASS_PATHS = ("SPARK_DIST_CLASSPATH", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CLASSPATH")
"""The environment variables that add folders to the class path. Java does not write an archive if the class path
contains a folder with files."""

_IN_CI = "CI"
"""The environment variable that CI services set. If it is set, no new archive is written: the machine is discarded
after the CI job, so a new archive would never be used. An existing archive is used, for example if the CI service has
restored the cache folder."""

_CONFLICTING = re.compile(r"-Xshare|SharedArchiveFile|ArchiveClassesAtExit|AutoCreateSharedArchive|-XX:AOT")
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
"""The JVM options that suppress Java's messages on standard output about archives that it cannot use or write."""

_MOST_BYTES = 600_000_000
"""A new archive is written only if at least this number of bytes is free on the disk of the cache folder. An archive is
about 200 MB large."""

_KEPT = 4
_UNUSED_SECONDS = 30 * 86_400.0
_ABANDONED_SECONDS = 3_600.0


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The JVM options with which a JVM maps an existing class archive, or writes a new one when it ends.

    ``class_path_file`` is None if the JVM maps an existing archive. Otherwise, :meth:`remember` stores the JVM's class
    path in this file, and the short-lived JVM that tests the new archive uses the same class path.
    """

    options: str
    class_path_file: Path | None = None

    @property
    def is_made(self) -> bool:
        """True if the JVM will write a new archive when it ends; False if it maps an existing archive."""
        return self.class_path_file is not None

    def remember(self, spark: SparkSession) -> None:
        """Stores the class path of this JVM, if this JVM will write a new archive when it ends. Otherwise, does
        nothing."""
        if self.class_path_file is not None:
            found = str(java_class(spark, "java.lang.System").getProperty("java.class.path"))
            with suppress(OSError):
                self.class_path_file.write_text(found, encoding="utf-8")


def class_archive(config: Mapping[str, str], class_path: Sequence[Path] = ()) -> ClassArchive | None:
    """Returns the archive options for a JVM of Spark with the settings ``config`` and the settings in
    ``spark-defaults.conf``.

    ``class_path`` are the jars on the JVM's class path in addition to Spark's own jars. Returns None if archives are
    disabled, if the options of the JVM already name an archive, or if the class path may contain a folder with files.
    Also returns None if the cache folder is not writable, or if other users may write to it.

    If there is no archive yet, also returns None if this process runs in CI, if the cache folder's disk has too little
    free space, or if the cache folder's path contains white space. Raises SqlError JAVA_MISSING.
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
    """The settings ``config``, with the JVM options of ``archive`` added. If ``archive`` is None, the settings are
    unchanged."""
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
    """True if the folder belongs to this user and no other user has permission to write to it. Other users must not be
    able to write to the folder, because an archive determines the code that the JVM runs."""
    found = folder.stat()
    return not hasattr(os, "getuid") or (found.st_uid == os.getuid() and not found.st_mode & 0o022)


def _key(given: str, memory: str, jars: list[Path]) -> str:
    """A digest of everything on which an archive depends: the Java program, its version, the JVM options, the memory
    size and the jars."""
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
    """Returns an archive that an earlier JVM has written and that passes the test of :func:`_is_mappable`; None if no
    archive passes. Deletes new archives that fail the test."""
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
    """True if a short-lived JVM with this class path can map the archive and finds its checksums correct."""
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
    """Deletes archives that were not used for 30 days, all archives except the few most recently used ones, and new
    archives that were not accepted within an hour."""
    now = time.time()
    with suppress(OSError):
        archives = sorted(folder.glob("*.jsa"), key=lambda file: file.stat().st_mtime, reverse=True)
        for place, file in enumerate(archives):
            if place >= _KEPT - 1 or now - file.stat().st_mtime > _UNUSED_SECONDS:
                file.unlink(missing_ok=True)
        for file in (*folder.glob("*.new"), *folder.glob("*.classpath")):
            if now - file.stat().st_mtime > _ABANDONED_SECONDS:
                file.unlink(missing_ok=True)

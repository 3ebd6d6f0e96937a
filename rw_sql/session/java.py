"""Checks that a Java version suitable for Spark is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from rw_sql.errors import JAVA_MISSING, SqlError
from rw_sql.metastore.location import require_current_folder

OLDEST_JAVA = 17
"""The oldest Java version that Spark 4 supports."""

_NEED = f"Spark needs Java {OLDEST_JAVA} or newer"
_HINT = f"install one (Debian: apt-get install openjdk-{OLDEST_JAVA}-jre-headless) or point JAVA_HOME at one"
_OPTIONS = ("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS")
"""The environment variables whose options Java adds to every Java process."""

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_suitable: dict[Path, str] = {}
"""The Java programs that this process has found to be new enough, each with its output for ``-version``."""


def check_java() -> None:
    """Checks that the Java version that Spark will start is new enough. Raises SqlError RW404 if the Java version is
    not new enough. The error's hint says how to install or select a suitable version.

    Spark starts ``$JAVA_HOME/bin/java`` if JAVA_HOME is set, otherwise the first ``java`` on the PATH. Commands call
    this function before they report that Spark is starting, and :func:`rw_sql.connect` calls it again. A successful
    check is cached. The second call therefore does not start Java again.
    """
    java, origin = _find_java()
    if java in _suitable:
        return
    text = _version_text(java)
    match = _VERSION.search(text)
    version = int(match[1]) if match else None
    if version is None:
        require_current_folder()  # Java does not start if the current folder was deleted.
        raise SqlError(JAVA_MISSING, f"{java} ({origin}) is not a working Java{_said(text)}", hint=_hint())
    if version < OLDEST_JAVA:
        told = f"{_NEED}, but {java} ({origin}) is Java {version}"
        raise SqlError(JAVA_MISSING, told, hint=_HINT)
    _suitable[java] = text


def _find_java() -> tuple[Path, str]:
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not java.is_file():
            raise SqlError(JAVA_MISSING, f"{_NEED}, but JAVA_HOME contains no {java}", hint=_HINT)
        return java, "from JAVA_HOME"
    found = shutil.which("java")
    if found is None:
        raise SqlError(JAVA_MISSING, f"{_NEED}, but no java is on the PATH and JAVA_HOME is not set", hint=_HINT)
    return Path(found), "from the PATH"


def java_program() -> Path:
    """The path of the Java program that Spark starts. Raises SqlError RW404 if no Java is found."""
    return _find_java()[0]


def java_version() -> str:
    """The output of ``java -version`` for the Java that Spark starts: version, vendor and build. Raises SqlError RW404
    in the same cases as :func:`check_java`."""
    check_java()
    return _suitable[java_program()]


def _said(text: str) -> str:
    """The first line of Java's output that explains why Java failed, with a leading ``: `` for the end of a message.
    The result is empty if there is no such line."""
    lines = (line.strip() for line in text.splitlines() if not line.startswith("Picked up "))
    first = next(filter(None, lines), "")
    return f": {first}" if first else ""


def _hint() -> str:
    names = " and ".join(name for name in _OPTIONS if os.environ.get(name))
    return f"change {names}, which adds options to each Java process, or {_HINT}" if names else _HINT


def _version_text(java: Path) -> str:
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=300)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return told.stderr + told.stdout

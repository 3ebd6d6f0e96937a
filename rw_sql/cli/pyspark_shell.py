"""Implements ``rw-sql pyspark``, which starts the pyspark shell with Delta on the class path and rw_sql attached."""

from __future__ import annotations

import os
import sys
from importlib.resources import as_file, files
from pathlib import Path
from typing import NoReturn

from rw_sql.session.java import check_java


def run_pyspark(arguments: list[str]) -> NoReturn:
    """Replaces this process with pyspark, which gets ``arguments``. Raises SqlError RW404 if Java is missing."""
    check_java()
    import pyspark

    from rw_sql.session.attach import delta_options

    home = Path(pyspark.__file__).parent
    with as_file(files("rw_sql.cli") / "pyspark_startup.py") as startup:
        environment = {
            **os.environ,
            "SPARK_HOME": os.environ.get("SPARK_HOME", str(home)),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYTHONSTARTUP": str(startup),
        }
        # Spark would draw its progress bars where a statement's status line is; the user's arguments can enable the
        # bars again.
        settings = [*delta_options(), "--conf", "spark.ui.showConsoleProgress=false"]
        command = [str(home / "bin" / "pyspark"), *settings, *arguments]
        # The shell replaces this process, so that signals (including Ctrl-C) reach the shell, and so that the shell
        # does not continue to run if this process is killed.
        os.execve(command[0], command, environment)

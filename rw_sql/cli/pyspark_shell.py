"""``rw-sql pyspark``: the pyspark shell with Delta on its class path and rw_sql attached."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib.resources import as_file, files
from pathlib import Path

from rw_sql.environment import check_java


def run_pyspark(arguments: list[str]) -> int:
    """Starts pyspark with ``arguments`` and gives back its exit status. Raises SqlError RW404 where Java is missing."""
    check_java()
    import pyspark

    from rw_sql.session import DELTA_OPTIONS

    home = Path(pyspark.__file__).parent
    with as_file(files("rw_sql.cli") / "pyspark_startup.py") as startup:
        environment = {
            **os.environ,
            "SPARK_HOME": os.environ.get("SPARK_HOME", str(home)),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYTHONSTARTUP": str(startup),
        }
        command = [str(home / "bin" / "pyspark"), *DELTA_OPTIONS, *arguments]
        # Ctrl-C belongs to the shell that was started: it cancels a line there and must not end this process. SIG_IGN
        # would be inherited, a handler is not.
        before = signal.signal(signal.SIGINT, lambda _number, _frame: None)
        try:
            return subprocess.run(command, env=environment, check=False).returncode
        finally:
            signal.signal(signal.SIGINT, before)

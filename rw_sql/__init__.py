"""rw_sql: RisingWave-style sources as a SQL dialect inside PySpark.

``connect()`` builds a Spark session that accepts rw_sql's statements, and ``attach(spark)`` extends an existing Spark
session. ``parse`` and ``render`` need neither Spark nor Java. Importing this package loads neither Spark nor Java.
"""

# The packages, from top to bottom (each imports only packages below it): cli and magics (the commands and the notebook
# magics), session (attached Spark sessions), runtime (the running jobs), plan (the effect of a statement), model (the
# meaning of the catalog), syntax (parsing and rendering of statements), connectors, metastore (the stored catalog) and
# checkpoints. ARCHITECTURE.md follows a statement through the packages, from session/attach.py on.

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rw_sql.errors import SqlError
from rw_sql.version import __version__ as __version__

if TYPE_CHECKING:
    from rw_sql.session.attach import Attached, attach, connect, detach
    from rw_sql.syntax import parse, render

__all__ = ["Attached", "SqlError", "attach", "connect", "detach", "parse", "render"]

_HOMES = {
    "Attached": "rw_sql.session.attach",
    "attach": "rw_sql.session.attach",
    "connect": "rw_sql.session.attach",
    "detach": "rw_sql.session.attach",
    "parse": "rw_sql.syntax",
    "render": "rw_sql.syntax",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rw_sql' has no attribute {name!r}")
    from importlib import import_module

    try:
        found = getattr(import_module(_HOMES[name]), name)
        if name in ("attach", "connect"):
            import_module("rw_sql.cli.shell.prompt_status").show_at_prompt()
        return found
    except ModuleNotFoundError as error:
        from rw_sql.packages import missing_package

        missing = missing_package(error, f"rw_sql.{name}")
        if missing is None:
            raise
        raise missing from error


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext rw_sql``: registers the ``%%rw`` cell magic."""
    from importlib import import_module

    import_module("rw_sql.magics").load(shell)

"""Imports optional packages only when they are needed, and reports missing packages. An installation without extras (a
light installation) does not contain the optional packages."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from rw_sql.errors import NOT_SUPPORTED, PACKAGE_MISSING, SqlError

_CATALOG = ("arro3", "deltalake", "pyarrow")
_FULL = (
    "cryptography",
    "delta",
    "hvac",
    "numpy",
    "pandas",
    "prometheus_client",
    "prompt_toolkit",
    "psycopg",
    "py4j",
    "pyspark",
    "yaml",
)
_OF_A_CONNECTOR = {
    "nats": "nats",
    "nkeys": "nats",
    "boto3": "kinesis",
    "paho": "mqtt",
    "pulsar": "pulsar",
    "pyiceberg": "iceberg",
    "pymysql": "mysql-cdc",
}
EXTRAS = {
    "confluent_kafka": "kafka",
    **_OF_A_CONNECTOR,
    **dict.fromkeys(_CATALOG, "catalog"),
    **dict.fromkeys(_FULL, "spark"),
}
"""Maps packages to the extras of this distribution that install them."""


class _Deferred(ModuleType):
    """A placeholder for a module. The module is imported when one of the module's names is first used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)
        return value


def deferred(name: str) -> Any:
    """Returns the module with the given name. The module is imported when one of its names is first used.

    Because of deferred imports, the commands ``check`` and ``fmt`` start quickly. They load every connector, because
    the connectors define the options, but they need none of the modules that read and write data.
    """
    return _Deferred(name)


def require_package(connector: str, package: str) -> None:
    """Raises SqlError if the package that a connector needs is not installed."""
    if find_spec(package) is None:
        raise SqlError(
            NOT_SUPPORTED,
            f'connector "{connector}" needs the Python package {package}, which is not installed',
            hint=f"pip install 'rw-sql[{EXTRAS[package]}]'",
        )


def missing_package(error: ModuleNotFoundError, user: str, *, is_full: bool = True) -> SqlError | None:
    """Returns the error for a missing package. Returns None if no extra of this distribution installs the package.

    ``user`` is the feature that needs the package. ``is_full`` is true if the feature also needs Spark. In this case,
    the hint suggests the extra ``spark``, even if the missing package belongs to another extra.
    """
    package = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(package)
    if extra is None:
        return None
    return SqlError(
        PACKAGE_MISSING,
        f"{user} needs the package {package}, which this light installation lacks",
        hint=f"pip install 'rw-sql[{'spark' if is_full else extra}]'",
    )

"""Imports optional packages only when they are needed, and reports missing packages. A light installation does not
contain the optional packages."""

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
    """A module that is imported at the first use of a name in it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)
        return value


def deferred(name: str) -> Any:
    """The module with the given name, which is imported at the first use of a name in it.

    Because of deferred imports, ``check`` and ``fmt`` start quickly. These commands load every connector for its
    options, but need none of the modules that read and write data.
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
    """The error for a missing package that an extra installs; None for any other package.

    ``user`` is the feature that needs the package. ``is_full`` is true if the feature also needs Spark. In this case,
    the hint suggests installing Spark, even if another package was found missing first.
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

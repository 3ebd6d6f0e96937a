"""Wraps the methods of PySpark that write or cache a table by its name. The wrappers prevent changes to rw_sql's
objects.

Without these wrappers, ``df.write.mode("overwrite").saveAsTable("m")`` would silently replace the Spark view of a
materialized view with a Spark table.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrameWriter
from pyspark.sql.catalog import Catalog
from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from rw_sql.runtime.sql.catalog_views import CACHE_CALL

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


_WRAPPED = "_rw_sql_original"


def wrap_writers(refuse: Callable[[SparkSession, str, str], None]) -> None:
    """Wraps PySpark's methods that write or cache a table by its name, unless they are already wrapped.

    ``refuse`` is a function that receives the session, the method's name and the table's name. ``refuse`` raises
    SqlError if the table is an object of rw_sql.
    """
    for owner, names, session_of in (
        (DataFrameWriter, ("saveAsTable", "insertInto"), lambda writer: writer._spark),
        (DataStreamWriter, ("toTable",), lambda writer: writer._spark),
        (DataFrame, ("writeTo", "mergeInto"), lambda frame: frame.sparkSession),
        (Catalog, (CACHE_CALL,), lambda catalog: catalog._sparkSession),
    ):
        for name in names:
            _wrap(owner, name, session_of, refuse)


def _wrap(
    owner: Any,
    method: str,
    session_of: Callable[[Any], SparkSession],
    refuse: Callable[[SparkSession, str, str], None],
) -> None:
    original = owner.__dict__[method]
    if hasattr(original, _WRAPPED):
        return

    @functools.wraps(original)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        # The first parameter of each method is the table's name. The parameter is called name, table or tableName.
        name = args[0] if args else next((kwargs[key] for key in ("name", "table", "tableName") if key in kwargs), None)
        if isinstance(name, str):
            refuse(session_of(self), method, name)
        return original(self, *args, **kwargs)

    setattr(checked, _WRAPPED, original)
    setattr(owner, method, checked)

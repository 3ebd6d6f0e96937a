"""Makes Spark's analyzer replace the parameter markers in a statement with the arguments of ``spark.sql``. By default,
newer versions of Spark replace the markers in the parser, but Delta Lake's parser loses the arguments."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_IN_THE_ANALYZER = "spark.sql.legacy.parameterSubstitution.constantsOnly"
"""Spark's setting that makes its analyzer replace markers such as ``:name``, as Spark 4.0 does.

Without this setting, Spark's parser replaces the markers. However, the parser of Delta Lake 4.4 passes only the text to
Spark's parser, without the arguments. Every statement with a marker then fails with UNBOUND_SQL_PARAMETER.
"""


@contextmanager
def bound_arguments(spark: SparkSession) -> Iterator[None]:
    """A context manager inside which Spark replaces the markers of a statement with the statement's arguments.

    The context manager changes a setting of the session, and restores it at the end. In a version of Spark that does
    not have this setting, the context manager does nothing.
    """
    try:
        is_needed = spark.conf.get(_IN_THE_ANALYZER) == "false"
    except (PySparkException, Py4JError):  # This version of Spark has no such setting.
        is_needed = False
    if not is_needed:
        yield
        return
    try:
        spark.conf.set(_IN_THE_ANALYZER, "true")
        yield
    finally:
        spark.conf.unset(_IN_THE_ANALYZER)

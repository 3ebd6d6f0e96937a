"""Lets streaming queries group by a constant number on Spark 4.0."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_ORDINALS = "spark.sql.groupByOrdinal"


@contextmanager
def constant_groups(spark: SparkSession) -> Iterator[None]:
    """A context manager for starting a streaming query whose GROUP BY may contain a constant, as in ``SELECT 5 AS five,
    count(*) … GROUP BY five``.

    Spark 4.0 analyzes the plan of the query again for each batch. In this plan, the constant has already replaced the
    alias, so Spark would interpret the constant as the position of a column. The context manager therefore disables
    positions in GROUP BY, by a setting of the session, while the query starts. At the end, the context manager restores
    the setting, because other queries of the session may contain positions. The started query keeps its own copy of the
    changed setting.
    """
    if not spark.version.startswith("4.0."):
        yield
        return
    given = str(spark.conf.get(_ORDINALS))
    spark.conf.set(_ORDINALS, "false")
    try:
        yield
    finally:
        spark.conf.set(_ORDINALS, given)

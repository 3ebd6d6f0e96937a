"""Finds what depends on the current time in Spark's plans."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rw_sql.runtime.spark.sessions import activate_in_jvm

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_FIELDS = "spark.sql.debug.maxToStringFields"
_WORD = r"now|today|tomorrow|yesterday"
_CLOCK = re.compile(
    r"\b(?P<call>now|current_timestamp|current_date|localtimestamp|current_time)\("
    rf"|\bcast\(\s*(?P<word>{_WORD})(?:\s[^()#]*)? as (?:date|timestamp(?:_ntz|_ltz)?)\)",
    re.IGNORECASE,
)
"""Matches functions that return the current time, by their names in the text of Spark's plans (``unix_timestamp()`` and
``curdate()`` have these names there too), and the texts that Spark converts to the current day or time, as in
``CAST('today' AS DATE)``. A column has a number after its name in this text: ``today#12``."""

_LITERAL = re.compile(
    rf"\b(?:date|timestamp(?:_ntz|_ltz)?)\s*(['\"])\s*(?P<word>{_WORD})(?:\s[^'\"]*)?\1", re.IGNORECASE
)
"""Matches literals such as ``DATE 'today'`` in the text of a query. Spark's parser replaces them with a constant."""


@contextmanager
def whole_texts(spark: SparkSession) -> Iterator[None]:
    """A context manager in which the texts of plans contain every column and argument. Otherwise, Spark omits those
    after the twenty-fifth."""
    given = spark.conf.get(_FIELDS, None)
    spark.conf.set(_FIELDS, str(2**31 - 1))
    activate_in_jvm(spark)
    try:
        yield
    finally:
        if given is None:
            spark.conf.unset(_FIELDS)
        else:
            spark.conf.set(_FIELDS, given)


def clock_in(part: Any) -> str | None:
    """What depends on the current time in a plan or an expression: ``current_date()``, ``'today'``; None if nothing
    does. Must be called in :func:`whole_texts`."""
    found = _CLOCK.search(str(part.toString()))
    if found is None:
        return None
    return f"{found['call']}()" if found["call"] else f"'{found['word']}'"


def clock_literal_in(query: str) -> str | None:
    """The first literal in the text of a query that means the current day or time; None if there is none."""
    found = _LITERAL.search(query)
    return found[0] if found is not None else None

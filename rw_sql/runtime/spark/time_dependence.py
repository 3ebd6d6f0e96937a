"""Finds the parts of Spark's plans that depend on the current time."""

from __future__ import annotations

import re
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from rw_sql.errors import SqlError
from rw_sql.runtime.spark.jvm import java_class
from rw_sql.runtime.spark.sessions import activate_in_jvm
from rw_sql.syntax.lexing.tokens import QUOTED, STRING, WORD, scan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_FIELDS = "spark.sql.debug.maxToStringFields"
_WORD = r"now|today|tomorrow|yesterday"
_CLOCK = re.compile(
    r"\b(?P<call>now|current_timestamp|current_date|localtimestamp|current_time)\("
    rf"|\b(?:try_)?cast\(\s*(?P<word>{_WORD})(?:\s+[\w/+:-]*)?\s* as (?:date|timestamp(?:_ntz|_ltz)?)\)",
    re.IGNORECASE,
)
"""Matches the names that functions for the current time have in the text of Spark's plans. In this text, functions such
as ``unix_timestamp()`` and ``curdate()`` also have one of these names. Also matches casts of texts that Spark converts
to a time relative to the current time, as in ``CAST('today' AS DATE)``. Does not match a column, because a number
follows the column's name in this text: ``today#12``."""

_LITERAL_TYPES = ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ")
_CURRENT = re.compile(rf"\s*(?:{_WORD})(?:\s+[\w/+:-]*)?\s*", re.IGNORECASE)
"""Matches the content of a literal such as ``DATE 'today'``. If a literal has this content, Spark's parser replaces the
literal with a constant."""


@contextmanager
def whole_texts(spark: SparkSession) -> Iterator[None]:
    """A context manager in which the texts of plans contain every column and argument. Without this context manager,
    Spark omits every column and argument after the twenty-fifth."""
    given = spark.conf.get(_FIELDS, None)
    sessions = java_class(spark, "org.apache.spark.sql.classic.SparkSession")
    active = sessions.getActiveSession()
    try:
        spark.conf.set(_FIELDS, str(2**31 - 1))
        activate_in_jvm(spark)
        yield
    finally:
        if active.isDefined():
            sessions.setActiveSession(active.get())
        if given is None:
            spark.conf.unset(_FIELDS)
        else:
            spark.conf.set(_FIELDS, given)


def clock_in(spark: SparkSession, plan: Any) -> str | None:
    """The part of a plan that depends on the current time, such as ``current_date()`` or ``'today'``; None if no part
    depends on the current time. Must be called inside the context manager :func:`whole_texts`."""
    nested = plan.subqueriesAll()
    parts = (plan, *(nested.apply(i) for i in range(nested.size())))
    return next((found for part in parts if (found := _clock_in(spark, _replaced(spark, part))) is not None), None)


def clock_in_step(spark: SparkSession, plan: Any) -> str | None:
    """Does the same as :func:`clock_in`, but only for the expressions of the last step of a plan."""
    parts = _replaced(spark, plan).expressions()
    found = (_clock_in(spark, parts.apply(i)) for i in range(parts.size()))
    return next((clock for clock in found if clock is not None), None)


def _replaced(spark: SparkSession, plan: Any) -> Any:
    """Returns a copy of a plan in which each function that Spark defines by another expression is replaced with this
    expression. For example, a cast of 'today' to a date replaces ``to_date('today')``. The plans of subqueries stay
    unchanged."""
    return java_class(spark, "org.apache.spark.sql.catalyst.optimizer.ReplaceExpressions").apply(plan)


def _clock_in(spark: SparkSession, part: Any) -> str | None:
    # The text also contains the names of columns and the values of strings, which may look like a call or a cast.
    patterns = java_class(spark, "org.apache.spark.sql.catalyst.trees.TreePattern")
    has_call, has_cast = (part.containsPattern(kind) for kind in (patterns.CURRENT_LIKE(), patterns.CAST()))
    for found in _CLOCK.finditer(str(part.toString())) if has_call or has_cast else ():
        if found["call"] and has_call:
            return f"{found['call']}()"
        if found["word"] and has_cast:
            return f"'{found['word']}'"
    return None


def clock_literal_in(query: str) -> str | None:
    """Returns the first literal in the text of a query that denotes the current day or time, such as ``DATE 'today'``;
    None if the query contains no such literal."""
    try:
        tokens = scan(query)
    except SqlError:
        return None  # The query may use words or quotes that only Spark's parser accepts.
    for word, text in pairwise(tokens):
        is_text = text.kind in (STRING, QUOTED)
        if word.kind == WORD and word.upper in _LITERAL_TYPES and is_text and _CURRENT.fullmatch(text.value):
            return query[word.start : text.end]
    return None

"""Detects queries that make each output row from a single input row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.runtime.spark.jvm import analyzed_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BY_ROW = frozenset({"Project", "Filter", "SubqueryAlias", "View", "Generate", "EventTimeWatermark", "ResolvedHint"})


def is_by_row(frame: DataFrame) -> bool:
    """True if each row of a stream is computed from a single input row, without state."""
    return steps_by_row(frame) is not None


def steps_by_row(frame: DataFrame, *, is_streaming: bool = True) -> tuple[str, ...] | None:
    """Spark's names for the steps of a stream for which :func:`is_by_row` is true, last step first; None for other
    streams. ``is_streaming=False``: the frame is not a stream."""
    found: list[str] = []
    plan = analyzed_plan(frame)
    while True:
        children = plan.children()
        if children.size() == 0:
            return tuple(found) if plan.isStreaming() == is_streaming else None
        name = str(plan.nodeName())
        if children.size() != 1 or name not in _BY_ROW or plan.subqueries().nonEmpty():
            return None
        found.append(name)
        plan = children.apply(0)


def makes_more(frame: DataFrame) -> bool:
    """True if a row-by-row query may make several rows from one input row."""
    plan = analyzed_plan(frame)
    while plan.children().size() == 1:
        if str(plan.nodeName()) == "Generate":
            return True
        plan = plan.children().apply(0)
    return False

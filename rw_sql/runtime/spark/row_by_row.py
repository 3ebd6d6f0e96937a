"""Detects queries that make each output row from a single input row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rw_sql.runtime.spark.jvm import analyzed_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COLUMNS_ONLY = frozenset({"Project", "SubqueryAlias", "View"})
_BY_ROW = frozenset({"Project", "Filter", "SubqueryAlias", "View", "Generate", "EventTimeWatermark", "ResolvedHint"})


def is_by_row(frame: DataFrame) -> bool:
    """True if each row of a stream is computed from a single input row, without state."""
    return steps_by_row(frame) is not None


def steps_by_row(frame: DataFrame, *, is_streaming: bool = True) -> tuple[str, ...] | None:
    """Returns Spark's names for the steps of a stream for which :func:`is_by_row` is true, last step first. Returns
    None for any other frame. If ``is_streaming`` is False, accepts only a frame that is not a stream."""
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


def chosen_columns(frame: DataFrame) -> tuple[tuple[str, str], ...] | None:
    """Returns the columns of a query that only chooses and renames columns of its input, as pairs of the column's name
    in the result and its name in the input. Returns None if the query computes columns or filters rows. The input of
    the query must be a frame of given rows, for example an empty frame."""
    plan = analyzed_plan(frame)
    output = plan.output()
    found = [(str(output.apply(at).name()), int(output.apply(at).exprId().id())) for at in range(output.size())]
    while plan.children().size():
        if plan.children().size() != 1 or str(plan.nodeName()) not in _COLUMNS_ONLY or plan.subqueries().nonEmpty():
            return None
        if str(plan.nodeName()) == "Project":
            given = _given_names(plan.projectList())
            if given is None:
                return None
            found = [(name, given[column]) for name, column in found]
        plan = plan.children().apply(0)
    output = plan.output()
    names = {int(output.apply(at).exprId().id()): str(output.apply(at).name()) for at in range(output.size())}
    return tuple((name, names[column]) for name, column in found)


def _given_names(columns: Any) -> dict[int, int] | None:
    """Maps each column of a projection to the column of the input that it returns unchanged. The keys and the values
    are the ids of the columns in Spark's plan. The result is None if the projection computes a column."""
    given: dict[int, int] = {}
    for at in range(columns.size()):
        column = columns.apply(at)
        inner = column.child() if column.getClass().getSimpleName() == "Alias" else column
        if inner.getClass().getSimpleName() != "AttributeReference":
            return None
        given[int(column.exprId().id())] = int(inner.exprId().id())
    return given

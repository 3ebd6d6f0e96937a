"""Computes a row-by-row query over a few rows in the driver, without a Spark job, and without planning the query for
each batch.

If the rows of a projection or filter are in the driver's memory, the rule ``ConvertToLocalRelation`` of Spark's
optimizer computes the result. This module analyzes and optimizes the query once, without this rule. For each batch, it
only replaces the rows in the plan and applies the rule. Therefore, Spark itself evaluates all expressions.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rw_sql.connectors.support.local_frames import local_frame
from rw_sql.runtime.spark.jvm import (
    analyzed_plan,
    java_class,
    java_frame,
    optimized_plan,
    scala_object,
    scala_sequence,
)
from rw_sql.runtime.spark.row_by_row import steps_by_row
from rw_sql.runtime.spark.sessions import activate_in_jvm
from rw_sql.runtime.spark.time_dependence import clock_in, whole_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

_OPTIMIZER = "org.apache.spark.sql.catalyst.optimizer"
_EXCLUDED = "spark.sql.optimizer.excludedRules"
_CONSTRAINTS = "spark.sql.constraintPropagation.enabled"
_COMPUTING_RULES = ("ConvertToLocalRelation", "PropagateEmptyRelation", "PruneFilters")
"""The optimizer's rules that are switched off while a query is prepared. The preparation analyzes the query over an
empty table. If these rules were on, they would replace the query, or a filter that is always false, with the result for
this empty table."""

_MERGING_RULES = ("CollapseProject", "PushDownPredicates")
"""The rules that merge the steps of a query."""

_LOCAL = "LocalRelation"
_COMPUTED = frozenset({"Project", "Filter"})
_CONVERTERS = "org.apache.spark.sql.execution.arrow.ArrowConverters"
_PROJECTION = "org.apache.spark.sql.catalyst.expressions.UnsafeProjection"
_FEW_ROWS = 10
_MOST_COPIED_BYTES = 2 * 2**20
"""The maximum size in bytes of the input of a batch that this module computes. The bytes of the result pass through
py4j as text. With a larger input, this transfer would take longer than a Spark job."""

_MOST_RECORDS, _MOST_BYTES = 1_000_000, 1 << 30
_ZONE = "UTC"


@dataclass(slots=True)
class RowQuery:
    """A prepared query. ``steps`` are Spark's names for the query's steps, last step first. Not thread-safe."""

    spark: SparkSession
    query: Callable[[DataFrame], DataFrame]
    is_stepwise: bool
    steps: tuple[str, ...]
    kinds: tuple[tuple[str, str], ...]
    """The columns of the result: their names and Spark's names of their types."""
    _nodes: tuple[Any, ...]
    """The steps of the optimized plan, first step first."""
    _leaf: Any
    _output: Any
    """The attributes of the input's columns."""
    _given: Any
    """The input's columns as a StructType."""
    _copying: Any
    """A projection that copies a row of the input."""
    _shape: Any
    """The result's columns as a StructType."""

    @staticmethod
    def of(
        spark: SparkSession, schema: pa.Schema, query: Callable[[DataFrame], DataFrame], *, is_stepwise: bool = False
    ) -> RowQuery | None:
        """Prepares ``query``, a function that returns the result for a DataFrame of input rows. ``schema`` are the
        input's columns. If ``is_stepwise`` is true, the query's steps are not merged, because a merged step would
        compute a value again for each of its uses.

        Returns None if the query has steps other than projections and filters, or if the result depends on anything
        except the rows.
        """
        nothing = local_frame(spark, schema.empty_table())
        with _without(spark, *_COMPUTING_RULES, *(_MERGING_RULES if is_stepwise else ())):
            frame = query(nothing)
            plan = optimized_plan(frame)
        steps = steps_by_row(frame, is_streaming=False)
        nodes, leaf = [], plan
        while leaf.nodeName() in _COMPUTED and leaf.deterministic():
            nodes.append(leaf)
            leaf = leaf.children().apply(0)
        is_whole = leaf.nodeName() == _LOCAL and leaf.output().size() == len(schema)
        if steps is None or not is_whole or _depends_on_time(spark, frame):
            return None
        return RowQuery(
            spark=spark,
            query=query,
            is_stepwise=is_stepwise,
            steps=steps,
            kinds=tuple((column.name, column.dataType.simpleString()) for column in frame.schema.fields),
            _nodes=tuple(reversed(nodes)),
            _leaf=leaf,
            _output=leaf.output(),
            _given=java_frame(nothing).schema(),
            _copying=java_class(spark, _PROJECTION).create(java_frame(nothing).schema()),
            _shape=java_frame(frame).schema(),
        )

    def rows(self, given: pa.Table) -> pa.Table | None:
        """The result of the query for the rows ``given``; None if Spark's rule does not compute the result. If the
        result has no rows, it may also have no columns.

        Raises PySparkException or Py4JError if an expression fails.
        """
        if given.nbytes > _MOST_COPIED_BYTES:
            with _without(self.spark, *(_MERGING_RULES if self.is_stepwise else ())):
                return self.query(local_frame(self.spark, given)).toArrow()
        activate_in_jvm(self.spark)
        data = self._few(given) if given.num_rows <= _FEW_ROWS else self._many(given)
        if data is None:
            return None
        plan = self._leaf.copy(self._output, data, False, self._leaf.stream())
        rule = java_class(self.spark, f"{_OPTIMIZER}.ConvertToLocalRelation")
        for node in self._nodes:
            plan = rule.apply(node.withNewChildren(scala_sequence(self.spark, plan)))
        if plan.nodeName() != _LOCAL:
            return None
        converters = scala_object(self.spark, _CONVERTERS)
        parts = converters.toBatchWithSchemaIterator(
            plan.data().iterator(), self._shape, _MOST_RECORDS, _MOST_BYTES, _ZONE, True, False
        )
        tables = []
        while parts.hasNext():
            tables.append(pa.ipc.open_stream(parts.next()).read_all())
        return pa.concat_tables(tables) if tables else pa.table({})

    def _few(self, given: pa.Table) -> Any:
        """Converts a few rows to Spark's rows. The conversion takes four calls to the JVM for each row, whereas
        ``createDataFrame`` takes as long as fifty calls."""
        batches = scala_sequence(self.spark, *(batch.serialize().to_pybytes() for batch in given.to_batches()))
        rows = scala_object(self.spark, _CONVERTERS).fromBatchIterator(
            batches.iterator(), self._given, _ZONE, True, False, None
        )
        found = []
        while rows.hasNext():
            found.append(self._copying.apply(rows.next()).copy())
        return scala_sequence(self.spark, *found)

    def _many(self, given: pa.Table) -> Any | None:
        brought = analyzed_plan(local_frame(self.spark, given))
        return brought.data() if brought.nodeName() == _LOCAL else None


@contextmanager
def _without(spark: SparkSession, *rules: str) -> Iterator[None]:
    """A context manager in which the optimizer does not apply some of its rules, and derives no conditions from the
    conditions of filters.

    If a condition uses many columns, as the condition about the error of a captured row does, Spark derives an
    equivalent condition for each subset of the columns that a later step renames. Deriving all of these conditions
    takes time, and a filter of a few rows does not need the derived conditions.
    """
    excluded = spark.conf.get(_EXCLUDED, None)
    named = ",".join((*((excluded,) if excluded else ()), *(f"{_OPTIMIZER}.{rule}" for rule in rules)))
    given = {_EXCLUDED: excluded, _CONSTRAINTS: spark.conf.get(_CONSTRAINTS, None)}
    try:
        spark.conf.set(_EXCLUDED, named)
        spark.conf.set(_CONSTRAINTS, "false")
        yield
    finally:
        for key, value in given.items():
            if value is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, value)


def _depends_on_time(spark: SparkSession, frame: DataFrame) -> bool:
    """True if a query contains functions such as ``current_timestamp``, or casts such as the cast of 'today' to a date.
    The optimizer replaces each of these functions and casts with a constant."""
    pattern = java_class(spark, "org.apache.spark.sql.catalyst.trees.TreePattern").CURRENT_LIKE()
    plan = analyzed_plan(frame)
    if plan.containsPattern(pattern):
        return True
    with whole_texts(spark):
        return clock_in(spark, plan) is not None

"""Analyzes a view's query with Spark before anything is created.

The result contains the query's schema and keys, or the reason why the query is not supported.
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from deltalake import Schema
from pyspark.sql import types
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DayTimeIntervalType,
    MapType,
    NullType,
    StructType,
    VariantType,
    YearMonthIntervalType,
)

from rw_sql.plan.ports.queries import TABLESAMPLE, UPSERT, WHOLE, AnalyzedQuery, QueryAnalysis
from rw_sql.runtime.spark.jvm import analyzed_plan, java_class
from rw_sql.runtime.spark.sessions import register_view
from rw_sql.runtime.spark.spark_errors import known_names, query_error
from rw_sql.runtime.spark.time_dependence import clock_in, clock_in_step, clock_literal_in, whole_texts
from rw_sql.syntax.dialect.spark_messages import name_parts
from rw_sql.syntax.lexing.identifiers import quoted_for_spark

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from rw_sql.runtime.spark.sessions import SparkSessions

# PySpark logs every failed analysis as JSON. The relevant part is in the error that the user gets.
logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)

_SPATIAL = tuple(getattr(types, name) for name in ("GeographyType", "GeometryType") if hasattr(types, name))
"""Spark's types for geographic and geometric values, which exist since Spark 4.1. Spark cannot cast these types to
STRING."""

_UNSTORABLE = (
    NullType,
    YearMonthIntervalType,
    DayTimeIntervalType,
    CalendarIntervalType,
    VariantType,
    *((types.TimeType,) if hasattr(types, "TimeType") else ()),  # since Spark 4.1
    *_SPATIAL,
)

_TIME_WINDOW = "spark.timeWindow"
"""The metadata key with which Spark marks columns made by ``window()``.

The columns of session windows have this key too. They need not be distinguished from other time windows, because Spark
does not support session windows in update mode.
"""

_SESSION_WINDOW = "spark.sessionWindow"
"""The metadata key with which Spark marks columns made by ``session_window()``. If a query groups by a column with this
mark, Spark merges the windows in the column."""

_TRANSPARENT = ("SubqueryAlias", "View", "ResolvedHint", "EventTimeWatermark")


def analyze(sessions: SparkSessions, request: AnalyzedQuery) -> QueryAnalysis:
    """Analyzes the query in a request without starting it. During the analysis, the relations that the query reads are
    empty, and have the columns that the request names."""
    with sessions.lent() as spark:
        return _analyzed(spark, request)


def _analyzed(spark: SparkSession, request: AnalyzedQuery) -> QueryAnalysis:
    from pyspark.errors import PySparkException

    rows = spark.range(0) if request.form == WHOLE else spark.readStream.format("rate").load()
    for relation in request.relations:
        columns = [f"CAST(NULL AS {kind}) AS {quoted_for_spark(name)}" for name, kind in relation.columns]
        frame = rows.selectExpr(*columns)
        if relation.watermark is not None and request.form != WHOLE:
            frame = frame.withWatermark(*relation.watermark)
        register_view(frame, relation.name)
    keys: tuple[str, ...] = ()
    refusal = hint = None
    try:
        frame = spark.sql(request.query)
        match request.form:
            case "stream":
                if not request.closes_windows:
                    keys, refusal, hint = _keys(frame)
                if refusal is None:
                    _check_streaming(spark, frame, "Update" if keys else "Append")
            case "upsert":
                if not _is_bare_aggregation(frame):
                    refusal = "the query is not a single aggregation without further computation"
                else:
                    _check_streaming(spark, frame, "Update")
    except PySparkException as error:
        return _refused(spark, error, request.query)
    if refusal is not None:
        return QueryAnalysis(refusal=refusal, hint=hint)
    found = _storable(frame, keys, request)
    return replace(found, is_same=_is_same(spark, frame, request.same_as)) if request.same_as else found


def _refused(spark: SparkSession, error: PySparkException, query: str) -> QueryAnalysis:
    """Returns the result for a query that Spark refuses: Spark's reason, and the word of the query at the position of
    Spark's error."""
    told = query_error(error, query, known_names(spark))
    parameters = error.getMessageParameters() or {}
    return QueryAnalysis(
        refusal=told.message,
        hint=told.hint or "the query is Spark SQL over streams; run EXPLAIN SELECT on it",
        kind=told.kind,
        word=query[told.span.start : told.span.end] if told.span is not None else "",
        relation=".".join(name_parts(parameters.get("relationName", ""))),
    )


def _is_same(spark: SparkSession, frame: DataFrame, text: str) -> bool:
    """True if Spark considers the query ``text`` equivalent to the query of ``frame``."""
    from pyspark.errors import PySparkException

    try:
        other = spark.sql(text)
    except PySparkException:
        return False
    return bool(_inlined_plan(frame).sameResult(_inlined_plan(other)))


def _inlined_plan(frame: DataFrame) -> Any:
    """The analyzed plan of a query in which each reference to a WITH query is replaced with the plan of the WITH
    query."""
    rule = java_class(frame.sparkSession, "org.apache.spark.sql.catalyst.optimizer.InlineCTE")(True, False)
    return rule.apply(analyzed_plan(frame))


def _storable(frame: DataFrame, keys: tuple[str, ...], request: AnalyzedQuery) -> QueryAnalysis:
    """The result of the analysis for a query that Spark accepts. If a Delta table cannot store the rows of the query,
    the result is a refusal."""
    schema = _schema_of(frame)
    for column in frame.schema.fields:
        kind = _unstorable(column.dataType)
        if kind is not None:
            return QueryAnalysis(
                refusal=f'column "{column.name}" is of type {kind.simpleString()}, which Delta Lake cannot store',
                hint=f"write ST_AsBinary({column.name}), which is BINARY"
                if isinstance(kind, _SPATIAL)
                else f"write CAST({column.name} AS STRING), or cast it to another type that can be stored",
                schema=schema,
            )
    with whole_texts(frame.sparkSession):
        varies = _varying(frame)
        varies_in = _varying_step(frame.sparkSession, analyzed_plan(frame)) if varies is not None else None
    if (literal := clock_literal_in(request.query)) is not None:
        # Such a literal becomes a constant when the query starts, so it does not even show the time at which a row was
        # computed.
        varies, varies_in = literal, "Literal"
    found = QueryAnalysis(schema=schema, keys=keys, varies=varies, varies_in=varies_in)
    if request.form == WHOLE:
        found = replace(found, operators=_operators(_inlined_plan(frame), to="Aggregate"))
    if request.form == UPSERT:
        found = replace(found, aggregates=frozenset(_aggregates(frame)))
    if len({name.lower() for name in frame.columns}) < len(frame.columns):
        return found  # The caller refuses such a column and can name it.
    try:
        Schema.from_json(schema)
    except (ValueError, TypeError) as error:
        return QueryAnalysis(
            refusal=f"a column of the query has a type that Delta Lake cannot store: {_told(error)}",
            hint="CAST it to one that can be stored, such as STRING",
        )
    return found


def _schema_of(frame: DataFrame) -> str:
    """The schema of a query, as JSON. The schema does not contain Spark's mark of session windows. With this mark,
    Spark would merge the stored windows when another query groups by them."""
    schema = frame.schema.jsonValue()
    for field in schema["fields"]:
        field["metadata"] = {key: value for key, value in field["metadata"].items() if key != _SESSION_WINDOW}
    return json.dumps(schema, separators=(",", ":"), sort_keys=True)  # like the schema's own text


def _varying(frame: DataFrame) -> str | None:
    """A description of the non-deterministic part of a query; None if there is none."""
    plan = analyzed_plan(frame)
    if _draws_sample(plan):
        return TABLESAMPLE
    if not plan.deterministic():
        return "a function that gives another value each time"
    return clock_in(frame.sparkSession, plan)


def _draws_sample(plan: Any) -> bool:
    nested = plan.subqueriesAll()
    return any("Sample" in _operators(part) for part in (plan, *(nested.apply(i) for i in range(nested.size()))))


def _varying_step(spark: SparkSession, plan: Any) -> str | None:
    """Returns the name of the first step of a plan that has a non-deterministic expression and is not a projection.
    Returns None if the plan has no such step."""
    if _class(plan) not in ("Project", *_TRANSPARENT):
        parts = plan.expressions()
        is_deterministic = all(parts.apply(i).deterministic() for i in range(parts.size()))
        if not is_deterministic or clock_in_step(spark, plan) is not None:
            return _class(plan)
    return next((found for child in _children(plan) if (found := _varying_step(spark, child)) is not None), None)


def _operators(plan: Any, *, to: str = "") -> frozenset[str]:
    """Spark's names of the steps of a plan, without the steps below a step with the name ``to``."""
    below = _children(plan) if _class(plan) != to else ()
    return frozenset({_class(plan)}).union(*(_operators(child, to=to) for child in below))


def _aggregates(frame: DataFrame) -> Iterator[str]:
    """Spark's names of the aggregate functions of a query, without the aggregate functions of its subqueries."""
    pattern = java_class(frame.sparkSession, "org.apache.spark.sql.catalyst.trees.TreePattern").AGGREGATE_EXPRESSION()

    def within(part: Any) -> Iterator[str]:
        if not part.containsPattern(pattern):
            return
        if _class(part) == "AggregateExpression":
            yield _class(part.aggregateFunction())
        for child in _children(part):
            yield from within(child)

    plans = [analyzed_plan(frame)]
    while plans:
        plan = plans.pop()
        plans += _children(plan)
        parts = plan.expressions()
        for at in range(parts.size()):
            yield from within(parts.apply(at))


def _is_bare_aggregation(frame: DataFrame) -> bool:
    """True if a query is a single aggregation without further computation on its result."""
    plan = analyzed_plan(frame)
    while _class(plan) in (*_TRANSPARENT, "Project"):
        (plan,) = _children(plan)
    return _class(plan) == "Aggregate" and not _contains(_children(plan)[0], ("Aggregate", "Distinct", "Deduplicate"))


def _unstorable(kind: DataType) -> DataType | None:
    """Returns the first part of a type that a Delta table cannot store; this may be the type itself. Returns None if a
    Delta table can store the type."""
    match kind:
        case StructType(fields=fields):
            parts = [field.dataType for field in fields]
        case ArrayType(elementType=element):
            parts = [element]
        case MapType(keyType=key, valueType=value):
            parts = [key, value]
        case _:
            return kind if isinstance(kind, _UNSTORABLE) else None
    return next((found for part in parts if (found := _unstorable(part)) is not None), None)


def _told(error: Any) -> str:
    text = error.getMessage() if hasattr(error, "getMessage") else str(error)
    return str(text).split(" SQLSTATE:")[0].split("\n")[0].strip()


def _check_streaming(spark: SparkSession, frame: DataFrame, mode: str) -> None:
    """Runs Spark's own check of streaming queries. Raises PySparkException if Spark does not support the query in the
    output mode ``mode``."""
    output_mode = getattr(java_class(spark, "org.apache.spark.sql.streaming.OutputMode"), mode)()
    checker = java_class(spark, "org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker")
    checker.checkForStreaming(analyzed_plan(frame), output_mode)


def _class(plan: Any) -> str:
    return str(plan.getClass().getSimpleName())


def _children(plan: Any) -> list[Any]:
    children = plan.children()
    return [children.apply(i) for i in range(children.size())]


def _contains(plan: Any, kinds: tuple[str, ...]) -> bool:
    return plan.isStreaming() and (_class(plan) in kinds or any(_contains(child, kinds) for child in _children(plan)))


def _keys(frame: DataFrame) -> tuple[tuple[str, ...], str | None, str | None]:
    """Returns the output columns that identify a row of a query that replaces rows; no columns if the query only
    appends rows. If the query replaces rows but no output columns identify a row, the result also contains the reason
    for refusing the query, and a hint (None if there is no hint)."""
    top = analyzed_plan(frame)
    if not _contains(top, ("Aggregate", "Distinct", "Deduplicate")):
        return (), None, None
    output = top.output()
    names = {output.apply(i).exprId().id(): output.apply(i).name() for i in range(output.size())}
    plan = top
    while _class(plan) in (*_TRANSPARENT, "Project"):
        (plan,) = _children(plan)
    kind = _class(plan)
    if kind == "Distinct" and not _contains(_children(plan)[0], ("Aggregate", "Distinct", "Deduplicate")):
        if any(output.apply(i).metadata().contains(_SESSION_WINDOW) for i in range(output.size())):
            return (), "DISTINCT merges session windows, and a merged window does not replace its parts", None
        return tuple(names.values()), None, None
    if kind != "Aggregate" or _contains(_children(plan)[0], ("Aggregate", "Distinct", "Deduplicate")):
        return (
            (),
            "the query filters, joins or aggregates the result of an aggregation, which is not supported yet",
            "create a materialized view of the aggregation, and filter, join or aggregate that view",
        )
    grouping, outputs = plan.groupingExpressions(), plan.aggregateExpressions()
    groups = [grouping.apply(i) for i in range(grouping.size())]
    if not groups:
        return (
            (),
            "the query aggregates without GROUP BY, which is not supported yet",
            "group by a constant column: SELECT 1 AS one, count(*) … GROUP BY 1",
        )
    keys = []
    for group in groups:
        name = _output_of(group, outputs, names)
        if name is None:
            return (
                (),
                f"the query groups by {group.sql()}, which is not among its columns",
                "add it to the SELECT list: rows are replaced by their group",
            )
        keys.append(name)
    return tuple(dict.fromkeys(keys)), None, None


def _output_of(group: Any, outputs: Any, names: dict[int, str]) -> str | None:
    for i in range(outputs.size()):
        column = outputs.apply(i)
        inner = column.child() if _class(column) == "Alias" else column
        stands = inner.semanticEquals(group) or _is_start_of(inner, group)
        if stands and column.exprId().id() in names:
            return names[column.exprId().id()]
    return None


def _is_start_of(column: Any, group: Any) -> bool:
    """True if the column is the start of the time window by which the query groups.

    The start identifies a window, because windows have a fixed length.
    """
    return (
        _class(column) == "GetStructField"
        and column.child().semanticEquals(group)
        and column.ordinal() == 0
        and _class(group) == "AttributeReference"
        and bool(group.metadata().contains(_TIME_WINDOW))
    )

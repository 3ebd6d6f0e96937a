"""Lists, by sqlglot's names, the clauses, operators, functions and types that have the same meaning in RisingWave's SQL
as in Spark's SQL."""

from __future__ import annotations

CLAUSES = frozenset({
    "Select", "From", "Where", "Group", "Having", "Order", "Ordered", "Limit", "Offset", "Fetch", "Join", "Subquery",
    "Table", "TableAlias", "Alias", "With", "CTE", "Union", "Except", "Intersect", "Distinct", "Star", "Column",
    "Identifier", "Literal", "Boolean", "Null", "Paren", "Tuple", "Var", "Aliases", "And", "Or", "Not", "EQ", "NEQ",
    "LT", "LTE", "GT", "GTE", "NullSafeEQ", "NullSafeNEQ", "Is", "In", "Between", "Like", "ILike", "Exists", "Case",
    "If", "Add", "Sub", "Mul", "Div", "IntDiv", "Mod", "Neg", "DPipe", "Cast", "DataType", "DataTypeParam", "ColumnDef",
    "Interval", "Filter", "Window", "WindowSpec", "WithinGroup", "Rollup", "Cube", "GroupingSets", "Dot", "Bracket",
    "Array", "Escape", "JSONExtract", "JSONExtractScalar", "JSONPath", "JSONPathKey", "JSONPathRoot",
    "JSONPathSubscript",
})  # fmt: skip
"""sqlglot's names of the clauses and operators that the translation accepts. The translation still refuses certain uses
of some of these clauses and operators."""

AGGREGATES = frozenset({
    "Count", "Sum", "Min", "Max", "Avg", "LogicalAnd", "LogicalOr", "Stddev", "StddevPop", "StddevSamp", "Variance",
    "VariancePop", "ApproxDistinct", "GroupConcat", "ArrayAgg",
})  # fmt: skip

FUNCTIONS = frozenset({
    "Coalesce", "Nullif", "Greatest", "Least", "Lower", "Upper", "Length", "Trim", "Substring", "Replace", "SplitPart",
    "Left", "Right", "StrPosition", "Concat", "ConcatWs", "Reverse", "Repeat", "MD5", "Abs", "Ceil", "Floor", "Round",
    "Sqrt", "Exp", "Ln", "Pow", "Sign", "TimestampTrunc", "DateTrunc", "Extract", "RowNumber", "Rank", "DenseRank",
    "Lag", "Lead", "FirstValue", "LastValue", "Initcap", "ArraySize", "StartsWith",
})  # fmt: skip

ANONYMOUS = {"proctime": "current_timestamp", "div": "div", "window": "window"}
"""Supported functions that sqlglot does not know, each with its name in Spark."""

TYPES = {
    "BOOLEAN": "BOOLEAN",
    "SMALLINT": "SMALLINT",
    "INT": "INT",
    "BIGINT": "BIGINT",
    "FLOAT": "FLOAT",
    "DOUBLE": "DOUBLE",
    "DECIMAL": "DECIMAL(38, 10)",
    "VARCHAR": "STRING",
    "TEXT": "STRING",
    "DATE": "DATE",
    "TIMESTAMP": "TIMESTAMP_NTZ",
    "TIMESTAMPTZ": "TIMESTAMP",
}
"""Maps sqlglot's names of types to Spark's names. TIMESTAMP without a zone is Spark's TIMESTAMP_NTZ."""

EXTRACTED = frozenset({"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DOY", "HOUR", "MINUTE", "SECOND"})
TRUNCATED = frozenset({"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND"})
EXACT_UNITS = frozenset({"DAY", "HOUR", "MINUTE", "SECOND"})
"""The units of time that have a fixed length. (A month has no fixed length.)"""

ALIASED_AS = {
    "Count": "count",
    "Case": "case",
    "Coalesce": "coalesce",
    "LogicalAnd": "bool_and",
    "LogicalOr": "bool_or",
    "GroupConcat": "string_agg",
    "ArrayAgg": "array_agg",
    "ApproxDistinct": "approx_count_distinct",
    "TimestampTrunc": "date_trunc",
    "DateTrunc": "date_trunc",
    "Substring": "substr",
    "StrPosition": "position",
    "Array": "array",
    "Bracket": "?column?",
    "JSONExtractScalar": "?column?",
}
"""RisingWave's names for the columns of unnamed expressions, by sqlglot's class names."""

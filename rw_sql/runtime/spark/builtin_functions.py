"""Writes the table of Spark's built-in functions, which the analysis of queries uses. Each minor version of Spark has
a file, such as ``spark_functions/4.2.json``.

Run ``python -m rw_sql.runtime.spark.builtin_functions`` with each version of Spark when the supported versions change.
Spark does not list the numbers of arguments that a function accepts. This module therefore calls each function with
different numbers of NULLs. A number counts as accepted unless Spark reports a wrong number of arguments.
"""

from __future__ import annotations

import json
import logging
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from rw_sql.plan.queries import analysis
from rw_sql.plan.queries.analysis.functions import AGGREGATE, GENERATOR, SCALAR, TABLE, WINDOW
from rw_sql.runtime.spark.jvm import java_class, java_session
from rw_sql.spark_jars import minor_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

FUNCTIONS_PATH = Path(analysis.__file__).with_name("spark_functions")

_FEW, _MANY = range(13), (20, 21)
"""The numbers of arguments to try. A function that accepts one of the numbers in ``_MANY`` counts as accepting any
number of arguments."""

_NOT_NAMES = frozenset("!%&*+-/<=>^|~")
_WORDS = frozenset(
    {"and", "between", "case", "in", "like", "ilike", "not", "or", "when", "rlike", "regexp", "div", "is"}
)
_GROUPS = {"generator_funcs": GENERATOR, "window_funcs": WINDOW, "table_funcs": TABLE, "agg_funcs": AGGREGATE}
_OTHER_GENERATORS = frozenset({"json_tuple", "variant_explode", "variant_explode_outer"})
_NOT_AGGREGATES = frozenset({"grouping", "grouping_id"})


def function_names(spark: SparkSession) -> list[str]:
    """The names of Spark's built-in functions that are called with parentheses."""
    rows = spark.sql("SHOW SYSTEM FUNCTIONS").collect()
    names = [str(row[0]) for row in rows]
    return sorted(name for name in names if not set(name) & _NOT_NAMES and name not in _WORDS)


def counts_of(spark: SparkSession, name: str, counts: Iterable[int]) -> list[int]:
    """Returns those numbers in ``counts`` that the function accepts as its number of arguments."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    taken = []
    for count in counts:
        try:
            spark.sql(f"SELECT `{name}`({', '.join(['NULL'] * count)})")
        except PySparkException as error:
            if (error.getCondition() or "").startswith("WRONG_NUM_ARGS"):
                continue
        except Py4JJavaError:
            pass  # Some functions of Spark 4.0 accept the number of arguments, and fail for the type of NULL.
        taken.append(count)
    return taken


def range_of(counts: list[int]) -> list[int | None]:
    """Summarizes the numbers of arguments that a function accepts. Returns the minimum, the maximum (None if there is
    no maximum) and, if the numbers increase by a step other than 1, this step."""
    least, is_open = counts[0], counts[-1] in _MANY
    few = [count for count in counts if count in _FEW]
    # Irregular gaps between accepted numbers, as in (0, 1, 3), are not recorded. The analysis therefore accepts the
    # numbers in such a gap.
    step = 2 if len(few) > 2 and all(b - a == 2 for a, b in pairwise(few)) else 1
    return [least, None if is_open else few[-1], *([step] if step > 1 else [])]


def _kind(spark: SparkSession, name: str) -> str:
    identifier = java_class(spark, "org.apache.spark.sql.catalyst.FunctionIdentifier")(name)
    info = java_session(spark).sessionState().catalog().lookupFunctionInfo(identifier)
    if name in _NOT_AGGREGATES:
        return SCALAR
    if name in _OTHER_GENERATORS:
        return GENERATOR
    if ".expressions.aggregate." in info.getClassName():
        return AGGREGATE
    return _GROUPS.get(info.getGroup(), SCALAR)


def described(spark: SparkSession) -> dict[str, dict[str, list[int | None]]]:
    """Maps each kind of function to Spark's functions of this kind, and each function to its accepted numbers of
    arguments (see :func:`range_of`)."""
    found: dict[str, dict[str, list[int | None]]] = {}
    for name in function_names(spark):
        counts = counts_of(spark, name, (*_FEW, *_MANY))
        found.setdefault(_kind(spark, name), {})[name] = range_of(counts or [*_FEW, *_MANY])
    return found


def written(version: str, functions: dict[str, dict[str, list[int | None]]]) -> str:
    """The text of a version's file, with one function per line."""
    parts = []
    for kind in sorted(functions):
        lines = [f"      {json.dumps(name)}: {json.dumps(counts)}" for name, counts in sorted(functions[kind].items())]
        parts.append(f"    {json.dumps(kind)}: {{\n" + ",\n".join(lines) + "\n    }")
    return f'{{\n  "spark": {json.dumps(version)},\n  "functions": {{\n' + ",\n".join(parts) + "\n  }\n}\n"


def main() -> None:
    """Starts a Spark session and writes the file of its version."""
    from pyspark.sql import SparkSession

    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    path = FUNCTIONS_PATH / f"{minor_of(spark.version)}.json"
    path.write_text(written(spark.version, described(spark)), "utf-8")
    spark.stop()


if __name__ == "__main__":
    main()

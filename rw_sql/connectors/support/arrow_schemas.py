"""Converts Spark's types to Arrow's and back, in the same way on every supported version of Spark.

The functions of PySpark for this are private. Before 4.2, they have no argument for the time zone and use UTC, and by
default they convert times without a zone to times with a zone. Spark's workers receive this module by value.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas import types as pandas_types

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema of rows of Spark, with times in UTC."""
    return _in_utc(pandas_types.to_arrow_schema, schema)


def arrow_type(kind: DataType) -> pa.DataType:
    """The Arrow type of a type of Spark, with times in UTC."""
    return _in_utc(pandas_types.to_arrow_type, kind)


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark schema of Arrow's rows."""
    return pandas_types.from_arrow_schema(schema, prefer_timestamp_ntz=True)


def spark_type_of(kind: pa.DataType) -> DataType:
    """The Spark type of an Arrow type."""
    return pandas_types.from_arrow_type(kind, prefer_timestamp_ntz=True)


def _in_utc(convert: Any, given: object) -> Any:
    has_zone = "timezone" in inspect.signature(convert).parameters
    return convert(given, timezone="UTC") if has_zone else convert(given)

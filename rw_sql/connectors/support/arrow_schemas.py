"""Converts Spark's types to Arrow's and back, with the same result in every supported version of Spark.

The module calls private functions of PySpark. Before Spark 4.2, these functions have no argument for the time zone and
use UTC. The functions convert times without a zone to times with a zone, unless an argument prevents this. Spark's
workers receive this module by value.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas import types as pandas_types

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema for a Spark schema, with times in UTC."""
    return _in_utc(pandas_types.to_arrow_schema, schema)


def arrow_type(kind: DataType) -> pa.DataType:
    """The Arrow type for a Spark type, with times in UTC."""
    return _in_utc(pandas_types.to_arrow_type, kind)


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark schema for an Arrow schema."""
    return pandas_types.from_arrow_schema(schema, prefer_timestamp_ntz=True)


def spark_type_of(kind: pa.DataType) -> DataType:
    """The Spark type of an Arrow type."""
    return pandas_types.from_arrow_type(kind, prefer_timestamp_ntz=True)


def _in_utc(convert: Any, given: object) -> Any:
    has_zone = "timezone" in inspect.signature(convert).parameters
    return convert(given, timezone="UTC") if has_zone else convert(given)

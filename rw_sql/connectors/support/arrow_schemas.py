"""Converts Spark types to Arrow types and back. The results are the same in every supported version of Spark.

The module calls private functions of PySpark. Before Spark 4.2, these functions always use UTC; from Spark 4.2 on, the
time zone is an argument. By default, the conversion to Spark types gives a zone to times without a zone; this module
prevents that. Spark's workers receive this module by value.
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

"""Returns a statement's rows as a DataFrame.

For many statements, creating and collecting a DataFrame in the JVM would take as long as running the statement.
Therefore, the methods that nearly all callers use work on the rows in Python's memory. A DataFrame in the JVM is
created only when a caller uses another method.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    Row,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rw_sql.connectors.support.local_frames import local_frame
from rw_sql.runtime.spark.sessions import activate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rw_sql.plan.result.plan import Table

_TYPES: dict[str, tuple[Any, DataType]] = {
    "STRING": (pa.string(), StringType()),
    "BIGINT": (pa.int64(), LongType()),
    "INT": (pa.int32(), IntegerType()),
    "DOUBLE": (pa.float64(), DoubleType()),
    "BOOLEAN": (pa.bool_(), BooleanType()),
    "TIMESTAMP": (pa.timestamp("us", tz="UTC"), TimestampType()),
}


def frame_of(spark: SparkSession, table: Table) -> DataFrame:
    """The rows as a local DataFrame, which can be shown without a Spark job."""
    rows, schema = arrow_of(table)
    activate(spark)
    return Answer(spark, rows, schema)


def arrow_of(table: Table) -> tuple[pa.Table, StructType]:
    """The rows as an Arrow table, and their schema."""
    columns = [
        pa.array([row[i] for row in table.rows], type=_TYPES[kind][0]) for i, (_, kind) in enumerate(table.columns)
    ]
    fields = [StructField(name, _TYPES[kind][1]) for name, kind in table.columns]
    return pa.table(columns, names=[name for name, _ in table.columns]), StructType(fields)


class Answer(ClassicDataFrame):
    """A DataFrame whose rows are in Python's memory. The methods of this class return the same values as the methods of
    a DataFrame in the JVM."""

    def __new__(cls, *_: Any) -> Answer:
        """Creates an instance. This method is necessary because ``__new__`` of the base class in Spark 4.0 accepts only
        the arguments of the base class's ``__init__``."""
        return object.__new__(cls)

    def __init__(self, spark: SparkSession, rows: pa.Table, schema: StructType) -> None:
        self._session = spark
        self._sc = spark._sc  # Every Spark DataFrame has this attribute.
        self.is_cached = False
        self._support_repr_html = False
        self._rows = rows
        self._shape = schema

    @cached_property
    def _jdf(self) -> Any:
        frame: Any = local_frame(self._session, self._rows)
        return frame._jdf

    @cached_property
    def schema(self) -> StructType:
        """The columns and their types."""
        return self._shape

    def collect(self) -> list[Row]:
        """All rows."""
        return self._taken(self._rows.num_rows)

    def take(self, num: int) -> list[Row]:
        """The first ``num`` rows."""
        return self._taken(num)

    def count(self) -> int:
        """The number of rows."""
        return int(self._rows.num_rows)

    def _taken(self, number: int) -> list[Row]:
        columns = [
            _values(column, field.dataType)
            for column, field in zip(self._rows.slice(0, max(0, number)).columns, self._shape.fields, strict=True)
        ]
        made = Row(*self._shape.names)
        return [made(*values) for values in zip(*columns, strict=True)]


def _values(column: pa.ChunkedArray, kind: DataType) -> list[Any]:
    if isinstance(kind, TimestampType):
        # As in Spark's rows, times are in the time zone of this process and do not contain the zone.
        return [None if at is None else kind.fromInternal(at) for at in column.cast(pa.int64()).to_pylist()]
    return list(column.to_pylist())

"""Types of Arrow and of Spark, also by the signatures that PySpark's functions have before 4.2."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas import types as pandas_types
from pyspark.sql.types import ArrayType, DecimalType, StructField, StructType, TimestampNTZType, TimestampType

from rw_sql.connectors.support.arrow_schemas import arrow_schema, arrow_type, spark_schema, spark_type_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

ROW = StructType(
    [
        StructField("at", TimestampType()),
        StructField("plain", ArrayType(TimestampNTZType())),
        StructField("n", DecimalType(10, 2)),
    ]
)


def older(convert: Callable[..., Any]) -> Callable[..., Any]:
    """The function with the arguments that it has in Spark 4.0 and 4.1."""
    if "timezone" not in inspect.signature(convert).parameters:
        return convert

    def converted(
        given: Any,
        error_on_duplicated_field_names_in_struct: bool = False,
        timestamp_utc: bool = True,
        prefers_large_types: bool = False,
    ) -> Any:
        return convert(given, timezone="UTC" if timestamp_utc else None)

    return converted


def test_times_have_utc_or_no_zone() -> None:
    made = arrow_schema(ROW)
    assert made.field("at").type == pa.timestamp("us", tz="UTC")
    assert made.field("plain").type.value_type == pa.timestamp("us")
    assert arrow_type(ROW) == pa.struct(list(made))
    assert spark_schema(made) == ROW
    assert spark_type_of(pa.timestamp("us")) == TimestampNTZType()


def test_functions_of_older_versions_are_called_without_a_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    made = arrow_schema(ROW)
    with monkeypatch.context() as patched:
        patched.setattr(pandas_types, "to_arrow_schema", older(pandas_types.to_arrow_schema))
        assert arrow_schema(ROW) == made
    monkeypatch.setattr(pandas_types, "to_arrow_type", older(pandas_types.to_arrow_type))
    assert arrow_type(TimestampType()) == pa.timestamp("us", tz="UTC")

"""Types that a Delta table cannot store are refused, also inside other types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types
from pyspark.sql.types import ArrayType, DataType, IntegerType, MapType, StringType, StructType

from rw_sql.runtime.spark.query_analysis import _unstorable

if TYPE_CHECKING:
    from collections.abc import Callable


def _new_types() -> list[DataType]:
    """The types of this Spark that older versions lack."""
    made: dict[str, Callable[[Any], DataType]] = {
        "TimeType": lambda kind: kind(),
        "GeographyType": lambda kind: kind(4326),
        "GeometryType": lambda kind: kind("ANY"),
    }
    return [make(getattr(types, name)) for name, make in made.items() if hasattr(types, name)]


@pytest.mark.parametrize("kind", _new_types(), ids=str)
def test_times_and_places_cannot_be_stored(kind: DataType) -> None:
    for whole in (
        kind,
        ArrayType(kind),
        MapType(StringType(), kind),
        StructType().add("a", IntegerType()).add("b", ArrayType(kind)),
    ):
        assert _unstorable(whole) == kind


def test_other_types_can_be_stored() -> None:
    assert _unstorable(StructType().add("a", IntegerType()).add("b", ArrayType(StringType()))) is None

"""How classes of the JVM are looked up: by whole names, or not again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from rw_sql.runtime.spark.jvm import gateway_client, java_class
from rw_sql.runtime.spark.sessions import SparkSessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_frequent_calls_of_pyspark_look_for_no_class_by_its_short_name(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java looks for such a class in every jar, once for each package that PySpark imports."""
    SparkSessions(spark)
    client = gateway_client(spark.sparkContext)
    send, looked = client.send_command, list[str]()

    def record(command: str, *rest: object, **more: object) -> object:
        kind, _, names = command.partition("\n")
        if kind == "r" and names.startswith("u\n"):
            looked.append(names.split("\n")[1])
        return send(command, *rest, **more)

    monkeypatch.setattr(client, "send_command", record)
    for _ in range(2):
        java_class(spark, "java.util.Currency").getAvailableCurrencies()
    assert looked == ["java.util.Currency"]
    assert spark.sql("SELECT 1 AS one").collect()[0].one == 1
    assert spark.createDataFrame(pa.table({"a": [1, 2]})).where("a > 1").toArrow().to_pydict() == {"a": [2]}
    assert [name for name in looked if "." not in name] == []

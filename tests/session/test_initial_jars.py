"""The jars with which a Spark of ``connect`` starts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark import SparkFiles

from rw_sql.runtime.spark.jar_cache import CLASS_PATH
from rw_sql.runtime.spark.jvm import java_class
from rw_sql.session.attach import initial_jars
from tests.support.spark_settings import FEW_ROWS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DELTA = "org.apache.spark.sql.delta.DeltaLog"


def test_delta_is_on_the_class_path_and_no_jar_that_spark_has_is_copied(
    request: pytest.FixtureRequest, spark: SparkSession
) -> None:
    if request.config.getoption("--warehouse") == "s3":
        pytest.skip("the session has the jars of an object store too, which Ivy resolves")
    class_path = java_class(spark, "java.lang.System").getProperty("java.class.path").split(os.pathsep)
    jars = spark.sparkContext.getConf().get(CLASS_PATH)
    assert jars is not None
    assert set(jars.split(os.pathsep)) <= set(class_path)
    loader = java_class(spark, "java.lang.Class").forName(DELTA).getClassLoader()
    assert loader.equals(java_class(spark, "java.lang.ClassLoader").getSystemClassLoader())
    copied = [file.name for file in Path(SparkFiles.getRootDirectory()).iterdir()]
    assert [name for name in copied if "delta" in name or "hadoop" in name or "log4j" in name] == []


@pytest.mark.usefixtures("spark")
def test_a_jvm_that_runs_already_gets_copies() -> None:
    settings = initial_jars(None, FEW_ROWS)
    assert CLASS_PATH not in settings
    assert "delta-spark" in settings["spark.jars"]

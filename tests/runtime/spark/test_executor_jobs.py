"""The Spark jobs that prepare executors, in a Spark whose executors are in this process's JVM."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JError

from rw_sql.connectors.support.private_files import hold
from rw_sql.runtime.spark import executors
from rw_sql.runtime.spark.executor_pythons import unusable_pythons
from rw_sql.runtime.spark.executors import remove_files
from rw_sql.runtime.spark.jvm import collect_within
from rw_sql.runtime.spark.shared_folder import SharedFolder
from rw_sql.runtime.support.warehouse import Warehouse

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_each_task_writes_the_files_and_answers(spark: SparkSession, tmp_path: Path) -> None:
    copy = tmp_path / "rw_sql-secrets-held-x"
    files = {str(copy / "a"): "hunter2\n", str(copy / "b"): "ü"}
    with SharedFolder.made(Warehouse.at(str(tmp_path / "w"))) as folder:
        answers = executors._look(spark.sparkContext, folder, ("json", "no_such_package"), files, 2)
        assert [folder.is_seen(answer.name) for answer in answers] == [True, True]
    assert {answer.missing for answer in answers} == {("no_such_package",)}
    assert {answer.python for answer in answers} == {f"{sys.version_info[0]}.{sys.version_info[1]}"}
    assert {answer.unshared + answer.unwritten + answer.version for answer in answers} == {""}
    assert {path: (copy / path).read_bytes().decode() for path in files} == files
    assert not list((tmp_path / "w").iterdir())

    context = spark.sparkContext
    executors._has_files[context] = str(copy)
    remove_files(spark)
    assert not copy.exists()
    assert context not in executors._has_files


def test_the_folder_of_the_driver_stays(spark: SparkSession, tmp_path: Path) -> None:
    hold(str(tmp_path), os.getpid(), is_driver=True)
    executors._has_files[spark.sparkContext] = str(tmp_path)
    remove_files(spark)
    assert tmp_path.exists()


def test_interpreters_are_asked_without_spark_s_python(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = spark.sparkContext
    assert unusable_pythons(context, "") == ""
    old = tmp_path / "python"
    old.write_text("#!/bin/sh\necho 2.7\n", encoding="utf-8")
    old.chmod(0o755)
    monkeypatch.setattr(context, "pythonExec", str(old))
    assert f" in {os.getcwd()} has Python 2.7. Install Python " in unusable_pythons(context, "")
    monkeypatch.setattr(context, "pythonExec", str(tmp_path / "none"))
    assert f" in {os.getcwd()} cannot run {tmp_path / 'none'} (" in unusable_pythons(context, "")


def test_a_job_is_cancelled_after_its_time(spark: SparkSession) -> None:
    def wait(_: object) -> list[int]:
        import time

        time.sleep(30)
        return []

    with pytest.raises(Py4JError):
        collect_within(spark, spark.sparkContext.parallelize(range(1), 1).mapPartitions(wait), 0.2)

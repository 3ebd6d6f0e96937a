"""Jars that were resolved once are found in the cache as long as all of them exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.runtime.spark.jar_cache import (
    CLASS_PATH,
    are_jars_ours,
    jar_settings,
    remember_jars,
    remembered_jars,
    without_jars_of_spark,
)

if TYPE_CHECKING:
    from pathlib import Path

PACKAGE = "ivy://org.example:reader_2.13:1.0?transitive=false"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    for name in ("PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_CLASSPATH", "MASTER"):
        monkeypatch.delenv(name, raising=False)


def test_what_was_resolved_is_remembered_until_a_jar_is_gone(tmp_path: Path) -> None:
    jars = [tmp_path / "a.jar", tmp_path / "b.jar"]
    for jar in jars:
        jar.touch()
    assert remembered_jars(PACKAGE) is None
    remember_jars(PACKAGE, [f"file://{jar}" for jar in jars])
    assert remembered_jars(PACKAGE) == [str(jar) for jar in jars]
    assert remembered_jars(PACKAGE.replace("1.0", "1.1")) is None
    assert jar_settings(PACKAGE, {}) == {"spark.jars": f"{jars[0]},{jars[1]}"}
    jars[1].unlink()
    assert remembered_jars(PACKAGE) is None
    assert jar_settings(PACKAGE, {}) == {"spark.jars.packages": PACKAGE}


def test_what_is_not_there_is_not_remembered(tmp_path: Path) -> None:
    remember_jars(PACKAGE, [str(tmp_path / "none.jar")])
    remember_jars(PACKAGE, [""])
    assert remembered_jars(PACKAGE) is None


def test_nobody_elses_jars_are_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert are_jars_ours({"spark.ui.enabled": "false"})
    assert not are_jars_ours({"spark.jars": "mine.jar"})
    assert not are_jars_ours({"spark.jars.packages": "org.example:mine:1.0"})
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--jars mine.jar pyspark-shell")
    assert not are_jars_ours({})
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS")
    defaults = tmp_path / "spark" / "conf" / "spark-defaults.conf"
    defaults.parent.mkdir(parents=True)
    defaults.touch()
    assert not are_jars_ours({})


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.jar").touch()
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    remember_jars(PACKAGE, [str(tmp_path / "a.jar")])
    assert remembered_jars(PACKAGE) is None


@pytest.mark.parametrize(
    ("config", "is_on_class_path"),
    [
        ({}, True),
        ({"spark.master": "local"}, True),
        ({"spark.master": "local[4]"}, True),
        ({"spark.master": "local-cluster[2,1,1024]"}, False),
        ({"spark.master": "spark://host:7077"}, False),
        ({"spark.master": "yarn"}, False),
        ({CLASS_PATH: "/mine.jar"}, False),
    ],
)
def test_jars_are_on_the_class_path_of_a_jvm_that_runs_the_tasks_too(
    tmp_path: Path, config: dict[str, str], is_on_class_path: bool
) -> None:
    jars = [tmp_path / "a.jar", tmp_path / "b.jar"]
    for jar in jars:
        jar.touch()
    remember_jars(PACKAGE, [str(jar) for jar in jars])
    copied = {"spark.jars": f"{jars[0]},{jars[1]}"}
    expected = {CLASS_PATH: f"{jars[0]}:{jars[1]}"} if is_on_class_path else copied
    assert jar_settings(PACKAGE, config, starts_jvm=True) == expected
    assert jar_settings(PACKAGE, config) == copied


def test_a_master_of_the_environment_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.jar").touch()
    remember_jars(PACKAGE, [str(tmp_path / "a.jar")])
    monkeypatch.setenv("MASTER", "yarn")
    assert jar_settings(PACKAGE, {}, starts_jvm=True) == {"spark.jars": str(tmp_path / "a.jar")}


def test_jars_of_which_spark_has_a_version_are_left_out(tmp_path: Path) -> None:
    of_spark = ("hadoop-client-api-3.5.0.jar", "jackson-annotations-2.21.jar", "spark-sql_2.13-4.2.0.jar", "x.jar")
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    for name in of_spark:
        (tmp_path / "spark" / "jars" / name).touch()
    kept = [
        "/i/io.delta_delta-spark_4.2_2.13-4.4.0.jar",
        "/i/org.apache.spark_spark-sql-kafka-0-10_2.13-4.2.0.jar",
        "/i/com.fasterxml.jackson.datatype_jackson-datatype-jdk8-2.13.5.jar",
        "/hadoop-client-api-3.4.2.jar",
        "/x.jar",
    ]
    left_out = [
        "/i/org.apache.hadoop_hadoop-client-api-3.4.2.jar",
        "/i/com.fasterxml.jackson.core_jackson-annotations-2.13.5.jar",
        "/i/org.apache.spark_spark-sql_2.13-4.1.0-preview1.jar",
    ]
    assert without_jars_of_spark([*left_out, *kept]) == kept

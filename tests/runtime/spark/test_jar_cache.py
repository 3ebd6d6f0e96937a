"""Jars that were resolved once are found in the cache as long as all of them exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.runtime.spark.jar_cache import are_jars_ours, jar_settings, remember_jars, remembered_jars

if TYPE_CHECKING:
    from pathlib import Path

PACKAGE = "ivy://org.example:reader_2.13:1.0?transitive=false"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    for name in ("PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR"):
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

"""Which setting of Spark wins: the caller's, spark-defaults.conf's, rw_sql's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.errors import SqlError
from rw_sql.session.spark_settings import defaults_of_file, session_settings, settings_of

if TYPE_CHECKING:
    from pathlib import Path

NEEDED = {"spark.sql.extensions": "io.delta.Extension", "spark.jars.packages": "io.delta:delta:4", "spark.a": "delta"}


@pytest.fixture
def defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.delenv("MASTER", raising=False)
    return tmp_path / "spark-defaults.conf"


def test_the_caller_wins_over_the_file_and_the_file_over_rw_sql(defaults: Path) -> None:
    defaults.write_text(
        "# a comment\n\nspark.master   spark://host:7077\nspark.sql.shuffle.partitions=64\nspark.log.level: WARN\n"
        "spark.sql.extensions  org.example.Extension\nspark.empty\n",
        encoding="utf-8",
    )
    assert defaults_of_file()["spark.empty"] == ""
    settings = session_settings(NEEDED, {"spark.log.level": "INFO"}, warehouse_dir="/w")
    # What only the file has is left to Spark, which reads it itself.
    assert "spark.master" not in settings
    assert "spark.sql.shuffle.partitions" not in settings
    assert settings["spark.log.level"] == "INFO"
    assert settings["spark.scheduler.mode"] == "FAIR"
    assert settings["spark.sql.warehouse.dir"] == "/w"
    assert settings["spark.sql.extensions"] == "org.example.Extension,io.delta.Extension"
    assert settings["spark.jars.packages"] == "io.delta:delta:4"


def test_without_a_file_rw_sql_sets_its_own(defaults: Path) -> None:
    settings = session_settings(NEEDED, {}, warehouse_dir=None)
    assert settings["spark.master"] == "local[*]"
    assert settings["spark.sql.shuffle.partitions"] == "8"
    assert "spark.sql.warehouse.dir" not in settings
    twice = session_settings(NEEDED, {"spark.jars.packages": "io.delta:delta:4,a:b:1"}, warehouse_dir=None)
    assert twice["spark.jars.packages"] == "io.delta:delta:4,a:b:1"


def test_options_of_the_command() -> None:
    assert settings_of("spark://h:7077", ["spark.executor.memory=4g", "spark.x=a=b"], "2g") == {
        "spark.executor.memory": "4g",
        "spark.x": "a=b",
        "spark.driver.memory": "2g",
        "spark.master": "spark://h:7077",
    }
    assert settings_of(None, (), None) == {}


@pytest.mark.parametrize(
    ("conf", "memory"), [(["spark.x"], None), (["x=1"], None), (["=1"], None), ([], "4"), ([], "lots")]
)
def test_what_is_no_setting_is_refused(conf: list[str], memory: str | None) -> None:
    with pytest.raises(SqlError) as refused:
        settings_of(None, conf, memory)
    assert refused.value.hint is not None

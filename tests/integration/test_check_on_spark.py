"""``rw-sql check --spark``: Spark's analyzer finds types that do not fit, over objects that exist in the file only."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from rw_sql.cli.main import app
from tests.conftest import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FILE = str(FIXTURES / "check" / "on_spark" / "types.sql")


def test_spark_finds_what_the_check_alone_cannot_know(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def running(_warehouse: str | None, *, run_jobs: bool = True) -> Iterator[SparkSession]:
        assert not run_jobs
        yield spark

    monkeypatch.setattr("rw_sql.cli.spark_start.spark_for", running)
    alone = CliRunner().invoke(app, ["check", FILE])
    assert alone.exit_code == 0, alone.output
    assert "whether Spark can keep the query up to date" in alone.output
    asked = CliRunner().invoke(app, ["check", "--spark", FILE])
    assert asked.exit_code == 1
    assert re.findall(r"^LINE (\d+)", asked.output, re.MULTILINE) == ["6", "7"]
    assert 'RW215: cannot resolve "date_add(tags, 1)" due to data type mismatch' in asked.output
    assert 'Filter expression "bit_count(n)" of type "INT" is not a boolean' in asked.output
    # Both are answered by Spark, and so are the two right views.
    assert "whether Spark can keep the query up to date" not in asked.output

"""The project in ``examples/pipelines`` as its users have it: its tests pass, and each environment comes to it."""

from __future__ import annotations

import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from rw_sql.cli.kafka_topics import create_topic, delete_topic
from rw_sql.cli.main import app
from rw_sql.cli.testing.runner import Bench, TestOptions, collect
from tests.integration.attached import AttachedSession, produce_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from rw_sql.cli.kafka_broker import BrokerInfo
    from rw_sql.cli.testing.outcome import TestOutcome

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

PROJECT = Path(__file__).parents[2] / "examples" / "pipelines"
TOPICS = ("orders", "payments", "customers", "items", "sales")


def run_tests(spark: SparkSession, broker: BrokerInfo, folder: Path, project: Path) -> list[TestOutcome]:
    collected = collect([str(project)], {}, "dev")
    assert collected.wrong == ()
    folder.mkdir()
    return Bench(spark, folder, TestOptions(workers=2, env="dev"), broker.bootstrap).run_all(collected.tests, print)


def test_its_tests_pass(spark: SparkSession, broker: BrokerInfo, tmp_path: Path) -> None:
    started = time.monotonic()
    outcomes = run_tests(spark, broker, tmp_path / "work", PROJECT)
    print(f"{len(outcomes)} tests in {time.monotonic() - started:.1f} s")
    assert {outcome.id: (outcome.message, outcome.detail) for outcome in outcomes if outcome.status != "passed"} == {}


@pytest.mark.parametrize("env", ["dev", "prod"])
def test_an_environment_comes_to_it(
    spark: SparkSession, broker: BrokerInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, env: str
) -> None:
    @contextmanager
    def running(_warehouse: str | None, *, run_jobs: bool = True) -> Iterator[SparkSession]:
        assert run_jobs
        yield spark

    def run(command: str, *words: str) -> str:
        target = [str(PROJECT), "--env", env, "--var", f"BROKER={broker.bootstrap}", "-w", session.warehouse]
        result = CliRunner().invoke(app, [command, *target, *words])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result.stdout

    monkeypatch.setattr("rw_sql.cli.spark_start.spark_for", running)
    topics = [f"{env}.{topic}" for topic in TOPICS]
    for topic in topics:
        create_topic(broker.bootstrap, topic, 1)
    session = AttachedSession(spark, str(tmp_path / "warehouse"))
    try:
        run("apply", "--yes")
        assert run("diff", "--exit-code") == ""
        produce_json(broker.bootstrap, f"{env}.items", [{"id": "tea", "title": "Tea", "cents": 450}])
        produce_json(broker.bootstrap, f"{env}.orders", [{"id": 1, "customer": "ann", "item": "tea", "pieces": 2}])
        session.run("FLUSH")
        assert session.rows_of("sales_by_item") == [("tea", 1, 2, 900)]
    finally:
        session.detach()
        for topic in topics:
            delete_topic(broker.bootstrap, topic)
